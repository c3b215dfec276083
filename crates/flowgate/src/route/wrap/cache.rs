//! Answers that are known already.
//!
//! Owns the options of `cache`, the step that looks before it asks, and the bounded store behind it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use flowgate_core::{Key, OptionError, Tick};

use super::stack::Wrap;
use crate::{
    route::{
        cx::Cx,
        event::{Scope, What},
        exchange::Exchange,
        step::{Outcome, Step},
    },
    sync::{Mutex, lock},
};

const MOST_ENTRIES: usize = 1_000_000;

/// The options of `cache`: what is remembered, and for how long.
///
/// ```
/// use flowgate::route::{Cache, Exchange};
/// use std::time::Duration;
///
/// let prices: Cache<String> = Cache::ttl(Duration::from_secs(60), |sku: &Exchange<String>| sku.body.clone());
/// ```
#[must_use = "options do nothing until a route has them"]
pub struct Cache<B> {
    ttl: Duration,
    max_entries: usize,
    key: CacheKey<B>,
}

type CacheKey<B> = Arc<dyn Fn(&Exchange<B>) -> String + Send + Sync>;

impl<B> Cache<B> {
    /// Remembers the outcome of each key for `ttl`.
    pub fn ttl<K: Into<String>>(
        ttl: Duration,
        key: impl Fn(&Exchange<B>) -> K + Send + Sync + 'static,
    ) -> Self {
        Cache { ttl, max_entries: 1_000, key: Arc::new(move |exchange| key(exchange).into()) }
    }

    /// Limits how many outcomes are remembered: 1 to 1,000,000, default 1,000. The least recently used makes room.
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = max_entries;
        self
    }

    pub(crate) fn check(&self) -> Result<(), OptionError> {
        if self.ttl.is_zero() {
            return Err(OptionError::new("ttl", format_args!("{:?}", self.ttl), "a time above zero"));
        }
        if !(1..=MOST_ENTRIES).contains(&self.max_entries) {
            return Err(OptionError::new("max_entries", self.max_entries, "an integer from 1 to 1000000"));
        }
        Ok(())
    }

    pub(crate) fn max(&self) -> usize {
        self.max_entries
    }

    /// The wrapper, with its store at this place among the caches of the site.
    pub(crate) fn wrapper<T>(self, index: usize, scope: Scope) -> Cached<B, T> {
        Cached { cache: self, index, scope, inner: (), body: PhantomData }
    }
}

impl<B> fmt::Debug for Cache<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// A step whose outcomes are remembered.
pub struct Cached<B, T, S = ()> {
    cache: Cache<B>,
    index: usize,
    scope: Scope,
    inner: S,
    body: PhantomData<fn() -> T>,
}

impl<B, T, S> Cached<B, T, S> {
    pub(crate) fn with<N>(self, inner: N) -> Cached<B, T, N> {
        let Cached { cache, index, scope, .. } = self;
        Cached { cache, index, scope, inner, body: PhantomData }
    }
}

impl<B, T, S> Step<B> for Cached<B, T, S>
where
    B: Send + 'static,
    T: Clone + Send + Sync + 'static,
    S: Step<B, Out = T>,
{
    type Out = T;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<T> {
        let store =
            cx.site.caches[self.index].downcast_ref::<Store<T>>().expect("a cache is built for its step");
        let scope = self.scope;
        let key = Key::new(&(self.cache.key)(&exchange));
        if let Some(known) = store.find(&key, cx.now()) {
            cx.tell(|| What::CacheHit { scope, key });
            return Ok(exchange.take().1.with(T::clone(&known)));
        }
        cx.tell(|| What::CacheMissed { scope, key: key.clone() });
        let settled = self.inner.run(exchange, cx).await?;
        store.keep(key, Arc::new(settled.body.clone()), cx.now().after(self.cache.ttl));
        Ok(settled)
    }
}

impl<B: Send + 'static, T: Clone + Send + Sync + 'static> Wrap<B, T> for Cached<B, T> {
    type Around<S: Step<B, Out = T>> = Cached<B, T, S>;

