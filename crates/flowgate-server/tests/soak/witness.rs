//! The endpoint: it sees every delivery, and says whether what it saw was promised.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    future::pending,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
};
use tokio::{
    net::TcpListener,
    sync::Notify,
    time::{self, timeout},
};

use crate::{
    kit::DEADLINE,
    lanes::{LANES, Lane, has_callback},
};

/// One of so many fails when it first comes.
const FAILS: usize = 40;
/// A delivery takes up to so many milliseconds.
const LONGEST: usize = 40;
/// More breaches than these need not be told.
const ENOUGH: usize = 20;

#[derive(Default)]
struct Seen {
    lanes: HashMap<&'static str, Traffic>,
    messages: Vec<Message>,
    answered: usize,
    cancelled: usize,
    /// Who wants to be called back for what was answered well, and was not yet.
    uncalled: HashSet<usize>,
    called: HashSet<usize>,
    breaches: Vec<String>,
}

#[derive(Clone, Default)]
struct Message {
    /// How often it came.
    came: u32,
    /// It was answered well, or does not come any more.
    is_settled: bool,
    is_cancelled: bool,
    /// It may not come before.
    due: Option<Instant>,
}

/// What came in a lane.
#[derive(Default)]
struct Traffic {
    in_flight: usize,
    most: usize,
    starts: u64,
    answered: usize,
    last: usize,
    /// When the first came, and the last.
    first: Option<Instant>,
    last_at: Option<Instant>,
}

impl Seen {
    /// Nothing more need come of it: whether something had to until now.
    fn settle(&mut self, lane: &'static Lane, number: usize) -> bool {
        let is_first = !std::mem::replace(&mut self.messages[number].is_settled, true);
        if is_first {
            self.answered += 1;
            self.lanes.entry(lane.name).or_default().answered += 1;
        }
        is_first
    }
}

#[derive(Clone)]
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
    address: SocketAddr,
}

