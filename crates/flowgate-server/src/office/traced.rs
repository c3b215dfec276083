//! Where a message stands in a trace, and the span that says it was taken in.

use flowgate_tasks::TaskId;

use super::Desk;
use crate::{
    message::{Given, Head},
    traces::{Above, Context, Kind, Span},
};

/// Whoever sends this.
pub(super) fn above(given: &Given) -> Above {
    Above::new(given.last("traceparent"), given.last("tracestate"))
}

/// What hangs below a message.
pub(super) fn below(head: &Head) -> Above {
    Above::new(head.trace.as_deref(), head.trace_state.as_deref())
}

impl Desk {
    /// The head with its place in a trace, below whoever sends it.
    pub(crate) fn traced(&self, above: &Above, head: impl Into<Box<Head>>) -> Box<Head> {
        let mut head = head.into();
        let (context, parent) = self.tracer.enter(above.parent());
        head.trace = context.map(|context| context.to_string());
        head.sender = parent.map(|parent| parent.to_string());
        head.trace_state = above.state().map(str::to_owned);
        head
    }

    /// A message was taken in.
    pub(super) fn trace(&self, id: TaskId, is_duplicate: bool, head: &Head) {
        let context = head.trace.as_deref().and_then(Context::read).filter(|_| self.tracer.is_on());
        let Some(context) = context else { return };
        let parent = head.sender.as_deref().and_then(Context::read);
        let mut span = Span::new("publish", Kind::Producer, context, parent).began_at(head.created);
        span.text("messaging.message.id", &self.numbers.message(id));
        if let Some(flow) = &head.spec.flow {
            span.text("flowgate.key", &flow.key);
        }
        if let Some(part) = &head.part {
            span.text("flowgate.run", &part.id);
        }
        if is_duplicate {
            span.text("flowgate.duplicate", "true");
        }
        self.tracer.end(span);
    }
}
