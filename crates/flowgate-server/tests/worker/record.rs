//! What handlers wrote down by their own clock: when each task began and ended.

use std::{collections::HashMap, fs, path::Path, time::Duration};

/// A child that sleeps for `body` milliseconds, and writes down when it began and when it ended.
pub(crate) const SCRIPT: &str = r#"
import json, os, sys, time
record = os.open("record.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
def write(what, task):
    os.write(record, f"{what} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)} {task['id']} {task['kind']} {os.getppid()}\n".encode())
for line in sys.stdin:
    task = json.loads(line)
    write("begin", task)
    time.sleep((task["body"] or 200) / 1000)
    write("end", task)
    print(json.dumps({"id": task["id"]}), flush=True)
"#;

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) is_begin: bool,
    pub(crate) nanos: u64,
    pub(crate) task: i64,
    pub(crate) kind: String,
    pub(crate) worker: u32,
}

/// Everything that was written down, in order of time.
pub(crate) fn read(folder: &Path) -> Vec<Event> {
    let text = fs::read_to_string(folder.join("record.txt")).unwrap_or_default();
    let event = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        Event {
            is_begin: words[0] == "begin",
            nanos: number(1),
            task: number(2).cast_signed(),
            kind: words[3].to_owned(),
            worker: u32::try_from(number(4)).expect("a process"),
        }
    };
    let mut events: Vec<Event> = text.lines().map(event).collect();
    // What ended in the same nanosecond made room.
    events.sort_by_key(|event| (event.nanos, event.is_begin));
    events
}

/// How many of these ran at once at most.
pub(crate) fn most_at_once(events: &[Event], is_of: impl Fn(&Event) -> bool) -> i64 {
    let mut running = 0;
    let counts = events.iter().filter(|event| is_of(event)).map(|event| {
        running += if event.is_begin { 1 } else { -1 };
        running
    });
    counts.max().unwrap_or(0)
}

/// How many ran on average from when `cap` was reached until the last one began: while work waited.
pub(crate) fn mean_while_work_waits(events: &[Event], cap: i64) -> f64 {
    let last = events.iter().rposition(|event| event.is_begin).expect("something began");
    let (mut running, mut sum, mut time, mut before) = (0_i64, 0.0, 0.0, None);
    for event in &events[..=last] {
        if let Some(before) = before {
            let span = (event.nanos - before) as f64;
            sum += span * running as f64;
            time += span;
        }
        running += if event.is_begin { 1 } else { -1 };
        if running >= cap || before.is_some() {
            before = Some(event.nanos);
        }
    }
    sum / time
}

/// How much longer a task took on average than it asked for: what this machine adds to every wake-up just now.
pub(crate) fn lateness(events: &[Event], asked: Duration) -> Duration {
    let mut begun = HashMap::new();
    let mut late = Vec::new();
    for event in events {
        if event.is_begin {
            begun.insert(event.task, event.nanos);
        } else if let Some(begin) = begun.remove(&event.task) {
            late.push(Duration::from_nanos(event.nanos - begin).saturating_sub(asked));
        }
    }
    late.iter().sum::<Duration>() / u32::try_from(late.len().max(1)).expect("not so many")
}
