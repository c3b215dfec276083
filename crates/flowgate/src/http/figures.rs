//! What a response tells of the limits it passed.
//!
//! Owns the headers `Concurrency-*`, `ratelimit-*` and the IETF pair `RateLimit-Policy` / `RateLimit`, and their text. The
//! numbers are those of the lane at the moment the response's head is made.

use std::{cell::RefCell, sync::LazyLock, time::Duration};

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

/// Numbers below are on nearly every response, and their texts are there from the first one on.
const SMALL: usize = 1_024;

const CONCURRENCY_STATE: &str = "\"concurrency\";r=";
const CONCURRENCY_POLICY: (&str, &str) = ("\"concurrency\";q=", ";qu=\"concurrent-requests\"");

/// The numbers of a lane that the headers of a response tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Figures {
    /// Of a limit on how many are in flight.
    Concurrency {
        /// How many may be in flight at once.
        limit: u32,
        /// How many more could start right now.
        remaining: u32,
    },
    /// Of a limit on how many start.
    Rate {
        /// How many may start at once when nothing is used.
        limit: u32,
        /// How many may start now.
        remaining: u32,
        /// How long until all of it is available again or, where nothing is left, until one may start.
        resets_in: Duration,
        /// The length of the window, if it is one.
        window: Option<Duration>,
    },
}

impl Figures {
    /// The numbers of a rate with this much left.
    pub fn of_rate(rate: &Rate, allowance: Allowance) -> Self {
        let Allowance { limit, remaining, resets_in: full_in } = allowance;
        // Who has to wait is to come back when it is worth it, and not when a bucket is full.
        let resets_in = if remaining == 0 { rate.next_in(full_in) } else { full_in };
        Figures::Rate { limit, remaining, resets_in, window: window_of(rate) }
    }

    /// The numbers of a rate with nothing left for `resets_in`.
    pub fn of_spent_rate(rate: &Rate, resets_in: Duration) -> Self {
        Figures::Rate { limit: limit_of(rate), remaining: 0, resets_in, window: window_of(rate) }
    }

    /// The numbers of a rate of which nothing is used.
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
    /// They are on every response: what changes only with the limits is kept from the last one, the texts of small numbers
    /// are there once for all, and the rest is written without `fmt`.
    pub fn write_all(figures: &[Figures], headers: &mut HeaderMap) {
        match *figures {
            [] => return,
            [Figures::Concurrency { limit, remaining }] if (limit.max(remaining) as usize) < SMALL => {
                return write_concurrency(limit as usize, remaining as usize, headers);
            }
            _ => {}
        }
        // No more than there will be: a map that grows hashes anew all it has.
        headers.reserve(2 + figures.iter().map(Figures::numbers).sum::<usize>());
        let state = LAST.with_borrow_mut(|last| {
            last.be(figures);
            for (figure, limit) in figures.iter().zip(&last.limits) {
                figure.write_numbers(limit, headers);
            }
            headers.append(POLICY, last.policy.clone());
            last.state_of(figures)
        });
        headers.append(STATE, state);
    }

    /// The headers of several as lines of HTTP/1.1, for a response that has none of them: what [`Figures::write_all`] writes.
    pub fn write_lines(figures: &[Figures], text: &mut Vec<u8>) {
        if figures.is_empty() {
            return;
        }
        LAST.with_borrow_mut(|last| {
            last.be(figures);
            for (figure, limit) in figures.iter().zip(&last.limits) {
                match *figure {
                    Figures::Concurrency { remaining, .. } => {
                        put(text, b"concurrency-limit: ", limit);
                        put_number(text, b"concurrency-remaining: ", remaining.into());
                    }
                    Figures::Rate { remaining, resets_in, .. } => {
                        put(text, b"ratelimit-limit: ", limit);
                        put_number(text, b"ratelimit-remaining: ", remaining.into());
                        put_number(text, b"ratelimit-reset: ", whole_seconds(resets_in));
                    }
                }
            }
            put(text, b"ratelimit-policy: ", &last.policy);
        });
        text.extend_from_slice(b"ratelimit: ");
        put_list(figures, Figures::write_state, text);
        text.extend_from_slice(b"\r\n");
    }

    /// How many headers of one number there are.
    fn numbers(&self) -> usize {
        match self {
            Figures::Concurrency { .. } => 2,
            Figures::Rate { .. } => 3,
        }
    }

    /// The headers of one number each.
    fn write_numbers(&self, limit: &HeaderValue, headers: &mut HeaderMap) {
        match *self {
            Figures::Concurrency { remaining, .. } => {
                headers.insert(CONCURRENCY_LIMIT, limit.clone());
                headers.insert(CONCURRENCY_REMAINING, number(remaining.into()));
            }
            Figures::Rate { remaining, resets_in, .. } => {
                headers.insert(RATE_LIMIT, limit.clone());
                headers.insert(RATE_REMAINING, number(remaining.into()));
                headers.insert(RATE_RESET, number(whole_seconds(resets_in)));
            }
        }
    }

