//! A request that may change something is carried to its end, whether or not its client waits for it.
//!
//! Owns the one place where a hang-up and the work part ways: [`carry`] stands outside of the API's gate, so
//! that the pass lives as long as the work, and [`begin`] right inside of it. A client that hangs up while
//! still in line leaves the line and changes nothing. After that, only the end of the process can stop the
//! work between two writes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    extract::Request,
    http::{Method, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio::task::JoinHandle;

use super::{auth::HOOKS, reply::Problem};

/// Taken once: by the work when it begins, or by a client that leaves before.
#[derive(Clone, Default)]
struct Turn(Arc<AtomicBool>);

impl Turn {
    /// Whether it was still there.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// A request under way, and the client that waits for it.
struct Waiting {
    turn: Turn,
    work: JoinHandle<Response>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.turn.take() {
            self.work.abort();
        }
    }
}

/// Outside of the gate.
///
/// Cancel safety: dropped, a request that has begun goes on, and one that has not leaves the line.
pub(crate) async fn carry(mut request: Request, next: Next) -> Response {
    if !may_change(&request) {
        return next.run(request).await;
    }
    let turn = Turn::default();
    request.extensions_mut().insert(turn.clone());
    // Bounded by the gate and its line, which it holds a place of.
    let mut waiting = Waiting { turn, work: tokio::spawn(next.run(request)) };
    match (&mut waiting.work).await {
        Ok(response) => response,
        Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "this request could not be carried out")
            .into_response(),
    }
}

/// Inside of the gate: from here on it goes to its end.
pub(crate) async fn begin(request: Request, next: Next) -> Response {
    if request.extensions().get::<Turn>().is_some_and(|turn| !turn.take()) {
        // Nobody reads this: its client has gone, and its task is about to be ended.
        return Problem::new(StatusCode::REQUEST_TIMEOUT, "the client has gone").into_response();
    }
    next.run(request).await
}

/// Webhooks are called with any method.
fn may_change(request: &Request) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    !is_read || request.uri().path().contains(HOOKS)
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, middleware::from_fn, routing::post};
    use tokio::sync::mpsc;
    use tower_service::Service as _;

    use super::*;
    use crate::api::Gates;

    type Steps = (mpsc::UnboundedSender<&'static str>, mpsc::UnboundedReceiver<&'static str>);

    /// One request at once, which does two things and is told when to do the second.
    fn paths(steps: mpsc::UnboundedSender<&'static str>, go: Arc<tokio::sync::Semaphore>) -> Router {
        let work = async move || {
            let _ = steps.send("first");
            go.acquire().await.expect("it stays open").forget();
            let _ = steps.send("second");
        };
        let gate = Gates::new(1).expect("one at once is a limit").requests;
        Router::new().route("/", post(work)).layer(from_fn(begin)).layer(gate).layer(from_fn(carry))
    }

    fn ask(paths: &Router) -> impl Future<Output = StatusCode> + Send + 'static {
        let mut paths = paths.clone();
        let request =
            Request::builder().method(Method::POST).uri("/").body(Body::empty()).expect("a request");
        async move { paths.call(request).await.expect("it never fails").status() }
    }

    #[tokio::test]
    async fn s1_a_change_goes_to_its_end_without_its_client_and_holds_its_place_until_then() {
        // Seen to fail: without `carry`, the second step never came.
        let (sender, mut steps): Steps = mpsc::unbounded_channel();
        let go = Arc::new(tokio::sync::Semaphore::new(0));
        let paths = paths(sender, Arc::clone(&go));
        let gone = tokio::spawn(ask(&paths));
        assert_eq!(steps.recv().await, Some("first"));
        gone.abort();
        assert!(gone.await.expect_err("its client has gone").is_cancelled());
        let next = tokio::spawn(ask(&paths));
        go.add_permits(2);
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.extend(steps.recv().await);
        }
        assert_eq!(seen, ["second", "first", "second"]);
        assert_eq!(next.await.expect("it is answered"), StatusCode::OK);
    }

    #[tokio::test]
    async fn s4_whoever_hangs_up_in_line_leaves_it_and_changes_nothing() {
        // Seen to fail: with the drop of `Waiting` doing nothing, the second one did its work as well.
        let (sender, mut steps): Steps = mpsc::unbounded_channel();
        let go = Arc::new(tokio::sync::Semaphore::new(0));
        let paths = paths(sender, Arc::clone(&go));
        let first = tokio::spawn(ask(&paths));
        assert_eq!(steps.recv().await, Some("first"));
        let mut gone = Box::pin(ask(&paths));
        // Polled until it stands in line.
        for _ in 0..10 {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(gone.as_mut().poll(&mut context).is_pending());
            tokio::task::yield_now().await;
        }
        drop(gone);
        go.add_permits(3);
        assert_eq!(first.await.expect("it is answered"), StatusCode::OK);
        assert_eq!(ask(&paths).await, StatusCode::OK);
        drop(paths);
        let mut seen = Vec::new();
        while let Some(step) = steps.recv().await {
            seen.push(step);
        }
        assert_eq!(seen, ["second", "first", "second"]);
    }
}
