//! Which name means which peer.

use super::{apalis::Apalis, flowgate::Flowgate, graphile::Graphile, horsies::Horsies};
use crate::{order::Order, peer::Failure, play::play};

/// Does as ordered, with the peer that is named.
pub(crate) async fn run(order: Order) -> Result<(), Failure> {
    match order.peer.as_str() {
        "flowgate" => play::<Flowgate>(&order).await,
        "apalis-postgres" => play::<Apalis>(&order).await,
        "graphile_worker" => play::<Graphile>(&order).await,
        "horsies" => play::<Horsies>(&order).await,
        other => Err(format!("unknown peer `{other}`").into()),
    }
}
