//! What is declared is what is read, what holds by default, and what the example shows.

use std::{sync::Arc, time::Duration};

use flowgate::{
    Limits,
    http::{Answer, ReleaseAt},
};
use flowgate_tasks::worker::WorkerOptions;

use super::{Clients, Config, KeyFrom, Methods, QueueMode, Unlisted, options::SECTIONS};

const EXAMPLE: &str = include_str!("../../../../docs/examples/flowgate.toml");
/// A value that no option accepts.
const DATE: &str = "1979-05-27";

/// A file in which `option` of the section is a date.
fn with_a_date(section: &str, option: &str) -> String {
    let date = format!("{option} = {DATE}");
    let route = "[[gateway.route]]\nname = \"r\"\npath = \"/\"";
    match section {
        "" => date,
        "server" => format!("[server]\n{date}"),
        "gateway" => format!("[gateway]\n{date}"),
        "tasks" | "worker" => format!("[{section}]\n{date}"),
        "queue" => format!("[[queue]]\n{date}"),
        "gateway.tls" => format!("[gateway]\ntls = {{ {date} }}"),
        "gateway.route" if option == "override" => format!("{route}\nkey = \"client\"\n{date}"),
        "gateway.route" if option == "missing_key" => format!("{route}\nkey = {{ header = \"x\" }}\n{date}"),
        "gateway.route" => format!("[[gateway.route]]\n{date}"),
        "gateway.route.override" => format!("{route}\nkey = \"client\"\n[[gateway.route.override]]\n{date}"),
        "gateway.route.line.codel" => format!("{route}\nmax_queue = 1\nline = {{ codel = {{ {date} }} }}"),
        inner => {
            let name = inner.strip_prefix("gateway.route.").expect("it is inside of a route");
            format!("{route}\n{name} = {{ {date} }}")
        }
    }
}

#[test]
fn an_option_that_is_declared_is_read() {
    // Seen to fail: with `drain` of the gateway taken from a constant, and with `burst` never asked for.
    for section in SECTIONS {
        for option in section.options {
            let text = with_a_date(section.path, option.name);
            let errors = Config::from_toml(&text).expect_err("no option accepts a date").to_string();
            let told = format!("{} is {DATE}; accepted: ", option.name);
            assert!(errors.contains(&told), "{}.{}: {errors}", section.path, option.name);
        }
    }
}

#[test]
fn an_option_that_is_not_declared_is_unknown() {
    // Seen to fail: without `tell_unknown`.
    for section in SECTIONS {
        let errors = Config::from_toml(&with_a_date(section.path, "zzzzzzzzzz"));
        let errors = errors.expect_err("nobody knows it").to_string();
        assert!(errors.contains("unknown field `zzzzzzzzzz`; accepted: "), "{}: {errors}", section.path);
    }
}

#[test]
fn every_option_has_a_name_of_its_own_and_a_description() {
    // Seen to fail: with a second `max` in the route, of which only the first would count.
    for section in SECTIONS {
        for (at, option) in section.options.iter().enumerate() {
            assert!(section.options[..at].iter().all(|other| other.name != option.name), "{}", option.name);
            assert!(option.about.ends_with('.'), "{}.{}", section.path, option.name);
        }
    }
}

#[test]
fn the_example_shows_every_option() {
    // Seen to fail: without `proxy_hops` in the example.
    for section in SECTIONS.iter().filter(|section| !section.path.is_empty()) {
        for name in section.names() {
            let line = |line: &str| {
                let line = line.trim_start_matches("# ");
                line.contains(&format!("{name} = ")) || line == format!("[[{}.{name}]]", section.path)
            };
            let header = format!("[{}.{name}]", section.path);
            let is_there = EXAMPLE.lines().any(|text| line(text) || text == header);
            assert!(is_there, "{}.{name}", section.path);
        }
    }
}

