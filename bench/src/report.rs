//! What the suite tells: a case, and the table, the JSON and the markdown of cases.
//!
//! Owns how a figure is written and whether a goal holds. It measures nothing.

use std::fmt::Write;

use crate::{machine::Machine, options::SuiteName};

/// What is asked: the case, its unit, beside whom, and the goal.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) case: &'static str,
    unit: &'static str,
    peer_name: Option<&'static str>,
    goal: Option<Goal>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) question: Question,
    ours: f64,
    peer: Option<f64>,
}

/// What ought to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    bound: Bound,
    aim: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    /// Of the ratio.
    AtMost(f64),
    /// Of the ratio, where more is better.
    AtLeast(f64),
    /// Of our own figure.
    OursAtMost(f64),
    /// Of our own figure, where more is better.
    OursAtLeast(f64),
}

impl Goal {
    /// Ours divided by the peer's is no more than this.
    pub(crate) fn at_most(ratio: f64) -> Self {
        Goal { bound: Bound::AtMost(ratio), aim: None }
    }

    /// Ours divided by the peer's is no less than this: where more is better.
    pub(crate) fn at_least(ratio: f64) -> Self {
        Goal { bound: Bound::AtLeast(ratio), aim: None }
    }

    /// Our own figure is no more than this, whatever the peer's is.
    pub(crate) fn ours_at_most(figure: f64) -> Self {
        Goal { bound: Bound::OursAtMost(figure), aim: None }
    }

    /// Our own figure is no less than this, whatever the peer's is.
    pub(crate) fn ours_at_least(figure: f64) -> Self {
        Goal { bound: Bound::OursAtLeast(figure), aim: None }
    }

    /// Better still would be this ratio. Told, and not held against us.
    pub(crate) fn aim(self, ratio: f64) -> Self {
        Goal { aim: Some(ratio), ..self }
    }

    fn text(&self, unit: &str) -> String {
        let bound = match self.bound {
            Bound::AtMost(ratio) => format!("<= {ratio:?}"),
            Bound::AtLeast(ratio) => format!(">= {ratio:?}"),
            Bound::OursAtMost(figure) => format!("ours <= {figure} {unit}"),
            Bound::OursAtLeast(figure) => format!("ours >= {figure} {unit}"),
        };
        match self.aim {
            Some(aim) => format!("{bound} (aim {aim:?})"),
            None => bound,
        }
    }
}

impl Question {
    /// A case with nothing beside it and no goal: for information.
    pub(crate) fn new(case: &'static str, unit: &'static str) -> Self {
        Question { case, unit, peer_name: None, goal: None }
    }

    /// Beside whom ours is measured.
    pub(crate) fn against(self, peer_name: &'static str) -> Self {
        Question { peer_name: Some(peer_name), ..self }
    }

    /// What ought to hold.
    pub(crate) fn goal(self, goal: Goal) -> Self {
        Question { goal: Some(goal), ..self }
    }

    /// Answered, with nobody beside.
    pub(crate) fn alone(self, ours: f64) -> Case {
        Case { question: self, ours, peer: None }
    }

    /// Answered, with the peer's figure.
    pub(crate) fn beside(self, ours: f64, peer: f64) -> Case {
        Case { question: self, ours, peer: Some(peer) }
    }
}

impl Case {
    /// Ours divided by the peer's.
    fn ratio(&self) -> Option<f64> {
        self.peer.map(|peer| self.ours / peer)
    }

    /// Whether the goal holds; `None` where there is none, or where ours was not measured.
    fn holds(&self) -> Option<bool> {
        if self.ours.is_nan() {
            return None;
        }
        let within =
            |test: fn(&f64, &f64) -> bool, bound| self.ratio().is_some_and(|ratio| test(&ratio, &bound));
        self.question.goal.map(|goal| match goal.bound {
            Bound::AtMost(bound) => within(f64::le, bound),
            Bound::AtLeast(bound) => within(f64::ge, bound),
            Bound::OursAtMost(bound) => self.ours <= bound,
            Bound::OursAtLeast(bound) => self.ours >= bound,
        })
    }

    /// One line, for whoever waits for the rest.
    pub(crate) fn progress(&self) -> String {
        let [case, unit, ours, peer_name, peer, ratio, _, holds] = self.cells();
        format!("{case}: {ours} {unit}, {peer_name} {peer}, ratio {ratio}, holds {holds}")
    }