    fn write_state(&self, state: &mut Vec<u8>) {
        match *self {
            Figures::Concurrency { remaining, .. } => {
                state.extend_from_slice(CONCURRENCY_STATE.as_bytes());
                push_number(state, remaining.into());
            }
            Figures::Rate { remaining, resets_in, .. } => {
                state.extend_from_slice(b"\"rate\";r=");
                push_number(state, remaining.into());
                state.extend_from_slice(b";t=");
                push_number(state, whole_seconds(resets_in));
            }
        }
    }

    fn write_policy(&self, policy: &mut Vec<u8>) {
        match *self {
            Figures::Concurrency { limit, .. } => {
                policy.extend_from_slice(CONCURRENCY_POLICY.0.as_bytes());
                push_number(policy, limit.into());
                policy.extend_from_slice(CONCURRENCY_POLICY.1.as_bytes());
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

/// What nearly every response tells: one gate's slots, a small number of them. As [`Figures::write_all`] of these alone.
fn write_concurrency(limit: usize, remaining: usize, headers: &mut HeaderMap) {
    headers.reserve(4);
    headers.insert(CONCURRENCY_LIMIT, NUMBERS[limit].clone());
    headers.insert(CONCURRENCY_REMAINING, NUMBERS[remaining].clone());
    headers.append(POLICY, POLICIES[limit].clone());
    headers.append(STATE, STATES[remaining].clone());
}

/// What was last written of limits, and of which: it is the same for as long as they are.
struct Written {
    figures: Vec<Figures>,
    limits: Vec<HeaderValue>,
    policy: HeaderValue,
    /// Where states are written.
    text: Vec<u8>,
}

thread_local!(static LAST: RefCell<Written> = const { RefCell::new(Written::NOTHING) });

impl Written {
    const NOTHING: Written = Written {
        figures: Vec::new(),
        limits: Vec::new(),
        policy: HeaderValue::from_static(""),
        text: Vec::new(),
    };

    /// What the list of the states says.
    fn state_of(&mut self, figures: &[Figures]) -> HeaderValue {
        if let [Figures::Concurrency { remaining, .. }] = figures
            && let Some(state) = STATES.get(*remaining as usize)
        {
            return state.clone();
        }
        self.text.clear();
        put_list(figures, Figures::write_state, &mut self.text);
        value_of(&self.text)
    }

    /// Is what is written of these.
    fn be(&mut self, figures: &[Figures]) {
        let is_same = self.figures.len() == figures.len()
            && self.figures.iter().zip(figures).all(|(known, figure)| figure.has_policy_of(known));
        if is_same {
            return;
        }
        let mut policy = Vec::with_capacity(96);
        put_list(figures, Figures::write_policy, &mut policy);
        self.policy = value_of(&policy);
        self.limits = figures.iter().map(|figure| number(figure.limit().into())).collect();
        self.figures = figures.to_vec();
    }
}

/// An item for each.
fn put_list(figures: &[Figures], put: fn(&Figures, &mut Vec<u8>), text: &mut Vec<u8>) {
    for (at, figure) in figures.iter().enumerate() {
        if at > 0 {
            text.extend_from_slice(b", ");
        }
        put(figure, text);
    }
}

pub(super) fn push_number(text: &mut Vec<u8>, number: u64) {
    let (digits, at) = digits(number);
    text.extend_from_slice(&digits[at..]);
}

fn put<const N: usize>(text: &mut Vec<u8>, name: &[u8; N], value: &HeaderValue) {
    text.extend_from_slice(name);
    text.extend_from_slice(value.as_bytes());
    text.extend_from_slice(b"\r\n");
}

fn put_number<const N: usize>(text: &mut Vec<u8>, name: &[u8; N], number: u64) {
    text.extend_from_slice(name);
    push_number(text, number);
    text.extend_from_slice(b"\r\n");
}

/// The number as it is written: what stands in the array from there on.
pub(crate) fn digits(mut number: u64) -> ([u8; 20], usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] += u8::try_from(number % 10).expect("a digit is small");
        number /= 10;
        if number == 0 {
            return (digits, at);
        }
    }
}

fn value_of(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).expect("digits, letters and punctuation are a value")
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

/// What small numbers and their items are written as.
static NUMBERS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| kept("", ""));
static STATES: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| kept(CONCURRENCY_STATE, ""));
static POLICIES: LazyLock<Vec<HeaderValue>> =
    LazyLock::new(|| kept(CONCURRENCY_POLICY.0, CONCURRENCY_POLICY.1));

/// The texts of small numbers between other texts. They are never given up, so whoever has a copy counts no references: a count
/// that all threads change with each response would be the slowest thing about it.
fn kept(before: &str, after: &str) -> Vec<HeaderValue> {
    let text = |number| &*Box::leak(format!("{before}{number}{after}").into_boxed_str());
    (0..SMALL).map(|number| HeaderValue::from_static(text(number))).collect()
}

/// A number as a value.
pub(crate) fn number(number: u64) -> HeaderValue {
    let small = usize::try_from(number).ok().and_then(|number| NUMBERS.get(number));
    small.cloned().unwrap_or_else(|| HeaderValue::from(number))
}
