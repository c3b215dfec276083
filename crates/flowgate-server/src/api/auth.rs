//! Who may do what: the bearer of a token, in the namespace of that token.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    http::{Extensions, StatusCode, header::AUTHORIZATION},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tower_service::Service as _;

use super::{asked::Asked, reply::Problem, router};
use crate::{
    message::{Space, Spaces, decode},
    office::Desk,
};

/// Webhooks are called by whoever was given their URL: nobody guesses the run's id in it.
pub(super) const HOOKS: &str = "/v2/workflows/hooks/";

/// What the API is like is no secret, and read by programs that have no token yet.
pub(super) const DOCUMENT: &str = "/openapi.json";

/// Who has no namespace of their own may name one for a request.
const NAMESPACE: &str = "flowgate-namespace";

/// The way to each namespace.
#[derive(Clone)]
pub(super) struct Doors {
    desk: Desk,
    others: Arc<Spaces<Router>>,
}

impl Doors {
    pub(super) fn new(desk: Desk) -> Self {
        Doors { desk, others: Arc::default() }
    }

    /// The namespace of a request, or why there is none for it.
    fn space(&self, request: &Request) -> Result<Space, Problem> {
        if let Some(rest) = request.uri().path().strip_prefix(HOOKS) {
            let user = rest.split('/').next().unwrap_or_default();
            // Whoever calls it may have written a sign of it in another form that means the same.
            let user = &decode(user).unwrap_or_default();
            return self.desk.secrets.hook_space(user).ok_or_else(|| Problem::missing("webhook of", user));
        }
        if request.uri().path() == DOCUMENT {
            return Ok(Space::default());
        }
        let space = token_space(&self.desk, request)?;
        let Some(named) = request.headers().get(NAMESPACE) else { return Ok(space) };
        let named = Space::read(named.to_str().unwrap_or_default())?;
        if space.is_root() || space == named {
            return Ok(named);
        }
        let text = format!(
            "the token belongs to the namespace {:?} and cannot be used in {:?}",
            space.as_str(),
            named.as_str()
        );
        Err(Problem::new(StatusCode::FORBIDDEN, text))
    }
}

/// The namespace of a request's token.
fn token_space(desk: &Desk, request: &Request) -> Result<Space, Problem> {
    let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| {
        let (scheme, token) = value.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    let token = bearer.or_else(|| Asked::of(request.uri()).one("qstash_token").map(str::to_owned));
    let refused = |text: &str| Problem::new(StatusCode::UNAUTHORIZED, text);
    let token = token.ok_or_else(|| refused("send the header Authorization: Bearer <token>"))?;
    let space = desk.secrets.accepts(&token);
    space.ok_or_else(|| refused("this server does not know the token; make one with `flowgate token create`"))
}

/// Lets a request through that asks about the whole server, if its token has no namespace.
pub(crate) async fn with_token(State(desk): State<Desk>, request: Request, next: Next) -> Response {
    match token_space(&desk, &request) {
        Ok(space) if space.is_root() => next.run(request).await,
        Ok(_) => {
            let text = "this request concerns the whole server; use a token without a namespace";
            Problem::new(StatusCode::FORBIDDEN, text).into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

/// Lets a request through, if it has a token of this server: into its namespace.
pub(super) async fn check(State(doors): State<Doors>, request: Request, next: Next) -> Response {
    let space = match doors.space(&request) {
        Ok(space) => space,
        Err(problem) => return problem.into_response(),
    };
    if space.is_root() {
        return next.run(request).await;
    }
    let mut paths = doors.others.of(&space, || router::paths(doors.desk.within(space.clone())));
    let answered: Result<Response, std::convert::Infallible> = paths.call(afresh(request)).await;
    answered.unwrap_or_else(|never| match never {})
}

/// The request as it came from its connection: those paths are matched anew.
fn afresh(request: Request) -> Request {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.remove::<ConnectInfo<SocketAddr>>();
    parts.extensions = Extensions::new();
    if let Some(peer) = peer {
        parts.extensions.insert(peer);
    }
    Request::from_parts(parts, body)
}
