//! What every layer asks of a request before it asks its gate.
//!
//! Owns the options the layers share: scope, identity, exemptions, how a refusal is answered and which hook
//! hears of it; and the mark by which a request is counted once, however often one layer is mounted.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use flowgate_core::{Key, OptionError, Reason, Refusal};
use http::{Extensions, Request, Response, request::Parts};

use super::{answer::Answer, identity::Identity, scope::Scope};

/// A refused request, as an `on_reject` hook gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected<'a> {
    /// The key of its lane.
    pub key: &'a str,
    /// The reason.
    pub reason: Reason,
    /// How many are in flight in that lane.
    pub active: u32,
    /// How many wait there.
    pub queued: u32,
}

type OnReject = dyn Fn(&Rejected<'_>) + Send + Sync;
type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

#[derive(Clone)]
enum Exemption {
    Path(String),
    Under(String),
    If(Arc<Predicate>),
}

/// The options the layers share, checked.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) scope: Scope,
    pub(crate) identity: Option<Identity>,
    exemptions: Vec<Exemption>,
    pub(crate) answer: Answer,
    on_reject: Option<Arc<OnReject>>,
    pub(crate) has_figures: bool,
    /// Tells a layer from all others there ever were: a request may outlive the layer that counted it.
    number: u64,
}

/// The same, as they are being said: the first mistake is kept for `build`.
#[derive(Clone, Debug)]
pub(crate) struct FrontBuilder {
    front: Front,
    wrong: Option<OptionError>,
}

impl FrontBuilder {
    pub(crate) fn new(scope: Scope, answer: Answer) -> Self {
        let (identity, exemptions, on_reject, has_figures) = (None, Vec::new(), None, true);
        let front = Front { scope, identity, exemptions, answer, on_reject, has_figures, number: 0 };
        FrontBuilder { front, wrong: None }
    }

    pub(crate) fn scope(&mut self, scope: Scope) {
        self.front.scope = scope;
    }

    pub(crate) fn identity(&mut self, identity: Identity) {
        self.front.identity = Some(identity);
    }

    pub(crate) fn exempt_path(&mut self, path: &str) {
        if !path.starts_with('/') {
            let accepted = "a path like `/healthz`, or a path and everything below it like `/internal/*`";
            self.note(OptionError::new("exempt_path", format!("{path:?}"), accepted));
        }
        self.front.exemptions.push(match path.strip_suffix('*') {
            Some(under) => Exemption::Under(under.to_owned()),
            None => Exemption::Path(path.to_owned()),
        });
    }

    pub(crate) fn exempt(&mut self, is_exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) {
        self.front.exemptions.push(Exemption::If(Arc::new(is_exempt)));
    }

    pub(crate) fn answer(&mut self, change: impl FnOnce(Answer) -> Result<Answer, OptionError>) {
        match change(self.front.answer.clone()) {
            Ok(answer) => self.front.answer = answer,
            Err(error) => self.note(error),
        }
    }

    pub(crate) fn on_reject(&mut self, hook: impl Fn(&Rejected<'_>) + Send + Sync + 'static) {
        self.front.on_reject = Some(Arc::new(hook));
    }

    pub(crate) fn headers(&mut self, has_figures: bool) {
        self.front.has_figures = has_figures;
    }

    fn note(&mut self, error: OptionError) {
        self.wrong.get_or_insert(error);
    }

    pub(crate) fn build(self) -> Result<Front, OptionError> {
        static LAYERS: AtomicU64 = AtomicU64::new(0);
        if let Some(error) = self.wrong {
            return Err(error);
        }
        if matches!(self.front.scope, Scope::Client) && self.front.identity.is_none() {
            let accepted = "`client` together with `identity`, which says how to tell clients apart: by the peer's \
                            address, through declared proxies, or by a function";
            return Err(OptionError::new("scope", "`client`", accepted));
        }
        Ok(Front { number: LAYERS.fetch_add(1, Ordering::Relaxed), ..self.front })
    }
}

impl Front {
    /// The key of the request's lane; `None` if it is not limited. Where code of others that was asked for it panics, the answer:
    /// to count the request under some other key would break somebody else's bound, and not to count it that of all.
    pub(crate) fn key(&self, request: &Parts) -> Result<Option<Key>, Box<Response<Bytes>>> {
        let ask = || {
            let is_exempt = self.exemptions.iter().any(|exemption| exemption.covers(request));
            if is_exempt { None } else { self.scope.key(request, self.identity.as_ref()) }
        };
        // The panic was reported where it happened.
        catch_unwind(AssertUnwindSafe(ask)).map_err(|_| Box::new(self.answer.misconfigured(&request.headers)))
    }

    /// The key of the request's lane where nobody else has to be asked for it: `None` says nothing. Most requests need
    /// not be taken apart and put together again, which is to copy them twice.
    pub(crate) fn plain_key<B>(&self, request: &Request<B>) -> Option<Key> {
        if !self.exemptions.is_empty() {
            return None;
        }
        self.scope.plain_key(request.method(), request.extensions())
    }

