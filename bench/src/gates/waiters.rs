//! A long line: all join, every second one gives up, the rest go in one by one and in order.
//!
//! Each line stands in a process of its own (`flowgate-bench line <whose> <waiters>`), so that the long one and the
//! short one find the same: no memory that was used before. In one process the allocator has that of the short one at
//! hand each time, and that of the long one goes back to the system, whose new pages then are most of the difference
//! between them; that is told beside.
//!
//! The futures are made before the clock starts, and polled by hand, so that no executor is measured. Time is told in
//! milliseconds for all of it.

use std::{
    env,
    pin::Pin,
    process::{Command, Stdio},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use flowgate::Gate;
use tokio::sync::Semaphore;

use super::door::Door;
use crate::{
    measure,
    report::{Goal, Question},
    suite::Suite,
};

/// The word that stands where a suite would.
pub(crate) const LINE: &str = "line";

/// A line in a process of its own: whose it is, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lined {
    is_ours: bool,
    count: usize,
}

const FEW: usize = 100_000;
const MANY: usize = 1_000_000;
const LINEAR: &str = "waiters: 1,000,000 in line, half cancelled, drained";
const WARM: &str = "waiters: the same in one process, line after line";
const BESIDE_FEW: &str = "waiters: 100,000 beside tokio";
const BESIDE_MANY: &str = "waiters: 1,000,000 beside tokio";
const PEER: &str = "tokio acquire_owned";

pub(crate) fn run(suite: &mut Suite) {
    if !suite.wants_any(&[LINEAR, WARM, BESIDE_FEW, BESIDE_MANY]) {
        return;
    }
    let rounds = suite.plan().at_most(5).rounds;
    let mut problem = None;
    let lines = [(true, MANY), (true, FEW), (false, MANY), (false, FEW)];
    let [many, few, peer_many, peer_few] = measure::in_turn(rounds, |side| {
        let (is_ours, count) = lines[side];
        Lined { is_ours, count }.elsewhere().unwrap_or_else(|error| {
            problem = Some(error);
            f64::NAN
        })
    });
    if let Some(problem) = problem {
        return eprintln!("error: the lines were not measured: {problem}");
    }
    let gate = Gate::builder().max(1).build().expect("the options are right");
    let [warm_many, warm_few] =
        measure::in_turn(rounds, |side| millis(line(&gate, if side == 0 { MANY } else { FEW })));
    let ours = "ours with 100,000";
    suite.add(Question::new(LINEAR, "ms").against(ours).goal(Goal::at_most(12.0)).beside(many, few));
    suite.add(Question::new(WARM, "ms").against(ours).beside(warm_many, warm_few));
    suite.add(Question::new(BESIDE_FEW, "ms").against(PEER).beside(few, peer_few));
    suite.add(Question::new(BESIDE_MANY, "ms").against(PEER).beside(many, peer_many));
}

impl Lined {
    /// Reads the words behind [`LINE`].
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let [whose, count] = *words else { return None };
        let is_ours = match whose {
            "ours" => true,
            "tokio" => false,
            _ => return None,
        };
        Some(Lined { is_ours, count: count.parse().ok()? })
    }

    fn words(self) -> [String; 3] {
        [LINE.to_owned(), if self.is_ours { "ours" } else { "tokio" }.to_owned(), self.count.to_string()]
    }

    /// Plays it here, and says how many milliseconds it took.
    pub(crate) fn play(self) {
        println!(
            "{}",
            millis(if self.is_ours {
                line(&Gate::builder().max(1).build().expect("the options are right"), self.count)
            } else {
                line(&Arc::new(Semaphore::new(1)), self.count)
            })
        );
    }

    /// Plays it in a process of its own.
    fn elsewhere(self) -> Result<f64, String> {
        let us = env::current_exe().map_err(|error| format!("this program does not find itself: {error}"))?;
        let output =
            Command::new(us).args(self.words()).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("this program cannot be run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().map_err(|_| format!("`{text}` is not a time"))
    }
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}

fn line(door: &impl Door, count: usize) -> Duration {
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = Box::pin(door.pass());
    let Poll::Ready(first) = first.as_mut().poll(&mut cx) else {
        panic!("nobody is in the way of the first")
    };
    let mut line: Vec<Option<Pin<Box<_>>>> = (0..count).map(|_| Some(Box::pin(door.pass()))).collect();

    let start = Instant::now();
    for waiter in line.iter_mut().flatten() {
        assert!(waiter.as_mut().poll(&mut cx).is_pending(), "all but one wait");
    }
    for place in line.iter_mut().step_by(2) {
        *place = None;
    }
    drop(first);
    for place in &mut line {
        if let Some(mut waiter) = place.take() {
            assert!(waiter.as_mut().poll(&mut cx).is_ready(), "it is its turn");
        }
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::Lined;

    #[test]
    fn a_line_is_read_as_it_is_written() {
        for lined in [Lined { is_ours: true, count: 7 }, Lined { is_ours: false, count: 100 }] {
            let words = lined.words();
            assert_eq!(Lined::parse(&[&words[1], &words[2]]), Some(lined));
        }
        assert_eq!(Lined::parse(&["theirs", "7"]), None);
    }
}
