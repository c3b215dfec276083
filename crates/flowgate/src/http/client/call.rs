//! The course of one request: rest, line, attempt, verdict, backoff, and again.
//!
//! Owns the order of things. A slot is held for an attempt and the body of its response, never during a
//! backoff or a rest. A refused response is kept until the next attempt is on its way, so that it can be
//! handed on if there is none.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use flowgate_core::Tick;
use http::{Request, Response};
use tokio::time;
use tower_service::Service;

use super::{
    body::{Body, Held},
    clock,
    destination::Destination,
    error::{BoxError, Error},
    future::Outcome,
    headers,
    layer::{Retry, Shared},
    replay::{self, Replay},
    verdict::{self, Head, Limit, Refused},
};

/// Sends a request, as often as it takes and is allowed.
pub(super) async fn run<S, B, R>(shared: Arc<Shared>, mut service: S, request: Request<B>) -> Outcome<R>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    B: Replay,
    R: http_body::Body + Unpin,
{
    let (request, key) = replay::look_at(request, &shared.key);
    let Some(key) = key else {
        poll_fn(|cx| service.poll_ready(cx)).await.map_err(failed)?;
        return Ok(service.call(request).await.map_err(failed)?.map(Body::new));
    };
    let place = shared.places.enter(&key).map_err(Error::Refused)?;
    let mut call = Call { started: shared.clock.now(), shared: &shared, place, retries: 0 };

    let (mut next, mut refused) = (request, None);
    loop {
        let held = match call.turn(poll_fn(|cx| service.poll_ready(cx))).await {
            Ok(held) => held,
            // There is an answer already, and no better one will come.
            Err(error) => return refused.ok_or(error),
        };
        drop(refused);
        let spare = call.may_retry().then(|| replay::again(&next)).flatten();
        let answer = service.call(next).await;
        let (mut response, why) = call.judge(answer.map_err(failed), held).await?;
        let delay = why.filter(|_| spare.is_some()).and_then(|why| call.plan(&response, &why));
        let (Some(again), Some(delay)) = (spare, delay) else { return Ok(response) };
        call.back_off(response.body_mut(), delay).await;
        (next, refused) = (again, Some(response));
    }
}

fn failed(error: impl Into<BoxError>) -> Error {
    Error::Service(error.into())
}

/// One request, over all its attempts.
struct Call<'a> {
    shared: &'a Shared,
    place: Arc<Destination>,
    started: Tick,
    retries: u32,
}

impl Call<'_> {
    /// Waits until it may be sent: first for a rate that is spent, then in line, then until the service is ready.
    async fn turn<E: Into<BoxError>>(
        &self,
        is_ready: impl Future<Output = Result<(), E>>,
    ) -> Result<Held, Error> {
        let begun = self.shared.clock.now();
        let random = || (self.shared.random)();
        if self.place.drops(begun, random) {
            return Err(Error::Throttled { key: self.place.key.clone() });
        }
        // However often the reset moves on, no longer than this: then the server shall say it itself.
        let patience = begun.after(self.shared.max_wait);
        let rest = || self.place.rests_until().min(patience).since(self.shared.clock.now());
        let pass = loop {
            let span = rest();
            if self.left() < span {
                return Err(self.too_late());
            }
            if !span.is_zero() {
                time::sleep(span).await;
                continue;
            }
            let pass = self.in_time(self.place.gate.enter()).await?.map_err(Error::Refused)?;
            // While it stood in line, the rate may have been spent.
            if rest().is_zero() {
                break pass;
            }
        };
        self.in_time(is_ready).await?.map_err(failed)?;
        if self.retries == 0 {
            self.place.note_request(self.shared.clock.now());
        }
        Ok(Held { pass, _place: Arc::clone(&self.place) })
    }

    /// Reads what a response says, and gives the slot back if the request did not run.
    async fn judge<R: http_body::Body + Unpin>(
        &self,
        answer: Result<Response<R>, Error>,
        held: Held,
    ) -> Result<(Response<Body<R>>, Option<Refused>), Error> {
        let response = answer.inspect_err(|_| self.place.note_end(self.shared.clock.now(), true))?;
        let (head, body) = response.into_parts();
        let mut body = Body::new(body);
        let why = match verdict::of_head(&head) {
            Head::Unclear => None,
            Head::Refused(why) => Some(why),
            Head::AskBody => self.ask(&mut body).await,
        };
        let now = self.shared.clock.now();
        self.place.note_end(now, why.is_none());
        self.place.hear(&held.pass, &head.headers, why.as_ref(), now);
        if why.is_none() {
            body.hold(held);
        }
        Ok((Response::from_parts(head, body), why))
    }

    /// Asks a body whether it is that of a refusal. One that is too long or too slow is not asked further.
    async fn ask<R: http_body::Body + Unpin>(&self, body: &mut Body<R>) -> Option<Refused> {
        let most = self.shared.max_body;
        if most == 0 || body.is_longer_than(most) {
            return None;
        }
        let patience = self.shared.max_wait.min(self.left());
        time::timeout(patience, poll_fn(|cx| body.poll_ahead(cx, most))).await.ok()?;
        self.shared.codes.judge(&body.whole(most)?)
    }

    fn may_retry(&self) -> bool {
        self.retries < self.shared.max_retries
    }

    /// How long to wait before the next attempt; `None` if there is to be none.
    fn plan<R: http_body::Body>(&mut self, response: &Response<Body<R>>, why: &Refused) -> Option<Duration> {
        let now = self.shared.clock.now();
        let asked = headers::retry_after(response.headers(), clock::wall).unwrap_or_default();
        let reset = match why.limit {
            Limit::Rate => {
                let told = headers::spent_rate(response.headers()).unwrap_or_default();
                told.max(self.place.rests_until().since(now))
            }
            Limit::Concurrency => Duration::ZERO,
        };
        let at_least = asked.max(reset);
        let attempt = self.retries + 1;
        let delay = self.shared.backoff.delay(attempt, at_least, (self.shared.random)());
        let is_worth_it = why.is_retryable && at_least <= self.shared.max_wait && delay <= self.left();
        if !is_worth_it || !self.place.withdraw_retry(now) {
            return None;
        }
        self.retries = attempt;
        self.shared.tell(&Retry {
            key: &self.place.key,
            attempt,
            delay,
            reason: &why.reason,
            limit: why.limit,
        });
        Some(delay)
    }

    /// Waits. Meanwhile the rest of the refusal is read, so that its connection can be used again.
    async fn back_off<R: http_body::Body + Unpin>(&self, body: &mut Body<R>, delay: Duration) {
        let mut sleep = pin!(time::sleep(delay));
        poll_fn(|cx| {
            let _ = body.poll_ahead(cx, self.shared.max_body);
            sleep.as_mut().poll(cx)
        })
        .await;
    }

    /// How much time is left.
    fn left(&self) -> Duration {
        match self.shared.deadline {
            Some(deadline) => self.started.after(deadline).since(self.shared.clock.now()),
            None => Duration::MAX,
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        match self.shared.deadline {
            Some(_) => time::timeout(self.left(), work).await.map_err(|_| self.too_late()),
            None => Ok(work.await),
        }
    }

    fn too_late(&self) -> Error {
        let deadline = self.shared.deadline.unwrap_or_default();
        Error::Deadline { key: self.place.key.clone(), deadline }
    }
}
