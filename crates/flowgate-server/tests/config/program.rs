//! The real binary in a folder of its own, with nothing of this process's environment that it would listen to.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A folder that one test has for itself, empty at first.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("config").join(name);
        // It may be left from an earlier run.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the target folder can be written to");
        Folder(path)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::write(self.0.join(name), text).expect("the folder can be written to");
        self
    }

    pub(crate) fn flowgate(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("FLOWGATE_") {
                command.env_remove(name);
            }
        }
        command.args(arguments).envs(variables.iter().copied()).current_dir(&self.0).stdin(Stdio::null());
        Ran::of(&command.output().expect("the binary starts"))
    }
}

/// What a program did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it speaks UTF-8");
        Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What was wrong, one for each line.
    pub(crate) fn errors(&self) -> Vec<&str> {
        assert_eq!(self.code, Some(2), "{self:?}");
        self.stderr.lines().skip(1).map(str::trim_start).collect()
    }
}
