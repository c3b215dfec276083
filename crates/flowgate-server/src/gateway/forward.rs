//! Asking an upstream.
//!
//! Owns which upstream is asked, what it is told of the client, and how often it is tried: a request of which nothing was
//! sent may be sent elsewhere, and one that is safe to repeat is repeated once where an idle connection turned out to be dead.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts, response};
use hyper::body::{Body, Incoming};
use tokio::net::TcpStream;

use super::{
    asked::{to_http1, to_http2, upgrade},
    client::Client,
    clock::Span,
    fault::Fault,
    headers::{Marks, lists, strip},
    relay::From,
    table::Plan,
    upload::{Flow, Upload},
    upstream::{Heard, Line, Pool},
    view::View,
    watch::{Stage, Watch},
};

/// How long an upstream that was asked to say whether it wants a body may take; many never say.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// A request on its way.
pub(super) struct Forwarding<'e> {
    pub(super) view: &'e View,
    pub(super) plan: &'e Plan,
    pub(super) client: &'e Rc<Client>,
    pub(super) watch: &'e Rc<Watch>,
}

/// What came back.
pub(super) enum Forwarded {
    Answer(Response<Incoming>, From),
    /// The connection is something else from here on; with what the upstream has said since.
    Switched(response::Parts, TcpStream, Bytes),
}

/// A request that is still ours to send.
type Slot = Option<Request<Upload>>;

/// What a request brings besides its head.
struct Load {
    flow: Option<Rc<Flow>>,
    expects: bool,
    is_upgrade: bool,
}

