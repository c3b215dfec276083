//! Asking an upstream.
//!
//! Owns which upstream is asked, for how long, and how often: a request of which nothing was sent may be sent elsewhere, and
//! one that is safe to repeat is repeated once where an idle connection turned out to be dead.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Version, request, response};
use hyper::body::Body;
use tokio::net::TcpStream;

use super::{
    client::Client,
    fault::Fault,
    headers::{Marks, strip},
    inbound::Inbound,
    outgoing::Outgoing,
    relay::From,
    table::Plan,
    upload::{Flow, Upload},
    upstream::{Line, Pool, Unanswered},
    view::View,
    watch::{Stage, Watch},
};
use crate::wire::{Heard, Waits};

/// A request on its way.
pub(super) struct Forwarding<'e> {
    pub(super) view: &'e View,
    pub(super) plan: &'e Plan,
    pub(super) client: &'e Rc<Client>,
    pub(super) watch: &'e Rc<Watch>,
}

/// What came back.
pub(super) enum Forwarded {
    Answer(response::Parts, From),
    /// The connection is something else from here on.
    Switched(Switched),
}

/// Whether some of the request's body is still to come when its answer is known: then the connection is closed behind that,
/// unless all of it comes in time, and its client is told so.
pub(super) struct Unread(pub(super) bool);

/// A connection that became something else.
pub(super) struct Switched {
    pub(super) head: response::Parts,
    pub(super) protocol: Option<HeaderValue>,
    pub(super) upstream: TcpStream,
    /// What the upstream has said since.
    pub(super) early: Bytes,
}

/// A request that is still ours to send.
type Slot = Option<Request<Upload>>;

/// What a request brings besides its head.
struct Load {
    outgoing: Outgoing,
    flow: Option<Rc<Flow>>,
}

