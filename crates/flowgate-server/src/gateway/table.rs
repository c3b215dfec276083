//! The routes as they are in force.
//!
//! Owns what a reload exchanges as a whole: routes, their limits and where they lead. A route that keeps its name keeps its
//! gate.

use std::{borrow::Cow, collections::HashMap, net::IpAddr, sync::Arc};

use flowgate::{
    OptionError,
    http::{Answer, Identity},
};
use http::Method;

use super::{
    asked::{Asked, Head},
    clock::Span,
    limiter::Limiter,
    path::{as_key, lenient},
    router::{Part, Router},
};
use crate::config::{Clients, Forward, Gateway, Unlisted, Upstream};

/// All that a request has to be asked.
#[derive(Debug)]
pub(super) struct Table {
    router: Router,
    /// The routes as an upstream may read paths that is less strict.
    lenient: Router,
    routes: Vec<Route>,
    /// Where requests go that no route matches.
    unlisted: Option<Plan>,
    /// Each once, whichever routes lead there.
    pub(super) upstreams: Vec<Upstream>,
    /// How many plans there are.
    pub(super) plans: usize,
    pub(super) clients: Clients,
    pub(super) identity: Identity,
    /// The form of what is told where no route says otherwise.
    pub(super) answer: Answer,
    pub(super) header_timeout: Span,
    pub(super) idle_timeout: Span,
}

#[derive(Debug)]
pub(super) struct Route {
    pub(super) name: Arc<str>,
    pub(super) plan: Plan,
    pub(super) limit: Option<Limiter>,
}

