//! Load by `wrk`: so many connections, each asking again as soon as it is answered.
//!
//! Owns its command line and the script by which it tells what it saw.

use std::{path::PathBuf, process::Stdio, time::Duration};

use super::{
    process::{Process, tied_to_us},
    proxies::{KEY, KEY_HEADER},
};

/// How many connections ask at once.
pub(super) const CONNECTIONS: u32 = 64;

pub(super) struct Wrk {
    program: PathBuf,
    script: String,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shot {
    pub(super) requests: f64,
    pub(super) time: Duration,
    /// Answers of 400 and above.
    pub(super) refused: f64,
    /// Connections and answers that failed.
    pub(super) broken: f64,
    pub(super) p99: Duration,
}

impl Wrk {
    /// Told in plain numbers: times in microseconds.
    pub(super) const SCRIPT: &str = r#"
done = function(summary, latency, requests)
  local errors = summary.errors
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format("told %d %d %d %d %d\n", summary.requests, summary.duration, errors.status, broken, latency:percentile(99)))
end
"#;

    pub(super) fn new(program: PathBuf, script: String) -> Self {
        Wrk { program, script }
    }

    /// Asks for this path, for so many seconds.
    pub(super) fn shoot(
        &self,
        at: &Process,
        path: &str,
        connections: u32,
        seconds: u32,
    ) -> Result<Shot, String> {
        let mut command = tied_to_us(&self.program);
        command.args(["--threads", "1", "--connections", &connections.to_string()]);
        command.args(["--duration", &format!("{seconds}s"), "--timeout", "10s", "--script", &self.script]);
        command.args(["--header", &format!("{KEY_HEADER}: {KEY}")]).arg(at.url(path));
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("wrk could not be run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Shot::read(&text).ok_or_else(|| {
            format!("wrk said nothing of use: {text}{}", String::from_utf8_lossy(&output.stderr))
        })
    }

    /// The same, and how much processor time the process used for each request, in microseconds.
    pub(super) fn weigh(&self, process: &Process, path: &str, seconds: u32) -> Result<(Shot, f64), String> {
        let before = process.processor_time()?;
        let shot = self.shoot(process, path, CONNECTIONS, seconds)?;
        let used = process.processor_time()?.saturating_sub(before);
        Ok((shot, used.as_secs_f64() * 1e6 / shot.requests))
    }
}

impl Shot {
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("told "))?;
        let numbers: Vec<u32> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let [requests, micros, refused, broken, p99] = *numbers.as_slice() else { return None };
        let time = Duration::from_micros(u64::from(micros));
        (requests > 0).then(|| Shot {
            requests: f64::from(requests),
            time,
            refused: f64::from(refused),
            broken: f64::from(broken),
            p99: Duration::from_micros(u64::from(p99)),
        })
    }

    pub(super) fn per_second(&self) -> f64 {
        self.requests / self.time.as_secs_f64()
    }

    /// An error unless all were answered, and well.
    pub(super) fn all_well(self) -> Result<Self, String> {
        match self.refused + self.broken {
            0.0 => Ok(self),
            _ => Err(format!(
                "{} of {} requests were refused, {} failed",
                self.refused, self.requests, self.broken
            )),
        }
    }

    /// An error unless all were refused.
    pub(super) fn all_refused(self) -> Result<Self, String> {
        // Those under way when time is up are not counted.
        if self.broken == 0.0 && self.refused >= self.requests {
            return Ok(self);
        }
        Err(format!(
            "only {} of {} requests were refused, {} failed",
            self.refused, self.requests, self.broken
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Shot;

    #[test]
    fn what_the_script_says_is_read() {
        let shot = Shot::read("Running 1s test\ntold 1000 2000000 10 0 1500\n").unwrap();
        assert_eq!((shot.per_second(), shot.p99), (500.0, Duration::from_micros(1_500)));
        assert!(shot.all_well().is_err() && shot.all_refused().is_err());
        assert!(Shot { refused: 0.0, ..shot }.all_well().is_ok());
        assert!(Shot { refused: 1_000.0, ..shot }.all_refused().is_ok());
        assert_eq!(Shot::read("told 0 1 0 0 0"), None);
        assert_eq!(Shot::read("unable to connect"), None);
    }
}
