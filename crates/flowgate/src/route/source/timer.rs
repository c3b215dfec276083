//! A timer: a tick every so often.

use std::time::Duration;

use flowgate_core::OptionError;

use crate::route::{
    error::Error,
    exchange::Exchange,
    intake::Intake,
    source::{Feed, Source},
};

/// A source that gives one exchange every `period`, the first after one period. The body counts from 0. Moments that
/// pass while there is no room are skipped.
pub fn timer(period: Duration) -> TimerSource {
    TimerSource { period }
}

/// The source that [`timer`] returns.
#[derive(Clone, Copy, Debug)]
pub struct TimerSource {
    period: Duration,
}

impl<O: Send + 'static> Source<O> for TimerSource {
    type Body = u64;

    fn check(&self) -> Result<(), Error> {
        if self.period.is_zero() {
            let given = format_args!("{:?}", self.period);
            return Err(OptionError::new("period", given, "a time above zero").into());
        }
        Ok(())
    }

    fn open(&self, intake: Intake<u64, O>) -> Result<Feed, Error> {
        let period = self.period;
        Ok(Feed::new(async move {
            let mut due = intake.now().after(period);
            for count in 0.. {
                intake.sleep_until(due).await;
                intake.place().await?.launch(Exchange::new(count));
                let now = intake.now();
                due = due.after(period);
                if due < now {
                    due = now.after(period);
                }
            }
            Ok(())
        }))
    }
}
