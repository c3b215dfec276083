//! `/v2/keys`: the signing keys, for receivers.

use axum::{extract::State, http::StatusCode};

use super::reply::{Answer, Problem, ok};
use crate::office::Desk;

pub(super) async fn read(State(desk): State<Desk>) -> Answer {
    ok(desk.signing_keys())
}

pub(super) async fn rotate(State(desk): State<Desk>) -> Answer {
    if !desk.space.is_root() {
        let text = "the signing keys of a namespace change with those of the server; use a token without a namespace";
        return Err(Problem::new(StatusCode::FORBIDDEN, text));
    }
    ok(desk.secrets.rotate().await?)
}
