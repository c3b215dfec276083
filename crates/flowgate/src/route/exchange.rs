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

/// One message on its way: a body, headers, and the names by which it is followed.
#[derive(Clone, Debug)]
pub struct Exchange<B> {
    /// What is being worked on.
    pub body: B,
    /// What is known beside it.
    pub headers: Headers,
    id: ExchangeId,
    correlation: Option<Arc<str>>,
    keys: Keys,
    is_admitted: bool,
}

impl<B> Exchange<B> {
    /// A new exchange with no headers.
    pub fn new(body: B) -> Self {
        Exchange {
            body,
            headers: Headers::default(),
            id: ExchangeId::next(),
            correlation: None,
            keys: Keys::default(),
            is_admitted: false,
        }
    }

    /// Its own name.
    pub fn id(&self) -> ExchangeId {
        self.id
    }

    /// The name that all exchanges of one cause share: its own, unless it was given one.
    pub fn correlation_id(&self) -> Cow<'_, str> {
        match &self.correlation {
            Some(given) => Cow::Borrowed(given),
            None => Cow::Owned(self.id.to_string()),
        }
    }

    /// The same, as a part of what has this name already.
    #[must_use]
    pub fn correlated(mut self, correlation_id: &str) -> Self {
        self.correlation = Some(Arc::from(correlation_id));
        self
    }

    /// The same, with one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The same, with its slot already taken: the source holds a pass of its own for it, such as the claim of a durable
    /// queue, until it has settled. The outermost route-scope `concurrency` lets it in without a second pass.
    #[must_use]
    pub fn admitted(mut self) -> Self {
        self.is_admitted = true;
        self
    }

    /// The same with another body.
    pub fn map<T>(self, change: impl FnOnce(B) -> T) -> Exchange<T> {
        let (body, rest) = self.take();
        rest.with(change(body))
    }

    /// The body, and all the rest.
    pub fn take(self) -> (B, Exchange<()>) {
        let Exchange { body, headers, id, correlation, keys, is_admitted } = self;
        (body, Exchange { body: (), headers, id, correlation, keys, is_admitted })
    }

    /// All of it but the body, as it is now.
    pub(crate) fn envelope(&self) -> Exchange<()> {
        let (headers, correlation) = (self.headers.clone(), self.correlation.clone());
        Exchange { body: (), headers, id: self.id, correlation, keys: Keys::default(), is_admitted: false }
    }

    /// A part of it with a body of its own: the same names and headers.
    pub(crate) fn part<T>(&self, body: T) -> Exchange<T> {
        self.envelope().with(body)
    }

    /// A new exchange that it causes: a name of its own, and the same correlation.
    pub(crate) fn caused<T>(&self, body: T) -> Exchange<T> {
        let correlation = Some(self.correlation.clone().unwrap_or_else(|| Arc::from(self.id.to_string())));
        Exchange { correlation, headers: self.headers.clone(), ..Exchange::new(body) }
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.is_admitted
    }

    /// The key that this limiter asked for.
    pub(crate) fn key(&self, limiter: usize) -> Option<Key> {
        let find =
            |known: &[(usize, Key)]| known.iter().find(|(of, _)| *of == limiter).map(|(_, key)| key.clone());
        match &self.keys {
            Keys::Own(known) => find(known),
            Keys::Shared(known) => find(&lock(known)),
        }
    }

    pub(crate) fn keep_key(&mut self, limiter: usize, key: Key) {
        match &mut self.keys {
            Keys::Own(known) => known.push((limiter, key)),
            Keys::Shared(known) => lock(known).push((limiter, key)),
        }
    }

    /// From here on all copies of it know the same keys: whichever attempt asks for one, it is asked for once.
    pub(crate) fn share_keys(&mut self) {
        if let Keys::Own(known) = &mut self.keys {
            self.keys = Keys::Shared(Arc::new(Mutex::new(std::mem::take(known))));
        }
    }
}

impl Exchange<()> {
    /// The same with a body.
    pub fn with<T>(self, body: T) -> Exchange<T> {
        let Exchange { body: (), headers, id, correlation, keys, is_admitted } = self;
        Exchange { body, headers, id, correlation, keys, is_admitted }
    }
}

/// The keys that limiters asked for, by limiter.
#[derive(Clone, Debug)]
enum Keys {
    Own(Vec<(usize, Key)>),
    Shared(Arc<Mutex<Vec<(usize, Key)>>>),
}

impl Default for Keys {
    fn default() -> Self {
        Keys::Own(Vec::new())
    }
}

/// The name of an exchange: one of its process, and of no other process in all likelihood.
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

/// Names and values beside a body. Names are compared without regard to case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(Cow<'static, str>, String)>);

impl Headers {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Sets the value of this name, in place of the one it had.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let name = name.into();
        self.remove(&name);
        self.0.push((name, value.into()));
    }

    /// Takes this name away.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }

    /// All of them, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, value.as_str()))
    }
}
