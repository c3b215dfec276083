//! What a layer costs a server that does next to nothing: axum's hello with and without it.

use super::{hello::Layered, role::Role, rounds::in_turn, stage::Stage, wrk::CONNECTIONS};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const COST: &str = "layer: CPU for a request, axum hello";
const COST_BESIDE_EMPTY: &str = "layer: CPU for a request, axum hello, beside an empty layer";
const COST_BESIDE_HEADERS: &str =
    "layer: CPU for a request, axum hello, beside a layer that writes as many headers";
const COST_SILENT: &str = "layer: CPU for a request, axum hello, without headers";
const COST_AROUND: &str = "layer: CPU for a request, axum hello, around the router";
const SPEED: &str = "layer: requests per second, axum hello";
const SPEED_BESIDE_HEADERS: &str =
    "layer: requests per second, axum hello, beside a layer that writes as many headers";
const CASES: [&str; 7] =
    [COST, COST_BESIDE_EMPTY, COST_BESIDE_HEADERS, COST_SILENT, COST_AROUND, SPEED, SPEED_BESIDE_HEADERS];

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&CASES) {
        return Ok(());
    }
    let (rounds, seconds) = if suite.is_quick() { (2, 1) } else { (11, 2) };
    let wrk = stage.wrk()?;
    let before_the_hello =
        [Layered::Limit, Layered::Plain, Layered::Empty, Layered::Headers, Layered::Silent, Layered::Around];
    let [limited, plain, empty, headed, silent, around] = in_turn::<6, 2>(rounds, |index| {
        // A process has luck for as long as it lives, nearly as much as a layer costs: each round has new ones.
        let server = stage.server(Role::Hello(before_the_hello[index]))?;
        wrk.shoot(&server, "/", CONNECTIONS, 1)?.all_well()?;
        let (shot, cost) = wrk.weigh(&server, "/", seconds)?;
        Ok([cost, shot.all_well()?.per_second()])
    })?;
    let cost = Question::new(COST, "µs").against("without the layer").goal(Goal::at_most(1.02));
    suite.add(cost.beside(limited[0], plain[0]));
    let beside_empty = Question::new(COST_BESIDE_EMPTY, "µs").against("a layer that does nothing");
    suite.add(beside_empty.beside(limited[0], empty[0]));
    let beside_headers = Question::new(COST_BESIDE_HEADERS, "µs").against("a layer that writes four headers");
    suite.add(beside_headers.beside(limited[0], headed[0]));
    for (name, ours) in [(COST_SILENT, silent), (COST_AROUND, around)] {
        suite.add(Question::new(name, "µs").against("without the layer").beside(ours[0], plain[0]));
    }
    let speed = Question::new(SPEED, "1/s").against("without the layer").goal(Goal::at_least(0.98));
    suite.add(speed.beside(limited[1], plain[1]));
    let beside_headers =
        Question::new(SPEED_BESIDE_HEADERS, "1/s").against("a layer that writes four headers");
    suite.add(beside_headers.beside(limited[1], headed[1]));
    Ok(())
}
