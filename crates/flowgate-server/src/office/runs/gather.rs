//! Changes of runs that come at the same time are stored together.
//!
//! A commit waits for the disk, and many share one wait. Nobody waits for a batch to fill: a change that finds nothing under way
//! goes at once.

use std::sync::Arc;

use flowgate_tasks::store::{RunChange, RunOutcome, Shelf, StoreError};
use tokio::sync::{mpsc, oneshot};

/// How many may wait for the store before those who ask do.
const WAITING: usize = 4096;
const BATCH: usize = 256;

/// Takes changes. Cheap to clone; ends with its last clone.
#[derive(Clone)]
pub(crate) struct Gather {
    asked: mpsc::Sender<Asked>,
}

/// What one asks for, and where the answer goes.
struct Asked {
    changes: Vec<RunChange>,
    answer: oneshot::Sender<Result<Vec<RunOutcome>, StoreError>>,
}

impl Gather {
    pub(crate) fn start(store: Arc<dyn Shelf>) -> Self {
        let (asked, waiting) = mpsc::channel(WAITING);
        tokio::spawn(write(store, waiting));
        Gather { asked }
    }

    /// Stores these changes in one transaction, perhaps with those of others.
    pub(super) async fn write(&self, changes: Vec<RunChange>) -> Result<Vec<RunOutcome>, StoreError> {
        let gone =
            || StoreError::Database { doing: "changing runs", why: "the server is stopping".to_owned() };
        let (answer, answered) = oneshot::channel();
        self.asked.send(Asked { changes, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

async fn write(store: Arc<dyn Shelf>, mut waiting: mpsc::Receiver<Asked>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let all: Vec<Asked> = std::mem::take(&mut batch);
        if all.len() > 1
            && let Ok(outcomes) = together(&*store, &all).await
        {
            for (asked, outcomes) in all.into_iter().zip(outcomes) {
                // One who does not wait any more need not be told.
                let _ = asked.answer.send(Ok(outcomes));
            }
            continue;
        }
        // Alone, or one of them cannot be: then the others are not kept from it.
        for Asked { changes, answer } in all {
            let _ = answer.send(store.change_runs(changes).await);
        }
    }
}

/// All of them in one transaction, and the outcomes of each.
async fn together(store: &dyn Shelf, all: &[Asked]) -> Result<Vec<Vec<RunOutcome>>, StoreError> {
    let each = all
        .iter()
        .enumerate()
        .flat_map(|(index, asked)| asked.changes.iter().map(move |change| (index, change)));
    let mut each: Vec<(usize, &RunChange)> = each.collect();
    // Rows are taken in the order of their names, so that two servers never wait for each other. Of one run, in their own order.
    each.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    let outcomes = store.change_runs(each.iter().map(|(_, change)| (*change).clone()).collect()).await?;
    let mut sorted: Vec<Vec<(&str, RunOutcome)>> = vec![Vec::new(); all.len()];
    for ((index, change), outcome) in each.iter().zip(outcomes) {
        sorted[*index].push((&change.name, outcome));
    }
    // Back in the order in which each asked.
    let back = |(asked, mut found): (&Asked, Vec<(&str, RunOutcome)>)| {
        let mut outcomes = Vec::with_capacity(asked.changes.len());
        for change in &asked.changes {
            let place = found.iter().position(|(name, _)| *name == change.name);
            outcomes.extend(place.map(|place| found.remove(place).1));
        }
        outcomes
    };
    Ok(all.iter().zip(sorted).map(back).collect())
}

#[cfg(test)]
mod tests {
    use flowgate_tasks::store::{NewStep, RunWrite, Sqlite};

    use super::*;

    fn start(name: &str, id: &str) -> RunChange {
        let write = RunWrite::Start { id: id.to_owned(), origin: None, head: Vec::new() };
        RunChange { name: name.to_owned(), write, steps: Vec::new(), tasks: Vec::new() }
    }

    fn append(name: &str, step: &str) -> RunChange {
        let step = NewStep { name: step.to_owned(), body: Vec::new(), task: None };
        RunChange { name: name.to_owned(), write: RunWrite::append(), steps: vec![step], tasks: Vec::new() }
    }

    fn asked(changes: Vec<RunChange>) -> Asked {
        Asked { changes, answer: oneshot::channel().0 }
    }

    #[tokio::test]
    async fn each_gets_the_outcomes_of_its_own_changes_in_its_own_order() {
        let store = Sqlite::in_memory().expect("a store in memory");
        let all = [
            asked(vec![start("b", "two"), start("a", "one"), append("none", "x")]),
            asked(vec![append("a", "s"), append("a", "s")]),
            asked(vec![start("c", "one")]),
        ];
        let outcomes = together(&store, &all).await.expect("it is stored");
        assert!(matches!(outcomes[0][0], RunOutcome::Written { .. }), "{outcomes:?}");
        assert!(matches!(outcomes[0][1], RunOutcome::Written { .. }), "{outcomes:?}");
        assert_eq!(outcomes[0][2], RunOutcome::Unknown);
        let is_duplicate = |outcome: &RunOutcome| match outcome {
            RunOutcome::Written { steps, .. } => steps[0].is_duplicate,
            other => panic!("{other:?}"),
        };
        assert_eq!(outcomes[1].iter().map(is_duplicate).collect::<Vec<_>>(), [false, true]);
        assert_eq!(outcomes[2], [RunOutcome::Taken { name: "a".to_owned() }]);
    }
}
