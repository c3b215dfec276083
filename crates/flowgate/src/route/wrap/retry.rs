//! Trying again.
//!
//! Owns the options of `retry`, the pauses between attempts, and the step that makes them. While it waits it holds nothing:
//! every pass inside it has come back with the attempt.

use std::{fmt, sync::Arc, time::Duration};

use flowgate_core::{OptionError, backoff};

use super::stack::Wrap;
use crate::{
    chance::sound,
    route::{
        cx::Cx,
        error::Error,
        event::{Scope, What},
        exchange::Exchange,
        step::{Halt, Outcome, Step},
    },
};

const MOST_ATTEMPTS: u32 = 1_000;
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The options of `retry`: how often to try again, and after which pauses.
///
/// ```
/// use flowgate::route::{Jitter, Retry};
/// use std::time::Duration;
///
/// let retry = Retry::new().max_attempts(4).backoff(Duration::from_millis(50)).factor(2.0).jitter(Jitter::Full);
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a route has them"]
pub struct Retry {
    max_attempts: u32,
    backoff: Duration,
    factor: f64,
    max_backoff: Option<Duration>,
    jitter: Jitter,
    retry_on: Option<Arc<RetryOn>>,
}

type RetryOn = dyn Fn(&Error) -> bool + Send + Sync;

/// How much of a pause is random, so that exchanges that failed together do not come back together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// None of it.
    #[default]
    None,
    /// All of it: anything from zero to the whole pause.
    Full,
    /// This share of it, from 0 to 1: a pause is shortened by at most as much.
    Fraction(f64),
}

impl Default for Retry {
    fn default() -> Self {
        Retry::new()
    }
}

impl Retry {
    /// Makes three attempts in all, a second apart, for errors that say that trying again can help.
    pub fn new() -> Self {
        Retry {
            max_attempts: 3,
            backoff: Duration::from_secs(1),
            factor: 1.0,
            max_backoff: None,
            jitter: Jitter::None,
            retry_on: None,
        }
    }

    /// Sets how many attempts there may be, including the first: 1 to 1,000, default 3.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Sets the pause after the first attempt: 0 to 24 h, default 1 s.
    pub fn backoff(mut self, backoff: Duration) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the factor by which each pause grows: 1 to 100, default 1.
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Sets the longest pause: `backoff` to 24 h, default 24 h.
    pub fn max_backoff(mut self, max_backoff: Duration) -> Self {
        self.max_backoff = Some(max_backoff);
        self
    }

    /// Sets how much of each pause is random. Default: none.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets which errors are tried again. Default: those that are retryable.
    pub fn retry_on(mut self, retry_on: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.retry_on = Some(Arc::new(retry_on));
        self
    }

    pub(crate) fn check(&self) -> Result<(), OptionError> {
        let wrong = |option, value: String, accepted: &str| Err(OptionError::new(option, value, accepted));
        if !(1..=MOST_ATTEMPTS).contains(&self.max_attempts) {
            return wrong("max_attempts", self.max_attempts.to_string(), "an integer from 1 to 1000");
        }
        if self.backoff > LONGEST {
            return wrong("backoff", format!("{:?}", self.backoff), "a time from 0 to 24 h");
        }
        if !(1.0..=100.0).contains(&self.factor) {
            return wrong("factor", self.factor.to_string(), "a number from 1 to 100");
        }
        if let Some(most) = self.max_backoff
            && !(self.backoff..=LONGEST).contains(&most)
        {
            return wrong("max_backoff", format!("{most:?}"), "a time from `backoff` to 24 h");
        }
        if let Jitter::Fraction(share) = self.jitter
            && !(0.0..=1.0).contains(&share)
        {
            return wrong("jitter", share.to_string(), "a share from 0 to 1");
        }
        Ok(())
    }

