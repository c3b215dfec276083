//! The candidates side by side, as SVG.
//!
//! Owns the picture: waits by candidate, what was used and refused, and the line over time. Plain SVG with its own colours for
//! light and dark, readable without a browser's help, and the same each time.

use std::fmt::Write;

use super::{
    report::{Report, named, spell},
    run::Outcome,
};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 640.0;
/// At most so many lines are drawn over time: more cannot be told apart.
const MOST_LINES: usize = 6;
const COLOURS: [&str; MOST_LINES] = ["#2f6fde", "#c2410c", "#15803d", "#9333ea", "#b45309", "#0e7490"];

const STYLE: &str = "\
.ground{fill:#fff}.ink{fill:#1c2530}.soft{fill:#5b6875}.rule{stroke:#d5dbe1;stroke-width:1}\
.p50{fill:#9dbcf2}.p99{fill:#2f6fde}.most{stroke:#1c2530;stroke-width:1.5}.used{fill:#86b892}.refused{fill:#d9534f}\
.goal{stroke:#c2410c;stroke-width:1.5;stroke-dasharray:6 4}.enough{fill:#eef4ff}\
text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}.title{font-size:15px;font-weight:600}\
@media(prefers-color-scheme:dark){.ground{fill:#12171d}.ink{fill:#e6ebf0}.soft{fill:#96a3b0}.rule{stroke:#2c3640}\
.p50{fill:#3d5f9e}.p99{fill:#6c9df5}.most{stroke:#e6ebf0}.used{fill:#3f7f50}.enough{fill:#1a2535}}";

/// A part of the picture, with its place.
#[derive(Clone, Copy)]
struct Panel {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// The whole picture.
pub(super) fn draw(report: &Report<'_>) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Waits, use and refusals of each candidate\">\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n"
    );
    for (line, text) in (0..).zip(report.headline().lines()) {
        let class = if line == 0 { "ink" } else { "soft" };
        label(&mut svg, class, 24.0, 28.0 + 18.0 * f64::from(line), "start", text);
    }
    let waits = Panel { left: 72.0, top: 96.0, width: 408.0, height: 214.0 };
    let shares = Panel { left: 552.0, top: 96.0, width: 384.0, height: 214.0 };
    let lines = Panel { left: 72.0, top: 396.0, width: 864.0, height: 190.0 };
    draw_waits(&mut svg, waits, report);
    draw_shares(&mut svg, shares, report);
    draw_lines(&mut svg, lines, report.outcomes);
    svg.push_str("</svg>\n");
    svg
}

/// How long they waited, on a scale of powers of ten.
fn draw_waits(svg: &mut String, panel: Panel, report: &Report<'_>) {
    title(svg, panel, "waits: p50 (pale), p99 (full), the longest (line)");
    let longest = report.outcomes.iter().map(|outcome| outcome.tally.waits.max()).fold(1e7, f64::max);
    // From a tenth of a millisecond on: less is no wait that anybody notices.
    let (least, most) = (5.0, longest.log10().ceil());
    let height =
        |nanos: f64| ((nanos.max(1.0).log10() - least) / (most - least)).clamp(0.0, 1.0) * panel.height;
    for power in (least as i32 + 1)..=(most as i32) {
        let nanos = 10_f64.powi(power);
        rule(svg, panel, height(nanos), &spell(nanos));
    }
    let slots = Slots::new(panel, report.outcomes.len());
    for (number, outcome) in report.outcomes.iter().enumerate() {
        let waits = &outcome.tally.waits;
        let (left, width) = slots.bar(number);
        if report.enough().is_some_and(|enough| std::ptr::eq(enough, outcome)) {
            bar(svg, "enough", panel, left - width * 0.2, width * 1.4, panel.height);
        }
        bar(svg, "p99", panel, left, width, height(waits.quantile(0.99)));
        bar(svg, "p50", panel, left, width, height(waits.quantile(0.5)));
        let top = panel.top + panel.height - height(waits.max());
        stroke(svg, "most", (left, top), (left + width, top));
        slots.name(svg, number, outcome);
    }
    if let Some(goal) = report.goal {
        let top = panel.top + panel.height - height(goal.as_nanos() as f64);
        stroke(svg, "goal", (panel.left, top), (panel.left + panel.width, top));
        label(svg, "soft", panel.left + panel.width, top - 5.0, "end", "goal of p99");
    }
    base(svg, panel);
}

