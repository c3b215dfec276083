//! `/v2/keys`: the signing keys, for receivers.

use axum::extract::State;

use super::reply::{Answer, ok};
use crate::office::Desk;

pub(super) async fn read(State(desk): State<Desk>) -> Answer {
    ok(desk.secrets.keys())
}

pub(super) async fn rotate(State(desk): State<Desk>) -> Answer {
    ok(desk.secrets.rotate().await?)
}
