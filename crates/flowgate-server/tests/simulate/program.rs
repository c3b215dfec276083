//! The program, and a folder for what it writes.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

/// A folder of a test's own, gone with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowgate-simulate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `flowgate simulate`, with options as they would be typed.
pub(crate) fn simulate(options: &str) -> Output {
    let options = options.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_flowgate")).arg("simulate").args(options).output().unwrap()
}

/// The same, which must succeed, and its JSON.
pub(crate) fn answer(options: &str) -> Value {
    let ran = simulate(&format!("{options} --json"));
    assert!(ran.status.success(), "{options}: {}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}
