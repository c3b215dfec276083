//! Takes spans, and sends them in batches beside the work.
//!
//! Owns the one queue between them. It is bounded, and whoever has a span never waits: what does not fit, and
//! what the collector does not take, is dropped and counted.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, header::CONTENT_TYPE};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use super::{context::Context, options::TraceOptions, otlp, span::Span};
use crate::{clock, delivery::Egress, metrics::Meter};

/// How many spans may be on their way.
const WAITING: usize = 4096;
const BATCH: usize = 512;
/// A batch is sent so long after its first span, if it is not full before.
const SOON: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes spans. Cheap to clone; when the last clone is gone, what is left is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracer {
    /// `None`: no traces are sent.
    way: Option<(Sender<Span>, Arc<Meter>)>,
}

impl Tracer {
    /// The tracer that these options ask for, and the task that sends what it takes.
    pub(crate) fn start(options: &TraceOptions, meter: &Arc<Meter>) -> (Self, JoinHandle<()>) {
        if options.collector.is_none() {
            return (Tracer::default(), tokio::spawn(async {}));
        }
        let (spans, waiting) = mpsc::channel(WAITING);
        let sending = tokio::spawn(send(options.clone(), Arc::clone(meter), waiting));
        (Tracer { way: Some((spans, Arc::clone(meter))) }, sending)
    }

    /// Whether anything comes of a span.
    pub(crate) fn is_on(&self) -> bool {
        self.way.is_some()
    }

    /// The context of a new message, and that of whoever sent it: a span of its own below the sender's, or the sender's itself
    /// where no traces are sent, which then passes through.
    pub(crate) fn enter(&self, traceparent: Option<&str>) -> (Option<Context>, Option<Context>) {
        let parent = traceparent.and_then(Context::read);
        if self.is_on() { (Some(Context::below(parent)), parent) } else { (parent, None) }
    }

    /// The span ends, and is sent soon, or dropped.
    pub(crate) fn end(&self, mut span: Span) {
        if let Some((spans, meter)) = &self.way
            && span.context.is_sampled()
        {
            span.ended = clock::nanos().max(span.began);
            if spans.try_send(span).is_err() {
                meter.spans(0, 1);
            }
        }
    }
}

async fn send(options: TraceOptions, meter: Arc<Meter>, mut waiting: Receiver<Span>) {
    // The collector is one's own: the proxy of deliveries is not asked for it.
    let egress = Egress::straight();
    while let Some(first) = waiting.recv().await {
        let batch = gather(first, &mut waiting).await;
        let count = batch.len() as u64;
        let is_taken = match request(&options, &batch) {
            Some(request) => {
                egress.send(request, PATIENCE).await.is_ok_and(|answer| answer.status.is_success())
            }
            None => false,
        };
        if is_taken { meter.spans(count, 0) } else { meter.spans(0, count) }
    }
}

/// As many as there are, until there are enough or it is time.
async fn gather(first: Span, waiting: &mut Receiver<Span>) -> Vec<Span> {
    let mut batch = vec![first];
    let until = Instant::now() + SOON;
    while batch.len() < BATCH {
        let room = BATCH - batch.len();
        tokio::select! {
            count = waiting.recv_many(&mut batch, room) => if count == 0 { break },
            () = sleep_until(until) => break,
        }
    }
    batch
}

fn request(options: &TraceOptions, spans: &[Span]) -> Option<Request<Bytes>> {
    let mut request = Request::post(options.collector.as_ref()?).header(CONTENT_TYPE, "application/json");
    if let Some((name, value)) = &options.header {
        request = request.header(name, value);
    }
    request.body(Bytes::from(otlp::request(spans))).ok()
}
