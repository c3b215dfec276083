//! One request, from its head to the head of its response.
//!
//! Owns the order of things: the route, the pass, then the upstream; the body of the request is not touched before there is a
//! pass. Dropped wherever it stands, because the client is gone, it leaves the line, or ends the upstream's connection and
//! gives the slot back then.

use std::{borrow::Cow, convert::Infallible, net::SocketAddr, rc::Rc};

use bytes::Bytes;
use flowgate::{
    Pass, Refusal,
    http::{Answer, Figures, GatedBody, ReleaseAt, Told},
};
use http::{HeaderMap, HeaderValue, Request, Response, Version, header, request::Parts, response};
use hyper::body::{Body, Incoming, SizeHint};

use super::{
    asked::{Asked, Head, check_coding},
    client::{Busy, Client},
    fault::Fault,
    forward::{Forwarded, Forwarding, Switched, Unread},
    inbound::Inbound,
    limiter::{Limiter, with_all},
    relay::{Out, Relay},
    table::{Plan, Table, Way},
    tunnel::Tunnel,
    view::View,
    watch::Stage,
    worker::Worker,
};

/// To read so much that nobody wants costs less than another connection.
const SHORT_BODY: u64 = 64 << 10;

const DOUBTFUL_KEY: &str = "The path, by a part of which requests are counted, can be read as another one: write it without \
                            `//`, `\\`, `;` and encoded slashes.";

/// The response to a request: the upstream's, or the words why there is none.
///
/// Cancel safety: see above.
pub(super) async fn exchange(
    worker: Rc<Worker>,
    client: Rc<Client>,
    request: Request<Inbound>,
) -> Result<Response<Out>, Infallible> {
    let busy = client.begin();
    let view = worker.view();
    let (parts, body) = request.into_parts();
    let way = match admit(&view.table, &parts, &body.size_hint(), &client).await {
        Ok(way) => way,
        Err(mut told) => {
            drop(busy);
            match body {
                Inbound::Stream(body) if is_soon_over(&parts, &body) => client.forget(body),
                body if body.is_unread() => {
                    client.leave_unread();
                    if parts.version < Version::HTTP_2 {
                        say_close(told.headers_mut());
                    }
                }
                _ => {}
            }
            return Ok(told.map(GatedBody::refusal));
        }
    };
    Ok(way.go((&worker, &view, &client), parts, body, busy).await)
}

/// What is still to come of the request may be too slow to wait for, and then the connection is closed: a client that was not
/// told would send its next request into that.
fn say_close(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// Whether the rest of a body that nobody wants is short, and comes whatever its sender is told: many send the head and
/// the body one after the other.
fn is_soon_over(request: &Parts, body: &Incoming) -> bool {
    request.version == Version::HTTP_11
        && !body.is_end_stream()
        && body.size_hint().exact().is_some_and(|length| length <= SHORT_BODY)
        && !request.headers.contains_key(header::EXPECT)
}

/// Finds the route and waits for a pass; or what the client is told instead.
///
/// Cancel safety: dropped, it leaves the line.
async fn admit<'t>(
    table: &'t Table,
    request: &Parts,
    body: &SizeHint,
    client: &Client,
) -> Result<Allowed<'t>, Response<Bytes>> {
    // Where the length is known there is no coding, and nothing to look for.
    if body.exact().is_none() {
        check_coding(request).map_err(|fault| fault.told(&table.answer))?;
    }
    let found = find(table, request, body.lower(), client.peer).map_err(Failed::told)?;
    found.enter().await.map_err(|turned| turned.response(&request.headers))
}

/// Where a request goes, before it has its pass.
pub(super) struct Found<'t, 'h> {
    plan: &'t Plan,
    /// With the key, where there is more than one lane.
    limit: Option<(&'t Limiter, Option<Cow<'h, str>>)>,
    form: &'t Answer,
}

/// Why a request goes nowhere, and the form in which that is told.
pub(super) struct Failed<'t> {
    fault: Fault,
    form: &'t Answer,
}

/// One that was turned away.
pub(super) struct Turned<'f> {
    pub(super) refusal: Refusal,
    limit: &'f Limiter,
    key: Option<&'f str>,
}

/// Where a request goes, and what it goes with.
pub(super) struct Allowed<'t> {
    plan: &'t Plan,
    limit: Option<(&'t Limiter, Pass)>,
    /// The form of what is told if that fails.
    form: &'t Answer,
}

