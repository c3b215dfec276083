//! Asking for a pass of a shared gate.
//!
//! Owns the way of one entry, from the book to its answer. However it is dropped, it leaves nothing behind.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
};

use flowgate_core::{Key, Reason, Refusal};

use super::{
    book::{Answer, Asked, Shared},
    document::Kind,
    pass::Pass,
};

/// A request for a [`Pass`]; await it.
///
/// Cancel safety: dropped while it waits, it leaves the line; dropped when it was just handed a slot, it hands the slot on.
#[must_use = "nothing is asked until it is awaited"]
#[derive(Clone, Debug)]
pub struct Enter {
    shared: Arc<Shared>,
    key: Option<Key>,
    weight: u32,
    kind: Kind,
}

impl Enter {
    pub(crate) fn new(shared: &Arc<Shared>, key: Option<&str>, kind: Kind) -> Self {
        Enter { shared: Arc::clone(shared), key: key.map(Key::new), weight: 1, kind }
    }

    /// Asks for this many slots at once. Default: 1. More than `max` is refused (`too-heavy`).
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight.max(1);
        self
    }

    /// The answer, whatever was asked.
    pub(crate) async fn answer(self) -> Answer {
        let Enter { shared, key, weight, kind } = self;
        let asked = match shared.ask(key.as_ref().map(Key::as_str), weight, kind) {
            Ok(asked) => asked,
            Err(refusal) => {
                // Who tries again and again must not keep others from running, of whom one may be the gate's own task.
                tokio::task::coop::consume_budget().await;
                return Err(refusal);
            }
        };
        let Asked { name, ticket, since, answer: mut reply } = asked;
        let place = Place { shared: &shared, name: &name, ticket };
        let answer = loop {
            // Made before the time is looked at: other limits in between are heard.
            let relimited = shared.relimited.notified();
            let left = shared.time_left(since).filter(|_| kind == Kind::Enter);
            tokio::select! {
                biased;
                answer = &mut reply => break answer,
                () = relimited => {}
                // Made only if it is waited for: it needs a timer of the runtime.
                () = async { tokio::time::sleep(left.unwrap_or_default()).await }, if left.is_some() => {
                    return Err(shared.give_up(&name, ticket));
                }
            }
        };
        std::mem::forget(place);
        // Whoever would have answered is gone, and the gate with it.
        answer.unwrap_or_else(|_| Err(Refusal::new(Arc::clone(&shared.ident), key, Reason::Closed)))
    }
}

/// A place in the book, which goes with it.
struct Place<'a> {
    shared: &'a Shared,
    name: &'a Arc<str>,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.withdraw(self.name, self.ticket);
    }
}

impl IntoFuture for Enter {
    type Output = Result<Pass, Refusal>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (pass, _) = self.answer().await?;
            Ok(pass.expect("who asks for a pass is given one"))
        })
    }
}
