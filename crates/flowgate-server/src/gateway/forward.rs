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
    asked::{is_upgrade, to_http1, to_http2},
    client::Client,
    clock::Span,
    fault::Fault,
    headers::{lists, strip},
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

/// Why there is no answer; with the request, if nothing of it was sent.
struct Failed(Fault, Option<Request<Upload>>);

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
        let (mut request, load) = self.prepared(parts, body);
        let mut fault = Fault::Unreachable;
        for pool in self.view.in_turn(self.plan) {
            let asked = if pool.upstream.is_http2() {
                self.ask_stream(pool, request, &load).await
            } else {
                self.ask_line(pool, request, &load).await
            };
            match asked {
                Ok(forwarded) => return Ok(forwarded),
                Err(Failed(why, Some(unsent))) => (fault, request) = (why, unsent),
                Err(Failed(why, None)) => return Err(why),
            }
        }
        Err(fault)
    }

    fn prepared(&self, mut parts: Parts, body: Incoming) -> (Request<Upload>, Load) {
        let headers = &parts.headers;
        let has_body = !body.is_end_stream();
        let is_upgrade = !has_body && is_upgrade(&parts);
        let takes_trailers = headers.contains_key(header::TE) && lists(headers, &header::TE, "trailers");
        let expects = has_body && lists(headers, &header::EXPECT, "100-continue");
        let protocol = is_upgrade.then(|| headers.get(header::UPGRADE).cloned()).flatten();
        let is_chunked = has_body && body.size_hint().exact().is_none();
        to_http1(&mut parts);
        let headers = &mut parts.headers;
        strip(headers);
        let host = headers.get(header::HOST).cloned();
        let is_trusted = self.view.table.trusts(self.client.peer.ip());
        self.client.speaker.introduce(headers, host.as_ref(), is_trusted);
        if is_chunked {
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
    async fn ask_line(
        &self,
        pool: &Rc<Pool>,
        mut request: Request<Upload>,
        load: &Load,
    ) -> Result<Forwarded, Failed> {
        if let Some(flow) = &load.flow {
            flow.await_word(&mut request);
        }
        if let Some((line, is_fresh)) = pool.take() {
            let spare = if is_fresh { None } else { repeatable(&request, load) };
            match (self.ask_on(line, pool, request, load).await, spare) {
                (Err(Failed(_, Some(unsent))), _) => request = unsent,
                (Err(Failed(Fault::Broken, None)), Some(spare)) => request = spare,
                (asked, _) => return asked,
            }
        }
        self.watch.begin(Stage::Asking, self.plan.connect_timeout);
        let line = match within(self.watch, pool.open()).await {
            Some(Ok(line)) => line,
            Some(Err(_)) => return Err(Failed(Fault::Unreachable, Some(request))),
            None => return Err(Failed(Fault::ConnectLate, Some(request))),
        };
        self.ask_on(line, pool, request, load).await
    }

    async fn ask_on(
        &self,
        mut line: Line,
        pool: &Rc<Pool>,
        request: Request<Upload>,
        load: &Load,
    ) -> Result<Forwarded, Failed> {
        self.begin_asking(load);
        let on_late = || self.opens(load);
        match line.ask(request, self.watch, on_late).await {
            Heard::Answer(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                if !load.is_upgrade {
                    return Err(Failed(Fault::Broken, None));
                }
                let (head, _) = response.into_parts();
                let bare = line.into_bare().await;
                let (upstream, early) = bare.ok_or(Failed(Fault::Broken, None))?;
                Ok(Forwarded::Switched(head, upstream, early))
            }
            Heard::Answer(response) => Ok(Forwarded::Answer(response, From::Line(line, Rc::clone(pool)))),
            heard => Err(load.failed(heard)),
        }
    }

    /// Asks over HTTP/2, again on another connection if the first one was going away.
    async fn ask_stream(
        &self,
        pool: &Rc<Pool>,
        request: Request<Upload>,
        load: &Load,
    ) -> Result<Forwarded, Failed> {
        let (mut parts, upload) = request.into_parts();
        strip(&mut parts.headers);
        parts.headers.remove(header::EXPECT);
        to_http2(&mut parts, pool.upstream.authority());
        if let Some(flow) = &load.flow {
            flow.open();
        }
        let mut request = Request::from_parts(parts, upload);
        let mut is_second = false;
        loop {
            self.watch.begin(Stage::Asking, self.plan.connect_timeout);
            let (sender, stream) = match within(self.watch, pool.stream()).await {
                Some(Ok(taken)) => taken,
                Some(Err(_)) => return Err(Failed(Fault::Unreachable, Some(request))),
                None => return Err(Failed(Fault::ConnectLate, Some(request))),
            };
            self.begin_asking(load);
            match stream.ask(sender, request, self.watch).await {
                Heard::Answer(response) => {
                    return Ok(Forwarded::Answer(response, From::Stream { _place: stream }));
                }
                Heard::Unsent(unsent) if !is_second => (request, is_second) = (unsent, true),
                heard => return Err(load.failed(heard)),
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
    fn failed(&self, heard: Heard) -> Failed {
        let fault = self.flow.as_ref().and_then(|flow| flow.fault());
        match heard {
            Heard::Unsent(request) => Failed(Fault::Broken, Some(request)),
            Heard::Late => Failed(self.flow.as_ref().map_or(Fault::Late, |flow| flow.standstill()), None),
            Heard::Failed | Heard::Answer(_) => Failed(fault.unwrap_or(Fault::Broken), None),
        }
    }
}

/// A second copy of a request that may safely be sent twice.
fn repeatable(request: &Request<Upload>, load: &Load) -> Option<Request<Upload>> {
    if load.flow.is_some() || load.is_upgrade || !request.method().is_idempotent() {
        return None;
    }
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
