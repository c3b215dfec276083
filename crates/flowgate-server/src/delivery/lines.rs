//! Connections to plain endpoints: which of them are idle, kept for the next request to the same place, and
//! how many more are opened.
//!
//! Owns how many there are and how long they stay. Their age is counted in rounds of one sweeper, which lives
//! while there are any: so nobody reads the time or arms a timer for a delivery.
//!
//! Where this process has more to do than it can, one more connection speeds nothing up: it only makes every
//! other one slower. Then a delivery waits for one that comes back, up to a bound, and none is opened for it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use foldhash::HashMap;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::pulse::Pulse;
use crate::wire::{self, Whole};

/// A connection to an endpoint, or to the proxy that is asked for it.
pub(super) type Line = wire::Line<Whole>;

/// For each place: as many as a server has deliveries, unless told otherwise. One that is thrown away is made anew by the next burst,
/// which costs both sides more than the delivery.
const MOST_FOR_ONE: usize = 1000;
/// For all places together.
const MOST: usize = 2048;
/// So many are opened to a place whatever else this process has to do.
const FREELY: usize = 64;
/// So long one that comes back is waited for at most.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a round is, and after how many of them an idle one is closed: within a minute.
const ROUND: Duration = Duration::from_secs(10);
const ROUNDS: u64 = 6;

/// The idle connections. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines(Arc<Mutex<Idle>>);

#[derive(Debug, Default)]
struct Idle {
    /// By what was connected to.
    places: HashMap<Box<str>, Place>,
    /// Of all places.
    count: usize,
    round: u64,
    is_swept: bool,
    pulse: Pulse,
}

/// The connections to one place.
#[derive(Debug, Default)]
struct Place {
    /// The one used last is the last.
    idle: Vec<Rested>,
    /// How many are being used, or opened.
    out: usize,
    /// Deliveries that wait for one, the first of them first.
    waiting: VecDeque<oneshot::Sender<Line>>,
}

impl Place {
    /// Whether there is nothing to know about it.
    fn is_empty(&self) -> bool {
        self.out == 0 && self.idle.is_empty() && self.waiting.is_empty()
    }
}

#[derive(Debug)]
struct Rested {
    line: Line,
    /// The round in which it was given back.
    round: u64,
}

/// A connection for a delivery.
#[derive(Debug)]
enum Found {
    /// The idle one that was used last.
    Idle(Line),
    /// None is idle: it may open one.
    None,
    /// It waits for one that comes back.
    Waits(oneshot::Receiver<Line>),
}

/// The right to use a connection to a place, or to open one.
#[derive(Debug)]
pub(super) struct Leave<'a> {
    lines: &'a Lines,
    place: &'a str,
    is_over: bool,
}

impl Leave<'_> {
    /// Keeps a connection for the next request, if it can be used again and there is room.
    pub(super) fn give_back(mut self, line: Line) {
        self.is_over = true;
        self.lines.end(self.place, Some(line).filter(Line::is_free));
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.lines.end(self.place, None);
        }
    }
}

/// One who waits. What it was handed and did not take goes to the next.
struct Waiting<'a> {
    lines: &'a Lines,
    place: &'a str,
    handed: oneshot::Receiver<Line>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.handed.close();
        if let Ok(line) = self.handed.try_recv() {
            self.lines.end(self.place, Some(line));
        }
    }
}

