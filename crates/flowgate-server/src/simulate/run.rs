//! `flowgate simulate` from its options to its answer.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use flowgate_core::Limits;

use super::{
    engine,
    failure::Failure,
    options::SimulateOptions,
    plot,
    real::{self, Real},
    report::Report,
    tally::Tally,
    trace,
    workload::{MOST_ARRIVALS, Offered, Workload},
};
use crate::{clock::Stopwatch, progress::Progress};

/// One set of limits, and what came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) limits: Limits,
    pub(super) tally: Tally,
}

/// So many larger candidates are tried, each half as large again: the last is some 25 times the first.
const MOST_LARGER: usize = 8;

impl Outcome {
    /// Whether its p99 wait is at most this, with nobody refused.
    pub(super) fn reaches(&self, goal: Duration) -> bool {
        self.tally.refused_in_all() == 0 && self.tally.waits.quantile(0.99) <= goal.as_nanos() as f64
    }
}

/// Plays the workload under each candidate, and tells.
pub(crate) fn simulate(options: &SimulateOptions) -> Result<(), Failure> {
    let workload = workload(options)?;
    let offered = workload.offered();
    if let Some(path) = &options.save_trace {
        save(path, |file| trace::write(&workload, file))?;
    }
    let candidates = options.candidates(&offered)?;
    if options.real && candidates.len() > 1 {
        return Err(Failure::Several(candidates.len()));
    }
    let stopwatch = Stopwatch::start();
    let mut progress = Progress::new();
    let all = offered.arrivals * candidates.len() as u64;
    let mut played = 0;
    let mut play = |limits: Limits| {
        let all = all.max(played + offered.arrivals);
        let tally = engine::play(&limits, &workload, |come| progress.bar("played", played + come, all));
        played += offered.arrivals;
        Outcome { limits, tally }
    };
    let mut outcomes: Vec<Outcome> = candidates.into_iter().map(&mut play).collect();
    if options.may_try_more() {
        look_further(options, &mut outcomes, play)?;
    }
    drop(progress);
    let took = stopwatch.elapsed();
    let real = if options.real { Some(beside(&outcomes[0].limits, &workload)?) } else { None };
    let report =
        Report { workload: &workload, offered, outcomes: &outcomes, goal: options.goal, real: real.as_ref() };
    if let Some(path) = &options.plot {
        save(path, |file| file.write_all(plot::draw(&report).as_bytes()))?;
    }
    let text = if options.json { report.json() } else { report.text() };
    io::stdout().write_all(text.as_bytes()).map_err(Failure::Write)?;
    // Not part of the answer, which is the same each time.
    let _ = writeln!(io::stderr(), "{}", speed(&outcomes, &offered, took));
    Ok(())
}

/// Where none of those that were chosen for the workload is enough: larger ones until one is, then the least of these. What a
/// workload needs says nothing of how short its line may be.
fn look_further(
    options: &SimulateOptions,
    outcomes: &mut Vec<Outcome>,
    mut play: impl FnMut(Limits) -> Outcome,
) -> Result<(), Failure> {
    let is_enough = |outcome: &Outcome| options.goal.is_some_and(|goal| outcome.reaches(goal));
    let most = |outcomes: &[Outcome]| outcomes.iter().filter_map(|outcome| outcome.limits.max()).max();
    let (Some(mut short), false) = (most(outcomes), outcomes.iter().any(is_enough)) else { return Ok(()) };
    let mut enough = None;
    for _ in 0..MOST_LARGER {
        let larger = short.saturating_add(short.div_ceil(2));
        outcomes.push(play(options.limits(Some(larger))?));
        if outcomes.last().is_some_and(is_enough) {
            enough = Some(larger);
            break;
        }
        short = larger;
    }
    while let Some(least) = enough.filter(|least| least - short > 1) {
        let between = short + (least - short) / 2;
        outcomes.push(play(options.limits(Some(between))?));
        match outcomes.last().is_some_and(is_enough) {
            true => enough = Some(between),
            false => short = between,
        }
    }
    outcomes.sort_by_key(|outcome| outcome.limits.max());
    Ok(())
}

/// A real gate, and what a simulation says of the workload as it really went there.
fn beside(limits: &Limits, workload: &Workload) -> Result<(Real, Tally), Failure> {
    let mut real = real::play(limits, workload)?;
    let recorded = Workload::Recorded(Arc::new(std::mem::take(&mut real.recorded)));
    let tally = engine::play(limits, &recorded, |_| {});
    Ok((real, tally))
}

fn workload(options: &SimulateOptions) -> Result<Workload, Failure> {
    if let Some(recipe) = options.recipe() {
        let (arrivals, span) = (recipe.arrivals.to_string(), recipe.span);
        let count = recipe.arrivals.in_span(span);
        if count > MOST_ARRIVALS as f64 {
            return Err(Failure::TooMany { arrivals, span, count, most: MOST_ARRIVALS });
        }
        let workload = Workload::drawn(recipe);
        let is_empty = workload.arrivals().next().is_none();
        return if is_empty { Err(Failure::Nobody { arrivals, span }) } else { Ok(workload) };
    }
    let path = options.trace.clone().unwrap_or_default();
    let recorded = if path == Path::new("-") {
        trace::read(io::stdin().lock())
    } else {
        let file = File::open(&path).map_err(|error| Failure::Read { path: path.clone(), error })?;
        trace::read(BufReader::new(file))
    };
    let recorded = recorded.map_err(|error| Failure::Trace { path, error })?;
    Ok(Workload::Recorded(Arc::new(recorded)))
}

fn save(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Failure> {
    let written = File::create(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()
    });
    written.map_err(|error| Failure::Save { path: path.to_owned(), error })
}

fn speed(outcomes: &[Outcome], offered: &Offered, took: Duration) -> String {
    let nanos = |outcome: &Outcome| outcome.tally.window.max(outcome.tally.last);
    let virtually = Duration::from_nanos(outcomes.iter().map(nanos).sum());
    let times = virtually.as_secs_f64() / took.as_secs_f64().max(1e-9);
    let entries = offered.arrivals * outcomes.len() as u64;
    format!(
        "{entries} entries over {virtually:.0?} played in {took:.0?}: {times:.0} times faster than they would take"
    )
}
