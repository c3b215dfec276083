//! On which machine the figures were taken: a figure without it says nothing.

use std::{env, fmt, fs, process::Command, thread};

/// The machine and the compiler.
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    compiler: String,
    /// How many others wanted a core when the run began: with more than a few tenths, times mean little.
    load: String,
}

impl Machine {
    /// The one that runs this.
    pub(crate) fn here() -> Self {
        Machine {
            processor: processor().unwrap_or_else(|| "unknown processor".to_owned()),
            cores: thread::available_parallelism().map_or(1, usize::from),
            compiler: compiler().unwrap_or_else(|| "unknown rustc".to_owned()),
            load: load().unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, compiler, load } = self;
        let noun = if *cores == 1 { "core" } else { "cores" };
        write!(to, "{processor}, {cores} {noun}, {compiler}, load {load} at the start")
    }
}

fn processor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn compiler() -> Option<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

fn load() -> Option<String> {
    Some(fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.to_owned())
}
