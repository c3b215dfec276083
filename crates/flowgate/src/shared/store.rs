//! What a store has to do, and which one an address means.
//!
//! Owns the seam. A store has no rules: it keeps documents and swaps one for another if nobody was faster, it keeps leases by its
//! own clock, and it carries wake-ups. What a document says it never looks at.

use std::{future::Future, pin::Pin, time::Duration};

use flowgate_core::{OptionError, Tick};

use super::document::Member;

/// What a store answers, in time.
pub(crate) type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A connection to the store, for one gate. Used by one task alone, one call after the other. A call that was dropped,
/// or that failed, may have been done or not; the next one begins with a new connection if it has to.
pub(crate) trait Store: Send {
    /// Begins a lease, and hears what is said to this member from now on.
    fn join(&mut self, member: Member, lease: Duration) -> Reply<'_, ()>;

    /// Renews a lease. `false`: it has run out, and nothing brings it back.
    fn renew(&mut self, member: Member, lease: Duration) -> Reply<'_, bool>;

    /// Ends a lease.
    fn leave(&mut self, member: Member) -> Reply<'_, ()>;

    /// What is kept under these names.
    fn load<'a>(&'a mut self, names: &'a [String]) -> Reply<'a, Loaded>;

    /// Swaps documents, each for itself: whether it was done. None is, if the limits are not kept in this version any
    /// more. Whoever is to be woken by one is told if it was.
    fn swap<'a>(&'a mut self, swaps: &'a [Swap], limits: u64) -> Reply<'a, Vec<bool>>;

    /// Tells every member of the gate to look at its limits.
    fn call_all(&mut self) -> Reply<'_, ()>;

    /// For how long it has forgotten nothing; `None` for one that never forgets all it knew.
    fn age(&mut self) -> Reply<'_, Option<Duration>>;

    /// Removes some of what speaks of nobody any more, so that all of it is removed in time: this gate's at least. What
    /// is left of a gate that nobody starts any more others sweep, or it ends by itself.
    fn sweep(&mut self) -> Reply<'_, ()>;

    /// Whether the limits are swept too, once nobody of the gate is there: then it need not have forgotten anything if
    /// they are gone.
    fn sweeps_limits(&self) -> bool;

    /// The next wake-up. Dropped, it loses none.
    fn wake(&mut self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>>;

    /// A wake-up that has come already.
    fn heard(&mut self) -> Option<Wake>;
}

/// What is kept under some names.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Whether the one who asks is known to live. One that is not has lost all it knew of, whether by time or by a
    /// store that forgot.
    pub(crate) is_alive: bool,
    /// One for each name.
    pub(crate) seen: Vec<Seen>,
}

/// What is kept under a name.
#[derive(Debug)]
pub(crate) struct Seen {
    /// 0 where nothing is kept.
    pub(crate) version: u64,
    pub(crate) document: Vec<u8>,
    /// Whom of those it speaks of is dead, for good.
    pub(crate) dead: Vec<Member>,
    /// How soon the first lease of the others may run out.
    pub(crate) soonest: Option<Duration>,
    /// The store's own time.
    pub(crate) now: Tick,
}

impl Seen {
    /// What is known without asking.
    pub(crate) fn nothing() -> Self {
        Seen { version: 0, document: Vec::new(), dead: Vec::new(), soonest: None, now: Tick::ZERO }
    }
}

/// One document for another.
#[derive(Debug)]
pub(crate) struct Swap {
    pub(crate) name: String,
    /// Only if this is kept; 0 if nothing is.
    pub(crate) expected: u64,
    /// What it is called then: a number that was never used before.
    pub(crate) version: u64,
    pub(crate) document: Vec<u8>,
    /// Whom it speaks of.
    pub(crate) members: Vec<Member>,
    /// When it may be removed, if those are gone; the limits, if nobody of the gate is there.
    pub(crate) rests_at: Tick,
    /// Who is to look at it.
    pub(crate) woken: Vec<Member>,
}

/// What a store says unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Look at what is kept under this name.
    At(String),
    /// Look at everything: the limits are others, or something may have been missed.
    All,
    /// The connection is gone.
    Gone,
}

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be reached, or the connection broke.
    #[error("the store does not answer: {0}")]
    Unreachable(String),
    /// It answered with an error.
    #[error("the store returned an error: {0}")]
    Refused(String),
    /// What it keeps was written by something else than this version of Flowgate.
    #[error("the value stored under {0:?} cannot be read: a newer version may have written it")]
    Unreadable(String),
}

/// Which store an address means.
pub(crate) fn open(url: &str, gate: &str) -> Result<Box<dyn Store>, OptionError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme {
        #[cfg(feature = "shared-postgres")]
        "postgres" | "postgresql" => Ok(Box::new(super::postgres::Postgres::new(url, gate)?)),
        #[cfg(feature = "shared-redis")]
        "redis" => Ok(Box::new(super::redis::Redis::new(url, gate)?)),
        _ => {
            let known: &[&str] = &[
                #[cfg(feature = "shared-postgres")]
                "`postgres://user@host/database`",
                #[cfg(feature = "shared-redis")]
                "`redis://host:6379/0`",
            ];
            let accepted =
                format!("an address like {}, depending on the crate's features", known.join(" or "));
            Err(OptionError::new("store", format_args!("{scheme:?}"), accepted))
        }
    }
}

/// What it answers, if it does in time.
pub(crate) async fn within<T>(
    patience: Duration,
    reply: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::Unreachable(format!("no answer within {patience:?}")));
    tokio::time::timeout(patience, reply).await.unwrap_or_else(late)
}