    /// Marks the request as counted by this layer; `false` if it was already.
    pub(crate) fn counts(&self, extensions: &mut Extensions) -> bool {
        // One look for nearly all, who have no mark yet.
        let mark = Counted { first: self.number, more: Vec::new() };
        let Some(mut counted) = extensions.insert(mark) else { return true };
        let is_new = counted.first != self.number && !counted.more.contains(&self.number);
        if is_new {
            counted.more.push(self.number);
        }
        extensions.insert(counted);
        is_new
    }

    /// The answer to a request that was refused; whoever asked to hear of it does.
    pub(crate) fn refuse(&self, key: &Key, refusal: &Refusal, request: &Parts) -> Response<Bytes> {
        if let Some(hook) = &self.on_reject {
            let rejected = Rejected {
                key: key.as_str(),
                reason: refusal.reason,
                active: refusal.in_use,
                queued: refusal.waiting,
            };
            // A hook that fails changes nothing for the client; the panic was reported where it happened.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(&rejected)));
        }
        self.answer.refuse(refusal, &request.headers)
    }
}

impl Exemption {
    fn covers(&self, request: &Parts) -> bool {
        match self {
            Exemption::Path(path) => request.uri.path() == path,
            Exemption::Under(under) => {
                let path = request.uri.path();
                path.starts_with(under) && !climbs(path)
            }
            Exemption::If(is_exempt) => is_exempt(request),
        }
    }
}

/// Whether a path goes up again, which whoever serves it may follow: `/internal/../orders` is not below `/internal/`.
fn climbs(path: &str) -> bool {
    if !path.contains("..") && !path.contains('%') {
        return false;
    }
    let plain = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    plain.split(['/', '\\']).any(|part| part == "..")
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front")
            .field("scope", &self.scope)
            .field("identity", &self.identity)
            .field("answer", &self.answer)
            .finish_non_exhaustive()
    }
}

/// Which layers have counted a request, by their numbers. There is rarely more than one.
#[derive(Clone)]
struct Counted {
    first: u64,
    more: Vec<u64>,
}

/// The options that every layer's builder takes, written once; those of its gate are [`gate_options`].
macro_rules! front_options {
    () => {
        /// Sets how the budget is partitioned.
        pub fn scope(mut self, scope: $crate::http::Scope) -> Self {
            self.front.scope(scope);
            self
        }

        /// Sets how clients are told apart. Required for the scope `client`.
        pub fn identity(mut self, identity: $crate::http::Identity) -> Self {
            self.front.identity(identity);
            self
        }

        /// Exempts this path from the limit. `/internal/*` means everything below `/internal/`, except what goes up
        /// again by `..`.
        pub fn exempt_path(mut self, path: &str) -> Self {
            self.front.exempt_path(path);
            self
        }

        /// Exempts requests for which `is_exempt` returns `true`.
        pub fn exempt(
            mut self,
            is_exempt: impl Fn(&http::request::Parts) -> bool + Send + Sync + 'static,
        ) -> Self {
            self.front.exempt(is_exempt);
            self
        }

        /// Sets the status of a refusal.
        pub fn status(mut self, status: http::StatusCode) -> Self {
            self.front.answer(|answer| answer.status(status));
            self
        }

        /// Sets what `Retry-After` says if nothing better is known: default one second; zero omits the header.
        pub fn retry_after(mut self, retry_after: std::time::Duration) -> Self {
            self.front.answer(|answer| Ok(answer.retry_after(retry_after)));
            self
        }

        /// Sets the message in a refusal's body.
        pub fn message(mut self, message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
            self.front.answer(|answer| answer.message(message));
            self
        }

        /// Sets everything about how a refusal is answered, replacing what was set before.
        pub fn answer(mut self, answer: $crate::http::Answer) -> Self {
            self.front.answer(|_| Ok(answer));
            self
        }

        /// Calls a hook for every refused request. A hook that panics changes nothing for the client.
        pub fn on_reject(
            mut self,
            hook: impl Fn(&$crate::http::Rejected<'_>) + Send + Sync + 'static,
        ) -> Self {
            self.front.on_reject(hook);
            self
        }

        /// Sets whether responses tell the limits in their headers. Default: they do.
        pub fn headers(mut self, has_figures: bool) -> Self {
            self.front.headers(has_figures);
            self
        }
    };
}
pub(crate) use front_options;

/// The options of a gate that the builder of its layer hands on.
macro_rules! gate_options {
    () => {
        /// Names the gate, for refusals and events.
        pub fn name(mut self, name: impl Into<String>) -> Self {
            self.gate = self.gate.name(name);
            self
        }

        /// Replaces the system's clock, so that tests can move time by hand.
        pub fn clock(mut self, clock: std::sync::Arc<dyn $crate::clock::Clock>) -> Self {
            self.gate = self.gate.clock(clock);
            self
        }

        /// Adds a listener, which is called for every event of the gate.
        pub fn listener(mut self, listener: impl $crate::gate::Listener) -> Self {
            self.gate = self.gate.listener(listener);
            self
        }
    };
}
pub(crate) use gate_options;
