//! One request, from its head to the head of its response.
//!
//! Owns the order of things: the route, the pass, then the upstream; the body of the request is not touched before there is a
//! pass. Dropped wherever it stands, because the client is gone, it leaves the line, or ends the upstream's connection and
//! gives the slot back then.

use std::{convert::Infallible, rc::Rc};

use bytes::Bytes;
use flowgate::{
    Pass,
    http::{Answer, GatedBody, ReleaseAt},
};
use http::{HeaderValue, Request, Response, Version, header, request::Parts, response};
use hyper::body::{Body, SizeHint};

use super::{
    asked::{Asked, check_coding},
    client::Client,
    fault::Fault,
    forward::{Forwarded, Forwarding, Switched},
    inbound::Inbound,
    limiter::Limiter,
    relay::{Out, Relay},
    table::{Plan, Table, Way},
    tunnel::Tunnel,
    watch::Stage,
    worker::Worker,
};

/// The response to a request: the upstream's, or the words why there is none.
///
/// Cancel safety: see above.
pub(super) async fn exchange(
    worker: Rc<Worker>,
    client: Rc<Client>,
    request: Request<Inbound>,
) -> Result<Response<Out>, Infallible> {
    let busy = client.begin();
    let watch = worker.watch();
    let view = worker.view();
    let (mut parts, body) = request.into_parts();
    let way = match admit(&view.table, &mut parts, &body.size_hint(), &client).await {
        Ok(way) => way,
        Err(mut told) => {
            if body.is_unread() {
                client.leave_unread();
                if parts.version < Version::HTTP_2 {
                    // What is still to come of it may be too slow to wait for, and then the connection is closed: a client
                    // that was not told would send its next request into that.
                    told.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
            }
            return Ok(told.map(GatedBody::refusal));
        }
    };
    let forwarding = Forwarding { view: &view, plan: way.plan, client: &client, watch: &watch };
    Ok(match forwarding.run(parts, body).await {
        Ok(Forwarded::Answer(mut head, from)) => {
            head.version = Version::HTTP_11;
            watch.begin(Stage::Streaming, way.plan.stream_timeout);
            let pass = way.pass(&mut head);
            let relay = Relay::new(from, Rc::clone(&watch), busy);
            Response::from_parts(head, GatedBody::new(relay, pass))
        }
        Ok(Forwarded::Switched(Switched { mut head, protocol, upstream, early })) => {
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers.extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
            let stand_still = way.plan.stream_timeout;
            let pass = way.pass(&mut head);
            let tunnel = Tunnel { upstream, early, stand_still, _pass: pass, _busy: busy };
            *client.tunnel.borrow_mut() = Some(Box::new(tunnel));
            Response::from_parts(head, GatedBody::refusal(Bytes::new()))
        }
        Err(fault) => way.told(fault).map(GatedBody::refusal),
    })
}

/// Where a request goes, and what it goes with.
struct Allowed<'t> {
    plan: &'t Plan,
    limit: Option<(&'t Limiter, Pass)>,
    /// The form of what is told if that fails.
    form: &'t Answer,
}

/// Finds the route and waits for a pass; or what the client is told instead.
///
/// Cancel safety: dropped, it leaves the line.
async fn admit<'t>(
    table: &'t Table,
    request: &mut Parts,
    body: &SizeHint,
    client: &Client,
) -> Result<Allowed<'t>, Response<Bytes>> {
    let form = &table.answer;
    // Where the length is known there is no coding, and nothing to look for.
    let checked = if body.exact().is_none() { check_coding(request) } else { Ok(()) };
    let asked = checked.and_then(|()| Asked::of(request)).map_err(|fault| fault.told(form))?;
    let (plan, limit) = match table.way(&asked.host, &asked.path, &request.method) {
        Way::Route(route) => (&route.plan, route.limit.as_ref()),
        Way::Unlisted(plan) => (plan, None),
        Way::None => return Err(Fault::NoRoute.told(form)),
    };
    let form = limit.map_or(form, |limit| &limit.answer);
    if plan.max_body.is_some_and(|most| body.lower() > most) {
        return Err(Fault::TooLarge.told(form));
    }
    let Some(limit) = limit else { return Ok(Allowed { plan, limit: None, form }) };
    let lane = limit.lane(request, &asked.path).map_err(|fault| fault.told(form))?;
    let pass = limit.admit(lane, request, (&table.identity, client.peer)).await?;
    Ok(Allowed { plan, limit: Some((limit, pass)), form })
}

impl Allowed<'_> {
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