impl Witness {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let witness = Witness {
            seen: Arc::default(),
            changed: Arc::default(),
            address: listener.local_addr().unwrap(),
        };
        let app = Router::new()
            .route("/{lane}/{number}", axum::routing::post(receive))
            .route("/{lane}/{number}/done", axum::routing::post(hear))
            .with_state(witness.clone());
        tokio::spawn(axum::serve(listener, app).into_future());
        witness
    }

    /// Where a message goes.
    pub(crate) fn url(&self, lane: &Lane, number: usize) -> String {
        format!("http://{}/{}/{number}", self.address, lane.name)
    }

    /// Who is to be called when it was answered.
    pub(crate) fn callback(&self, lane: &Lane, number: usize) -> String {
        self.url(lane, number) + "/done"
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// How many messages were answered well.
    fn answered(&self) -> usize {
        self.seen().answered
    }

    /// The same of a lane.
    pub(crate) fn answered_of(&self, lane: &Lane) -> usize {
        self.seen().lanes.get(lane.name).map_or(0, |traffic| traffic.answered)
    }

    /// Waits until all of so many were; an error if they do not come.
    pub(crate) async fn has_all(&self, sent: usize) -> Result<(), String> {
        let wait = async {
            while self.answered() < sent || !self.seen().uncalled.is_empty() {
                // Whoever answers meanwhile is seen at the next look.
                let _ = timeout(Duration::from_millis(100), self.changed.notified()).await;
            }
        };
        timeout(DEADLINE, wait).await.map_err(|_| {
            let seen = self.seen();
            let is_missing =
                |number: &usize| !seen.messages.get(*number).is_some_and(|message| message.is_settled);
            let missing: Vec<usize> = (0..sent).filter(is_missing).take(ENOUGH).collect();
            let called = format!("and these were never told of: {:?}", seen.uncalled);
            format!("{} of {sent} never came: {missing:?}, …; {called}", sent - seen.answered)
        })
    }

    /// Whether all that came was promised.
    pub(crate) fn holds(&self) {
        let seen = self.seen();
        assert!(seen.breaches.is_empty(), "{:#?}", seen.breaches);
        for lane in &LANES {
            let Some((Traffic { starts, first: Some(first), last_at: Some(last), .. }, rate)) =
                seen.lanes.get(lane.name).zip(lane.rate)
            else {
                continue;
            };
            // A window may have begun before the first, and another one with the last.
            let length = last.duration_since(*first);
            assert!(*starts <= rate * (length.as_secs() + 2), "{}: {starts} in {length:?}", lane.name);
        }
    }

    /// How much was seen.
    pub(crate) fn told(&self) -> String {
        let seen = self.seen();
        let came: u32 = seen.messages.iter().map(|message| message.came).sum();
        let (called, cancelled) = (seen.called.len(), seen.cancelled);
        let mut told = format!(
            "{} messages, delivered {came} times, {called} with a callback, {cancelled} cancelled; of",
            seen.answered
        );
        for lane in &LANES {
            let (all, most) = seen.lanes.get(lane.name).map_or((0, 0), |seen| (seen.answered, seen.most));
            write!(told, " `{}` {all}, {most} at once;", lane.name).unwrap();
        }
        told.trim_end_matches(';').to_owned()
    }

    /// A delivery comes: how often this message has.
    fn arrive(&self, lane: &'static Lane, number: usize) -> u32 {
        let mut seen = self.seen();
        let Seen { lanes, messages, breaches, .. } = &mut *seen;
        let message = &mut messages[number];
        message.came += 1;
        let traffic = lanes.entry(lane.name).or_default();
        traffic.in_flight += 1;
        traffic.starts += 1;
        traffic.first.get_or_insert_with(Instant::now);
        traffic.last_at = Some(Instant::now());
        traffic.most = traffic.most.max(traffic.in_flight);
        let mut breach = |what: String| {
            if breaches.len() < ENOUGH {
                breaches.push(format!("{}: {what}", lane.name));
            }
        };
        if lane.parallelism.is_some_and(|parallelism| traffic.in_flight > parallelism) {
            breach(format!("{} in flight at once", traffic.in_flight));
        }
        if lane.is_in_order && number < traffic.last {
            breach(format!("{number} came after {}", traffic.last));
        }
        if message.is_cancelled {
            breach(format!("{number} came although it was cancelled"));
        }
        if let Some(early) = message.due.and_then(|due| due.checked_duration_since(Instant::now())) {
            breach(format!("{number} came {early:?} too early"));
        }
        traffic.last = traffic.last.max(number);
        message.came
    }

    /// A message is about to be sent, which may not come before.
    pub(crate) fn expects(&self, number: usize, due: Instant) {
        let mut seen = self.seen();
        if seen.messages.len() <= number {
            seen.messages.resize(number + 1, Message::default());
        }
        seen.messages[number].due = Some(due);
    }

    /// It was cancelled. If that was before it was due, it may not come any more.
    pub(crate) fn cancelled(&self, lane: &'static Lane, number: usize) {
        let mut seen = self.seen();
        seen.cancelled += 1;
        let message = &mut seen.messages[number];
        message.is_cancelled = message.due.is_some_and(|due| Instant::now() < due);
        if message.is_cancelled && message.came > 0 {
            seen.breaches.push(format!("{}: {number} had come, and could be cancelled", lane.name));
        }
        seen.settle(lane, number);
    }

    /// Somebody asked for it, and nobody said what came of it.
    pub(crate) fn may_be_cancelled(&self, lane: &'static Lane, number: usize) {
        self.seen().settle(lane, number);
    }
}

/// In flight until it is dropped: also when the server is killed.
struct InFlight<'a>(&'a Witness, &'static Lane);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(traffic) = self.0.seen().lanes.get_mut(self.1.name) {
            traffic.in_flight -= 1;
        }
    }
}

async fn receive(
    State(witness): State<Witness>,
    Path((lane, number)): Path<(String, usize)>,
) -> (StatusCode, [(&'static str, &'static str); 1]) {
    let lane = Lane::of(&lane);
    let came = witness.arrive(lane, number);
    let in_flight = InFlight(&witness, lane);
    let work = Duration::from_millis((number % LONGEST) as u64);
    let _ = time::timeout_at((Instant::now() + work).into(), pending::<()>()).await;
    drop(in_flight);
    if number % FAILS == 0 && came == 1 {
        return (StatusCode::INTERNAL_SERVER_ERROR, [("retry-after", "0")]);
    }
    let mut seen = witness.seen();
    if seen.settle(lane, number) {
        if has_callback(lane, number) && !seen.called.contains(&number) {
            seen.uncalled.insert(number);
        }
        witness.changed.notify_waiters();
    }
    (StatusCode::OK, [("x-endpoint", "well")])
}

/// Somebody is called back: also for an attempt that failed, or that a kill made again.
async fn hear(State(witness): State<Witness>, Path((_, number)): Path<(String, usize)>, body: String) {
    let told: serde_json::Value = serde_json::from_str(&body).unwrap();
    if told["status"] == 200 {
        let mut seen = witness.seen();
        seen.uncalled.remove(&number);
        seen.called.insert(number);
        witness.changed.notify_waiters();
    }
}
