//! What travels through a route.
//!
//! Owns the exchange: a body with its headers and its names. It knows nothing of routes.

use std::{
    borrow::Cow,
    cell::Cell,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use flowgate_core::Key;

use crate::sync::{Mutex, lock};

/// A message on its way through a route: a body, headers, and the names by which it can be followed.
#[derive(Clone, Debug)]
pub struct Exchange<B> {
    /// The content.
    pub body: B,
    /// Names and values beside the body.
    pub headers: Headers,
    id: ExchangeId,
    more: Option<Box<More>>,
}

/// What most exchanges have none of, apart from the rest: an exchange is handed from step to step and is to be small.
#[derive(Clone, Debug, Default)]
struct More {
    correlation: Option<Arc<str>>,
    keys: Keys,
}

impl<B> Exchange<B> {
    /// Creates an exchange with this body and no headers.
    pub fn new(body: B) -> Self {
        Exchange { body, headers: Headers::default(), id: ExchangeId::next(), more: None }
    }

    /// Returns its own name.
    pub fn id(&self) -> ExchangeId {
        self.id
    }

    /// Returns the name that all exchanges of one cause share: the one it was given, or else its own.
    pub fn correlation_id(&self) -> Cow<'_, str> {
        match self.correlation() {
            Some(given) => Cow::Borrowed(given),
            None => Cow::Owned(self.id.to_string()),
        }
    }

    /// Sets the correlation id, for an exchange that is a part of something with a name already.
    #[must_use]
    pub fn correlated(mut self, correlation_id: &str) -> Self {
        self.more().correlation = Some(Arc::from(correlation_id));
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Replaces the body.
    pub fn map<T>(self, change: impl FnOnce(B) -> T) -> Exchange<T> {
        let (body, rest) = self.take();
        rest.with(change(body))
    }

    /// Splits it into the body and all the rest.
    pub fn take(self) -> (B, Exchange<()>) {
        let Exchange { body, headers, id, more } = self;
        (body, Exchange { body: (), headers, id, more })
    }

    /// All of it but the body, as it is now.
    pub(crate) fn envelope(&self) -> Exchange<()> {
        Exchange { body: (), headers: self.headers.clone(), id: self.id, more: self.more.clone() }
    }

    /// A part of it with a body of its own: the same names and headers. Its keys are its own as well, for they are told by the
    /// body.
    pub(crate) fn part<T>(&self, body: T) -> Exchange<T> {
        let mut part = self.envelope().with(body);
        part.forget_keys();
        part
    }

    /// A new exchange that it causes: a name of its own, and the same correlation.
    pub(crate) fn caused<T>(&self, body: T) -> Exchange<T> {
        let correlation = self.correlation().cloned().unwrap_or_else(|| Arc::from(self.id.to_string()));
        let more = Some(Box::new(More { correlation: Some(correlation), keys: Keys::None }));
        Exchange { headers: self.headers.clone(), more, ..Exchange::new(body) }
    }

    /// The key that this limiter asked for.
    pub(crate) fn key(&self, limiter: usize) -> Option<Key> {
        let find =
            |known: &[(usize, Key)]| known.iter().find(|(of, _)| *of == limiter).map(|(_, key)| key.clone());
        match &self.more.as_ref()?.keys {
            Keys::None => None,
            Keys::One(known) => find(std::slice::from_ref(known)),
            Keys::Several(known) => find(known),
            Keys::Shared(known) => find(&lock(known)),
        }
    }

    pub(crate) fn keep_key(&mut self, limiter: usize, key: Key) {
        let known = &mut self.more().keys;
        if let Keys::Shared(known) = known {
            lock(known).push((limiter, key));
        } else if matches!(known, Keys::None) {
            *known = Keys::One((limiter, key));
        } else {
            let mut all = known.take();
            all.push((limiter, key));
            *known = Keys::Several(all);
        }
    }

    /// Its limits are others now, and what they will ask is theirs.
    pub(crate) fn forget_keys(&mut self) {
        if let Some(more) = &mut self.more {
            more.keys = Keys::None;
        }
    }

    /// From here on all copies of it know the same keys: whichever attempt asks for one, it is asked for once.
    pub(crate) fn share_keys(&mut self) {
        let known = &mut self.more().keys;
        if !matches!(known, Keys::Shared(_)) {
            *known = Keys::Shared(Arc::new(Mutex::new(known.take())));
        }
    }

    fn correlation(&self) -> Option<&Arc<str>> {
        self.more.as_ref()?.correlation.as_ref()
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

impl Exchange<()> {
    /// Puts a body in.
    pub fn with<T>(self, body: T) -> Exchange<T> {
        let Exchange { body: (), headers, id, more } = self;
        Exchange { body, headers, id, more }
    }
}

/// The keys that limiters asked for, by limiter. Seldom more than one.
#[derive(Clone, Debug, Default)]
enum Keys {
    #[default]
    None,
    One((usize, Key)),
    Several(Vec<(usize, Key)>),
    Shared(Arc<Mutex<Vec<(usize, Key)>>>),
}

impl Keys {
    /// All that no other exchange knows; none are left.
    fn take(&mut self) -> Vec<(usize, Key)> {
        match std::mem::take(self) {
            Keys::None | Keys::Shared(_) => Vec::new(),
            Keys::One(known) => vec![known],
            Keys::Several(known) => known,
        }
    }
}

/// The name of an exchange: unique within its process, and in all likelihood among all processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExchangeId(u64);

/// How many names a thread takes at once, so that threads do not write to the same word for each.
const BLOCK: u64 = 1_024;

impl ExchangeId {
    fn next() -> Self {
        static BLOCKS: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        NEXT.with(|next| {
            let mut id = next.get();
            if id % BLOCK == 0 {
                id = BLOCKS.fetch_add(BLOCK, Ordering::Relaxed);
            }
            next.set(id + 1);
            ExchangeId(id + 1)
        })
    }
}

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0_u8));
        write!(f, "{:016x}-{}", *PROCESS, self.0)
    }
}

impl fmt::Debug for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Headers of an exchange: names and values beside the body. Names are compared without regard to case.
#[expect(
    clippy::box_collection,
    reason = "one word where there are none, for they are handed from step to step"
)]
#[derive(Clone, Default)]
pub struct Headers(Option<Box<Vec<Header>>>);

/// A name and its value.
type Header = (Cow<'static, str>, String);

impl Headers {
    /// Returns the value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Sets the value of this name, replacing the one it had.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let name = name.into();
        self.remove(&name);
        self.0.get_or_insert_default().push((name, value.into()));
    }

    /// Removes this name.
    pub fn remove(&mut self, name: &str) {
        if let Some(all) = &mut self.0 {
            all.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        }
    }

    /// Iterates over all names and values, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|all| all.iter()).map(|(name, value)| (&**name, value.as_str()))
    }
}

impl PartialEq for Headers {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Headers {}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
