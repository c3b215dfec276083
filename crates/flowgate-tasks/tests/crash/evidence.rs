//! What the handlers wrote down, and what follows from it.

use std::{collections::HashMap, path::Path};

use super::fleet::Plan;

/// A process that was killed, and when that was certain.
pub(super) struct Death {
    pub(super) process: u32,
    pub(super) at: u128,
}

/// One run of one task, as its handler saw it: to its end, or until its worker stopped it because its lease had run out. One that
/// was killed lasted at most until its process was gone.
#[derive(Clone, Copy, Debug)]
struct Run {
    task: i64,
    key: usize,
    from: u128,
    to: u128,
    is_whole: bool,
}

pub(super) struct Evidence {
    runs: Vec<Run>,
    plan: Plan,
}

impl Evidence {
    pub(super) fn read(folder: &Path, deaths: &[Death], plan: &Plan) -> Self {
        let mut runs = Vec::new();
        for death in deaths {
            let path = folder.join(format!("{}.log", death.process));
            // A process that was killed before it began wrote nothing.
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let mut open: HashMap<i64, Run> = HashMap::new();
            for line in log.lines() {
                let words: Vec<&str> = line.split(' ').collect();
                let [what, task, key, at] = words[..] else { panic!("a line of four words: {line}") };
                let (task, at) = (task.parse().expect("a task"), at.parse().expect("a moment"));
                let key = key.parse().expect("a key");
                match what {
                    "start" => {
                        open.insert(task, Run { task, key, from: at, to: death.at, is_whole: false });
                    }
                    _ => {
                        let run = open.remove(&task).expect("an end has a start");
                        runs.push(Run { to: at, is_whole: what == "end", ..run });
                    }
                }
            }
            runs.extend(open.into_values());
        }
        Evidence { runs, plan: plan.clone() }
    }

    pub(super) fn nothing_was_lost(&self) {
        let mut ended: Vec<i64> = self.runs.iter().filter(|run| run.is_whole).map(|run| run.task).collect();
        ended.sort_unstable();
        ended.dedup();
        assert_eq!(ended.len(), self.plan.tasks, "every task came to its end");
    }

    pub(super) fn nothing_ran_twice_at_once(&self) {
        let mut by_task: HashMap<i64, Vec<Run>> = HashMap::new();
        for run in &self.runs {
            by_task.entry(run.task).or_default().push(*run);
        }
        for (task, mut runs) in by_task {
            runs.sort_by_key(|run| run.from);
            let overlap = runs.windows(2).find(|pair| pair[1].from < pair[0].to);
            assert!(overlap.is_none(), "task {task} had two owners at once: {overlap:?}");
        }
    }

    pub(super) fn caps_held(&self) {
        for key in 0..self.plan.keys {
            let most = most_at_once(self.runs.iter().filter(|run| run.key == key));
            assert!(most <= self.plan.max_per_key, "{most} of key {key} ran at once");
        }
        let most = most_at_once(self.runs.iter());
        assert!(most <= self.plan.cap, "{most} ran at once in all");
    }
}

fn most_at_once<'a>(runs: impl Iterator<Item = &'a Run>) -> u32 {
    let mut changes: Vec<(u128, i32)> = runs.flat_map(|run| [(run.from, 1), (run.to, -1)]).collect();
    // Where one ends at the very moment another begins, the end comes first.
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    most as u32
}
