//! The endpoint that receives deliveries, and remembers each of them.
//!
//! Paths say what it does: `/ok/…` answers at once, `/hold/…` when it is told to, `/status/500/…` with that status, `/fail/2/…`
//! fails so often and then works, `/later/2/…` as well, without a word about when to come again, `/large/9/…` with so many bytes,
//! `/final/…` fails for good, with a header that is no UTF-8, and `/halt/…` when it is told to.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore},
    time::timeout,
};

use crate::kit::DEADLINE;

/// A delivery, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

#[derive(Default)]
struct Records {
    calls: Vec<Call>,
    in_flight: HashMap<String, usize>,
    most: HashMap<String, usize>,
}

struct Shared {
    records: Mutex<Records>,
    changed: Notify,
    releases: Semaphore,
}

/// An endpoint on a free port.
#[derive(Clone)]
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
}

impl Endpoint {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared =
            Shared { records: Mutex::default(), changed: Notify::new(), releases: Semaphore::new(0) };
        let shared = Arc::new(shared);
        let endpoint = Endpoint { shared: Arc::clone(&shared), address: listener.local_addr().unwrap() };
        let app = Router::new().fallback(receive).layer(DefaultBodyLimit::disable()).with_state(shared);
        tokio::spawn(axum::serve(listener, app).into_future());
        endpoint
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.shared.records.lock().unwrap()
    }

    /// Lets so many of those that are held, or will be, answer.
    pub(crate) fn release(&self, count: usize) {
        self.shared.releases.add_permits(count);
    }

    /// All that came so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.records().calls.clone()
    }

    /// Waits until so many came, and gives them.
    pub(crate) async fn came(&self, count: usize) -> Vec<Call> {
        self.until(&format!("{count} deliveries"), |records| records.calls.len() >= count).await;
        self.calls()
    }

    /// Waits until something came to this path.
    pub(crate) async fn came_to(&self, path: &str) {
        self.until(path, |records| records.calls.iter().any(|call| call.path == path)).await;
    }

    /// Waits until so many are in flight under a name: what follows the second slash of the path.
    pub(crate) async fn holds(&self, name: &str, count: usize) {
        let what = format!("{count} of {name} in flight");
        self.until(&what, |records| records.in_flight.get(name).copied().unwrap_or(0) == count).await;
    }

    /// How many were in flight at once, at most.
    pub(crate) fn most(&self, name: &str) -> usize {
        self.records().most.get(name).copied().unwrap_or(0)
    }

    async fn until(&self, what: &str, holds: impl Fn(&Records) -> bool) {
        let wait = async {
            loop {
                let changed = self.shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if holds(&self.records()) {
                    return;
                }
                changed.await;
            }
        };
        let is_late = timeout(DEADLINE, wait).await.is_err();
        assert!(
            !is_late,
            "{what}: not in time; {} came, {:?} in flight",
            self.calls().len(),
            self.records().in_flight
        );
    }
}

/// In flight until it is dropped: also when the other side goes away.
struct InFlight {
    shared: Arc<Shared>,
    name: String,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(count) = self.shared.records.lock().unwrap().in_flight.get_mut(&self.name) {
            *count -= 1;
        }
        self.shared.changed.notify_waiters();
    }
}

async fn receive(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let name = parts.get(1).copied().unwrap_or_default().to_owned();
    let seen = {
        let mut records = shared.records.lock().unwrap();
        let seen = records.calls.iter().filter(|call| call.path == path).count();
        let call = Call { at: Instant::now(), path: path.clone(), method, headers, body };
        records.calls.push(call);
        let count = records.in_flight.entry(name.clone()).or_default();
        *count += 1;
        let count = *count;
        let most = records.most.entry(name.clone()).or_default();
        *most = (*most).max(count);
        seen
    };
    let _in_flight = InFlight { shared: Arc::clone(&shared), name };
    shared.changed.notify_waiters();
    if parts.first() == Some(&"halt") {
        shared.releases.acquire().await.unwrap().forget();
    }
    let number = |index: usize| parts.get(index).and_then(|part| part.parse().ok()).unwrap_or(0_u16);
    match parts.first().copied() {
        Some("hold") => {
            shared.releases.acquire().await.unwrap().forget();
            "done".into_response()
        }
        Some("status") => {
            let status = StatusCode::from_u16(number(1)).unwrap();
            (status, [("x-endpoint", "said so"), ("retry-after", "0")], "no").into_response()
        }
        Some("fail") if seen < usize::from(number(1)) => {
            (StatusCode::INTERNAL_SERVER_ERROR, [("retry-after", "0")], "not yet").into_response()
        }
        Some("later") if seen < usize::from(number(1)) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "not yet").into_response()
        }
        Some("large") => {
            "a".repeat(parts.get(1).and_then(|part| part.parse().ok()).unwrap_or(0)).into_response()
        }
        Some("final" | "halt") => {
            let odd = HeaderValue::from_bytes(b"caf\xe9 \xc5\x81").unwrap();
            let headers = [("upstash-nonretryable-error", HeaderValue::from_static("true")), ("x-odd", odd)];
            (StatusCode::from_u16(489).unwrap(), headers, "never").into_response()
        }
        _ => "done".into_response(),
    }
}
