//! How a layer's budget is partitioned.
//!
//! Owns the way from a request to the key of its lane.

use std::{
    cell::RefCell,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock},
};

use flowgate_core::{Key, OptionError};
use http::{Extensions, Method, request::Parts};

use super::identity::Identity;

/// How a budget is partitioned.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Scope {
    /// One budget for all requests.
    #[default]
    Global,
    /// A budget for each method and route *template*: `/users/1` and `/users/2` share that of `/users/{id}`. Requests
    /// that match no route share one budget, and so do all methods of a template that are not HTTP's own. The
    /// template is axum's (feature `axum`), or that of a [`Template`] in the request's extensions.
    Route,
    /// A budget for each client; `identity` says how to tell them apart.
    Client,
    /// A budget for each key that the function returns; `None` means not limited. See [`Scope::by`].
    By(KeyFn),
}

/// A function that returns the key of a request's lane.
pub type KeyFn = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// The route template that a request matched. Routers other than axum's put it into the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(pub Arc<str>);

/// The lane of what no route matches; no method and template are written like this.
const UNMATCHED: &str = "unmatched";
const GLOBAL: &str = "global";

impl Scope {
    /// A budget for each key that `key` returns; `None` means not limited. Of a key longer than 256 bytes only the
    /// beginning and a hash of the whole are kept.
    pub fn by(key: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Scope::By(Arc::new(key))
    }

    /// The word for it, in refusals and events.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Scope::Global => "global",
            Scope::Route => "route",
            Scope::Client => "client",
            Scope::By(_) => "custom",
        }
    }

    /// The key of this request's lane; `None` if it is not limited.
    pub(crate) fn key(&self, request: &Parts, identity: Option<&Identity>) -> Option<Key> {
        match self {
            Scope::Global | Scope::Route => self.plain_key(&request.method, &request.extensions),
            Scope::Client => Some(identity?.key(request)),
            Scope::By(key) => key(request).as_deref().map(key_of),
        }
    }

    /// The key of a request where it follows from these two alone: `None` says nothing.
    pub(crate) fn plain_key(&self, method: &Method, extensions: &Extensions) -> Option<Key> {
        match self {
            Scope::Global => Some(Key::new(GLOBAL)),
            Scope::Route => Some(route_of(method, extensions)),
            Scope::Client | Scope::By(_) => None,
        }
    }
}

/// `max_keys` where there are no keys.
pub(crate) fn no_keys(max_keys: u32) -> OptionError {
    let accepted = "only with a scope that has keys; `global` is a single budget";
    OptionError::new("max_keys", max_keys, accepted)
}

/// Longer keys are not kept: what a client may choose, such as a header, is as long as a head may be, and a rate remembers
/// thousands of them.
const LONGEST_KEY: usize = 256;

/// The key of a text; of a longer one its beginning, and what tells it from others that begin so.
pub(crate) fn key_of(text: &str) -> Key {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    if text.len() <= LONGEST_KEY {
        return Key::new(text);
    }
    let end = (0..=LONGEST_KEY / 2).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let beginning = &text[..end];
    Key::new(&format!("{beginning}…{:016x}", HASHER.hash_one(text)))
}

/// A route and its key.
struct Route {
    /// The method and the template, as they are written in the key.
    text: String,
    method_len: usize,
    key: Key,
}

impl Route {
    fn new(method: &str, template: &str) -> Self {
        let text = [method, " ", template].concat();
        let key = Key::new(&text);
        Route { text, method_len: method.len(), key }
    }

    fn is(&self, method: &str, template: &str) -> bool {
        // The template first: methods are the same more often.
        self.text.len() == self.method_len + 1 + template.len()
            && self.text.as_bytes().ends_with(template.as_bytes())
            && &self.text.as_bytes()[..self.method_len] == method.as_bytes()
    }
}

/// So many routes a thread knows the keys of.
const KNOWN_ROUTES: usize = 8;

thread_local! {
    /// The routes last asked for, each where its template's length says: putting a key together takes longer than to see that it
    /// is the same.
    static ROUTES: RefCell<[Option<Route>; KNOWN_ROUTES]> = const { RefCell::new([const { None }; KNOWN_ROUTES]) };
}

fn route_of(method: &Method, extensions: &Extensions) -> Key {
    let template = extensions.get::<Template>().map(|template| &*template.0);
    #[cfg(feature = "axum")]
    let template = template
        .or_else(|| extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str));
    let Some(template) = template else { return Key::new(UNMATCHED) };
    let method = method_of(method);
    ROUTES.with_borrow_mut(|routes| {
        let known = &mut routes[(template.len() + method.len()) % KNOWN_ROUTES];
        match known {
            Some(route) if route.is(method, template) => route.key.clone(),
            _ => known.insert(Route::new(method, template)).key.clone(),
        }
    })
}

/// Methods that a client can make up share one lane: a lane for each would be a way around the limit of a route that takes any.
fn method_of(method: &Method) -> &str {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS
        | Method::CONNECT
        | Method::TRACE => method.as_str(),
        _ => "other",
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
