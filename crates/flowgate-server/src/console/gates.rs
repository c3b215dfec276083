//! The gates of this process: those of the gateway, if one runs beside, and the server's own.

use std::collections::BTreeMap;

use axum::extract::State;
use flowgate::{Overflow, gate::Look};
use serde_json::{Value, json};

use super::router::Console;
use crate::{
    api::{Answer, ok},
    clock,
};

pub(super) async fn read(State(console): State<Console>) -> Answer {
    let gateway = match &console.gateway {
        Some(gateway) => json!(gateway.figures().await),
        None => Value::Null,
    };
    let own = [
        ("requests of the API and the console", console.requests.look()),
        ("sessions looked up without a place among these", console.door.look()),
        ("pages that watch", console.streams.look()),
        ("tries to log in, for each address", console.log_ins.look()),
    ];
    let own: Vec<Value> = own.iter().map(|(name, look)| view(name, look)).collect();
    ok(json!({ "at": clock::now(), "gateway": gateway, "own": own }))
}

fn view(name: &str, look: &Look) -> Value {
    let queue = match look.limits.overflow() {
        Overflow::Queue { max, .. } => max.map(u32::from),
        Overflow::Reject => Some(0),
    };
    let refusals: BTreeMap<&str, u64> =
        look.refusals.iter().map(|(reason, count)| (reason.as_str(), count)).collect();
    json!({
        "name": name,
        "limits": look.limits.to_string(),
        "max": look.limits.max(),
        "queue": queue,
        "inUse": look.in_use,
        "waiting": look.waiting,
        "refusals": refusals,
    })
}
