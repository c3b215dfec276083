//! `flowgate top` from its start to its end.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
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
    remote::{Failure, Server, ServerOptions},
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
    live(options, first).map_err(Failure::Write)
}

fn read(server: &Server<'_>) -> Result<Snapshot, Failure> {
    Ok(serde_json::from_value(server.ask(Method::GET, "/top")?).unwrap_or_default())
}

/// Asks the server beside the terminal, so that a server that does not answer keeps nobody from leaving.
struct Asking {
    wants: SyncSender<()>,
    told: Receiver<Result<Snapshot, Failure>>,
}

impl Asking {
    fn start(options: ServerOptions) -> Self {
        let (wants, wanted) = sync_channel(1);
        let (tells, told) = sync_channel(1);
        thread::spawn(move || {
            for () in wanted {
                let answer = Server::new(&options).and_then(|server| read(&server));
                if tells.send(answer).is_err() {
                    return;
                }
            }
        });
        Asking { wants, told }
    }
}

fn live(options: &TopOptions, first: Snapshot) -> io::Result<()> {
    let terminal = Terminal::open()?;
    let asking = Asking::start(options.server.clone());
    let mut sort = options.sort;
    let (mut now, mut before, mut trouble) = (first, None, None::<Failure>);
    let mut asked = Stopwatch::start();
    let mut drawn = None;
    loop {
        let size = terminal.size();
        if drawn != Some(size) {
            let shown = Shown { sort, size: Some(size) };
            let mut text = lines(options.server.url(), &now, before.as_ref(), shown);
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
            // While an answer is still to come there is one more wish at most.
            let _ = asking.wants.try_send(());
        }
        match asking.told.try_recv() {
            Ok(Ok(next)) => {
                // Those who look twice within a second are told the same again.
                if next.at != now.at {
                    before = Some(std::mem::replace(&mut now, next));
                }
                (trouble, drawn) = (None, None);
            }
            Ok(Err(failure)) => (trouble, drawn) = (Some(failure), None),
            Err(_) => {}
        }
        io::stdout().flush()?;
    }
}
