//! `flowgate top` from its start to its end.

use std::{
    io::{self, Write},
    time::Duration,
};

use http::Method;

use super::{
    options::{Sort, TopOptions},
    screen::{Shown, lines},
    snapshot::Snapshot,
    terminal::{self, END, Terminal},
};
use crate::{
    clock::Stopwatch,
    remote::{Failure, Server},
    terminal::plain,
};

const REFRESH: Duration = Duration::from_secs(1);
/// How soon a terminal that was resized is drawn anew.
const GLANCE: Duration = Duration::from_millis(100);
const CTRL_C: u8 = 3;

/// Shows the server until somebody presses `q`; where nobody can, once.
pub(crate) fn top(options: &TopOptions) -> Result<(), Failure> {
    let server = Server::new(&options.server)?;
    if options.server.json || !terminal::is_there() {
        let value = server.ask(Method::GET, "/top")?;
        return server.print(&value, |value| {
            let snapshot = serde_json::from_value(value.clone()).unwrap_or_default();
            let shown = Shown { sort: options.sort, size: None };
            lines(server.url(), &snapshot, None, shown).join("\n") + "\n"
        });
    }
    // A server that cannot be asked is told as such, before the screen is taken.
    let first = read(&server)?;
    live(&server, options.sort, first).map_err(Failure::Write)
}

fn read(server: &Server<'_>) -> Result<Snapshot, Failure> {
    Ok(serde_json::from_value(server.ask(Method::GET, "/top")?).unwrap_or_default())
}

fn live(server: &Server<'_>, mut sort: Sort, first: Snapshot) -> io::Result<()> {
    let terminal = Terminal::open()?;
    let (mut now, mut before, mut trouble) = (first, None, None::<Failure>);
    let mut asked = Stopwatch::start();
    let mut drawn = None;
    loop {
        let size = terminal.size();
        if drawn != Some(size) {
            let mut text = lines(server.url(), &now, before.as_ref(), Shown { sort, size: Some(size) });
            if let (Some(trouble), Some(line)) = (&trouble, text.first_mut()) {
                *line = plain(&trouble.to_string()).chars().take(size.0).collect();
            }
            terminal.show(&text)?;
            drawn = Some(size);
        }
        match terminal.key(GLANCE) {
            Some(END | CTRL_C) => return Ok(()),
            Some(key) => {
                if let Some(wanted) = Sort::of(key) {
                    sort = wanted;
                    drawn = None;
                }
            }
            None => {}
        }
        if asked.elapsed() >= REFRESH {
            asked = Stopwatch::start();
            match read(server) {
                Ok(next) => {
                    // Those who look twice within a second are told the same again.
                    if next.at != now.at {
                        before = Some(std::mem::replace(&mut now, next));
                    }
                    trouble = None;
                }
                Err(failure) => trouble = Some(failure),
            }
            drawn = None;
        }
        io::stdout().flush()?;
    }
}
