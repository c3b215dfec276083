//! A suite on its stage: the servers, stores and programs that its groups of cases share.
//!
//! Owns that the stage is gone before the run is judged, and that a group that fails does not take the others with it.

use crate::{http::accounting::Ticks, suite::Suite};

/// A group of cases: measures those that are wanted.
pub(crate) type Group<Stage> = fn(&mut Suite, &Stage) -> Result<(), String>;

/// Plays all groups, one after the other. One that fails is told, and the others go on.
pub(crate) fn play_all<Stage>(
    groups: &[Group<Stage>],
    set: impl FnOnce(&Suite) -> Result<Stage, String>,
    suite: &mut Suite,
) {
    let before = Ticks::now();
    match set(suite) {
        Ok(stage) => groups.iter().for_each(|group| {
            if let Err(error) = group(suite, &stage) {
                suite.remark(format!("not measured: {error}"));
            }
        }),
        Err(error) => return suite.remark(format!("nothing was measured: {error}")),
    }
    // The servers have ended with the stage: only now their time counts as ours.
    if let (Some(before), false) = (before, suite.cases().is_empty()) {
        before.remark_on_others(suite);
    }
}
