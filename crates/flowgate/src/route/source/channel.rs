//! A channel: what a program sends.

use std::sync::Arc;

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

/// Creates a bounded channel: the sender is for the program, the receiver is the source of one route. The source ends
/// when all senders are gone. Messages that were not taken in when intake stops stay in the channel, and the next
/// context that starts the route goes on there.
///
/// # Panics
///
/// If `bound` is 0, as channels of tokio do.
pub fn channel<T: Send + 'static>(bound: usize) -> (mpsc::Sender<Exchange<T>>, Channel<T>) {
    let (sender, receiver) = mpsc::channel(bound);
    (sender, Channel(Arc::new(Mutex::new(Some(receiver)))))
}

/// The source that [`channel`] returns.
#[derive(Debug)]
pub struct Channel<T>(Home<T>);

type Receiver<T> = mpsc::Receiver<Exchange<T>>;
type Home<T> = Arc<Mutex<Option<Receiver<T>>>>;

impl<T: Send + 'static, O: Send + 'static> Source<O> for Channel<T> {
    type Body = T;

    fn open(&self, intake: Intake<T, O>) -> Result<Feed, Error> {
        let Some(mut lent) = Lent::take(&self.0) else {
            let message = format!("the channel of route `{}` already has a reader", intake.route());
            return Err(Error::new(Code::NotStarted, message));
        };
        Ok(Feed::new(async move {
            loop {
                // The place first: a message that was taken out is on its way at once.
                let place = intake.place().await?;
                match lent.receiver().recv().await {
                    Some(exchange) => place.launch(exchange),
                    None => return Ok(()),
                }
            }
        }))
    }
}

/// The receiving end while a feed reads it. It goes home with the feed, wherever that was stopped.
struct Lent<T> {
    receiver: Option<Receiver<T>>,
    home: Home<T>,
}

impl<T> Lent<T> {
    fn take(home: &Home<T>) -> Option<Self> {
        let receiver = lock(home).take()?;
        Some(Lent { receiver: Some(receiver), home: Arc::clone(home) })
    }

    fn receiver(&mut self) -> &mut Receiver<T> {
        self.receiver.as_mut().expect("it is here until it goes home")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        *lock(&self.home) = self.receiver.take();
    }
}
