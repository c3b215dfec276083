//! The terminal while something live is shown on it.
//!
//! Owns its mode: another screen, no echo, keys as they come; all of it is put back when this is dropped. Plain ANSI.

use std::{
    io::{self, IsTerminal, Read, Stdin, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::runtime;

use crate::signals::Signals;

/// Another screen, no cursor, and lines that end where the terminal does: some characters are two columns wide. And back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// The key that ends it.
pub(super) const END: u8 = b'q';
/// Where nobody knows how large it is.
const USUAL: (usize, usize) = (80, 24);

/// A terminal that shows something live.
pub(super) struct Terminal {
    input: Stdin,
    before: Termios,
    keys: Receiver<u8>,
}

/// Whether there is one to show something on.
pub(super) fn is_there() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
        let input = io::stdin();
        let before = tcgetattr(&input)?;
        let mut live = before.clone();
        // Ctrl-C comes as a key, too: whoever ends it gets their terminal back.
        live.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(&input, OptionalActions::Now, &live)?;
        let (send, keys) = sync_channel(16);
        end_by_signal(send.clone())?;
        thread::spawn(move || {
            for byte in io::stdin().lock().bytes().map_while(Result::ok) {
                if send.send(byte).is_err() {
                    return;
                }
            }
        });
        let terminal = Terminal { input, before, keys };
        terminal.write(ENTER)?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => USUAL,
        }
    }

    /// Shows these lines, and nothing else.
    pub(super) fn show(&self, lines: &[String]) -> io::Result<()> {
        let mut text = "\x1b[H".to_owned();
        for (number, line) in lines.iter().enumerate() {
            let end = if number + 1 < lines.len() { "\r\n" } else { "" };
            text += &format!("{line}\x1b[K{end}");
        }
        self.write(&format!("{text}\x1b[J"))
    }

    /// The next key, if one comes in time. One that ends it if nobody is left to press any.
    pub(super) fn key(&self, patience: Duration) -> Option<u8> {
        match self.keys.recv_timeout(patience) {
            Ok(key) => Some(key),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(END),
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        output.flush()
    }
}

/// A signal that asks the program to stop comes as the key that ends it: whoever sends one gets their terminal back, too.
fn end_by_signal(keys: SyncSender<u8>) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _within = runtime.enter();
        Signals::listen()?
    };
    thread::spawn(move || {
        runtime.block_on(signals.next());
        let _ = keys.send(END);
    });
    Ok(())
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.write(LEAVE);
        let _ = tcsetattr(&self.input, OptionalActions::Now, &self.before);
    }
}
