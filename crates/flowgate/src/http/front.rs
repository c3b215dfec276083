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

/// A request that was turned away, as an `on_reject` hook hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected<'a> {
    /// The key of its lane.
    pub key: &'a str,
    /// Why.
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
            let accepted = "a path like `/healthz`, or one with all below it like `/internal/*`";
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

    /// The key of the request's lane where nobody else has to be asked for it: `None` says nothing. Most requests need not be taken apart
    /// and put together again, which is to copy them twice.
    pub(crate) fn plain_key<B>(&self, request: &Request<B>) -> Option<Key> {
        if !self.exemptions.is_empty() {
            return None;
        }
        self.scope.plain_key(request.method(), request.extensions())
    }

    /// Marks the request as counted by this layer; `false` if it was already.
    pub(crate) fn counts(&self, extensions: &mut Extensions) -> bool {
        let Some(counted) = extensions.get_mut::<Counted>() else {
            extensions.insert(Counted { first: self.number, more: Vec::new() });
            return true;
        };
        let is_new = counted.first != self.number && !counted.more.contains(&self.number);
        if is_new {
            counted.more.push(self.number);
        }
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
        /// How the budget is partitioned.
        pub fn scope(mut self, scope: $crate::http::Scope) -> Self {
            self.front.scope(scope);
            self
        }

        /// How clients are told apart; needed for the scope `client`.
        pub fn identity(mut self, identity: $crate::http::Identity) -> Self {
            self.front.identity(identity);
            self
        }

        /// Requests for this path are not limited. `/internal/*` means all below `/internal/`, but not what goes up again by
        /// `..`.
        pub fn exempt_path(mut self, path: &str) -> Self {
            self.front.exempt_path(path);
            self
        }

        /// Requests of which `is_exempt` says so are not limited.
        pub fn exempt(
            mut self,
            is_exempt: impl Fn(&http::request::Parts) -> bool + Send + Sync + 'static,
        ) -> Self {
            self.front.exempt(is_exempt);
            self
        }

        /// The status of a refusal.
        pub fn status(mut self, status: http::StatusCode) -> Self {
            self.front.answer(|answer| answer.status(status));
            self
        }

        /// What `Retry-After` says where nothing better is known: default one second; zero omits the header.
        pub fn retry_after(mut self, retry_after: std::time::Duration) -> Self {
            self.front.answer(|answer| Ok(answer.retry_after(retry_after)));
            self
        }

        /// The message in a refusal's body.
        pub fn message(mut self, message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
            self.front.answer(|answer| answer.message(message));
            self
        }

        /// Everything about how a refusal is answered at once, instead of what was said before.
        pub fn answer(mut self, answer: $crate::http::Answer) -> Self {
            self.front.answer(|_| Ok(answer));
            self
        }

        /// Hears of every request that is turned away. A hook that panics changes nothing for the client.
        pub fn on_reject(
            mut self,
            hook: impl Fn(&$crate::http::Rejected<'_>) + Send + Sync + 'static,
        ) -> Self {
            self.front.on_reject(hook);
            self
        }

        /// Whether responses tell of the limits in their headers; they do unless this says no.
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
        /// The gate's name, in refusals and events.
        pub fn name(mut self, name: impl Into<String>) -> Self {
            self.gate = self.gate.name(name);
            self
        }

        /// Another clock than the system's: for tests that move time by hand.
        pub fn clock(mut self, clock: std::sync::Arc<dyn $crate::clock::Clock>) -> Self {
            self.gate = self.gate.clock(clock);
            self
        }

        /// Hears every event of the gate.
        pub fn listener(mut self, listener: impl $crate::gate::Listener) -> Self {
            self.gate = self.gate.listener(listener);
            self
        }
    };
}
pub(crate) use gate_options;
