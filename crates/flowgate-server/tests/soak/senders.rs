//! Those who send, and do not give up: a message that may not have been taken is sent again, to whoever is there, as the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Method, StatusCode};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    caller::{Ask, Caller, Reply, pause},
    lanes::{Chance, LANES, Lane, delay, has_callback, is_cancelled},
    witness::Witness,
};

/// So many send to keys; one more sends to the queue, which is in order only if one after the other is taken.
const SENDERS: u64 = 4;
/// No more than these of a lane are under way.
const MOST: usize = 80;

pub(crate) struct Senders {
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    caller: Caller,
    witness: Witness,
    next: AtomicUsize,
    sent: [AtomicUsize; LANES.len()],
    is_over: AtomicBool,
}

impl Senders {
    pub(crate) fn start(caller: &Caller, witness: &Witness) -> Self {
        let shared = Arc::new(Shared {
            caller: caller.clone(),
            witness: witness.clone(),
            next: AtomicUsize::new(0),
            sent: Default::default(),
            is_over: AtomicBool::new(false),
        });
        let (keys, queue) = LANES.split_at(LANES.len() - 1);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&shared).send(queue, Chance::new(0)));
        for sender in 0..SENDERS {
            tasks.spawn(Arc::clone(&shared).send(keys, Chance::new(1 + sender)));
        }
        Senders { tasks, shared }
    }

    /// No more are sent: how many were, and all of them were taken.
    pub(crate) async fn stop(mut self) -> usize {
        self.shared.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.shared.next.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// How many were sent in a lane.
    fn sent(&self, lane: &Lane) -> &AtomicUsize {
        &self.sent[LANES.iter().position(|other| other.name == lane.name).unwrap()]
    }

    async fn send(self: Arc<Self>, lanes: &'static [Lane], mut chance: Chance) {
        while !self.is_over.load(Ordering::Relaxed) {
            let lane = &lanes[chance.of(lanes.len() as u64) as usize];
            let sent = self.sent(lane);
            if sent.load(Ordering::Relaxed) >= self.witness.answered_of(lane) + MOST {
                pause().await;
                continue;
            }
            sent.fetch_add(1, Ordering::Relaxed);
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let due = Instant::now() + delay(lane, number);
            self.witness.expects(number, due);
            let Reply { status, body, .. } =
                self.caller.insist(&self.message(lane, number), &mut chance).await;
            assert!(status.is_success(), "{number} to {}: {status}", lane.name);
            if is_cancelled(lane, number) {
                let told: Value = serde_json::from_slice(&body).unwrap();
                self.cancel(lane, number, told["messageId"].as_str().unwrap(), &mut chance).await;
            }
        }
    }

    /// Who was told so before it was due sees nothing of it.
    async fn cancel(&self, lane: &'static Lane, number: usize, id: &str, chance: &mut Chance) {
        let path = format!("/v2/messages/{id}");
        let ask = Ask { method: Method::DELETE, path, headers: Vec::new(), body: String::new() };
        let reply = self.caller.insist(&ask, chance).await;
        match reply.status {
            status if status.is_success() => self.witness.cancelled(lane, number),
            // Somebody may have done it, and not have said so.
            StatusCode::NOT_FOUND if reply.tries > 1 => self.witness.may_be_cancelled(lane, number),
            // It was delivered before.
            StatusCode::NOT_FOUND => {}
            status => panic!("{number} of {} cannot be cancelled: {status}", lane.name),
        }
    }

    fn message(&self, lane: &Lane, number: usize) -> Ask {
        let way = if lane.is_in_order { format!("enqueue/{}", lane.name) } else { "publish".to_owned() };
        let mut headers =
            vec![("upstash-retries", "5".to_owned()), ("upstash-deduplication-id", format!("soak-{number}"))];
        if !lane.is_in_order {
            headers.push(("upstash-flow-control-key", lane.name.to_owned()));
            headers.push(("upstash-flow-control-value", lane.limits()));
            let delay = delay(lane, number);
            if delay > Duration::ZERO {
                headers.push(("upstash-delay", format!("{}s", delay.as_secs())));
            }
            if has_callback(lane, number) {
                headers.push(("upstash-callback", self.witness.callback(lane, number)));
            }
        }
        let path = format!("/v2/{way}/{}", self.witness.url(lane, number));
        Ask { method: Method::POST, path, headers, body: number.to_string() }
    }
}
