//! What processes used, as the kernel counts it.
//!
//! Owns the reading of `/proc`: processor time and resident memory of a process with all below it, and what the rest of
//! the machine did meanwhile.

use std::{fs, time::Duration};

use crate::suite::Suite;

/// The process and all below it.
pub(super) fn family(process: u32) -> Vec<u32> {
    let mut family = vec![process];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        next += 1;
        // A child can be one of any thread.
        for thread in threads(parent) {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{thread}/children"));
            family.extend(
                children
                    .iter()
                    .flat_map(|text| text.split_whitespace())
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
    }
    family
}

fn threads(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The processor time, user and system, of a process and all below it: to the nanosecond, where `/proc/PID/stat` has
/// hundredths of a second. What threads used that have ended is not in it; those of servers do not.
pub(super) fn processor_time(process: u32) -> Result<Duration, String> {
    let mut nanoseconds = 0;
    for member in family(process) {
        for thread in threads(member) {
            // It may have ended since it was listed.
            let Ok(text) = fs::read_to_string(format!("/proc/{member}/task/{thread}/schedstat")) else {
                continue;
            };
            nanoseconds += first_number(&text).unwrap_or_default();
        }
    }
    match nanoseconds {
        0 => Err(format!("the kernel counts no processor time for the process {process}")),
        _ => Ok(Duration::from_nanos(nanoseconds)),
    }
}

/// The resident memory of a process and all below it, in bytes.
pub(super) fn resident(process: u32) -> Result<f64, String> {
    let mut kilobytes = 0;
    for member in family(process) {
        // It may have ended since it was listed.
        let Ok(text) = fs::read_to_string(format!("/proc/{member}/status")) else { continue };
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        kilobytes += line.and_then(first_number).unwrap_or_default();
    }
    match kilobytes {
        0 => Err(format!("the kernel counts no memory for the process {process}")),
        _ => Ok(kilobytes as f64 * 1_024.0),
    }
}

/// How many files this process may open, and how many it may allow itself.
pub(super) fn open_files() -> Result<(u64, u64), String> {
    let limits = fs::read_to_string("/proc/self/limits").map_err(|error| error.to_string())?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let mut numbers = line.unwrap_or_default().split_whitespace().map_while(|number| number.parse().ok());
    numbers
        .next()
        .zip(numbers.next())
        .ok_or_else(|| "/proc/self/limits tells no bound of open files".to_owned())
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// How willingly this process, and all it starts, lets others go first: 0 unless somebody changed it.
fn niceness() -> i32 {
    let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The 19th field of all; the first two end with the name, which may have anything in it.
    let nice = own.rsplit_once(')').and_then(|(_, behind)| behind.split_whitespace().nth(16)?.parse().ok());
    nice.unwrap_or_default()
}

/// What all of the machine did, and what of it was ours, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    idle: u64,
    stolen: u64,
    ours: u64,
}

impl Ticks {
    /// Until now. Children count once they have ended.
    pub(crate) fn now() -> Option<Self> {
        let machine = fs::read_to_string("/proc/stat").ok()?;
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        Self::read(&machine, &own)
    }

    fn read(machine: &str, own: &str) -> Option<Self> {
        let times: Vec<u64> =
            machine.lines().next()?.split_whitespace().skip(1).map_while(|text| text.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; what follows is counted in user already.
        let [_, _, _, idle, waiting, _, _, stolen] = *times.get(..8)? else { return None };
        // The name of the program may have anything in it, so fields are counted behind it: utime is the 14th of all.
        let behind = own.rsplit_once(')')?.1.split_whitespace();
        let ours = behind.skip(11).take(4).map_while(|text| text.parse::<u64>().ok()).sum();
        Some(Ticks { all: times[..8].iter().sum(), idle: idle + waiting, stolen, ours })
    }

    /// Notes which share of the machine others used from here until now.
    pub(crate) fn remark_on_others(self, suite: &mut Suite) {
        let Some(now) = Ticks::now() else { return };
        let (others, stolen) = now.shares_since(self);
        let percent = |share: f64| (share * 100.0).round();
        let nice = match niceness() {
            0 => String::new(),
            nice => format!("; all of this ran with a niceness of {nice}"),
        };
        suite.remark(format!(
            "other programs used {} % of the processors during the run, and the host of this machine kept back {} %{nice}",
            percent(others),
            percent(stolen)
        ));
    }

    /// Which share of the machine others used since then, and which share its host did not give.
    fn shares_since(self, then: Ticks) -> (f64, f64) {
        let all = self.all.saturating_sub(then.all).max(1) as f64;
        let stolen = self.stolen.saturating_sub(then.stolen) as f64;
        let idle = self.idle.saturating_sub(then.idle) as f64;
        let ours = self.ours.saturating_sub(then.ours) as f64;
        ((all - idle - stolen - ours).max(0.0) / all, stolen / all)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ticks, family, open_files, processor_time, resident};

    #[test]
    fn the_kernel_tells_of_this_process() {
        let me = std::process::id();
        assert!(family(me).contains(&me));
        assert!(processor_time(me).is_ok());
        assert!(resident(me).is_ok_and(|bytes| bytes > 100_000.0));
        assert!(open_files().is_ok_and(|(files, most)| files > 0 && files <= most));
        assert!(Ticks::now().is_some());
    }

    #[test]
    fn what_others_used_is_what_is_left() {
        let own = |time| format!("7 (a name) with) S 1 2 3 4 5 6 7 8 9 10 {time} 2 3 4 20 0");
        let then = Ticks::read("cpu  10 0 10 100 0 0 0 0 0 0\ncpu0", &own(1)).unwrap();
        let now = Ticks::read("cpu  40 0 30 140 0 0 0 10 0 0\ncpu0", &own(21)).unwrap();
        assert_eq!(now.shares_since(then), (0.3, 0.1));
    }
}
