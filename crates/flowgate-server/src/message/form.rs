//! The message itself, and its bytes in a store.
//!
//! The bytes are a length, a head as JSON without what is not set, and the body as it is. A head of a later version may say
//! more; what it does not say has its default.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Space, Spec, Start, plain};

/// A usual head takes so many bytes beside what its sender chose.
const ROOM: usize = 192;

/// A message on its way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    /// It is large, and messages are moved about: so it stays where it is.
    pub(crate) head: Box<Head>,
    pub(crate) body: Bytes,
}

/// Everything but the body. Moments are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Head {
    /// Written by the store's side of a namespace, whoever made the message. It comes first: messages are counted by it.
    #[serde(skip_serializing_if = "Space::is_root")]
    pub(crate) space: Space,
    pub(crate) url: String,
    pub(crate) created: u64,
    pub(crate) spec: Spec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) caller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<String>,
    /// The queue whose next message waits for this one's end, and the number of that rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holds: Option<(String, u32)>,
    /// The part it has in a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<Part>,
    /// Of a callback: how many to its host are under way at once, unless it has a key of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<u32>,
    /// The `traceparent` that its deliveries stand below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
    /// The `tracestate` that goes with it: what others wrote there for themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_state: Option<String>,
    /// That of whoever sent it; of no use once it is stored.
    #[serde(skip)]
    pub(crate) sender: Option<String>,
}

/// The part that a message has in a run of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The run's own name.
    pub(crate) run: String,
    /// What its user calls it.
    pub(crate) id: String,
    pub(crate) role: Role,
    /// The name of the step it was stored with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) step: String,
}

/// What a message does in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Brings the steps so far to the workflow, which goes on from there.
    Step,
    /// Calls somebody else.
    Call,
    /// Brings that call's answer to the workflow.
    Back,
    /// Tells the workflow that its run has failed.
    Failure,
    /// Stands for the end of a run that no delivery ended. It is delivered nowhere, and becomes the run's dead letter.
    Letter,
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored message cannot be read: it was written by a newer version, or is damaged")]
pub(crate) struct Unreadable;

impl Message {
    /// Where in the bytes of a stored message its head begins.
    pub(crate) const HEAD_AT: usize = 4;

    /// When it may start, in milliseconds since the Unix epoch.
    pub(crate) fn not_before(&self) -> u64 {
        match self.head.spec.start {
            None => self.head.created,
            Some(Start::After(delay)) => self.head.created.saturating_add(delay),
            Some(Start::At(at)) => at.saturating_mul(1000),
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn size(&self) -> usize {
        self.head.url.len() + self.head.spec.size() + self.body.len()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ROOM + self.size());
        bytes.extend_from_slice(&[0; 4]);
        if plain::write(&self.head, &mut bytes).is_none() {
            bytes.truncate(4);
            serde_json::to_writer(&mut bytes, &self.head).expect("a head is plain data");
        }
        let length = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&self.body);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &Bytes) -> Result<Self, Unreadable> {
        let length = bytes.first_chunk::<4>().ok_or(Unreadable)?;
        let end = 4 + u32::from_be_bytes(*length) as usize;
        let head = bytes.get(4..end).ok_or(Unreadable)?;
        let by_hand = plain::read(head);
        let head = by_hand.map_or_else(|| serde_json::from_slice(head).map_err(|_| Unreadable), Ok)?;
        Ok(Message { head, body: bytes.slice(end..) })
    }

    /// The bytes of a stored message without its body, which are the first of them.
    pub(crate) fn bare(bytes: &Bytes) -> Result<Bytes, Unreadable> {
        let length = bytes.first_chunk::<4>().ok_or(Unreadable)?;
        let end = 4 + u32::from_be_bytes(*length) as usize;
        if end > bytes.len() { Err(Unreadable) } else { Ok(bytes.slice(..end)) }
    }

    /// The part of a stored message's bytes that is its head; nothing, if they are none.
    pub(crate) fn head_of(bytes: &[u8]) -> &[u8] {
        let length = bytes.first_chunk::<4>().map_or(0, |length| u32::from_be_bytes(*length) as usize);
        bytes.get(4..4 + length).unwrap_or_default()
    }

    /// The message with an empty body.
    pub(crate) fn without_body(&self) -> Message {
        Message { head: self.head.clone(), body: Bytes::new() }
    }
}