    /// One line of JSON.
    pub(crate) fn json(&self) -> String {
        let Question { case, unit, peer_name, goal } = &self.question;
        let text = |text: Option<&str>| text.map_or("null".to_owned(), quoted);
        let number = |value: Option<f64>| match value {
            Some(value) if value.is_finite() => format!("{value:.3}"),
            _ => "null".to_owned(),
        };
        let goal = goal.map(|goal| goal.text(unit));
        format!(
            r#"{{"case":{}, "unit":{}, "ours":{}, "peer":{}, "peer_name":{}, "ratio":{}, "goal":{}, "holds":{}}}"#,
            quoted(case),
            quoted(unit),
            number(Some(self.ours)),
            number(self.peer),
            text(*peer_name),
            number(self.ratio()),
            text(goal.as_deref()),
            self.holds().map_or("null".to_owned(), |holds| holds.to_string()),
        )
    }

    fn cells(&self) -> [String; 8] {
        let Question { case, unit, peer_name, goal } = &self.question;
        let none = || "-".to_owned();
        [
            (*case).to_owned(),
            (*unit).to_owned(),
            figure(self.ours),
            peer_name.map_or_else(none, str::to_owned),
            self.peer.map_or_else(none, figure),
            self.ratio().filter(|ratio| !ratio.is_nan()).map_or_else(none, |ratio| format!("{ratio:.2}")),
            goal.map_or_else(|| "information".to_owned(), |goal| goal.text(unit)),
            self.holds().map_or_else(none, |holds| if holds { "yes" } else { "NO" }.to_owned()),
        ]
    }
}

const HEADINGS: [&str; 8] = ["case", "unit", "ours", "peer name", "peer", "ratio", "goal", "holds"];
/// Which columns hold numbers, and stand to the right.
const NUMBERS: [bool; 8] = [false, false, true, false, true, true, false, false];

