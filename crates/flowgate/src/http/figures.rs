//! What a response tells of the limits it passed.
//!
//! Owns the headers `Concurrency-*`, `ratelimit-*` and the IETF pair `RateLimit-Policy` / `RateLimit`, and their text. The
//! numbers are those of the lane at the moment the response's head is made.

use std::{cell::RefCell, sync::LazyLock, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::gate::Allowance;
use flowgate_core::{Rate, Shape};

const CONCURRENCY_LIMIT: HeaderName = HeaderName::from_static("concurrency-limit");
const CONCURRENCY_REMAINING: HeaderName = HeaderName::from_static("concurrency-remaining");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATE_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATE_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

/// Of all kinds together.
const MOST_HEADERS: usize = 7;

/// The figures of a lane, for the headers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Figures {
    /// Of how many may be in flight.
    Concurrency {
        /// How many may be in flight at once.
        limit: u32,
        /// How many more could start right now.
        remaining: u32,
    },
    /// Of how many may start.
    Rate {
        /// How many may start at once after a rest.
        limit: u32,
        /// How many may start now.
        remaining: u32,
        /// In how long everything is allowed again.
        resets_in: Duration,
        /// The length of the window, where it is one.
        window: Option<Duration>,
    },
}

impl Figures {
    /// What a rate has left.
    pub fn of_rate(rate: &Rate, allowance: Allowance) -> Self {
        let Allowance { limit, remaining, resets_in, .. } = allowance;
        Figures::Rate { limit, remaining, resets_in, window: window_of(rate) }
    }

    /// A rate with nothing left for `resets_in`.
    pub fn of_spent_rate(rate: &Rate, resets_in: Duration) -> Self {
        Figures::Rate { limit: limit_of(rate), remaining: 0, resets_in, window: window_of(rate) }
    }

    /// A rate of which nothing is spent.
    pub fn of_rested_rate(rate: &Rate) -> Self {
        let limit = limit_of(rate);
        Figures::Rate { limit, remaining: limit, resets_in: Duration::ZERO, window: window_of(rate) }
    }

    /// Writes the headers. Those of one kind replace what was there of the same kind: the outermost gate is the one a client
    /// meets first. The IETF pair is a list, to which each kind adds its item.
    pub fn write(&self, headers: &mut HeaderMap) {
        Figures::write_all(&[*self], headers);
    }

    /// Writes the headers of several at once, each as [`Figures::write`] does.
    ///
    /// They are on every response: what changes only with the limits is kept from the last one, and the rest is written
    /// without `fmt`.
    pub fn write_all(figures: &[Figures], headers: &mut HeaderMap) {
        if figures.is_empty() {
            return;
        }
        headers.reserve(MOST_HEADERS);
        let mut state = Vec::with_capacity(64);
        LAST.with_borrow_mut(|last| {
            last.be(figures);
            for (figure, limit) in figures.iter().zip(&last.limits) {
                figure.write_numbers(limit, headers, &mut state);
            }
            headers.append(POLICY, last.policy.clone());
        });
        headers.append(STATE, value_of(state));
    }

    /// The headers of one number each, and the item for the list.
    fn write_numbers(&self, limit: &HeaderValue, headers: &mut HeaderMap, state: &mut Vec<u8>) {
        begin_item(state);
        match *self {
            Figures::Concurrency { remaining, .. } => {
                headers.insert(CONCURRENCY_LIMIT, limit.clone());
                headers.insert(CONCURRENCY_REMAINING, number(remaining.into()));
                state.extend_from_slice(b"\"concurrency\";r=");
                push_number(state, remaining.into());
            }
            Figures::Rate { remaining, resets_in, .. } => {
                let reset = whole_seconds(resets_in);
                headers.insert(RATE_LIMIT, limit.clone());
                headers.insert(RATE_REMAINING, number(remaining.into()));
                headers.insert(RATE_RESET, number(reset));
                state.extend_from_slice(b"\"rate\";r=");
                push_number(state, remaining.into());
                state.extend_from_slice(b";t=");
                push_number(state, reset);
            }
        }
    }

    fn write_policy(&self, policy: &mut Vec<u8>) {
        begin_item(policy);
        match *self {
            Figures::Concurrency { limit, .. } => {
                policy.extend_from_slice(b"\"concurrency\";q=");
                push_number(policy, limit.into());
                policy.extend_from_slice(b";qu=\"concurrent-requests\"");
            }
            Figures::Rate { limit, window, .. } => {
                policy.extend_from_slice(b"\"rate\";q=");
                push_number(policy, limit.into());
                if let Some(window) = window {
                    policy.extend_from_slice(b";w=");
                    push_number(policy, whole_seconds(window));
                }
            }
        }
    }

    fn limit(&self) -> u32 {
        match *self {
            Figures::Concurrency { limit, .. } | Figures::Rate { limit, .. } => limit,
        }
    }

    /// Whether the policies of both are the same.
    fn has_policy_of(&self, other: &Figures) -> bool {
        match (self, other) {
            (Figures::Concurrency { limit, .. }, Figures::Concurrency { limit: known, .. }) => limit == known,
            (
                Figures::Rate { limit, window, .. },
                Figures::Rate { limit: known, window: known_window, .. },
            ) => limit == known && window == known_window,
            _ => false,
        }
    }
}

/// What was last written of limits, and of which: it is the same for as long as they are.
struct Written {
    figures: Vec<Figures>,
    limits: Vec<HeaderValue>,
    policy: HeaderValue,
}

thread_local!(static LAST: RefCell<Written> = const { RefCell::new(Written::NOTHING) });

impl Written {
    const NOTHING: Written =
        Written { figures: Vec::new(), limits: Vec::new(), policy: HeaderValue::from_static("") };

    /// Is what is written of these.
    fn be(&mut self, figures: &[Figures]) {
        let is_same = self.figures.len() == figures.len()
            && self.figures.iter().zip(figures).all(|(known, figure)| figure.has_policy_of(known));
        if is_same {
            return;
        }
        let mut policy = Vec::with_capacity(96);
        figures.iter().for_each(|figure| figure.write_policy(&mut policy));
        self.policy = value_of(policy);
        self.limits = figures.iter().map(|figure| number(figure.limit().into())).collect();
        self.figures = figures.to_vec();
    }
}

fn begin_item(list: &mut Vec<u8>) {
    if !list.is_empty() {
        list.extend_from_slice(b", ");
    }
}

fn push_number(text: &mut Vec<u8>, number: u64) {
    text.extend(digits(number));
}

/// The number as it is written.
pub(crate) fn digits(mut number: u64) -> impl Iterator<Item = u8> {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] += u8::try_from(number % 10).expect("a digit is small");
        number /= 10;
        if number == 0 {
            return digits.into_iter().skip(at);
        }
    }
}

fn value_of(text: Vec<u8>) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("digits, letters and punctuation are a value")
}

/// Seconds, rounded up: never 0 for a time that is not over.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

fn limit_of(rate: &Rate) -> u32 {
    match rate.shape() {
        Shape::Window => rate.rate(),
        Shape::Bucket { burst } => burst.get(),
    }
}

fn window_of(rate: &Rate) -> Option<Duration> {
    matches!(rate.shape(), Shape::Window).then(|| rate.period().as_duration())
}

/// Small numbers are on every response, and are written once.
pub(crate) fn number(number: u64) -> HeaderValue {
    static SMALL: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| (0..1_024).map(HeaderValue::from).collect());
    let small = usize::try_from(number).ok().and_then(|number| SMALL.get(number));
    small.cloned().unwrap_or_else(|| HeaderValue::from(number))
}
