//! A request under way through a layer.
//!
//! Owns the order of things: in line first, then the inner service, then the response's head with its figures, and the pass
//! on to the body. Whatever is dropped, wherever it stands, the slot comes back after the work is gone.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use flowgate_core::{Key, Outcome};
use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower_service::Service;

#[cfg(feature = "shared")]
use super::fleet::Admitted;
use super::{
    body::{GatedBody, Slot},
    concurrency::{ReleaseAt, Shared, Terms},
    figures::Figures,
    upgrade::Bridge,
};
use crate::gate::{OwnedEnter, Pass, holder_name};

pin_project! {
    /// The future that a service behind a layer returns.
    ///
    /// Cancel safety: dropped while it waits, the request leaves the line; dropped later, the inner service's future is
    /// dropped and the slot given back then.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        stage: Stage<S, B>,
    }
}

pin_project! {
    #[project = StageProjected]
    enum Stage<S, B>
    where
        S: Service<Request<B>>,
    {
        Waiting { line: Option<Box<Waiting<S, B>>> },
        Running { #[pin] future: S::Future, held: Held },
        Refused { response: Option<Response<Bytes>> },
    }
}

/// One in line, with all it needs once it is let in.
struct Waiting<S, B> {
    enter: OwnedEnter,
    key: Key,
    inner: S,
    request: Request<B>,
    layer: Arc<Shared>,
}

/// What one under way holds besides its work.
#[derive(Default)]
struct Held {
    slot: Option<(Slot, Terms)>,
    /// What the pass is known by to those who ask inside: the inner service may do so when it is called, before the
    /// pass has come here.
    name: usize,
    bridge: Option<Bridge>,
    figures: Option<Figures>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    /// Not limited here, or no more than counted: the figures are told.
    pub(crate) fn free(inner: &mut S, request: Request<B>, figures: Option<Figures>) -> Self {
        let held = Held { figures, ..Held::default() };
        ResponseFuture { stage: Stage::Running { future: inner.call(request), held } }
    }

    /// Let in at once.
    pub(crate) fn admitted(inner: &mut S, request: Request<B>, terms: Terms, pass: Pass) -> Self {
        ResponseFuture { stage: Stage::run(inner, request, terms, pass) }
    }

    /// Let in by a gate that a fleet shares. It does not know who asks from inside.
    #[cfg(feature = "shared")]
    pub(crate) fn shared(inner: &mut S, mut request: Request<B>, admitted: Admitted) -> Self {
        let Admitted { pass, figures } = admitted;
        let Some((pass, terms)) = pass else { return Self::free(inner, request, figures) };
        let bridge = terms.bridge(&mut request);
        let slot = Some((Slot::Fleet(Box::new(pass)), terms));
        let held = Held { slot, bridge, figures, ..Held::default() };
        ResponseFuture { stage: Stage::Running { future: inner.call(request), held } }
    }

    /// In line.
    pub(crate) fn waiting(
        enter: OwnedEnter,
        key: Key,
        inner: S,
        request: Request<B>,
        layer: Arc<Shared>,
    ) -> Self {
        let line = Some(Box::new(Waiting { enter, key, inner, request, layer }));
        ResponseFuture { stage: Stage::Waiting { line } }
    }

    /// Turned away.
    pub(crate) fn refused(response: Response<Bytes>) -> Self {
        ResponseFuture { stage: Stage::Refused { response: Some(response) } }
    }
}

impl<S, B> Stage<S, B>
where
    S: Service<Request<B>>,
{
    fn run(inner: &mut S, mut request: Request<B>, terms: Terms, pass: Pass) -> Self {
        let bridge = terms.bridge(&mut request);
        let name = holder_name();
        let holding = pass.hold(name, terms.spot);
        let future = inner.call(request);
        drop(holding);
        let slot = Some((Slot::Own(pass), terms));
        Stage::Running { future, held: Held { slot, name, bridge, figures: None } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<GatedBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjected::Waiting { line } => {
                    let waiting = line.as_mut().expect("a future is not polled after it is done");
                    let answer = ready!(Pin::new(&mut waiting.enter).poll(cx));
                    let waiting = line.take().expect("it was there a moment ago");
                    let Waiting { key, mut inner, request, layer, .. } = *waiting;
                    match answer {
                        Ok(pass) => Stage::run(&mut inner, request, layer.terms, pass),
                        Err(refusal) => {
                            let (parts, _) = request.into_parts();
                            Stage::Refused { response: Some(layer.refuse(&key, &refusal, &parts)) }
                        }
                    }
                }
                StageProjected::Running { future, held } => {
                    let holding = match &held.slot {
                        Some((Slot::Own(pass), terms)) => Some(pass.hold(held.name, terms.spot)),
                        _ => None,
                    };
                    let answer = ready!(future.poll(cx));
                    drop(holding);
                    return Poll::Ready(held.end(answer));
                }
                StageProjected::Refused { response } => {
                    let response = response.take().expect("a future is not polled after it is done");
                    return Poll::Ready(Ok(response.map(GatedBody::refusal)));
                }
            };
            stage.set(next);
        }
    }
}

impl Held {
    /// The inner service has answered.
    fn end<R, E>(&mut self, answer: Result<Response<R>, E>) -> Result<Response<GatedBody<R>>, E> {
        let (slot, bridge, figures) = (self.slot.take(), self.bridge.take(), self.figures.take());
        let mut response = match answer {
            Ok(response) => response,
            Err(error) => {
                // It says nothing about load: one that fails at once is not fast.
                if let Some((slot, _)) = slot {
                    slot.settle(Outcome::Ignored);
                }
                return Err(error);
            }
        };
        if let Some(figures) = figures {
            figures.write(response.headers_mut());
        }
        let Some((slot, terms)) = slot else { return Ok(response.map(|body| GatedBody::new(body, None))) };
        if let Some(pass) = slot.own() {
            terms.tell_standing(pass, response.headers_mut());
        }
        let outcome = match response.status() {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Outcome::Overloaded,
            _ => Outcome::Done,
        };
        let kept = match (terms.release, bridge) {
            (ReleaseAt::Headers, _) => {
                slot.settle(outcome);
                None
            }
            (ReleaseAt::Body, Some(bridge)) if bridge.is_crossed(response.status()) => {
                bridge.hold(slot);
                None
            }
            (ReleaseAt::Body, _) => Some(slot),
        };
        Ok(response.map(|body| GatedBody::of(body, kept, outcome)))
    }
}