impl Forwarding<'_> {
    /// Asks one upstream after the other until one takes the request.
    ///
    /// Cancel safety: dropped, the upstream's connection is closed or its stream reset.
    pub(super) async fn run(
        &self,
        parts: request::Parts,
        body: Inbound,
    ) -> (Result<Forwarded, Fault>, Unread) {
        // Of HTTP/2 the rest of one stream is in nobody's way.
        let is_in_the_way = parts.version < Version::HTTP_2 && body.is_unread();
        let (request, load) = self.prepared(parts, body);
        let came = self.ask(request, &load).await;
        (came, Unread(is_in_the_way && load.flow.is_some_and(|flow| !flow.has_ended())))
    }

    async fn ask(&self, request: Request<Upload>, load: &Load) -> Result<Forwarded, Fault> {
        // It stays here until it is sent, and is back here if nothing of it was sent after all.
        let mut request = Some(request);
        let mut fault = Fault::Unreachable;
        for pool in self.view.in_turn(self.plan) {
            let asked = if pool.upstream.is_http2() {
                self.ask_stream(pool, &mut request, load).await
            } else {
                self.ask_line(pool, &mut request, load).await
            };
            match asked {
                Err(why) if request.is_some() => fault = why,
                asked => return asked,
            }
        }
        Err(fault)
    }

    fn prepared(&self, mut parts: request::Parts, body: Inbound) -> (Request<Upload>, Load) {
        let is_trusted = self.view.table.trusts(self.client.peer.ip());
        let outgoing = Outgoing::prepare(&mut parts, &body, |headers, marks| {
            self.client.speaker.introduction(headers, marks, is_trusted)
        });
        let (upload, flow) = if body.is_end_stream() {
            (Upload::default(), None)
        } else {
            let (upload, flow) = Upload::new(body, self.client, self.watch, self.plan, outgoing.expects);
            (upload, Some(flow))
        };
        (Request::from_parts(parts, upload), Load { outgoing, flow })
    }

    /// Asks over HTTP/1.1: on an idle connection, and if that turns out to be dead on a new one.
    async fn ask_line(&self, pool: &Rc<Pool>, request: &mut Slot, load: &Load) -> Result<Forwarded, Fault> {
        if let Some(line) = pool.take() {
            match self.ask_on(line, pool, request, load).await {
                Err(Missed { unsent: true, .. }) => {}
                // The upstream may have closed the connection just when the request was on its way. One that has begun to
                // answer has not.
                Err(Missed { fault: Fault::Broken, has_heard: false, .. })
                    if request.as_ref().is_some_and(is_repeatable) => {}
                asked => return asked.map_err(|missed| missed.for_good(request)),
            }
        }
        self.watch.begin(Stage::Asking, self.plan.connect_timeout);
        let line = match within(self.watch, pool.open()).await {
            Some(Ok(line)) => line,
            Some(Err(_)) => return Err(Fault::Unreachable),
            None => return Err(Fault::ConnectLate),
        };
        self.ask_on(line, pool, request, load).await.map_err(|missed| missed.for_good(request))
    }

    async fn ask_on(
        &self,
        mut line: Line,
        pool: &Rc<Pool>,
        request: &mut Slot,
        load: &Load,
    ) -> Result<Forwarded, Missed> {
        self.begin_asking(load);
        let write = |parts: &request::Parts, text: &mut Vec<u8>| {
            load.outgoing.write(parts, pool.upstream.authority(), text);
        };
        let waits = || match self.watch.is_over() {
            false => Waits::On,
            // More time is given: what was held back can be sent now.
            true if self.opens(load) => Waits::Anew,
            true => Waits::Over,
        };
        let (fault, unsent) = match line.ask(request, write, waits).await {
            Heard::Answer(head) => return Ok(Forwarded::Answer(head, From::Line(line, Rc::clone(pool)))),
            Heard::Switched(head, protocol) if load.outgoing.allows(protocol.as_ref()) => {
                let (upstream, early) = line.into_bare();
                return Ok(Forwarded::Switched(Switched { head, protocol, upstream, early }));
            }
            // Nobody asked for that.
            Heard::Switched(..) => (Fault::Broken, false),
            Heard::Failed { unsent, .. } => (load.broken(), unsent),
            Heard::Late => (load.late(), false),
        };
        Err(Missed { fault, unsent, has_heard: line.has_heard() })
    }

    /// Asks over HTTP/2, again on another connection if it is known that nothing came of it on the first one.
    async fn ask_stream(&self, pool: &Rc<Pool>, request: &mut Slot, load: &Load) -> Result<Forwarded, Fault> {
        if let Some(flow) = &load.flow {
            flow.open();
        }
        let mut is_second = false;
        loop {
            self.watch.begin(Stage::Asking, self.plan.connect_timeout);
            let (sender, mut stream) = match within(self.watch, pool.stream()).await {
                Some(Ok(taken)) => taken,
                Some(Err(_)) => return Err(Fault::Unreachable),
                None => return Err(Fault::ConnectLate),
            };
            self.begin_asking(load);
            let Some(head) = request.as_ref().map(|request| load.outgoing.for_http2(request, pool)) else {
                return Err(load.broken());
            };
            let is_repeatable = request.as_ref().is_some_and(is_repeatable);
            let asked = stream.ask(sender, head, request, self.watch).await;
            let may_go_on = request.is_some() && !is_second;
            match asked {
                Ok(mut head) => {
                    let marks = Marks::of(&head.headers);
                    strip(&mut head.headers, marks);
                    return Ok(Forwarded::Answer(head, From::Stream(Box::new(stream))));
                }
                Err(Unanswered::Untouched) if may_go_on => is_second = true,
                // The upstream may have closed the connection just when the request was on its way.
                Err(Unanswered::Stale) if may_go_on && is_repeatable => is_second = true,
                Err(Unanswered::Untouched) => return Err(load.broken()),
                Err(Unanswered::Stale | Unanswered::Failed) => {
                    *request = None;
                    return Err(load.broken());
                }
                Err(Unanswered::Late) => {
                    *request = None;
                    let fault = load.late();
                    if fault == Fault::Late {
                        stream.retire();
                    }
                    return Err(fault);
                }
            }
        }
    }

    fn begin_asking(&self, load: &Load) {
        let span = load.flow.as_ref().map_or(self.plan.response_timeout, |flow| flow.span());
        self.watch.begin(Stage::Asking, span);
    }

    /// The time is over: whether it was only the patience with an upstream that does not say if it wants the body.
    fn opens(&self, load: &Load) -> bool {
        let opened = load.flow.as_ref().is_some_and(|flow| flow.open());
        if opened {
            self.watch.begin(Stage::Asking, self.plan.stream_timeout);
        }
        opened
    }
}

/// Whether it may be sent again though something may have come of it. Its body would have to be there still.
fn is_repeatable(request: &Request<Upload>) -> bool {
    request.method().is_idempotent() && request.body().is_end_stream()
}

/// Why there is no answer, whether nothing of the request was sent, and whether anything came back.
struct Missed {
    fault: Fault,
    unsent: bool,
    has_heard: bool,
}

impl Missed {
    /// The request is not to be sent again, unless nothing of it was.
    fn for_good(self, request: &mut Slot) -> Fault {
        if !self.unsent {
            *request = None;
        }
        self.fault
    }
}

impl Load {
    /// What it is if the upstream hung up: the client's fault, if its body broke off.
    fn broken(&self) -> Fault {
        self.flow.as_ref().and_then(|flow| flow.fault()).unwrap_or(Fault::Broken)
    }

    fn late(&self) -> Fault {
        self.flow.as_ref().map_or(Fault::Late, |flow| flow.standstill())
    }
}

/// What the future comes to, unless the time is over first.
async fn within<F: Future>(watch: &Watch, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if watch.is_over() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}
