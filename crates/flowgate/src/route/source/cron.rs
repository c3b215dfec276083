//! A schedule: a tick at each moment of a calendar expression.

use std::time::Duration;

use flowgate_core::{Cron, OptionError};

use crate::route::{
    error::Error,
    exchange::Exchange,
    intake::Intake,
    source::{Feed, Source},
};

const NANOS: i128 = 1_000_000_000;
/// The wall clock may be set meanwhile: it is looked at again at least this often.
const LONGEST_SLEEP: i128 = 3_600 * NANOS;

/// A wall clock that was set back by more, in seconds, was wrong before, and the schedule begins anew by it; by less, what was
/// due already is not due a second time.
const SET_BACK: i64 = 3 * 3_600;

/// A source that gives one exchange at each moment of a schedule, in UTC. The body is that moment, in seconds since
/// 1970. Moments that pass while there is no room are skipped. A clock that is set back by up to three hours makes
/// nothing due twice; if it is set back further, the schedule follows it.
pub fn cron(schedule: &str) -> CronSource {
    CronSource { schedule: schedule.parse() }
}

/// The source that [`cron`] returns.
#[derive(Clone, Debug)]
pub struct CronSource {
    schedule: Result<Cron, OptionError>,
}

impl<O: Send + 'static> Source<O> for CronSource {
    type Body = i64;

    fn check(&self) -> Result<(), Error> {
        self.schedule.as_ref().map(drop).map_err(|error| error.clone().into())
    }

    fn open(&self, intake: Intake<i64, O>) -> Result<Feed, Error> {
        let schedule = self.schedule.clone()?;
        Ok(Feed::new(async move {
            let seconds = |wall: i128| i64::try_from(wall.div_euclid(NANOS)).unwrap_or(i64::MAX);
            let mut after = seconds(intake.wall());
            while let Some(due) = schedule.next_after(after) {
                let wall = intake.wall();
                if seconds(wall) < after.saturating_sub(SET_BACK) {
                    after = seconds(wall);
                    continue;
                }
                let missing = i128::from(due) * NANOS - wall;
                if missing > 0 {
                    let nanos = u64::try_from(missing.min(LONGEST_SLEEP)).unwrap_or(0);
                    intake.sleep(Duration::from_nanos(nanos)).await;
                    continue;
                }
                intake.place().await?.launch(Exchange::new(due));
                after = due.max(seconds(intake.wall()));
            }
            Ok(())
        }))
    }
}
