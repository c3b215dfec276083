//! The shared gate as its users hold it.
//!
//! Owns the public surface. A handle is cheap to clone, and all clones are the same member of the fleet.

use std::{fmt, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use flowgate_core::{Ident, Limits, Refusal};
use tokio::sync::oneshot;

use super::{
    book::Shared,
    builder::{GateBuilder, StartError, checked},
    document::Kind,
    enter::Enter,
    look::{Look, Standing},
    pass::Pass,
    service::Handle,
    store::StoreError,
};
use crate::{
    clock::Clock,
    gate::{Keyed, LaneLook, Single},
};

/// A gate whose limits hold over a fleet: all processes that start one of the same name on the same store share them.
///
/// ```no_run
/// use flowgate::shared::Gate;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::builder("postgres://app@db/app").name("invoices").max(5).keyed().start().await?;
/// let pass = gate.enter_key("tenant-42").await?; // at most five of them, in all processes together
/// # Ok(())
/// # }
/// ```
pub struct Gate<K = Single> {
    handle: Arc<Handle>,
    kind: PhantomData<K>,
}

/// A shared gate with a separate lane, and so separate limits, for each key.
pub type KeyedGate = Gate<Keyed>;

impl Gate {
    /// Starts building a gate on the store at this address: `postgres://user@host/database` or `redis://host:6379/0`.
    /// Set at least `max` or `rate`.
    pub fn builder(store: &str) -> GateBuilder {
        GateBuilder::new(store)
    }

    /// Waits for a pass; `.await` it.
    pub fn enter(&self) -> Enter {
        Enter::new(self.shared(), None, Kind::Enter)
    }

    /// Asks for a pass without waiting in line; it waits only for the store.
    pub fn try_enter(&self) -> Enter {
        Enter::new(self.shared(), None, Kind::Try)
    }

    /// Checks the rate: uses up one start, or is refused.
    ///
    /// Cancel safety: dropped, the start may be spent or not.
    pub async fn check(&self) -> Result<(), Refusal> {
        Enter::new(self.shared(), None, Kind::Check).answer().await.map(|_| ())
    }

    /// Waits for a pass, then runs `work` under it. The work goes on even if the pass is lost meanwhile; where that
    /// matters, ask for a [`Pass`] yourself.
    ///
    /// Cancel safety: dropped, it leaves the line, or drops the work and then gives the slot back.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Refusal> {
        let _pass: Pass = self.enter().await?;
        Ok(work.await)
    }
}

impl KeyedGate {
    /// Waits for a pass of this key's lane; `.await` it. The empty string is a key like any other.
    pub fn enter_key(&self, key: &str) -> Enter {
        Enter::new(self.shared(), Some(key), Kind::Enter)
    }

    /// Asks for a pass of this key's lane without waiting in line; it waits only for the store.
    pub fn try_enter_key(&self, key: &str) -> Enter {
        Enter::new(self.shared(), Some(key), Kind::Try)
    }

    /// Checks this key's rate: uses up one start, or is refused.
    ///
    /// Cancel safety: dropped, the start may be spent or not.
    pub async fn check_key(&self, key: &str) -> Result<(), Refusal> {
        self.spend(key).await.map(|_| ())
    }

    /// As [`KeyedGate::check_key`], and how the lane stands then.
    pub(crate) async fn spend(&self, key: &str) -> Result<Standing, Refusal> {
        Enter::new(self.shared(), Some(key), Kind::Check).answer().await.map(|(_, standing)| standing)
    }

    /// As [`KeyedGate::enter_key`], and how the lane stands then.
    #[cfg(feature = "http")]
    pub(crate) async fn admit(&self, key: &str) -> Result<(Pass, Standing), Refusal> {
        let (pass, standing) = self.enter_key(key).answer().await?;
        Ok((pass.expect("who asks for a pass is given one"), standing))
    }

    /// Runs `work` under a pass of this key's lane; see [`Gate::run`].
    pub async fn run<F: Future>(&self, key: &str, work: F) -> Result<F::Output, Refusal> {
        let _pass: Pass = self.enter_key(key).await?;
        Ok(work.await)
    }

    /// Asks the store for the state of this key's lane, over the whole fleet.
    pub async fn look_key(&self, key: &str) -> Result<LaneLook, StoreError> {
        self.look_at(Some(key)).await
    }
}

impl Gate {
    /// Asks the store for the state of the one lane, over the whole fleet.
    pub async fn look_fleet(&self) -> Result<LaneLook, StoreError> {
        self.look_at(None).await
    }
}

impl<K> Gate<K> {
    pub(crate) fn new(handle: Handle) -> Self {
        Gate { handle: Arc::new(handle), kind: PhantomData }
    }

    fn shared(&self) -> &Arc<Shared> {
        self.handle.shared()
    }

    async fn look_at(&self, key: Option<&str>) -> Result<LaneLook, StoreError> {
        let unanswered = |why: &str| StoreError::Unreachable(why.to_owned());
        let answer =
            self.shared().look_at(key).ok_or_else(|| unanswered("the gate is closed, or full of keys"))?;
        answer.await.map_err(|_| unanswered("it failed while it was asked"))
    }

    /// Returns the state of this process's part of the gate; the store is not asked.
    pub fn look(&self) -> Look {
        self.shared().look()
    }

    /// Returns the limits of the whole fleet, as far as this process has heard.
    pub fn limits(&self) -> Limits {
        self.shared().book().declared.limits
    }

    /// Returns the gate's name.
    pub fn ident(&self) -> &Ident {
        &self.shared().ident
    }

    /// Changes the limits for the whole fleet, also for those already waiting. When this returns, the store has them,
    /// and every process is told at once. Nobody in line is lost or reordered, and passes already given out stay
    /// valid. On PostgreSQL, entries that another process was storing at that very moment may still go by the old limits.
    ///
    /// Cancel safety: dropped, the limits may be set or not.
    pub async fn set_limits(&self, limits: Limits) -> Result<(), StartError> {
        let limits = checked(limits)?;
        let (reply, done) = oneshot::channel();
        {
            let mut book = self.shared().book();
            if book.is_ended {
                return Err(StoreError::Unreachable("the gate is closed".to_owned()).into());
            }
            book.wishes.push((limits, reply));
        }
        self.shared().news.notify_one();
        done.await.map_err(|_| StoreError::Unreachable("the limits may not have been set".to_owned()).into())
    }

    /// Leaves the fleet. Newcomers of this process are refused (`closed`) from now on; those in line may still start until
    /// `drain` has passed, and are refused then. Await the returned future to know when all passes of this process are
    /// back and the store knows it.
    ///
    /// Cancel safety: dropped, the gate closes all the same.
    pub fn close(&self, drain: Duration) -> impl Future<Output = ()> {
        let shared = self.shared();
        {
            let mut book = shared.book();
            let deadline = shared.clock.now().after(drain);
            book.closing = Some(book.closing.map_or(deadline, |earlier| earlier.min(deadline)));
        }
        shared.news.notify_one();
        async move {
            let ended = shared.ended.notified();
            if !shared.book().is_ended {
                ended.await;
            }
        }
    }
}

impl<K> Clone for Gate<K> {
    fn clone(&self) -> Self {
        Gate { handle: Arc::clone(&self.handle), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Gate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("ident", self.ident())
            .field("limits", &self.limits())
            .finish_non_exhaustive()
    }
}
