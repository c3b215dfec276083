//! What time of day it is: the one file here that reads it.
//!
//! Owns the wall clock, which is asked by schedules alone. All waiting is by the context's clock.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// Nanoseconds since 1970.
pub(crate) type Wall = Arc<dyn Fn() -> i128 + Send + Sync>;

/// The system's.
pub(crate) fn wall() -> Wall {
    Arc::new(|| match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |nanos| -nanos),
    })
}
