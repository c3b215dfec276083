//! The seam, as this store fills it.

use std::time::Duration;

use tokio::sync::broadcast;

use super::connect::Postgres;
use crate::{
    store::{
        Cancelled, End, Holder, Kept, KeyChange, KeyLook, Leaving, NewWorker, Of, Offer, Offered,
        QueueLimits, QueueLook, Reply, Sent, Standing, Store, TaskLook, Turn, Turned, Wake, WorkerId,
        WorkerLook,
    },
    task::{NewTask, TaskId},
};

impl Store for Postgres {
    fn send(&self, tasks: Vec<NewTask>) -> Reply<'_, Vec<Sent>> {
        Box::pin(self.send_all(tasks))
    }

    fn register(&self, worker: NewWorker) -> Reply<'_, WorkerId> {
        Box::pin(self.make_known(worker))
    }

    fn beat(&self, worker: WorkerId) -> Reply<'_, bool> {
        Box::pin(self.renew(worker))
    }

    fn turn(&self, worker: WorkerId, turn: Turn) -> Reply<'_, Turned> {
        Box::pin(self.take_turn(worker, turn))
    }

    fn offer(&self, offer: Offer) -> Option<Offered> {
        Some(self.shared.offers.post(offer))
    }

    /// A transaction is seven statements, however many tasks it stores: with this the server's processes took 25 µs for
    /// a message, and 28 without. On SQLite, where jobs share a commit anyway, it was no gain.
    fn gathers_sends(&self) -> bool {
        true
    }

    fn reconcile(&self, worker: WorkerId, known: Vec<i64>) -> Reply<'_, u32> {
        Box::pin(self.take_back(worker, known, End::Returned))
    }

    fn leave(&self, worker: WorkerId) -> Reply<'_, ()> {
        Box::pin(self.make_unknown(worker))
    }

    fn upkeep(&self) -> Reply<'_, Kept> {
        Box::pin(self.keep_up())
    }

    fn wake_rested(&self) -> Reply<'_, Option<Duration>> {
        Box::pin(self.wake_lanes())
    }

    fn set_cluster_cap(&self, cap: Option<u32>) -> Reply<'_, ()> {
        Box::pin(self.cap_cluster(cap))
    }

    fn set_latest(&self, is_latest: bool) -> Reply<'_, ()> {
        Box::pin(self.choose_latest(is_latest))
    }

    fn set_queue(&self, queue: QueueLimits) -> Reply<'_, ()> {
        Box::pin(self.change_queue(queue))
    }

    fn pause_queue(&self, name: String, is_paused: bool) -> Reply<'_, bool> {
        Box::pin(self.stop_queue(name, is_paused))
    }

    fn change_key(&self, key: String, change: KeyChange) -> Reply<'_, ()> {
        Box::pin(self.alter_key(key, change))
    }

    fn look_at_key(&self, key: String) -> Reply<'_, Option<KeyLook>> {
        Box::pin(self.see_key(key))
    }

    fn queues_counted(&self, most: u32) -> Reply<'_, Vec<QueueLook>> {
        Box::pin(self.see_queues(most))
    }

    fn cluster(&self) -> Reply<'_, (u32, Option<u32>)> {
        Box::pin(self.see_cluster())
    }

    fn look_at_task(&self, id: TaskId) -> Reply<'_, Option<TaskLook>> {
        Box::pin(self.see_task(id))
    }

    fn cancel_all(&self, ids: Vec<TaskId>) -> Reply<'_, Vec<Cancelled>> {
        Box::pin(self.cancel_tasks(ids, Leaving::Dead))
    }

    fn cancelled(&self, among: Vec<TaskId>) -> Reply<'_, Vec<TaskId>> {
        Box::pin(self.see_cancelled(among))
    }

    fn dead(&self, before: Option<TaskId>, most: u32) -> Reply<'_, Vec<TaskLook>> {
        Box::pin(self.see_dead(before, most))
    }

    fn revive(&self, id: TaskId) -> Reply<'_, bool> {
        Box::pin(self.send_back(id))
    }

    fn holders(&self, of: Of, most: u32) -> Reply<'_, Vec<Holder>> {
        Box::pin(self.see_holders(of, most))
    }

    fn line(&self, of: Of, most: u32) -> Reply<'_, Vec<TaskLook>> {
        Box::pin(self.see_line(of, most))
    }

    fn standing(&self, id: TaskId) -> Reply<'_, Option<Standing>> {
        Box::pin(self.see_standing(id))
    }

    fn workers(&self) -> Reply<'_, Vec<WorkerLook>> {
        Box::pin(self.see_workers())
    }

    fn audit(&self) -> Reply<'_, Vec<String>> {
        Box::pin(self.recount())
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.shared.wakes.subscribe()
    }
}
