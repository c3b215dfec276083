//! Workflows under fire: an endpoint that does what a client library does, and says whether each run came to its end as
//! it should.
//!
//! A run has a step, a sleep, three steps at once, an event it waits for, and a last step. Whatever was accepted stays:
//! the result of a step is the same in every delivery that has it.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{self, timeout},
};

use crate::{
    caller::{Ask, Caller, pause},
    kit::DEADLINE,
    lanes::Chance,
};

/// So many runs go on at once.
const RUNS: usize = 6;
/// So many deliveries of all of them.
const PARALLELISM: usize = 4;
const SLEEP: Duration = Duration::from_secs(1);
/// The steps of a run.
const FIRST: u64 = 1;
const ASLEEP: u64 = 2;
const AT_ONCE: [u64; 3] = [3, 4, 5];
const EVENT: u64 = 6;
const LAST: u64 = 7;
/// One of so many deliveries fails.
const FAILS: u64 = 30;

#[derive(Default)]
struct Seen {
    runs: Vec<Run>,
    in_flight: usize,
    most: usize,
    deliveries: u64,
    breaches: Vec<String>,
}

#[derive(Default)]
struct Run {
    /// What each step gave.
    results: HashMap<u64, String>,
    sleeps_since: Option<Instant>,
    is_over: bool,
}

pub(crate) struct Runs {
    seen: Mutex<Seen>,
    caller: Caller,
    address: SocketAddr,
    is_over: AtomicBool,
    chances: AtomicU64,
}

/// What a delivery says: the run as it was when this message was stored.
struct Told {
    number: usize,
    /// The branch that is to be run, if the message says no more than that.
    branch: Option<u64>,
    is_planned: bool,
    results: HashMap<u64, String>,
    newest: u64,
}

impl Told {
    fn read(number: usize, body: &str) -> Result<Self, String> {
        let steps: Vec<Value> = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
        let decoded = |step: &Value| {
            let text = step["body"].as_str().and_then(|body| STANDARD.decode(body).ok());
            text.and_then(|text| String::from_utf8(text).ok())
                .ok_or_else(|| format!("a step without a body: {step}"))
        };
        let payload = decoded(steps.first().ok_or("a run without a payload")?)?;
        if payload != number.to_string() {
            return Err(format!("the payload of another: {payload}"));
        }
        let mut told = Told { number, branch: None, is_planned: false, results: HashMap::new(), newest: 0 };
        for step in &steps[1..] {
            let step: Value =
                serde_json::from_str(&decoded(step)?).map_err(|error| format!("{error}: {step}"))?;
            (told.newest, told.branch) = (step["stepId"].as_u64().unwrap_or(0), step["targetStep"].as_u64());
            told.is_planned |= told.branch.is_some();
            if told.branch.is_none() {
                let result = step["out"].as_str().unwrap_or_default().to_owned();
                told.results.entry(told.newest).or_insert(result);
            }
        }
        Ok(told)
    }

    fn has(&self, step: u64) -> bool {
        self.results.contains_key(&step)
    }

    /// The steps it should have, if it has its newest one.
    fn lacks(&self) -> Option<u64> {
        let before = match self.newest {
            step if AT_ONCE.contains(&step) => FIRST..AT_ONCE[0],
            step => FIRST..step,
        };
        before.into_iter().find(|step| !self.has(*step))
    }
}

impl Runs {
    pub(crate) async fn start(caller: &Caller) -> (Arc<Self>, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let runs = Arc::new(Runs {
            seen: Mutex::default(),
            caller: caller.clone(),
            address: listener.local_addr().unwrap(),
            is_over: AtomicBool::new(false),
            chances: AtomicU64::new(100),
        });
        let app = Router::new().route("/{number}", post(receive)).with_state(Arc::clone(&runs));
        tokio::spawn(axum::serve(listener, app).into_future());
        let mut starters = JoinSet::new();
        for _ in 0..RUNS {
            starters.spawn(Arc::clone(&runs).keep_one());
        }
        (runs, starters)
    }

    /// No more are begun; waits until those under way are over.
    pub(crate) async fn stop(&self, mut starters: JoinSet<()>) -> Result<usize, Vec<String>> {
        self.is_over.store(true, Ordering::Relaxed);
        let all = async { while starters.join_next().await.transpose().unwrap().is_some() {} };
        let ended = timeout(DEADLINE, all).await;
        let seen = self.seen();
        if ended.is_err() {
            let going = seen.runs.iter().enumerate().filter(|(_, run)| !run.is_over);
            return Err(going.map(|(number, _)| id(number)).collect());
        }
        Ok(seen.runs.len())
    }

