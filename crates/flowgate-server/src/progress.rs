//! How far a command has come, on the terminal.
//!
//! One line on standard error, drawn over itself, and gone when the command has its answer. Only on a
//! terminal: a pipe or a file gets nothing of it. Owns how often it is drawn, so that the work may report as
//! often as it likes.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use rustix::termios::tcgetwinsize;

use crate::clock::Stopwatch;

/// More often is more than anybody sees.
const BETWEEN: Duration = Duration::from_millis(100);
/// Where nobody knows how wide it is.
const USUAL: usize = 80;
const BAR: usize = 24;
const ERASE: &str = "\r\x1b[K";

/// A line that tells how far it is, until it is dropped.
pub(crate) struct Progress {
    is_shown: bool,
    /// Since it was drawn last.
    drawn: Option<Stopwatch>,
}

impl Progress {
    /// Nothing is drawn yet.
    pub(crate) fn new() -> Self {
        Progress { is_shown: io::stderr().is_terminal(), drawn: None }
    }

    /// So much of so much is done.
    pub(crate) fn bar(&mut self, what: &str, done: u64, all: u64) {
        self.draw(|| bar(what, done, all));
    }

    /// What it does now, where nobody knows how much there is.
    pub(crate) fn say(&mut self, text: &str) {
        self.draw(|| text.to_owned());
    }

    fn draw(&mut self, line: impl FnOnce() -> String) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= BETWEEN);
        if !self.is_shown || !is_due {
            return;
        }
        self.drawn = Some(Stopwatch::start());
        let width = tcgetwinsize(io::stderr()).map_or(USUAL, |size| usize::from(size.ws_col));
        // The last column is left free: some terminals would go on to the next line.
        let width = if width == 0 { USUAL } else { width } - 1;
        let line: String = line().chars().filter(|character| !character.is_control()).take(width).collect();
        // One who cannot see it is not told that it cannot.
        let _ = write!(io::stderr(), "{ERASE}{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "{ERASE}");
        }
    }
}

fn bar(what: &str, done: u64, all: u64) -> String {
    let share = if all == 0 { 1.0 } else { (done as f64 / all as f64).min(1.0) };
    let full = (share * BAR as f64) as usize;
    format!(
        "{what} [{}{}] {:3.0} %  {done} of {all}",
        "#".repeat(full),
        "-".repeat(BAR - full),
        share * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn a_bar_is_as_full_as_it_should_be() {
        assert_eq!(bar("sent", 0, 4), "sent [------------------------]   0 %  0 of 4");
        assert_eq!(bar("sent", 3, 4), "sent [##################------]  75 %  3 of 4");
        assert_eq!(bar("sent", 9, 4), "sent [########################] 100 %  9 of 4");
        assert_eq!(bar("sent", 0, 0), "sent [########################] 100 %  0 of 0");
    }
}
