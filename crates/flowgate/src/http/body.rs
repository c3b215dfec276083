//! Response bodies that hold their pass.
//!
//! Owns when a slot is given back: at the end of the body, at its error, or when the body is dropped because the client is
//! gone; whichever comes first.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use flowgate_core::Outcome;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::gate::Pass;

/// A slot of a gate in this process, or of one that a fleet shares. Dropped, it is given back.
pub(crate) enum Slot {
    Own(Pass),
    // In a box: it is larger, and nobody who waits for a store minds.
    #[cfg(feature = "shared")]
    Fleet(Box<crate::shared::Pass>),
}

impl Slot {
    /// The pass of a gate in this process.
    pub(crate) fn own(&self) -> Option<&Pass> {
        match self {
            Slot::Own(pass) => Some(pass),
            #[cfg(feature = "shared")]
            Slot::Fleet(_) => None,
        }
    }

    /// Gives it back. A gate in this process learns how the work ended.
    pub(crate) fn settle(self, outcome: Outcome) {
        match self {
            Slot::Own(pass) => pass.settle(outcome),
            #[cfg(feature = "shared")]
            Slot::Fleet(pass) => drop(pass),
        }
    }
}

pin_project! {
    /// The body of a response that passed a layer, together with its pass; or the body of a refusal.
    pub struct GatedBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjected]
    enum Kind<B> {
        // Fields drop in this order: the slot is never free while the body still owns anything.
        Inner { #[pin] body: B, kept: Kept },
        Refusal { bytes: Option<Bytes> },
    }
}

/// A pass until the end of a body, and what its gate is told then.
struct Kept {
    slot: Option<Slot>,
    outcome: Outcome,
}

impl Kept {
    fn give_back(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.settle(self.outcome);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<B> GatedBody<B> {
    /// Wraps a body, which holds the pass until its end. Without a pass it is the body as it is.
    pub fn new(body: B, pass: Option<Pass>) -> Self {
        GatedBody::of(body, pass.map(Slot::Own), Outcome::Done)
    }

    /// The same, of work that ended like this: an adaptive gate learns it when the slot comes back.
    pub(crate) fn of(body: B, slot: Option<Slot>, outcome: Outcome) -> Self {
        GatedBody { kind: Kind::Inner { body, kept: Kept { slot, outcome } } }
    }

    /// Creates the body of a refusal.
    pub fn refusal(bytes: Bytes) -> Self {
        GatedBody { kind: Kind::Refusal { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
    }
}

impl<B: Body<Data = Bytes>> Body for GatedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProjected::Refusal { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            KindProjected::Inner { mut body, kept } => {
                // Looked at where it is: frames are large, and there is one for each piece of a body.
                let polled = body.as_mut().poll_frame(cx);
                let is_over = match &polled {
                    Poll::Pending => false,
                    // Whoever sends the body need not ask again once it says that it has ended.
                    Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
                    Poll::Ready(_) => true,
                };
                if is_over {
                    kept.give_back();
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body, .. } => body.is_end_stream(),
            Kind::Refusal { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body, .. } => body.size_hint(),
            Kind::Refusal { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

impl<B> std::fmt::Debug for GatedBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, holds) = match &self.kind {
            Kind::Inner { kept, .. } => ("inner", kept.slot.is_some()),
            Kind::Refusal { .. } => ("refusal", false),
        };
        f.debug_struct("GatedBody").field("kind", &name).field("holds_a_pass", &holds).finish()
    }
}