/// Which share of the slots was used, and of those who came refused.
fn draw_shares(svg: &mut String, panel: Panel, report: &Report<'_>) {
    title(svg, panel, "slots used (green) and entries refused (red)");
    for percent in [25, 50, 75, 100] {
        rule(svg, panel, f64::from(percent) / 100.0 * panel.height, &format!("{percent}%"));
    }
    let slots = Slots::new(panel, report.outcomes.len());
    for (number, outcome) in report.outcomes.iter().enumerate() {
        let (left, width) = slots.bar(number);
        let used = outcome.tally.utilisation(outcome.limits.max()).unwrap_or(0.0);
        let refused = outcome.tally.refused_in_all() as f64 / report.offered.arrivals.max(1) as f64;
        bar(svg, "used", panel, left, width * 0.55, used.min(1.0) * panel.height);
        bar(svg, "refused", panel, left + width * 0.6, width * 0.4, refused * panel.height);
        slots.name(svg, number, outcome);
    }
    base(svg, panel);
}

/// How long the line was over time, of a few candidates.
fn draw_lines(svg: &mut String, panel: Panel, outcomes: &[Outcome]) {
    title(svg, panel, "how many waited, over time");
    let step = outcomes.len().div_ceil(MOST_LINES).max(1);
    let shown: Vec<&Outcome> = outcomes.iter().step_by(step).collect();
    let most = shown.iter().map(|outcome| outcome.tally.most_waiting).max().unwrap_or(0).max(1);
    let points = |outcome: &Outcome| outcome.tally.timeline.points().collect::<Vec<_>>();
    let end =
        shown.iter().filter_map(|outcome| points(outcome).last().map(|last| last.0)).fold(1e-3, f64::max);
    // By powers of ten: a line of thousands and one of a few are both to be seen.
    let decades = f64::from(most).log10().ceil().max(1.0);
    let height =
        |waiting: f64| (waiting.max(1.0).log10() + waiting.min(1.0)) / (decades + 1.0) * panel.height;
    for power in 0..=(decades as i32) {
        let waiting = 10_f64.powi(power);
        rule(svg, panel, height(waiting), &format!("{waiting:.0}"));
    }
    for quarter in [1, 2, 3, 4] {
        let share = f64::from(quarter) / 4.0;
        let anchor = if quarter == 4 { "end" } else { "middle" };
        let x = panel.left + share * panel.width;
        label(svg, "soft", x, panel.top + panel.height + 18.0, anchor, &spell(end * share * 1e9));
    }
    for (number, outcome) in shown.iter().enumerate() {
        let colour = COLOURS[number % MOST_LINES];
        let mut path = String::new();
        for (seconds, waiting) in points(outcome) {
            let x = panel.left + seconds / end * panel.width;
            let y = panel.top + panel.height - height(f64::from(waiting));
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
        let x = panel.left + 140.0 * number as f64;
        let y = panel.top + panel.height + 38.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
            y - 6.0
        );
        label(svg, "ink", x + 20.0, y, "start", &short(&named(outcome)));
    }
    base(svg, panel);
}

/// Where the bars of a panel stand.
struct Slots {
    panel: Panel,
    each: f64,
}

impl Slots {
    fn new(panel: Panel, count: usize) -> Self {
        Slots { panel, each: panel.width / count.max(1) as f64 }
    }

    /// The left end and the width of a bar.
    fn bar(&self, number: usize) -> (f64, f64) {
        let width = (self.each * 0.62).min(64.0);
        (self.panel.left + (number as f64 + 0.5) * self.each - width / 2.0, width)
    }

    fn name(&self, svg: &mut String, number: usize, outcome: &Outcome) {
        let x = self.panel.left + (number as f64 + 0.5) * self.each;
        let text = outcome.limits.max().map_or("rate".to_owned(), |max| max.to_string());
        label(svg, "ink", x, self.panel.top + self.panel.height + 18.0, "middle", &text);
    }
}

fn short(text: &str) -> String {
    if text.chars().count() > 18 { text.chars().take(17).chain(['…']).collect() } else { text.to_owned() }
}

fn title(svg: &mut String, panel: Panel, text: &str) {
    label(svg, "soft", panel.left, panel.top - 14.0, "start", text);
}

fn base(svg: &mut String, panel: Panel) {
    let bottom = panel.top + panel.height;
    stroke(svg, "rule", (panel.left, bottom), (panel.left + panel.width, bottom));
}

/// A level line, and what it stands for.
fn rule(svg: &mut String, panel: Panel, height: f64, text: &str) {
    let y = panel.top + panel.height - height;
    stroke(svg, "rule", (panel.left, y), (panel.left + panel.width, y));
    label(svg, "soft", panel.left - 8.0, y + 4.0, "end", text);
}

fn bar(svg: &mut String, class: &str, panel: Panel, left: f64, width: f64, height: f64) {
    let top = panel.top + panel.height - height;
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
    );
}

fn stroke(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn label(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}
