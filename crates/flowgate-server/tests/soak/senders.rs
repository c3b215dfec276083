//! Those who send, and do not give up: a message that may not have been taken is sent again, to whoever is there, as the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    fire::Fleet,
    lanes::{Chance, LANES, Lane, has_callback},
    witness::Witness,
};

/// So many send to keys; one more sends to the queue, which is in order only if one after the other is taken.
const SENDERS: u64 = 4;
/// No more than these of a lane are under way.
const MOST: usize = 80;
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries, and where enough is under way.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Senders {
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    fleet: Arc<Fleet>,
    witness: Witness,
    next: AtomicUsize,
    sent: [AtomicUsize; LANES.len()],
    is_over: AtomicBool,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Senders {
    pub(crate) fn start(fleet: &Arc<Fleet>, witness: &Witness) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let shared = Arc::new(Shared {
            fleet: Arc::clone(fleet),
            witness: witness.clone(),
            next: AtomicUsize::new(0),
            sent: Default::default(),
            is_over: AtomicBool::new(false),
            client,
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
            while !self.is_taken(lane, number, &mut chance).await {
                pause().await;
            }
        }
    }

    /// Sends it, and hears whether it was taken.
    async fn is_taken(&self, lane: &Lane, number: usize, chance: &mut Chance) -> bool {
        let (address, token) = self.fleet.anyone(chance);
        let way = if lane.is_in_order { format!("enqueue/{}", lane.name) } else { "publish".to_owned() };
        let url = self.witness.url(lane, number);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{address}/v2/{way}/{url}"))
            .header("authorization", format!("Bearer {token}"))
            .header("upstash-retries", "5")
            .header("upstash-deduplication-id", format!("soak-{number}"));
        if !lane.is_in_order {
            request = request
                .header("upstash-flow-control-key", lane.name)
                .header("upstash-flow-control-value", lane.limits());
            if number % 50 == 7 {
                request = request.header("upstash-delay", "1s");
            }
            if has_callback(lane, number) {
                request = request.header("upstash-callback", self.witness.callback(lane, number));
            }
        }
        let request = request.body(Full::new(Bytes::from(number.to_string()))).unwrap();
        let answer = async {
            let response = self.client.request(request).await.ok()?;
            let status = response.status();
            // Until it is whole the server may have been killed: then it is asked again.
            response.into_body().collect().await.ok()?;
            assert!(!status.is_client_error(), "{number} to {}: {status}", lane.name);
            Some(status.is_success())
        };
        timeout(PATIENCE, answer).await.ok().flatten().unwrap_or(false)
    }
}

async fn pause() {
    let _ = timeout(PAUSE, std::future::pending::<()>()).await;
}