    pub(crate) fn holds(&self) {
        let seen = self.seen();
        assert!(seen.breaches.is_empty(), "{:#?}", seen.breaches);
    }

    pub(crate) fn told(&self) -> String {
        let seen = self.seen();
        let over = seen.runs.iter().filter(|run| run.is_over).count();
        format!("{over} runs in {} deliveries, {} at once", seen.deliveries, seen.most)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    fn chance(&self) -> Chance {
        Chance::new(self.chances.fetch_add(1, Ordering::Relaxed))
    }

    fn url(&self, number: usize) -> String {
        format!("http://{}/{number}", self.address)
    }

    fn is_over(&self, number: usize) -> bool {
        self.seen().runs[number].is_over
    }

    /// One run after the other.
    async fn keep_one(self: Arc<Self>) {
        while !self.is_over.load(Ordering::Relaxed) {
            let number = {
                let mut seen = self.seen();
                seen.runs.push(Run::default());
                seen.runs.len() - 1
            };
            let mut headers = self.headers(number, true);
            headers.push(("upstash-retries", "5".to_owned()));
            headers.push(("upstash-flow-control-key", "runs".to_owned()));
            headers.push(("upstash-flow-control-value", format!("parallelism={PARALLELISM}")));
            let path = format!("/v2/publish/{}", self.url(number));
            self.insist(number, &Ask { method: Method::POST, path, headers, body: number.to_string() }).await;
            while !self.is_over(number) {
                pause().await;
            }
        }
    }

    fn headers(&self, number: usize, is_first: bool) -> Vec<(&'static str, String)> {
        vec![
            ("upstash-workflow-init", is_first.to_string()),
            ("upstash-workflow-runid", id(number)),
            ("upstash-workflow-url", self.url(number)),
            ("upstash-feature-set", "InitialBody,WF_TriggerOnConfig".to_owned()),
        ]
    }

    /// Asks until it is done. A run that goes on is never unknown.
    async fn insist(&self, number: usize, ask: &Ask) {
        let status = self.caller.insist(ask, &mut self.chance()).await.status;
        if !status.is_success() && !self.is_over(number) {
            self.breach(number, &format!("{} {}: {status}", ask.method, ask.path));
        }
    }

    fn breach(&self, number: usize, what: &str) {
        let mut seen = self.seen();
        if seen.breaches.len() < 20 {
            seen.breaches.push(format!("run {number}: {what}"));
        }
    }

    /// Steps that are told to the server, in one request.
    async fn submit(&self, number: usize, steps: &[Value], delay: Option<Duration>) {
        let mut headers: serde_json::Map<String, Value> = self
            .headers(number, false)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        if let Some(delay) = delay {
            headers.insert("upstash-delay".to_owned(), format!("{}s", delay.as_secs()).into());
        }
        let entry = |step: &Value| json!({ "destination": self.url(number), "headers": headers, "body": step.to_string() });
        let body = Value::from(steps.iter().map(entry).collect::<Vec<_>>()).to_string();
        let ask = Ask { method: Method::POST, path: "/v2/batch".to_owned(), headers: Vec::new(), body };
        self.insist(number, &ask).await;
    }

    /// A result: another one each time that the step is run.
    fn result(&self, step: u64, concurrent: usize) -> Value {
        let out = self.chances.fetch_add(1, Ordering::Relaxed);
        json!({ "stepId": step, "stepName": "s", "stepType": "Run", "out": out.to_string(), "concurrent": concurrent })
    }

    /// What a delivery says must be what is known: nothing that was accepted is missing, or has become another.
    fn check(&self, told: &Told) {
        let mut seen = self.seen();
        let run = &mut seen.runs[told.number];
        let mut wrong = told.lacks().map(|step| format!("step {} came without step {step}", told.newest));
        for (step, result) in &told.results {
            let known = run.results.entry(*step).or_insert_with(|| result.clone());
            if known != result {
                wrong = Some(format!("step {step} gave {known}, and now {result}"));
            }
        }
        let slept = run.sleeps_since.map(|since| since.elapsed());
        if told.newest == ASLEEP && slept.is_none_or(|slept| slept < SLEEP) {
            wrong = Some(format!("it slept for {slept:?}"));
        }
        drop(seen);
        if let Some(wrong) = wrong {
            self.breach(told.number, &wrong);
        }
    }

    /// What a client library does next.
    async fn go_on(self: &Arc<Self>, told: &Told) {
        let number = told.number;
        if let Some(branch) = told.branch {
            self.submit(number, &[self.result(branch, AT_ONCE.len())], None).await;
        } else if !told.has(FIRST) {
            self.submit(number, &[self.result(FIRST, 1)], None).await;
        } else if !told.has(ASLEEP) {
            self.seen().runs[number].sleeps_since.get_or_insert_with(Instant::now);
            let step = json!({ "stepId": ASLEEP, "stepName": "s", "stepType": "SleepFor", "sleepFor": 1, "concurrent": 1 });
            self.submit(number, &[step], Some(SLEEP)).await;
        } else if !told.is_planned {
            let plan = |step: &u64| {
                json!({ "stepId": 0, "stepName": "s", "stepType": "Run", "targetStep": step,
                "concurrent": AT_ONCE.len() })
            };
            self.submit(number, &AT_ONCE.iter().map(plan).collect::<Vec<_>>(), None).await;
        } else if !AT_ONCE.iter().all(|step| told.has(*step)) {
            // Whoever is the last of them goes on.
        } else if !told.has(EVENT) {
            self.wait(number).await;
        } else if !told.has(LAST) {
            self.submit(number, &[self.result(LAST, 1)], None).await;
        } else {
            // Goes on when the server that delivered this is killed: there is no other delivery if the run was ended meanwhile.
            let runs = Arc::clone(self);
            tokio::spawn(async move { runs.end(number).await }).await.unwrap();
        }
    }

    async fn wait(self: &Arc<Self>, number: usize) {
        let step = json!({ "stepId": EVENT, "stepName": "s", "stepType": "Wait", "concurrent": 1 });
        let body = json!({ "url": self.url(number), "timeout": "1h", "step": step }).to_string();
        let headers = self.headers(number, false);
        self.insist(number, &Ask { method: Method::POST, path: "/v2/wait/soak".to_owned(), headers, body })
            .await;
        let runs = Arc::clone(self);
        tokio::spawn(async move {
            let path = format!("/v2/notify/{}/soak", id(number));
            runs.insist(
                number,
                &Ask { method: Method::POST, path, headers: Vec::new(), body: "now".to_owned() },
            )
            .await;
        });
    }

    async fn end(&self, number: usize) {
        let path = format!("/v2/workflows/runs/{}?cancel=false", id(number));
        let ask = Ask { method: Method::DELETE, path, headers: Vec::new(), body: "well".to_owned() };
        let reply = self.caller.insist(&ask, &mut self.chance()).await;
        // It may have been ended by a try that got no answer. Whether all are over the server itself is asked at the end.
        if reply.status.is_success() || reply.tries > 1 {
            self.seen().runs[number].is_over = true;
        }
    }
}

fn id(number: usize) -> String {
    format!("wfr_soak_{number}")
}

/// In flight until it is dropped: also when the server is killed.
struct InFlight<'a>(&'a Runs);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.seen().in_flight -= 1;
    }
}

async fn receive(
    State(runs): State<Arc<Runs>>,
    Path(number): Path<usize>,
    body: String,
) -> (StatusCode, [(&'static str, &'static str); 1]) {
    let (in_flight, deliveries) = {
        let mut seen = runs.seen();
        seen.in_flight += 1;
        seen.most = seen.most.max(seen.in_flight);
        seen.deliveries += 1;
        (seen.in_flight, seen.deliveries)
    };
    let _in_flight = InFlight(&runs);
    if in_flight > PARALLELISM {
        runs.breach(number, &format!("{in_flight} in flight at once"));
    }
    if deliveries % FAILS == 0 {
        return (StatusCode::INTERNAL_SERVER_ERROR, [("retry-after", "0")]);
    }
    let work = Duration::from_millis(number as u64 % 20);
    let _ = time::timeout_at((Instant::now() + work).into(), std::future::pending::<()>()).await;
    match Told::read(number, &body) {
        Ok(told) => {
            runs.check(&told);
            runs.go_on(&told).await;
        }
        Err(wrong) => runs.breach(number, &wrong),
    }
    (StatusCode::OK, [("upstash-workflow-sdk-version", "1")])
}
