//! Who may: whoever has a token, in a header or in the query.

use axum::{
    extract::{Request, State},
    http::{StatusCode, header::AUTHORIZATION},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{asked::Asked, reply::Problem};
use crate::office::Desk;

const HOOKS: &str = "/v2/workflows/hooks/";

/// Lets a request through, if it has a token of this server.
pub(crate) async fn check(State(desk): State<Desk>, request: Request, next: Next) -> Response {
    // A webhook is called by whoever was given its URL: nobody guesses the run's id in it.
    if request.uri().path().starts_with(HOOKS) {
        return next.run(request).await;
    }
    let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| {
        let (scheme, token) = value.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    let token = bearer.or_else(|| Asked::of(request.uri()).one("qstash_token").map(str::to_owned));
    match token {
        Some(token) if desk.secrets.accepts(&token) => next.run(request).await,
        Some(_) => refused("the token is not one of this server; make one with `flowgate token create`"),
        None => refused("send the header Authorization: Bearer <token>"),
    }
}

fn refused(text: &str) -> Response {
    Problem::new(StatusCode::UNAUTHORIZED, text).into_response()
}