/// The table, for a terminal.
pub(crate) fn table(cases: &[Case]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(cases.iter().map(Case::cells));
    let mut widths = [0; 8];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    rows.insert(1, widths.map(|width| "-".repeat(width)));
    let line = |row: &[String; 8]| {
        let columns = row.iter().zip(widths).zip(NUMBERS).map(|((cell, width), is_number)| {
            if is_number { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
        columns.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// What is the same on the page of a suite whatever was measured.
pub(crate) struct Frame {
    suite: SuiteName,
    title: &'static str,
    /// How ours and the peers run, in one sentence.
    rounds: &'static str,
    /// How to read the cases.
    notes: &'static str,
}

impl Frame {
    pub(crate) fn of(suite: SuiteName) -> Self {
        match suite {
            SuiteName::Gates => Frame {
                suite,
                title: "Gates beside their peers",
                rounds: "Ours and the peer run in the same process, in turn, round by round;",
                notes: include_str!("../notes.md"),
            },
            SuiteName::Http => Frame {
                suite,
                title: "The HTTP edge beside its peers",
                rounds: "Ours and the peers run over loopback, each in processes of its own, in turn, round by round;",
                notes: include_str!("../notes-http.md"),
            },
            SuiteName::Tasks => Frame {
                suite,
                title: "Durable tasks beside their peers",
                rounds: "Ours and the peers run on one private PostgreSQL (bullmq on a private Redis), each in processes of\n\
                         its own, in turn, round by round;",
                notes: include_str!("../notes-tasks.md"),
            },
            SuiteName::Shared => Frame {
                suite,
                title: "Gates of a fleet beside the usual recipes",
                rounds: "Ours and the recipes run on one private Redis and one private PostgreSQL, in turn, round by round;",
                notes: include_str!("../notes-shared.md"),
            },
            SuiteName::Flow => Frame {
                suite,
                title: "The flow-control server beside its peers",
                rounds: "Ours, a bare client and the peer run over loopback, each in processes of its own, in turn, \
                    round by round;",
                notes: include_str!("../notes-flow.md"),
            },
            SuiteName::Workflow => Frame {
                suite,
                title: "Workflows on the flow-control server",
                rounds: "Each round has a server and a store of its own;",
                notes: include_str!("../notes-workflow.md"),
            },
            SuiteName::Routes => Frame {
                suite,
                title: "Routes, with and without limits",
                rounds: "Routes with limits and without run in the same process, in turn, round by round;",
                notes: include_str!("../notes-routes.md"),
            },
        }
    }
}

/// The page of figures, for the docs.
pub(crate) fn markdown(frame: &Frame, machine: &Machine, cases: &[Case], remarks: &[String]) -> String {
    let Frame { suite, title, rounds, notes } = frame;
    let mut page = format!(
        "# {title}\n\n\
         Written by `cargo xtask bench {}`; do not edit. Taken on {machine}.\n\n\
         {rounds} figures are medians of the rounds. The ratio\n\
         is ours divided by the peer's. Times differ from machine to machine, ratios less so.\n\n",
        suite.word(),
    );
    let mut row = |cells: &[String]| {
        let cells = cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>();
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    };
    row(&HEADINGS.map(str::to_owned));
    row(&NUMBERS.map(|is_number| if is_number { "---:" } else { "---" }.to_owned()));
    for case in cases {
        row(&case.cells());
    }
    if !remarks.is_empty() {
        page.push_str("\nIn this run:\n\n");
        for remark in remarks {
            let _ = writeln!(page, "- {remark}");
        }
    }
    page.push_str(notes);
    page
}

/// A number with about three digits that matter, thousands apart.
fn figure(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 1_000.0 => format!("{value:.1}"),
        _ => thousands(value),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut json = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            '\n' => json.push_str("\\n"),
            '\t' => json.push_str("\\t"),
            control if control < ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::{Case, Frame, Goal, Question, figure, markdown, quoted, table};
    use crate::{machine::Machine, options::SuiteName};

    fn cases() -> [Case; 3] {
        let enter = Question::new("enter", "ns").against("tokio").goal(Goal::at_most(1.0).aim(0.55));
        let fair = Question::new("fairness", "min/max").against("tokio").goal(Goal::at_least(0.95));
        let lane = Question::new("lane | live", "bytes").goal(Goal::ours_at_most(128.0));
        [enter.beside(12.0, 24.0), fair.beside(0.9, 1.0), lane.alone(1_234.0)]
    }

    #[test]
    fn the_table_tells_what_holds() {
        assert_eq!(
            table(&cases()),
            "\
case         unit      ours  peer name  peer  ratio  goal               holds
-----------  -------  -----  ---------  ----  -----  -----------------  -----
enter        ns        12.0  tokio      24.0   0.50  <= 1.0 (aim 0.55)  yes
fairness     min/max   0.90  tokio      1.00   0.90  >= 0.95            NO
lane | live  bytes    1,234  -             -      -  ours <= 128 bytes  NO
"
        );
    }

    #[test]
    fn a_case_is_one_line_of_json() {
        let [enter, _, lane] = cases();
        assert_eq!(
            enter.json(),
            r#"{"case":"enter", "unit":"ns", "ours":12.000, "peer":24.000, "peer_name":"tokio", "ratio":0.500, "goal":"<= 1.0 (aim 0.55)", "holds":true}"#
        );
        assert_eq!(
            lane.json(),
            r#"{"case":"lane | live", "unit":"bytes", "ours":1234.000, "peer":null, "peer_name":null, "ratio":null, "goal":"ours <= 128 bytes", "holds":false}"#
        );
        assert!(
            Question::new("a", "ns")
                .beside(1.0, 0.0)
                .json()
                .contains(r#""ratio":null, "goal":null, "holds":null"#)
        );
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a \"b\" \\ c\n\t\u{1}é"), r#""a \"b\" \\ c\n\t\u0001é""#);
    }

    #[test]
    fn figures_have_about_three_digits() {
        let written = [0.984, 12.345, 545.06, 1_234.5, 1_234_567.0, f64::NAN].map(figure);
        assert_eq!(written, ["0.98", "12.3", "545.1", "1,234", "1,234,567", "-"]);
    }

    #[test]
    fn the_page_has_a_row_for_each_case() {
        let remarks = ["the wind blew".to_owned()];
        let page = markdown(&Frame::of(SuiteName::Http), &Machine::here(), &cases(), &remarks);
        assert!(page.starts_with("# The HTTP edge") && page.contains("\n- the wind blew\n"));
        assert!(page.contains("\n| lane \\| live | bytes | 1,234 | - | - | - | ours <= 128 bytes | NO |\n"));
        assert_eq!(page.lines().filter(|line| line.starts_with("| ")).count(), 5);
    }
}
