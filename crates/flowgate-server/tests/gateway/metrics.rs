//! The gateway's gates among the metrics of the server beside it.

use crate::{
    program::{Program, config},
    upstream::Service,
};

#[test]
fn what_runs_and_what_is_refused_is_told_by_route_and_never_by_key() {
    let upstream = Service::new();
    let route =
        "[[gateway.route]]\nname = \"actions\"\npath = \"/{*rest}\"\nkey = { header = \"X-Key\" }\nmax = 1\n";
    let program = Program::start(&config(upstream.address, "", route));
    let held = upstream.hold(&program, "/one", "X-Key: secret-tenant\r\n");
    program.settle(1, 0);
    assert_eq!(program.post("/two", "X-Key: secret-tenant\r\n").status(), 429);
    let page = program.metrics();
    for line in [
        "flowgate_gate_in_use{gate=\"gateway/actions\"} 1",
        "flowgate_gate_max{gate=\"gateway/actions\"} 1",
        "flowgate_gate_refusals_total{gate=\"gateway/actions\",reason=\"busy\"} 1",
        "flowgate_gate_refusals_total{gate=\"gateway/actions\",reason=\"rate\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
    assert!(page.contains("flowgate_gateway_connections{state=\"active\"}"), "{page}");
    assert!(!page.contains("secret-tenant"), "no key is a label");
    assert_eq!(held.end().status(), 200);
}
