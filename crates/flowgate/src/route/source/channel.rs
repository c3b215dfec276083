//! What a program sends.

use flowgate_core::Code;
use tokio::sync::mpsc;

use crate::{
    route::{
        error::Error,
        exchange::Exchange,
        intake::Intake,
        source::{Feed, Source},
    },
    sync::{Mutex, lock},
};

/// A bounded channel: its sender for the program, and the source of the one route that reads it. Done when all senders are
/// gone; what was sent and not taken in when intake stops stays in it.
///
/// # Panics
///
/// If `bound` is 0, as channels of tokio do.
pub fn channel<T: Send + 'static>(bound: usize) -> (mpsc::Sender<Exchange<T>>, Channel<T>) {
    let (sender, receiver) = mpsc::channel(bound);
    (sender, Channel(Mutex::new(Some(receiver))))
}

/// See [`channel`].
#[derive(Debug)]
pub struct Channel<T>(Mutex<Option<mpsc::Receiver<Exchange<T>>>>);

impl<T: Send + 'static, O: Send + 'static> Source<O> for Channel<T> {
    type Body = T;

    fn open(&self, intake: Intake<T, O>) -> Result<Feed, Error> {
        let Some(mut receiver) = lock(&self.0).take() else {
            let message = format!("the channel of route `{}` is read elsewhere already", intake.route());
            return Err(Error::new(Code::NotStarted, message));
        };
        Ok(Feed::new(async move {
            loop {
                // The place first: a message that was taken out is on its way at once.
                let place = intake.place().await?;
                match receiver.recv().await {
                    Some(exchange) => place.launch(exchange),
                    None => return Ok(()),
                }
            }
        }))
    }
}
