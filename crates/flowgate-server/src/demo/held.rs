//! A response body that holds a pass.
//!
//! Owns the end of a guarded response: the slot comes back when the body has been sent, or the client is gone, and not
//! before.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use flowgate::Pass;
use http_body::{Frame, SizeHint};

#[derive(Debug)]
pub(super) struct Held {
    // Fields drop in this order: the slot is never free while the body still owns anything.
    body: Body,
    _pass: Pass,
}

impl Held {
    pub(super) fn new(body: impl Into<Body>, pass: Pass) -> Self {
        Held { body: body.into(), _pass: pass }
    }
}

impl HttpBody for Held {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgate::Gate;

    #[tokio::test]
    async fn h3_the_slot_is_held_until_the_body_has_been_read_or_dropped() {
        // Seen to fail: with `Held::new` dropping the pass, nothing is in use while the body is there.
        let gate = Gate::builder().max(1).reject().build().expect("valid");

        let read = Body::new(Held::new("done", gate.try_enter().expect("free")));
        assert_eq!(read.size_hint().exact(), Some(4), "the length is told");
        assert_eq!(gate.look().in_use, 1);
        assert_eq!(axum::body::to_bytes(read, 16).await.expect("readable"), "done");
        assert_eq!(gate.look().in_use, 0);

        let dropped = Body::new(Held::new("done", gate.try_enter().expect("free")));
        assert_eq!(gate.look().in_use, 1);
        drop(dropped);
        assert_eq!(gate.look().in_use, 0);
    }
}
