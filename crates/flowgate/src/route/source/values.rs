//! Values that are there already.

use crate::route::{
    error::Error,
    exchange::Exchange,
    intake::Intake,
    source::{Feed, Source},
};

/// A source that gives each of these values once, and ends.
pub fn values<T: Clone + Send + Sync + 'static>(values: impl IntoIterator<Item = T>) -> Values<T> {
    Values(values.into_iter().collect())
}

/// The source that [`values`] returns.
#[derive(Clone, Debug)]
pub struct Values<T>(Vec<T>);

impl<T: Clone + Send + Sync + 'static, O: Send + 'static> Source<O> for Values<T> {
    type Body = T;

    fn open(&self, intake: Intake<T, O>) -> Result<Feed, Error> {
        let values = self.0.clone();
        Ok(Feed::new(async move {
            for value in values {
                intake.place().await?.launch(Exchange::new(value));
            }
            Ok(())
        }))
    }
}
