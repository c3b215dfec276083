//! What a worker says on standard error, its own words and those of its children.
//!
//! Owns the one thread that writes it. Whoever reads standard error may stall for as long as they like:
//! leases are renewed all the same, for nobody else here waits for a write. Of the worker's own words those
//! that find no room are lost, and counted; a child whose words find none waits, as it would with a pipe of
//! its own.

use std::{
    io::{self, Write as _},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::terminal::plain;

/// So many lines may be on their way.
const MOST: usize = 1024;
/// How long the last words may take.
const PATIENCE: Duration = Duration::from_secs(1);

enum Word {
    Line(Vec<u8>),
    /// Everything before it is written.
    Flush(oneshot::Sender<()>),
}

static WORDS: LazyLock<mpsc::Sender<Word>> = LazyLock::new(|| {
    let (words, waiting) = mpsc::channel(MOST);
    thread::spawn(move || write(waiting));
    words
});
static LOST: AtomicU64 = AtomicU64::new(0);

/// A line of the worker's own.
pub(super) fn say(line: &str) {
    let line = format!("{}\n", plain(line)).into_bytes();
    if WORDS.try_send(Word::Line(line)).is_err() {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// A line of a child's, with its end.
///
/// Cancel safety: dropped, the line is not written.
pub(super) async fn pass_on(line: Vec<u8>) {
    // Nobody may be left to write it.
    let _ = WORDS.send(Word::Line(line)).await;
}

/// Returns when everything is written, or nobody reads it.
pub(super) async fn flush() {
    let (written, done) = oneshot::channel();
    let all = async {
        let _ = WORDS.send(Word::Flush(written)).await;
        let _ = done.await;
    };
    let _ = timeout(PATIENCE, all).await;
}

fn write(mut waiting: mpsc::Receiver<Word>) {
    while let Some(word) = waiting.blocking_recv() {
        // Nobody may be left to read it.
        match word {
            Word::Line(line) => drop(io::stderr().write_all(&line)),
            Word::Flush(written) => drop(written.send(())),
        }
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(io::stderr(), "{lost} lines of the worker were lost: nobody read them in time");
        }
    }
}