    /// The pause after this attempt, the first being 1.
    fn pause(&self, attempt: u32, random: f64) -> Duration {
        let whole = backoff(self.backoff, self.factor, self.max_backoff.unwrap_or(LONGEST), attempt);
        let share = match self.jitter {
            Jitter::None => 0.0,
            Jitter::Full => 1.0,
            Jitter::Fraction(share) => share,
        };
        let random = sound(random);
        whole.mul_f64(1.0 - share * random)
    }

    fn is_worth_it(&self, error: &Error) -> bool {
        self.retry_on.as_ref().map_or_else(|| error.is_retryable(), |retry_on| retry_on(error))
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("max_attempts", &self.max_attempts)
            .field("backoff", &self.backoff)
            .field("factor", &self.factor)
            .finish_non_exhaustive()
    }
}

/// A step that is tried again.
#[derive(Debug)]
pub struct Retried<B, S = ()> {
    pub(crate) retry: Retry,
    pub(crate) scope: Scope,
    /// How an exchange is copied for an attempt: a route that retries nothing needs no bodies that can be.
    pub(crate) copy: fn(&Exchange<B>) -> Exchange<B>,
    pub(crate) inner: S,
}

impl<B: Send + 'static, S: Step<B>> Step<B> for Retried<B, S> {
    type Out = S::Out;

    async fn run<'a>(&'a self, mut exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<S::Out> {
        let Retry { max_attempts, .. } = self.retry;
        // A key is asked for once, whatever the number of attempts.
        exchange.share_keys();
        for attempt in 1..max_attempts {
            let error = match self.inner.run((self.copy)(&exchange), cx).await {
                Err(Halt::Failed(error)) if self.retry.is_worth_it(&error) => error,
                settled => return settled,
            };
            let (scope, code) = (self.scope, error.code());
            let backoff = self.retry.pause(attempt, (cx.site.random)());
            cx.tell(|| What::RetryScheduled { scope, attempt, backoff, code });
            cx.sleep_for(backoff).await;
        }
        let last = self.inner.run(exchange, cx).await;
        if let Err(Halt::Failed(error)) = &last
            && max_attempts > 1
        {
            let (scope, code) = (self.scope, error.code());
            cx.tell(|| What::RetryExhausted { scope, attempts: max_attempts, code });
        }
        last
    }
}

impl<B: Send + 'static, T> Wrap<B, T> for Retried<B> {
    type Around<S: Step<B, Out = T>> = Retried<B, S>;

    fn around<S: Step<B, Out = T>>(self, inner: S) -> Retried<B, S> {
        let Retried { retry, scope, copy, inner: () } = self;
        Retried { retry, scope, copy, inner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_by_the_factor_up_to_the_most() {
        let retry = Retry::new()
            .backoff(Duration::from_millis(50))
            .factor(2.0)
            .max_backoff(Duration::from_millis(300));
        let millis: Vec<_> = (1..=5).map(|attempt| retry.pause(attempt, 0.5).as_millis()).collect();
        assert_eq!(millis, [50, 100, 200, 300, 300]);
        assert_eq!(Retry::new().factor(100.0).pause(1_000, 0.0), LONGEST, "it does not overflow");
        // Seen to fail: zero times infinity is not a number, and was taken for the longest pause there is.
        assert_eq!(Retry::new().backoff(Duration::ZERO).factor(100.0).pause(1_000, 0.0), Duration::ZERO);
    }

    #[test]
    fn jitter_shortens_a_pause_by_its_share() {
        let half = Retry::new().jitter(Jitter::Fraction(0.5));
        let full = Retry::new().jitter(Jitter::Full);
        for (random, of_half, of_full) in
            [(0.0, 1_000, 1_000), (0.5, 750, 500), (1.0, 500, 0), (f64::NAN, 1_000, 1_000)]
        {
            assert_eq!(half.pause(1, random).as_millis(), of_half, "{random}");
            assert_eq!(full.pause(1, random).as_millis(), of_full, "{random}");
        }
    }
}
