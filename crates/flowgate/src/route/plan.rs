//! What a route will need in every context.
//!
//! Owns the list of state to be built for a site: gates, breakers, caches. Steps know their own by its place in the list. The
//! first mistake is kept for `build` to tell.

use std::{
    any::{Any, TypeId, type_name},
    sync::Arc,
};

use flowgate_core::{Code, OptionError};

use super::{
    destination::Destination,
    error::Error,
    limiter::{GateSpec, KeyFn, Limiter},
    mounted::{Direct, Mounted},
    wrap::{Cache, Circuit, CircuitBreaker, Store},
};

type Factory<T> = Box<dyn Fn() -> T + Send + Sync>;

#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) id: Arc<str>,
    pub(crate) gates: Vec<GateSpec>,
    pub(crate) circuits: Vec<Factory<Circuit>>,
    pub(crate) caches: Vec<Factory<Box<dyn Any + Send + Sync>>>,
    pub(crate) links: Vec<Link>,
    pub(crate) problem: Option<Error>,
}

/// A route of the same context that this one sends to.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) to: String,
    /// What the context knows it as.
    pub(crate) mounted: TypeId,
    /// The bodies, for whoever has to mend it.
    pub(crate) bodies: &'static str,
}

impl Link {
    /// To a route that takes an `I` and answers an `O`.
    pub(crate) fn of<I: 'static, O: 'static>(to: &str) -> Self {
        let mounted = TypeId::of::<Mounted<I, O>>();
        Link { to: to.to_owned(), mounted, bodies: type_name::<Direct<I, O>>() }
    }
}

impl Plan {
    pub(crate) fn new(id: &str) -> Self {
        let mut plan = Plan { id: Arc::from(id), ..Plan::default() };
        if id.is_empty() {
            plan.note(Err(OptionError::new("id", "\"\"", "text that is not empty")));
        }
        plan
    }

    /// Keeps the first mistake.
    pub(crate) fn note<E: Into<Error>>(&mut self, checked: Result<(), E>) {
        if let (None, Err(error)) = (&self.problem, checked) {
            self.problem = Some(error.into());
        }
    }

    /// At route scope most wrappers mean something once.
    pub(crate) fn once(&mut self, wrapper: &str, is_taken: bool) {
        if is_taken {
            let message = format!("route `{}`: `{wrapper}` is declared twice at route scope", self.id);
            self.note(Err(Error::new(Code::Misplaced, message)));
        }
    }

    pub(crate) fn destination<B>(&mut self, destination: &impl Destination<B>) {
        self.note(destination.check());
        self.links.extend(destination.link());
    }

    pub(crate) fn gate<B>(&mut self, (spec, key): (GateSpec, Option<KeyFn<B>>)) -> Limiter<B> {
        self.note(spec.build(&self.id, None).map(drop));
        self.gates.push(spec);
        Limiter { index: self.gates.len() - 1, key }
    }

    pub(crate) fn circuit<T>(&mut self, breaker: &CircuitBreaker<T>) -> usize {
        self.note(breaker.check());
        let terms = breaker.terms();
        self.circuits.push(Box::new(move || Circuit::new(terms)));
        self.circuits.len() - 1
    }

    pub(crate) fn cache<B, T: Send + Sync + 'static>(&mut self, cache: &Cache<B>) -> usize {
        self.note(cache.check());
        let max = cache.max();
        self.caches.push(Box::new(move || Box::new(Store::<T>::new(max))));
        self.caches.len() - 1
    }
}
