//! What waiting entrants are told.
//!
//! Owns the step from what became of a lane to passes and refusals. They are written down under the book's
//! lock and told behind it: a pass that nobody takes comes back to the book.

use std::sync::Arc;

use flowgate_core::{Reason, Tick};
use tokio::sync::oneshot;

use super::{
    book::{Answer, Item, Shared},
    builder::OnOutage,
    document::{Document, Fate, Kind},
    lease::Lease,
    look::Standing,
    pass::Pass,
    store::StoreError,
};

/// How an item fared.
pub(crate) struct Done {
    pub(crate) document: Document,
    pub(crate) version: u64,
    pub(crate) fates: Vec<Fate>,
    /// The store's time, where it was asked for.
    pub(crate) now: Tick,
}

impl Shared {
    /// Writes down how an item fared, and tells those it is about. Nothing is told under the lock: a pass that nobody takes comes
    /// back to it.
    pub(crate) fn settle(self: &Arc<Self>, item: &Item, done: Done, lease: &Arc<Lease>) {
        let mut book = self.book();
        let limits = done.document.declared.limits;
        let standing = Standing::of(&done.document, done.now);
        let mut told: Vec<(oneshot::Sender<Answer>, Answer)> = Vec::new();
        let Some(lane) = book.lanes.get_mut(&item.name) else { return };
        let key = lane.key.clone();
        (lane.standing, lane.conflicts, lane.is_under_way) = (standing, 0, false);
        let looks = std::mem::take(&mut lane.looks);
        let mut refused = Vec::new();
        for (ask, fate) in item.stake.asks.iter().zip(&done.fates) {
            match fate {
                Fate::Waits => {
                    if let Some(waiter) = lane.asks.get_mut(&ask.ticket) {
                        waiter.has_joined = true;
                    }
                }
                // One that withdrew meanwhile is not counted as held, which gives back what it was handed.
                Fate::Granted => {
                    let Some(waiter) = lane.asks.remove(&ask.ticket) else { continue };
                    let pass = (waiter.kind != Kind::Check).then(|| {
                        lane.held += waiter.weight;
                        Pass::new(
                            Arc::clone(self),
                            Arc::clone(&item.name),
                            waiter.weight,
                            Some(Arc::clone(lease)),
                        )
                    });
                    told.push((waiter.reply, Ok((pass, standing))));
                }
                Fate::Refused { reason, retry_after } => {
                    let Some(waiter) = lane.asks.remove(&ask.ticket) else { continue };
                    refused.push((waiter.reply, *reason, *retry_after));
                }
            }
        }
        let members = done.document.members();
        let is_ours = members.iter().all(|member| *member == item.stake.member);
        lane.is_told = members.contains(&item.stake.member);
        let looked =
            looks.into_iter().map(|reply| (reply, standing.to_lane_look(key.as_ref(), limits))).collect();
        lane.known = is_ours.then_some((done.version, done.document));
        let is_idle = lane.is_idle();
        book.has_idle |= is_idle;
        // Those that will never start leave the line with the next round.
        if refused.iter().any(|(_, reason, _)| *reason == Reason::TooHeavy) {
            book.touch(&item.name);
        }
        for (reply, reason, retry_after) in refused {
            let mut refusal = standing.on(book.refuse(&self.ident, key.clone(), reason), limits.max());
            refusal.retry_after = retry_after;
            told.push((reply, Err(refusal)));
        }
        drop(book);
        tell(told);
        tell(looked);
    }

    /// The store does not answer: those of whom it knows nothing are turned away, or let in uncounted.
    pub(crate) fn turn_away(self: &Arc<Self>) {
        let mut book = self.book();
        let names: Vec<Arc<str>> = book.lanes.keys().cloned().collect();
        let (mut told, mut unheard) = (Vec::new(), Vec::new());
        for name in names {
            let lane = book.lane(&name);
            unheard.append(&mut lane.looks);
            let (key, standing) = (lane.key.clone(), lane.standing);
            let unknown: Vec<u64> = lane
                .asks
                .iter()
                .filter(|(_, waiter)| !waiter.has_joined)
                .map(|(ticket, _)| *ticket)
                .collect();
            for ticket in unknown {
                let Some(waiter) = book.lane(&name).asks.remove(&ticket) else { continue };
                let answer = match self.on_outage {
                    OnOutage::Refuse => Err(book.refuse(&self.ident, key.clone(), Reason::Unreachable)),
                    OnOutage::Admit => {
                        book.uncounted += 1;
                        let pass = || Pass::new(Arc::clone(self), Arc::clone(&name), waiter.weight, None);
                        Ok(((waiter.kind != Kind::Check).then(pass), standing))
                    }
                };
                told.push((waiter.reply, answer));
            }
        }
        book.drop_untold();
        let wishes = std::mem::take(&mut book.wishes);
        drop(book);
        tell(told);
        drop((wishes, unheard));
    }

    /// What the store keeps of this lane cannot be read: whoever asks there is refused, and others go on.
    pub(crate) fn refuse_lane(&self, name: &Arc<str>, error: &StoreError) {
        let mut book = self.book();
        book.trouble = Some(error.to_string());
        let lane = book.lane(name);
        lane.is_under_way = false;
        let (key, looks, asks) =
            (lane.key.clone(), std::mem::take(&mut lane.looks), std::mem::take(&mut lane.asks));
        let is_idle = lane.is_idle();
        book.has_idle |= is_idle;
        let refused = asks
            .into_values()
            .map(|waiter| (waiter.reply, Err(book.refuse(&self.ident, key.clone(), Reason::Unreachable))));
        let refused = refused.collect();
        drop(book);
        tell(refused);
        drop(looks);
    }

    /// Whoever still waits is refused: the gate is closed.
    pub(crate) fn refuse_all(&self) {
        let mut book = self.book();
        let (mut told, mut unheard) = (Vec::new(), Vec::new());
        let names: Vec<Arc<str>> = book.lanes.keys().cloned().collect();
        for name in names {
            let lane = book.lane(&name);
            unheard.append(&mut lane.looks);
            let (key, asks) = (lane.key.clone(), std::mem::take(&mut lane.asks));
            if !asks.is_empty() {
                book.touch(&name);
            }
            for waiter in asks.into_values() {
                told.push((waiter.reply, Err(book.refuse(&self.ident, key.clone(), Reason::Closed))));
            }
        }
        let wishes = std::mem::take(&mut book.wishes);
        drop(book);
        tell(told);
        drop((wishes, unheard));
    }
}

/// Whoever does not listen any more drops what it was told.
fn tell<T>(told: Vec<(oneshot::Sender<T>, T)>) {
    for (reply, answer) in told {
        let _ = reply.send(answer);
    }
}