/// Finds the route of a request whose body is at least so long, and its lane there; or what the client is told instead.
pub(super) fn find<'t, 'h>(
    table: &'t Table,
    head: &'h impl Head,
    body: u64,
    peer: SocketAddr,
) -> Result<Found<'t, 'h>, Failed<'t>> {
    let form = &table.answer;
    let failed = |form| move |fault| Failed { fault, form };
    let asked = Asked::of(head).map_err(failed(form))?;
    let (plan, limit, lenient) = match table.way(&asked, head) {
        Way::Route(route) => (&route.plan, route.limit.as_ref(), None),
        Way::Lenient(route, path) => (&route.plan, route.limit.as_ref(), Some(path)),
        Way::Unlisted(plan) => (plan, None, None),
        Way::Doubtful => return Err(failed(form)(Fault::Request(DOUBTFUL_KEY))),
        Way::None => return Err(failed(form)(Fault::NoRoute)),
    };
    let form = limit.map_or(form, |limit| &limit.answer);
    if plan.max_body.is_some_and(|most| body > most) {
        return Err(failed(form)(Fault::TooLarge));
    }
    let Some(limit) = limit else { return Ok(Found { plan, limit: None, form }) };
    let key = limit.key(head, (&asked, lenient.as_deref()), (&table.identity, peer)).map_err(failed(form))?;
    Ok(Found { plan, limit: Some((limit, key)), form })
}

impl<'t> Found<'t, '_> {
    /// Which of the table's plans it goes by.
    pub(super) fn plan(&self) -> usize {
        self.plan.number
    }

    /// Waits in line for a pass, where it takes one; or who turned it away.
    ///
    /// Cancel safety: dropped, it leaves the line.
    pub(super) async fn enter(&self) -> Result<Allowed<'t>, Turned<'_>> {
        let Found { plan, form, .. } = *self;
        let limit = match &self.limit {
            None => None,
            Some((limit, key)) => match limit.enter(key.as_deref()).await {
                Ok(pass) => Some((*limit, pass)),
                Err(refusal) => return Err(Turned { refusal, limit, key: key.as_deref() }),
            },
        };
        Ok(Allowed { plan, limit, form })
    }
}

impl Failed<'_> {
    pub(super) fn told(self) -> Response<Bytes> {
        self.fault.told(self.form)
    }
}

impl Turned<'_> {
    /// The figures of the lane, where they are told: of its slots, and of its rate.
    pub(super) fn figures(&self) -> (Option<Figures>, Option<Figures>) {
        self.limit.figures(&self.refusal, self.key)
    }

    /// What the client is told besides.
    pub(super) fn told(&self, is_grpc: bool) -> Told {
        self.limit.answer.tell(&self.refusal, is_grpc)
    }

    fn response(&self, request: &HeaderMap) -> Response<Bytes> {
        let mut response = self.limit.answer.refuse(&self.refusal, request);
        with_all(self.figures(), |figures| Figures::write_all(figures, response.headers_mut()));
        response
    }
}

impl Allowed<'_> {
    /// Asks the upstream.
    ///
    /// Cancel safety: dropped, the upstream's request is ended, and the slot given back then.
    pub(super) async fn go(
        self,
        (worker, view, client): (&Worker, &View, &Rc<Client>),
        parts: Parts,
        body: Inbound,
        busy: Busy,
    ) -> Response<Out> {
        let watch = worker.watch();
        let plan = self.plan;
        let forwarding = Forwarding { view, plan, client, watch: &watch };
        let (came, Unread(is_unread)) = forwarding.run(parts, body).await;
        let mut response = match came {
            Ok(Forwarded::Answer(mut head, from)) => {
                head.version = Version::HTTP_11;
                watch.begin(Stage::Streaming, plan.stream_timeout);
                let pass = self.pass(&mut head);
                let relay = Relay::new(from, Rc::clone(&watch), busy);
                Response::from_parts(head, GatedBody::new(relay, pass))
            }
            Ok(Forwarded::Switched(Switched { mut head, protocol, upstream, early })) => {
                head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                head.headers.extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
                let stand_still = plan.stream_timeout;
                let pass = self.pass(&mut head);
                client.switch(busy, Tunnel { upstream, early, stand_still, _pass: pass });
                Response::from_parts(head, GatedBody::refusal(Bytes::new()))
            }
            Err(fault) => self.told(fault).map(GatedBody::refusal),
        };
        if is_unread {
            say_close(response.headers_mut());
        }
        response
    }

    /// Tells the figures in the head of the response; the pass, if it is to be kept beyond that.
    fn pass(self, head: &mut response::Parts) -> Option<Pass> {
        let (limit, pass) = self.limit?;
        limit.tell(&pass, &mut head.headers);
        match limit.release {
            ReleaseAt::Body => Some(pass),
            ReleaseAt::Headers => None,
        }
    }

    fn told(self, fault: Fault) -> Response<Bytes> {
        let mut told = fault.told(self.form);
        if let Some((limit, pass)) = &self.limit {
            limit.tell(pass, told.headers_mut());
        }
        told
    }
}
