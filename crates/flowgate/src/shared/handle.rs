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

/// A gate whose limits hold over a fleet: every process that starts one of the same name on the same store.
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

/// A shared gate with a lane for each key.
pub type KeyedGate = Gate<Keyed>;

impl Gate {
    /// Starts with nothing set but where the limits are kept: at least `max` or `rate` has to be. The address is
    /// `postgres://user@host/database` or `redis://host:6379/0`.
    pub fn builder(store: &str) -> GateBuilder {
        GateBuilder::new(store)
    }

    /// Asks for a pass; await it.
    pub fn enter(&self) -> Enter {
        Enter::new(self.shared(), None, Kind::Enter)
    }

    /// Asks for a pass now: never waits in line, only for the store.
    pub fn try_enter(&self) -> Enter {
        Enter::new(self.shared(), None, Kind::Try)
    }

    /// Spends one start now, or is refused: a rate check.
    ///
    /// Cancel safety: dropped, the start may be spent or not.
    pub async fn check(&self) -> Result<(), Refusal> {
        Enter::new(self.shared(), None, Kind::Check).answer().await.map(|_| ())
    }

    /// Runs `work` with a pass. If the pass is lost meanwhile, the work goes on. Enter for a [`Pass`]
    /// yourself where that matters.
    ///
    /// Cancel safety: dropped, it leaves the line, or drops the work and then gives the slot back.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Refusal> {
        let _pass: Pass = self.enter().await?;
        Ok(work.await)
    }
}

impl KeyedGate {
    /// Asks for a pass of this key's lane; await it. The empty key is a key.
    pub fn enter_key(&self, key: &str) -> Enter {
        Enter::new(self.shared(), Some(key), Kind::Enter)
    }

    /// Asks for a pass now: never waits in line, only for the store.
    pub fn try_enter_key(&self, key: &str) -> Enter {
        Enter::new(self.shared(), Some(key), Kind::Try)
    }

    /// Spends one start of this key's rate now, or is refused.
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

    /// Runs `work` with a pass of this key's lane; see [`Gate::run`].
    pub async fn run<F: Future>(&self, key: &str, work: F) -> Result<F::Output, Refusal> {
        let _pass: Pass = self.enter_key(key).await?;
        Ok(work.await)
    }

    /// This key's lane right now, over the whole fleet: the store is asked.
    pub async fn look_key(&self, key: &str) -> Result<LaneLook, StoreError> {
        self.look_at(Some(key)).await
    }
}

impl Gate {
    /// The one lane right now, over the whole fleet: the store is asked.
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

    /// This process's part of the gate right now; nothing is asked of the store.
    pub fn look(&self) -> Look {
        self.shared().look()
    }

    /// The limits that hold for the whole fleet, as far as this process has heard.
    pub fn limits(&self) -> Limits {
        self.shared().book().declared.limits
    }

    /// The gate's names.
    pub fn ident(&self) -> &Ident {
        &self.shared().ident
    }

    /// Sets other limits for the whole fleet, for waiters as well: when this is done, the store has them, and
    /// every process hears of them at once. Nobody in line is lost or reordered; passes that are out stay
    /// out.
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

    /// Leaves the fleet: newcomers of this process are refused (`closed`). Those in line go on until `drain` is over, and are refused
    /// then. Await it to know when all passes of this process are back and the store knows it.
    ///
    /// Cancel safety: dropped, the gate closes all the same.
    pub async fn close(&self, drain: Duration) {
        let shared = self.shared();
        let ended = shared.ended.notified();
        {
            let mut book = shared.book();
            let deadline = shared.clock.now().after(drain);
            book.closing = Some(book.closing.map_or(deadline, |earlier| earlier.min(deadline)));
            if book.is_ended {
                return;
            }
        }
        shared.news.notify_one();
        ended.await;
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