/// Where requests go, and how long that may take.
#[derive(Debug)]
pub(super) struct Plan {
    /// Its number in the table.
    pub(super) number: usize,
    /// By their numbers in the table. Not empty.
    pub(super) upstreams: Vec<usize>,
    pub(super) connect_timeout: Span,
    pub(super) response_timeout: Span,
    pub(super) stream_timeout: Span,
    pub(super) max_body: Option<u64>,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub(super) enum Way<'t, 'r> {
    Route(&'t Route),
    /// By its path as a lenient upstream reads it.
    Lenient(&'t Route, Cow<'r, str>),
    /// It passes without a limit.
    Unlisted(&'t Plan),
    /// Its key is a part of its path, which may be another one for its upstream.
    Doubtful,
    None,
}

/// Numbers what is met, in the order in which it is met.
#[derive(Default)]
struct Numbers {
    upstreams: Vec<Upstream>,
    known: HashMap<Upstream, usize>,
    plans: usize,
}

impl Table {
    /// The table of a configuration, with the gates of `old` for routes of the same name. The limits are in force when this
    /// returns, and nothing has changed if it fails. `notes` are what cannot change while the gateway runs.
    pub(super) fn build(
        config: &Gateway,
        old: Option<&Table>,
        notes: &mut Vec<String>,
    ) -> Result<Self, OptionError> {
        let before: HashMap<&str, &Limiter> = old.into_iter().flat_map(Table::limited).collect();
        let mut numbers = Numbers::default();
        let (mut router, mut lenient) = (Router::default(), Router::default());
        let mut routes = Vec::with_capacity(config.routes.len());
        for (number, route) in config.routes.iter().enumerate() {
            router.add(route.host.as_ref(), &route.path, &route.methods, number);
            let before = before.get(&*route.name).copied();
            let limit = route.limit.as_ref();
            let limit = limit
                .map(|limit| Limiter::build(&route.name, &route.path, limit, before, notes))
                .transpose()?;
            routes.push(Route { name: Arc::clone(&route.name), plan: numbers.plan(&route.forward), limit });
        }
        // Those with a limit first: where two are read as the same, it holds.
        let (limited, free): (Vec<_>, Vec<_>) =
            config.routes.iter().enumerate().partition(|(_, route)| route.limit.is_some());
        for (number, route) in limited.into_iter().chain(free) {
            lenient.add_lenient(route.host.as_ref(), &route.path, &route.methods, number);
        }
        for (route, config) in routes.iter().zip(&config.routes) {
            if let (Some(limit), Some(config)) = (&route.limit, &config.limit) {
                limit.apply(&route.name, config, before.get(&*route.name).copied(), notes)?;
            }
        }
        let unlisted = match &config.unlisted {
            Unlisted::NotFound => None,
            Unlisted::Pass(forward) => Some(numbers.plan(forward)),
        };
        Ok(Table {
            router,
            lenient,
            routes,
            unlisted,
            upstreams: numbers.upstreams,
            plans: numbers.plans,
            clients: config.clients.clone(),
            identity: config.clients.identity(),
            answer: Answer::envelope(),
            header_timeout: Span::of(config.header_timeout),
            idle_timeout: Span::of(config.idle_timeout),
        })
    }

    /// All routes with a limit.
    pub(super) fn limited(&self) -> impl Iterator<Item = (&str, &Limiter)> {
        self.routes.iter().filter_map(|route| Some((&*route.name, route.limit.as_ref()?)))
    }

    /// What becomes of a request. None passes without a limit that its upstream, being lenient, may read as one of a limited
    /// route of its own.
    pub(super) fn way<'t, 'r>(&'t self, asked: &Asked<'r>, head: &'r impl Head) -> Way<'t, 'r> {
        let found = self.router.find(&asked.host, &asked.path, head.method());
        let found = found.map(|number| (number, &self.routes[number]));
        if let Some((number, route)) = found
            && let Some(limit) = &route.limit
        {
            let is_doubtful = limit.part().is_some_and(|part| self.is_doubtful((number, part), asked, head));
            return if is_doubtful { Way::Doubtful } else { Way::Route(route) };
        }
        let as_written = match (found, &self.unlisted) {
            (Some((_, route)), _) => Way::Route(route),
            (None, Some(unlisted)) => Way::Unlisted(unlisted),
            (None, None) => return Way::None,
        };
        let path = lenient(head.path());
        let meant = self.find_lenient(asked, &path, head).map(|number| &self.routes[number]);
        let is_meant = |route: &&Route| match found {
            Some((_, written)) => route.limit.is_some() && route.plan.upstreams == written.plan.upstreams,
            None => true,
        };
        match meant.filter(is_meant) {
            Some(route) => Way::Lenient(route, path),
            None => as_written,
        }
    }

    /// Whether a lenient upstream may find another route, or another key in this part of the path, than this one.
    fn is_doubtful(&self, (number, part): (usize, Part), asked: &Asked<'_>, head: &impl Head) -> bool {
        let Cow::Owned(path) = lenient(head.path()) else { return false };
        let found = self.router.find(&asked.host, &path, head.method());
        // A literal of this very route may not be in its lenient form: then only the lenient router knows the path.
        let found = found.or_else(|| self.find_lenient(asked, &path, head));
        found.is_some_and(|other| other != number || part.of(&path) != as_key(part.of(&asked.path)))
    }

    /// The route that a lenient upstream may find by this path, as it reads it. Many of those take a method in any case.
    fn find_lenient(&self, asked: &Asked<'_>, path: &str, head: &impl Head) -> Option<usize> {
        let (path, method) = (in_lower_case(path), head.method());
        match method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
            true => {
                let meant = Method::from_bytes(method.as_str().to_ascii_uppercase().as_bytes()).ok()?;
                self.lenient.find(&asked.host, &path, &meant)
            }
            false => self.lenient.find(&asked.host, &path, method),
        }
    }

    /// Whether what this peer says of whom it speaks for is believed.
    pub(super) fn trusts(&self, peer: IpAddr) -> bool {
        match &self.clients {
            Clients::Peer => false,
            Clients::Hops(_) => true,
            Clients::Trusted(networks) => networks.iter().any(|network| network.contains(peer)),
        }
    }
}

fn in_lower_case(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}

impl Numbers {
    fn plan(&mut self, forward: &Forward) -> Plan {
        let number = self.plans;
        self.plans += 1;
        Plan {
            number,
            upstreams: forward.upstreams.iter().map(|upstream| self.upstream(upstream)).collect(),
            connect_timeout: Span::of(forward.connect_timeout),
            response_timeout: Span::of(forward.response_timeout),
            stream_timeout: Span::of(forward.stream_timeout),
            max_body: forward.max_body,
        }
    }

    fn upstream(&mut self, upstream: &Upstream) -> usize {
        if let Some(number) = self.known.get(upstream) {
            return *number;
        }
        let number = self.upstreams.len();
        self.upstreams.push(upstream.clone());
        self.known.insert(upstream.clone(), number);
        number
    }
}