impl Forwarding<'_> {
    /// Asks one upstream after the other until one takes the request.
    ///
    /// Cancel safety: dropped, the upstream's connection is closed or its stream reset.
    pub(super) async fn run(&self, parts: Parts, body: Incoming) -> Result<Forwarded, Fault> {
        let (request, load) = self.prepared(parts, body);
        // It stays here until it is sent, and is back here if nothing of it was sent after all.
        let mut request = Some(request);
        let mut fault = Fault::Unreachable;
        for pool in self.view.in_turn(self.plan) {
            let asked = if pool.upstream.is_http2() {
                self.ask_stream(pool, &mut request, &load).await
            } else {
                self.ask_line(pool, &mut request, &load).await
            };
            match asked {
                Err(why) if request.is_some() => fault = why,
                asked => return asked,
            }
        }
        Err(fault)
    }

    fn prepared(&self, mut parts: Parts, body: Incoming) -> (Request<Upload>, Load) {
        let marks = Marks::of(&parts.headers);
        let has_body = !body.is_end_stream();
        let protocol = if marks.upgrade && !has_body { upgrade(&parts) } else { None };
        let is_upgrade = protocol.is_some();
        let takes_trailers = marks.te && lists(&parts.headers, &header::TE, "trailers");
        let expects = marks.expect && has_body && lists(&parts.headers, &header::EXPECT, "100-continue");
        to_http1(&mut parts);
        let headers = &mut parts.headers;
        strip(headers, marks);
        self.client.speaker.introduce(headers, marks, self.view.table.trusts(self.client.peer.ip()));
        if has_body && body.size_hint().exact().is_none() {
            // Said outright: of a GET, hyper would otherwise not send a body of unknown length.
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if takes_trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
        }
        if let Some(protocol) = protocol {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, protocol);
        }
        let (upload, flow) = if has_body {
            let (upload, flow) = Upload::new(body, self.client, self.watch, self.plan, expects);
            (upload, Some(flow))
        } else {
            (Upload::empty(), None)
        };
        (Request::from_parts(parts, upload), Load { flow, expects, is_upgrade })
    }

    /// Asks over HTTP/1.1: on an idle connection, and if that turns out to be dead on a new one.
    async fn ask_line(&self, pool: &Rc<Pool>, request: &mut Slot, load: &Load) -> Result<Forwarded, Fault> {
        if let (Some(flow), Some(request)) = (&load.flow, request.as_mut()) {
            flow.await_word(request);
        }
        if let Some((line, is_fresh)) = pool.take() {
            let spare = if is_fresh { None } else { repeatable(request.as_ref(), load) };
            match self.ask_on(line, pool, request, load).await {
                Err(_) if request.is_some() => {}
                Err(Fault::Broken) if spare.is_some() => *request = spare,
                asked => return asked,
            }
        }
        self.watch.begin(Stage::Asking, self.plan.connect_timeout);
        let line = match within(self.watch, pool.open()).await {
            Some(Ok(line)) => line,
            Some(Err(_)) => return Err(Fault::Unreachable),
            None => return Err(Fault::ConnectLate),
        };
        self.ask_on(line, pool, request, load).await
    }

    async fn ask_on(
        &self,
        mut line: Line,
        pool: &Rc<Pool>,
        request: &mut Slot,
        load: &Load,
    ) -> Result<Forwarded, Fault> {
        self.begin_asking(load);
        let on_late = || self.opens(load);
        match line.ask(request, self.watch, on_late).await {
            Heard::Answer(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                if !load.is_upgrade {
                    return Err(Fault::Broken);
                }
                let (head, _) = response.into_parts();
                let (upstream, early) = line.into_bare().await.ok_or(Fault::Broken)?;
                Ok(Forwarded::Switched(head, upstream, early))
            }
            Heard::Answer(response) => Ok(Forwarded::Answer(response, From::Line(line, Rc::clone(pool)))),
            Heard::Failed => Err(load.broken()),
            Heard::Late => Err(load.late()),
        }
    }

    /// Asks over HTTP/2, again on another connection if the first one was going away.
    async fn ask_stream(&self, pool: &Rc<Pool>, request: &mut Slot, load: &Load) -> Result<Forwarded, Fault> {
        *request = request.take().map(|request| for_http2(request, pool));
        if let Some(flow) = &load.flow {
            flow.open();
        }
        let mut is_second = false;
        loop {
            self.watch.begin(Stage::Asking, self.plan.connect_timeout);
            let (sender, stream) = match within(self.watch, pool.stream()).await {
                Some(Ok(taken)) => taken,
                Some(Err(_)) => return Err(Fault::Unreachable),
                None => return Err(Fault::ConnectLate),
            };
            self.begin_asking(load);
            match stream.ask(sender, request, self.watch).await {
                Heard::Answer(response) => {
                    return Ok(Forwarded::Answer(response, From::Stream { _place: stream }));
                }
                Heard::Failed if request.is_some() && !is_second => is_second = true,
                Heard::Failed => return Err(load.broken()),
                Heard::Late => return Err(load.late()),
            }
        }
    }

    fn begin_asking(&self, load: &Load) {
        let span = match &load.flow {
            None => self.plan.response_timeout,
            Some(_) if load.expects => Span::of(PATIENCE),
            Some(_) => self.plan.stream_timeout,
        };
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

impl Load {
    /// What it is if the upstream hung up: the client's fault, if its body broke off.
    fn broken(&self) -> Fault {
        self.flow.as_ref().and_then(|flow| flow.fault()).unwrap_or(Fault::Broken)
    }

    fn late(&self) -> Fault {
        self.flow.as_ref().map_or(Fault::Late, |flow| flow.standstill())
    }
}

/// The same request in the form of HTTP/2.
fn for_http2(request: Request<Upload>, pool: &Pool) -> Request<Upload> {
    let (mut parts, upload) = request.into_parts();
    let marks = Marks::of(&parts.headers);
    let takes_trailers = marks.te;
    strip(&mut parts.headers, marks);
    parts.headers.remove(header::EXPECT);
    if takes_trailers {
        parts.headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    to_http2(&mut parts, pool.upstream.authority());
    Request::from_parts(parts, upload)
}

/// A second copy of a request that may safely be sent twice.
fn repeatable(request: Option<&Request<Upload>>, load: &Load) -> Slot {
    let is_repeatable = |request: &&Request<Upload>| request.method().is_idempotent();
    let request = request.filter(is_repeatable).filter(|_| load.flow.is_none() && !load.is_upgrade)?;
    let mut copy = Request::new(Upload::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
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