    fn around<S: Step<B, Out = T>>(self, inner: S) -> Cached<B, T, S> {
        self.with(inner)
    }
}

impl<B, T, S> fmt::Debug for Cached<B, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Values by key, each for a while, and only so many.
pub(crate) struct Store<T> {
    max: usize,
    inside: Mutex<Inside<T>>,
}

struct Inside<T> {
    entries: HashMap<Key, Entry<T>>,
    /// By when they were used last: a number that only grows.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
}

/// Shared, so that it is copied with no lock held. Nor is one dropped under it: both are the user's code.
struct Entry<T> {
    value: Arc<T>,
    until: Tick,
    used: u64,
}

impl<T> Store<T> {
    pub(crate) fn new(max: usize) -> Self {
        let inside = Inside { entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0 };
        Store { max, inside: Mutex::new(inside) }
    }

    fn find(&self, key: &Key, now: Tick) -> Option<Arc<T>> {
        let mut guard = lock(&self.inside);
        let Inside { entries, by_use, uses } = &mut *guard;
        let entry = entries.get_mut(key)?;
        by_use.remove(&entry.used);
        if entry.until <= now {
            let over = entries.remove(key);
            drop(guard);
            drop(over);
            return None;
        }
        *uses += 1;
        entry.used = *uses;
        by_use.insert(*uses, key.clone());
        Some(Arc::clone(&entry.value))
    }

    fn keep(&self, key: Key, value: Arc<T>, until: Tick) {
        let mut guard = lock(&self.inside);
        let Inside { entries, by_use, uses } = &mut *guard;
        *uses += 1;
        let before = entries.insert(key.clone(), Entry { value, until, used: *uses });
        if let Some(before) = &before {
            by_use.remove(&before.used);
        }
        by_use.insert(*uses, key);
        let oldest = if entries.len() > self.max { by_use.pop_first() } else { None };
        let least = oldest.and_then(|(_, oldest)| entries.remove(&oldest));
        drop(guard);
        drop((before, least));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_leaves_and_nothing_outlives_its_time() {
        let store = Store::new(2);
        let at = |seconds| Tick::ZERO.after(Duration::from_secs(seconds));
        store.keep(Key::new("a"), Arc::new(1), at(10));
        store.keep(Key::new("b"), Arc::new(2), at(10));
        assert_eq!(store.find(&Key::new("a"), at(1)).as_deref(), Some(&1));
        store.keep(Key::new("c"), Arc::new(3), at(10));
        assert_eq!(store.find(&Key::new("b"), at(1)), None, "`a` was used after it");
        assert_eq!(store.find(&Key::new("a"), at(9)).as_deref(), Some(&1));
        assert_eq!(store.find(&Key::new("a"), at(10)), None);
        store.keep(Key::new("c"), Arc::new(4), at(20));
        let inside = lock(&store.inside);
        assert_eq!((inside.entries.len(), inside.by_use.len()), (1, 1));
    }

    /// Looks whether its store is locked, as it is dropped.
    struct Looks(Arc<Store<Looks>>, Arc<Mutex<Vec<bool>>>);

    impl Drop for Looks {
        fn drop(&mut self) {
            lock(&self.1).push(self.0.inside.try_lock().is_err());
        }
    }

    #[test]
    fn no_value_is_dropped_under_the_lock() {
        // Seen to fail: with what is replaced, over or too much dropped where it was taken out. A value that asks the cache as it
        // is dropped would have waited for itself.
        let (store, were_locked) = (Arc::new(Store::new(1)), Arc::new(Mutex::new(Vec::new())));
        let value = || Arc::new(Looks(Arc::clone(&store), Arc::clone(&were_locked)));
        let at = |seconds| Tick::ZERO.after(Duration::from_secs(seconds));
        for key in ["a", "a", "b"] {
            store.keep(Key::new(key), value(), at(10));
        }
        assert!(store.find(&Key::new("b"), at(10)).is_none());
        assert_eq!(*lock(&were_locked), [false; 3]);
    }
}
