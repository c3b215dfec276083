//! What a new span hangs below, as it travels and as it is kept.

use serde::{Deserialize, Serialize};

use super::context::{Context, is_state};

/// Somebody's place in a trace: a `traceparent`, and the `tracestate` that others keep beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Above {
    parent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

impl Above {
    /// What these say. A parent that cannot be read is none, and what is kept beside one is for its trace alone.
    pub(crate) fn new(parent: Option<&str>, state: Option<&str>) -> Self {
        let Some(parent) = parent.filter(|parent| Context::read(parent).is_some()) else {
            return Above::default();
        };
        let state = state.filter(|state| is_state(state));
        Above { parent: Some(parent.to_owned()), state: state.map(str::to_owned) }
    }

    /// This, or the other if there is no trace here.
    pub(crate) fn or(self, other: &Above) -> Self {
        if self.is_none() { other.clone() } else { self }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.parent.is_none()
    }

    pub(crate) fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    pub(crate) fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_state_goes_with_its_parent_or_not_at_all() {
        let whole = Above::new(Some(PARENT), Some("one=1"));
        assert_eq!((whole.parent(), whole.state()), (Some(PARENT), Some("one=1")));
        assert_eq!(Above::new(Some(PARENT), Some("nonsense")).state(), None);
        for parent in [None, Some("nonsense")] {
            let none = Above::new(parent, Some("one=1"));
            assert!(none.is_none() && none.state().is_none());
            assert_eq!(none.or(&whole), whole);
        }
        assert_eq!(whole.clone().or(&Above::default()), whole);
    }
}
