//! Where in a trace something stands: the `traceparent` of W3C Trace Context.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};

/// A span of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    trace: u128,
    span: u64,
    is_sampled: bool,
}

impl Context {
    /// The first span of a new trace.
    pub(crate) fn root() -> Self {
        let (trace, span) = (u128::from(random()) << 64 | u128::from(random()), random());
        Context { trace, span, is_sampled: true }
    }

    /// Another span of the same trace.
    pub(crate) fn child(self) -> Self {
        Context { span: random(), ..self }
    }

    /// A span below `parent`, or the first of a new trace.
    pub(crate) fn below(parent: Option<Context>) -> Self {
        parent.map_or_else(Context::root, Context::child)
    }

    /// What a header says, if it is a `traceparent`. One that is not is nobody's fault here: it is as if there were none.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        // Later versions may add parts behind these four; this one has no more.
        let is_whole = version != "00" || parts.next().is_none();
        let is_valid = is_hex(version, 2)
            && version != "ff"
            && is_hex(trace, 32)
            && is_hex(span, 16)
            && is_hex(flags, 2);
        if !is_valid || !is_whole {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let (trace, span) = (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
        (trace != 0 && span != 0).then_some(Context { trace, span, is_sampled: flags & 1 == 1 })
    }

    /// Whether whoever began the trace wants it recorded.
    pub(super) fn is_sampled(self) -> bool {
        self.is_sampled
    }

    pub(super) fn trace_id(self) -> String {
        format!("{:032x}", self.trace)
    }

    pub(super) fn span_id(self) -> String {
        format!("{:016x}", self.span)
    }
}

/// Whether this is worth passing on as a `tracestate`: vendors promise to pass on so much of it, and nobody reads more.
pub(super) fn is_state(text: &str) -> bool {
    text.len() <= 512
        && text.is_ascii()
        && text.split(',').all(|member| member.trim().is_empty() || member.contains('='))
}

/// As a header says it.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

/// Never zero, which stands for none.
fn random() -> u64 {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    u64::from_be_bytes(bytes).max(1)
}

#[cfg(test)]
mod tests {
    use super::Context;

    #[test]
    fn a_traceparent_is_read_whole_or_not_at_all() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = Context::read(text).expect("a context");
        assert_eq!(context.to_string(), text);
        let child = context.child();
        assert_eq!(child.trace_id(), context.trace_id());
        assert_ne!(child.span_id(), context.span_id());
        let quiet =
            Context::read("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").expect("a context");
        assert!(!quiet.child().is_sampled());
        assert!(Context::read("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more").is_some());
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Context::read(text), None, "{text:?}");
        }
    }
}
