//! Runs: tasks that follow each other, and the list of steps that they have in common.
//!
//! Owns the words of that part of the seam. A step and the task that it is the beginning of are stored in one transaction, and
//! a name that a run has already is never stored twice: so what is sent again, after whatever crash, changes nothing.

use flowgate_core::Tick;

use super::seam::Sent;
use crate::task::{NewTask, TaskId};

/// No run has more steps.
pub(crate) const MAX_STEPS: u32 = 10_000;
/// The steps of a run are not larger than this in all, in bytes. Where the code is tested it is a quarter: what is not
/// optimized takes seconds to read so much, and a server does little else meanwhile.
pub(crate) const MAX_BYTES: u64 = if cfg!(debug_assertions) { 16 } else { 64 } * 1024 * 1024;

/// Behind the name of every run.
pub(crate) const LAST: &str = "~";

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It has not ended.
    Live,
    /// It did what it should.
    Done,
    /// One of its tasks has no attempt left.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
}

impl RunState {
    pub(crate) fn code(self) -> i16 {
        match self {
            RunState::Live => 0,
            RunState::Done => 1,
            RunState::Failed => 2,
            RunState::Cancelled => 3,
        }
    }

    pub(crate) fn of_code(code: i16) -> Self {
        match code {
            0 => RunState::Live,
            1 => RunState::Done,
            2 => RunState::Failed,
            _ => RunState::Cancelled,
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its own name, never used again. In the order of their names, runs are in the order of their starts.
    pub name: String,
    /// What its user calls it: of the live ones, one has it.
    pub id: String,
    /// Where it stands.
    pub state: RunState,
    /// How often its head or its state was written.
    pub version: i64,
    /// When it began.
    pub created: Tick,
    /// When it ended.
    pub ended: Option<Tick>,
    /// What the server keeps about it.
    pub head: Vec<u8>,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStep {
    /// Its name: one of each in a run.
    pub name: String,
    /// The task that was sent with it. Steps are in the order of these.
    pub task: TaskId,
    /// When it was stored.
    pub at: Tick,
    /// Its contents.
    pub body: Vec<u8>,
}

/// A step to be stored.
#[derive(Clone, Debug)]
pub struct NewStep {
    /// Its name.
    pub name: String,
    /// Its contents.
    pub body: Vec<u8>,
    /// What is sent with it. Its dedupe id is not looked at: the step's name is one.
    pub task: Option<NewTask>,
}

/// What is written of the run itself.
#[derive(Clone, Debug)]
pub enum RunWrite {
    /// It begins.
    Start {
        /// What its user calls it.
        id: String,
        /// What it is started from: no two runs have the same.
        origin: Option<String>,
        /// What is kept about it.
        head: Vec<u8>,
    },
    /// It goes on, or ends.
    Change {
        /// It must be what it was.
        version: Option<i64>,
        /// What is kept about it from now on.
        head: Option<Vec<u8>>,
        /// Where it stands from now on.
        state: Option<RunState>,
        /// Also if it has ended before.
        even_ended: bool,
    },
}

impl RunWrite {
    /// Nothing of the run itself changes: it must be live.
    pub fn append() -> Self {
        RunWrite::Change { version: None, head: None, state: None, even_ended: false }
    }
}

/// One change of one run: all of it, or nothing.
#[derive(Clone, Debug)]
pub struct RunChange {
    /// The run's own name.
    pub name: String,
    /// What is written of the run.
    pub write: RunWrite,
    /// Steps, in this order. Those whose names are known are left out, with their tasks.
    pub steps: Vec<NewStep>,
    /// Tasks that are sent beside them.
    pub tasks: Vec<NewTask>,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// It is stored.
    Written {
        /// For each step, its task or the one that has been there.
        steps: Vec<Sent>,
        /// The tasks beside them.
        tasks: Vec<TaskId>,
    },
    /// A live run has that id, or a run that origin.
    Taken {
        /// That run's own name.
        name: String,
    },
    /// There is no such run.
    Unknown,
    /// It has ended.
    Ended(RunState),
    /// It is not the version that was asked for.
    Stale,
    /// It has as many steps as a run may have, or its steps are as large as they may be.
    Full,
}

/// Which runs to give, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunQuery {
    /// Started before the one of this name.
    pub before: Option<String>,
    /// With this id.
    pub id: Option<String>,
    /// Only those that go on.
    pub is_live: bool,
    /// How many at most.
    pub most: u32,
}
