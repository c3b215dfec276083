//! What layers on shared gates have in common.
//!
//! Owns the way of a request through such a layer. Its gate is asked when the response is first waited for,
//! and the request waits for the answer, which comes from a store. Each layer knows what it asks, and what a
//! refusal says.

use std::{future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use flowgate_core::{Key, Refusal};
use http::{Request, Response, request::Parts};
use tower_service::Service;

use super::{body::GatedBody, concurrency::Terms, figures::Figures, front::Front, future::ResponseFuture};
use crate::shared::Pass;

/// What a request that was let in goes on with.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    /// Held as these say; none for a start that is only counted.
    pub(crate) pass: Option<(Pass, Terms)>,
    /// For the response's head.
    pub(crate) figures: Option<Figures>,
}

/// What all services of one layer share.
pub(crate) trait Edge: Send + Sync + 'static {
    fn front(&self) -> &Front;

    /// Asks the gate.
    fn ask(&self, key: &Key) -> impl Future<Output = Result<Admitted, Refusal>> + Send;

    /// The answer to a request that was refused.
    fn refuse(&self, key: &Key, refusal: &Refusal, request: &Parts) -> Response<Bytes>;
}

/// The response of a service behind such a layer.
pub(crate) type Served<R, E> = Pin<Box<dyn Future<Output = Result<Response<GatedBody<R>>, E>> + Send>>;

/// Takes a request through.
pub(crate) fn serve<S, B, R, E: Edge>(
    inner: &mut S,
    edge: &Arc<E>,
    request: Request<B>,
) -> Served<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let key = match edge.front().key(&parts) {
        Ok(key) => key.filter(|_| edge.front().counts(&mut parts.extensions)),
        Err(response) => return Box::pin(ResponseFuture::<S, B>::refused(*response)),
    };
    // The one that was found ready is the one to call later; a clone takes its place.
    let next = inner.clone();
    let (mut ready, edge) = (std::mem::replace(inner, next), Arc::clone(edge));
    Box::pin(async move {
        let admitted = match key {
            None => Admitted::default(),
            Some(key) => match edge.ask(&key).await {
                Ok(admitted) => admitted,
                Err(refusal) => {
                    return ResponseFuture::<S, B>::refused(edge.refuse(&key, &refusal, &parts)).await;
                }
            },
        };
        ResponseFuture::shared(&mut ready, Request::from_parts(parts, body), admitted).await
    })
}
