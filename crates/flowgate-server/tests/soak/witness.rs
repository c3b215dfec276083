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
    /// How often each message came, and whether it was answered well.
    messages: Vec<(u32, bool)>,
    answered: usize,
    /// Who wants to be called back for what was answered well, and was not yet.
    uncalled: HashSet<usize>,
    called: HashSet<usize>,
    breaches: Vec<String>,
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
                |number: &usize| !seen.messages.get(*number).is_some_and(|(_, is_well)| *is_well);
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
        let came: u32 = seen.messages.iter().map(|(came, _)| came).sum();
        let called = seen.called.len();
        let mut told =
            format!("{} messages, delivered {came} times, {called} with a callback; of", seen.answered);
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
        if messages.len() <= number {
            messages.resize(number + 1, (0, false));
        }
        messages[number].0 += 1;
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
        traffic.last = traffic.last.max(number);
        messages[number].0
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
    if !std::mem::replace(&mut seen.messages[number].1, true) {
        seen.answered += 1;
        seen.lanes.entry(lane.name).or_default().answered += 1;
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
