//! Several at once, in one future.
//!
//! Owns how parts and branches run beside each other: polled by the step that started them, so that they are dropped with it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use crate::route::step::{Halt, Outcome};

/// Runs them, up to so many at once, and gives the bodies in their order. The dropped are left out; the first that fails ends
/// the others.
pub(super) async fn together<T, F>(works: impl Iterator<Item = F>, at_once: usize) -> Result<Vec<T>, Halt>
where
    F: Future<Output = Outcome<T>>,
{
    let mut works = works.enumerate().fuse();
    let mut under_way: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut done: Vec<(usize, T)> = Vec::new();
    poll_fn(|cx| {
        loop {
            let room = at_once - under_way.len();
            under_way.extend(works.by_ref().take(room).map(|(index, work)| (index, Box::pin(work))));
            if under_way.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let (before, mut at) = (under_way.len(), 0);
            while let Some((index, work)) = under_way.get_mut(at) {
                match work.as_mut().poll(cx) {
                    Poll::Pending => at += 1,
                    Poll::Ready(Err(Halt::Failed(error))) => return Poll::Ready(Err(Halt::Failed(error))),
                    Poll::Ready(settled) => {
                        done.extend(settled.ok().map(|exchange| (*index, exchange.body)));
                        under_way.swap_remove(at);
                    }
                }
            }
            if under_way.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await?;
    done.sort_unstable_by_key(|&(index, _)| index);
    Ok(done.into_iter().map(|(_, body)| body).collect())
}
