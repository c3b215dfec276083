//! A destination that writes a line.

use std::fmt;

use crate::route::{cx::Cx, destination::Destination, exchange::Exchange, step::Outcome};

/// Writes a line with the route, the exchange and the body to the context's log, which is standard error unless set
/// otherwise. The body stays as it is.
pub fn log() -> Log {
    Log
}

/// The destination that [`log`] returns.
#[derive(Clone, Copy, Debug)]
pub struct Log;

impl<B: fmt::Debug + Send + 'static> Destination<B> for Log {
    type Reply = B;

    async fn send<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<B> {
        if let Some(context) = cx.site.context.upgrade() {
            (context.log)(&format!("{} {}: {:?}", cx.route(), exchange.id(), exchange.body));
        }
        Ok(exchange)
    }
}
