//! The parts of a server that run until it is told to stop, and which of them ended before that.
//!
//! Owns how that is noticed: whichever way a part ends, by its own return or by a panic, it is told once.

use std::{fmt, future::Future};

use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
};

/// A part of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Api,
    Deliveries,
    Gateway,
}

/// How many parts there are: none waits to tell that it ended.
const ALL: usize = 3;

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Api => "the API",
            Part::Deliveries => "the worker that delivers messages",
            Part::Gateway => "the gateway",
        })
    }
}

/// Starts parts.
pub(super) struct Parts(Sender<Part>);

impl Parts {
    /// And who hears of their ends.
    pub(super) fn new() -> (Self, Receiver<Part>) {
        let (ends, ended) = mpsc::channel(ALL);
        (Parts(ends), ended)
    }

    /// Starts one.
    pub(super) fn start<T: Send + 'static>(
        &self,
        part: Part,
        run: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let end = End(part, self.0.clone());
        tokio::spawn(async move {
            let _end = end;
            run.await
        })
    }
}

/// Tells that a part has ended, when it is dropped.
struct End(Part, Sender<Part>);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.1.try_send(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn s1_a_part_that_ends_is_told_however_it_ends() {
        // Seen to fail: with the end told behind `run.await`, one that panicked was not told.
        let (parts, mut ended) = Parts::new();
        let mut first = async || timeout(Duration::from_secs(1), ended.recv()).await.expect("it is told");
        let api = parts.start(Part::Api, std::future::pending::<()>());
        let gateway = parts.start(Part::Gateway, async { panic!("on purpose") });
        assert_eq!(first().await, Some(Part::Gateway));
        assert!(gateway.await.is_err_and(|error| error.is_panic()));
        let deliveries = parts.start(Part::Deliveries, async { 7 });
        assert_eq!(first().await, Some(Part::Deliveries));
        assert_eq!(deliveries.await.expect("its answer is still there"), 7);
        api.abort();
        assert_eq!(first().await, Some(Part::Api));
    }
}