impl Lines {
    /// Leave to use a connection to this place, with one that was used before if there is one; else it is to be
    /// opened.
    ///
    /// Cancel safety: dropped, one that waits waits no more.
    pub(super) async fn take<'a>(&'a self, place: &'a str) -> (Leave<'a>, Option<Line>) {
        let leave = || Leave { lines: self, place, is_over: false };
        let handed = match self.find(place, Pulse::is_busy) {
            Found::Idle(line) => return (leave(), Some(line)),
            Found::None => return (leave(), None),
            Found::Waits(handed) => handed,
        };
        let mut waiting = Waiting { lines: self, place, handed };
        match timeout(PATIENCE, &mut waiting.handed).await {
            Ok(Ok(line)) => (leave(), Some(line)),
            // One that is handed over just now goes to the next.
            _ => {
                drop(waiting);
                self.idle().place(place).out += 1;
                (leave(), None)
            }
        }
    }

    fn find(&self, place: &str, is_busy: impl FnOnce(&mut Pulse) -> bool) -> Found {
        let idle = &mut *self.idle();
        let at = idle.place(place);
        if let Some(rested) = at.idle.pop() {
            at.out += 1;
            idle.count -= 1;
            return Found::Idle(rested.line);
        }
        if at.out < FREELY || !is_busy(&mut idle.pulse) {
            idle.place(place).out += 1;
            return Found::None;
        }
        let (hand, handed) = oneshot::channel();
        idle.place(place).waiting.push_back(hand);
        Found::Waits(handed)
    }

    /// A connection is not used any more, and is kept for the next if it can be.
    fn end(&self, place: &str, mut line: Option<Line>) {
        let idle = &mut *self.idle();
        let (round, count) = (idle.round, idle.count);
        let at = idle.place(place);
        while let Some(kept) = line.take() {
            // Who does not wait any more hands it back.
            let Some(next) = at.waiting.pop_front() else {
                line = Some(kept);
                break;
            };
            match next.send(kept) {
                Ok(()) => return,
                Err(kept) => line = Some(kept),
            }
        }
        at.out -= 1;
        match line {
            Some(line) if count < MOST && at.idle.len() < MOST_FOR_ONE => {
                at.idle.push(Rested { line, round });
            }
            _ => {
                // The next of those who still wait opens one in its place.
                while at.waiting.pop_front().is_some_and(|next| next.is_closed()) {}
                if at.is_empty() {
                    idle.places.remove(place);
                }
                return;
            }
        }
        idle.count += 1;
        if !std::mem::replace(&mut idle.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        lock(&self.0)
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes what has been idle for too long, and what the other side has closed, until nothing is left or nobody would take it.
async fn sweep(idle: Weak<Mutex<Idle>>) {
    loop {
        sleep(ROUND).await;
        let Some(idle) = idle.upgrade() else { return };
        if !lock(&idle).sweep() {
            return;
        }
    }
}

impl Idle {
    fn place(&mut self, place: &str) -> &mut Place {
        // Found as a rule: a name is copied for a new one alone.
        if !self.places.contains_key(place) {
            self.places.insert(place.into(), Place::default());
        }
        self.places.get_mut(place).expect("it is there")
    }

    /// Begins the next round; whether anything is left.
    fn sweep(&mut self) -> bool {
        self.round += 1;
        let round = self.round;
        self.places.retain(|_, at| {
            at.idle.retain(|rested| rested.round + ROUNDS > round && !rested.line.is_dead());
            !at.is_empty()
        });
        self.count = self.places.values().map(|at| at.idle.len()).sum();
        self.is_swept = self.count > 0;
        self.is_swept
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const PLACE: &str = "example.test:80";

    async fn line(listener: &TcpListener) -> Line {
        Line::new(TcpStream::connect(listener.local_addr().expect("a port")).await.expect("a connection"))
    }

    /// As many in use as are opened freely.
    async fn in_use(lines: &Lines) -> (TcpListener, Vec<(Leave<'_>, Line)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut used = Vec::new();
        for _ in 0..FREELY {
            assert!(matches!(lines.find(PLACE, |_| true), Found::None));
            used.push((Leave { lines, place: PLACE, is_over: false }, line(&listener).await));
        }
        (listener, used)
    }

    fn waits(lines: &Lines) -> oneshot::Receiver<Line> {
        match lines.find(PLACE, |_| true) {
            Found::Waits(handed) => handed,
            found => panic!("{found:?}"),
        }
    }

    #[tokio::test]
    async fn s3_a_busy_process_opens_no_more_connections_than_it_may_freely() {
        // Seen to fail: without the bound, nobody waits; with a line kept idle while somebody waits, the first is not handed one.
        let lines = Lines::default();
        let (_listener, mut used) = in_use(&lines).await;
        let (mut first, mut second) = (waits(&lines), waits(&lines));
        assert!(
            matches!(lines.find(PLACE, |_| false), Found::None),
            "one that is not busy opens as many as it likes"
        );
        let (leave, line) = used.pop().expect("one");
        leave.give_back(line);
        assert!(first.try_recv().is_ok(), "the first has it");
        assert!(second.try_recv().is_err());
        assert_eq!(lines.idle().place(PLACE).out, FREELY + 1);
        drop(used.pop());
        let told = second.now_or_never().expect("it is told");
        assert!(told.is_err(), "one is closed: the next opens another");
        assert_eq!(lines.idle().place(PLACE).out, FREELY);
    }

    #[tokio::test]
    async fn s3_one_who_waits_no_more_hands_on_what_it_was_handed() {
        // Seen to fail: without what is done when one who waits is dropped, a connection was lost and counted for ever.
        let lines = Lines::default();
        let (_listener, mut used) = in_use(&lines).await;
        drop(waits(&lines));
        let gone = Waiting { lines: &lines, place: PLACE, handed: waits(&lines) };
        let (leave, line) = used.pop().expect("one");
        leave.give_back(line);
        drop(gone);
        let idle = lines.idle();
        assert_eq!((idle.count, idle.places[PLACE].idle.len(), idle.places[PLACE].out), (1, 1, FREELY - 1));
        drop(idle);
        drop(used);
        assert_eq!(lines.idle().places[PLACE].out, 0);
    }

    #[tokio::test]
    async fn s3_nothing_is_known_of_a_place_that_nobody_uses() {
        // Seen to fail: with places kept until a sweep, which there is none for.
        let lines = Lines::default();
        drop(lines.take(PLACE).await);
        assert!(lines.idle().places.is_empty());
    }
}