#[test]
fn the_defaults_are_those_that_were_promised() {
    // Seen to fail: with any default changed.
    let text = "[[gateway.route]]\nname = \"r\"\npath = \"/\"\nupstreams = [\"http://a\"]";
    let Config { server, gateway, store, tasks, queues, worker } =
        Config::from_toml(text).expect("it is valid");
    assert_eq!(server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!((server.flow_control_mode, server.max_requests), (None, 1024));
    assert_eq!((server.max_connections, server.idle_timeout), (10_000, Duration::from_secs(60)));
    assert_eq!((server.egress_proxy, server.egress_ca), (None, None));
    assert_eq!(store.to_string(), "sqlite:flowgate.db");
    assert_eq!((tasks.queue_mode, tasks.cluster_wide_cap, tasks.prefetch), (QueueMode::Default, None, None));
    assert_eq!(queues, []);
    assert_eq!(worker.start_timeout, Duration::from_secs(600));
    let WorkerOptions { max_claim_batch, max_claim_per_worker, lease, drain, .. } = worker.options;
    assert_eq!((max_claim_batch, max_claim_per_worker), (0, 0));
    assert_eq!((lease, drain), (Duration::from_secs(15), Duration::from_secs(30)));
    let gateway = gateway.expect("it has a route");
    assert_eq!(gateway.listen.to_string(), "127.0.0.1:8081");
    assert_eq!((gateway.tls, gateway.pin_workers, gateway.max_connections.get()), (None, true, 10_000));
    let times = [gateway.header_timeout, gateway.idle_timeout, gateway.drain];
    assert_eq!(times, [10, 60, 10].map(Duration::from_secs));
    assert_eq!((gateway.clients, gateway.unlisted), (Clients::Peer, Unlisted::NotFound));

    let [route] = gateway.routes.as_slice() else { panic!("it has one route") };
    assert_eq!((&*route.name, &route.host, &route.methods), ("r", &None, &Methods::All));
    let forward = &route.forward;
    let times = [forward.connect_timeout, forward.response_timeout, forward.stream_timeout];
    assert_eq!((times, forward.max_body), ([2, 60, 60].map(Duration::from_secs), None));

    let limit = route.limit.as_ref().expect("it is limited");
    assert_eq!(limit.key, KeyFrom::Constant(Arc::from("r")));
    assert_eq!(limit.limits, Limits::builder().max(30).reject().build().expect("they are valid"));
    assert_eq!((limit.overrides.len(), limit.max_keys), (0, 1));
    assert_eq!((limit.release, limit.headers), (ReleaseAt::Body, true));
    assert_eq!(limit.refusal, Answer::envelope(), "the envelope");
}

#[test]
fn upstreams_of_the_gateway_are_those_of_routes_without_and_of_what_no_route_matches() {
    // Seen to fail: with `not-found` as the default whatever there is.
    let text = "[gateway]\nupstreams = [\"http://a\", \"http://b:81\"]\n[[gateway.route]]\nname = \"r\"\npath = \"/\"";
    let gateway = Config::from_toml(text).expect("it is valid").gateway.expect("it is there");
    let Unlisted::Pass(forward) = &gateway.unlisted else { panic!("{:?}", gateway.unlisted) };
    assert_eq!(*forward, gateway.routes[0].forward);
    assert_eq!(
        forward.upstreams.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["http://a", "http://b:81"]
    );
    let text = text.replace("[[", "unlisted = \"not-found\"\n[[");
    let gateway = Config::from_toml(&text).expect("it is valid").gateway.expect("it is there");
    assert_eq!(gateway.unlisted, Unlisted::NotFound);
}

#[test]
fn an_override_has_what_it_says_and_the_rest_of_its_route() {
    // Seen to fail: with an override that has a line of its own beginning without the route's timeout.
    let text = "\
[gateway]
upstreams = [\"http://a\"]
[[gateway.route]]
name = \"r\"
path = \"/\"
key = \"client\"
max = 8
max_queue = 4
queue_timeout = \"2s\"
rate = { limit = 100, period = \"1m\" }
override = [
    { key = \"192.0.2.7\", max = 2 },
    { key = \"::ffff:192.0.2.8\", max_queue = 0 },
    { key = \"2001:db8:1:2:3::4\", rate = { limit = 1, period = \"1s\", burst = 5 } },
]";
    let gateway = Config::from_toml(text).expect("it is valid").gateway.expect("it is there");
    let overrides = &gateway.routes[0].limit.as_ref().expect("it is limited").overrides;
    let told: Vec<_> = overrides.iter().map(|own| format!("{}: {}", own.key, own.limits)).collect();
    assert_eq!(
        told,
        [
            "192.0.2.7: max 2, rate 100 per 1m, queue 4, timeout 2s",
            "192.0.2.8: max 8, rate 100 per 1m, reject",
            "2001:db8:1:2::/64: max 8, rate 1 per 1s (bucket, burst 5), queue 4, timeout 2s",
        ]
    );
}
