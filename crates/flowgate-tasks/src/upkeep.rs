//! The service that does in a store what is due as time passes: delayed tasks join their lines, expired ones leave
//! them, tasks of workers that are gone go back, and lanes whose rate lets the next one start are checked again.
//!
//! Every process that works on a store runs one; any number of them agree.

use std::{future::pending, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::{Sleep, sleep, timeout},
};

use crate::store::{Store, StoreError, Wake};

/// At least so often, whatever is known to be due.
const SLOWEST: Duration = Duration::from_secs(1);
/// At most so often, while there is nothing to do.
const FASTEST: Duration = Duration::from_millis(1);
/// And while there is something that somebody has locked.
const HELD_UP: Duration = Duration::from_millis(100);

/// Keeps up a store until it is dropped. A store that fails is asked again.
pub async fn keep_up(store: Arc<dyn Store>) {
    keep_up_telling(store, |_| {}).await;
}

/// The same, and tells what came of each time: what was held up, if anything was.
pub(crate) async fn keep_up_telling(
    store: Arc<dyn Store>,
    tell: impl Fn(Result<Option<&StoreError>, &StoreError>),
) {
    let mut wakes = store.wakes();
    loop {
        let kept = store.upkeep().await;
        tell(kept.as_ref().map(|kept| kept.held_up.as_ref()));
        let pause = match kept {
            Ok(kept) if kept.due + kept.expired + kept.recovered > 0 => Duration::ZERO,
            Ok(kept) => {
                let fastest = if kept.held_up.is_some() { HELD_UP } else { FASTEST };
                kept.next.unwrap_or(SLOWEST).clamp(fastest, SLOWEST)
            }
            Err(_) => SLOWEST,
        };
        let _ = timeout(pause, until_due(&mut wakes, || store.wake_rested())).await;
    }
}

/// Waits for what may be due before the pause is over: a delay that is shorter. Lanes that come to rest meanwhile are
/// woken when it is time, and that is no reason for all the rest of upkeep: a rate of many starts a second has as many
/// rests.
async fn until_due<R>(wakes: &mut Receiver<Wake>, wake_rested: impl Fn() -> R)
where
    R: Future<Output = Result<Option<Duration>, StoreError>>,
{
    let mut resting: Option<Pin<Box<Sleep>>> = None;
    loop {
        let rested = async {
            match &mut resting {
                Some(resting) => resting.await,
                None => pending().await,
            }
        };
        tokio::select! {
            woken = wakes.recv() => match woken {
                Ok(Wake::Due | Wake::Missed) | Err(RecvError::Lagged(_)) => return,
                Ok(Wake::Rests(rest)) => {
                    let rest = sleep(rest.max(FASTEST));
                    if resting.as_ref().is_none_or(|resting| rest.deadline() < resting.deadline()) {
                        resting = Some(Box::pin(rest));
                    }
                }
                Ok(_) => {}
                Err(RecvError::Closed) => pending().await,
            },
            () = rested => match wake_rested().await {
                Ok(next) => resting = next.map(|rest| Box::pin(sleep(rest.max(FASTEST)))),
                Err(_) => return,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::sync::broadcast;

    use super::*;
    use crate::worker::clock::now;

    #[tokio::test(start_paused = true)]
    async fn f1_what_rests_is_woken_when_its_rest_is_over() {
        // Seen to fail: with `Rests` not listened to, nothing was woken before the next upkeep, up to a second later;
        // with the later of two moments kept, it was woken after 300 ms.
        let (sender, mut wakes) = broadcast::channel(8);
        let start = now();
        let woken = RefCell::new(Vec::new());
        let wake_rested = async || {
            woken.borrow_mut().push((now() - start).as_millis());
            let is_first = woken.borrow().len() == 1;
            if !is_first {
                sender.send(Wake::Due).expect("somebody listens");
            }
            Ok(is_first.then_some(Duration::from_millis(50)))
        };
        for rest in [300, 100, 200] {
            sender.send(Wake::Rests(Duration::from_millis(rest))).expect("somebody listens");
        }
        let pause = timeout(SLOWEST, until_due(&mut wakes, wake_rested));
        assert!(pause.await.is_ok(), "a delay is heard of meanwhile");
        assert_eq!(*woken.borrow(), [100, 150], "the store says how long the next one still rests");
    }
}
