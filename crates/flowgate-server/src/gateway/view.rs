//! The routes as one worker sees them.
//!
//! Owns what belongs to a table and to one worker: its connections to the table's upstreams, and whose turn it is.

use std::{cell::Cell, rc::Rc, sync::Arc};

use super::{
    plain::Refusals,
    table::{Plan, Table},
    tasks::Spawner,
    upstream::Pool,
};
use crate::config::Upstream;

/// A table with the worker's own connections.
#[derive(Debug)]
pub(super) struct View {
    pub(super) table: Arc<Table>,
    pools: Vec<Rc<Pool>>,
    turns: Vec<Cell<usize>>,
    /// What those whom a plan turned away were last told.
    refusals: Vec<Refusals>,
}

impl View {
    /// The view of a table, with the pools of `old` for upstreams that are there still.
    pub(super) fn new(table: Arc<Table>, old: Option<&View>, spawner: &Spawner) -> Rc<Self> {
        let known = |upstream: &Upstream| old?.pools.iter().find(|pool| pool.upstream == *upstream).cloned();
        let pool = |upstream| known(upstream).unwrap_or_else(|| Pool::new(upstream.clone(), spawner.clone()));
        let pools = table.upstreams.iter().map(pool).collect();
        let turns = (0..table.plans).map(|_| Cell::new(0)).collect();
        let refusals = (0..table.plans).map(|_| Refusals::default()).collect();
        Rc::new(View { table, pools, turns, refusals })
    }

    /// What those whom this plan turned away were last told.
    pub(super) fn refusals(&self, plan: usize) -> &Refusals {
        &self.refusals[plan]
    }

    /// The upstreams of a plan, the one whose turn it is first.
    pub(super) fn in_turn(&self, plan: &Plan) -> impl Iterator<Item = &Rc<Pool>> {
        let turn = self.turns[plan.number].get();
        let count = plan.upstreams.len();
        self.turns[plan.number].set(if turn + 1 < count { turn + 1 } else { 0 });
        let order = plan.upstreams[turn..].iter().chain(&plan.upstreams[..turn]);
        order.map(|number| &self.pools[*number])
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn sweep(&self) {
        self.pools.iter().for_each(|pool| pool.sweep());
    }

    /// Whether any connection to an upstream is idle.
    pub(super) fn has_idle(&self) -> bool {
        self.pools.iter().any(|pool| pool.has_idle())
    }
}
