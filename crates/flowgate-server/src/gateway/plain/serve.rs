//! One plain request after the other.
//!
//! Owns the loop, and when it ends: at the first thing that is not plain, when all is answered, or with the connection.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::Poll,
};

use bytes::BytesMut;
use http::{Method, Response};
use tokio::io::AsyncReadExt;

use super::{
    request::{Special, find},
    response::{About, Writer},
};
use crate::gateway::{
    client::Client, exchange::exchange, io::ClientIo, relay::Out, spare::READ_AT_ONCE, watch::Watch,
    worker::Worker,
};

/// How it ended.
pub(in crate::gateway) enum Left {
    /// With something that is not plain: it is yet to be read.
    Special(ClientIo),
    /// All that was said is answered.
    Quiet(ClientIo),
    /// The connection is to be closed.
    Ended(ClientIo),
    /// There is nobody to talk to any more.
    Gone,
}

/// What there is to do before the next request.
enum Next {
    Read,
    Rest,
    End,
}

/// Serves requests for as long as they are plain.
///
/// Cancel safety: dropped, the connection is closed, and what was under way on it is dropped.
pub(in crate::gateway) async fn serve(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    (mut io, mut input): (ClientIo, BytesMut),
    watch: &Watch,
) -> Left {
    let mut writer = Writer::new(worker.spare.take_to_write());
    loop {
        let request = match find(&mut input) {
            Ok(Some(request)) => request,
            Err(Special) => return Left::Special(io.with_early(input.freeze())),
            Ok(None) if input.is_empty() && !io.has_early() => {
                if input.capacity() > 0 {
                    worker.spare.give(input);
                }
                worker.spare.give_to_write(writer.into_text());
                return Left::Quiet(io);
            }
            Ok(None) => match next(&mut io, &mut input, watch).await {
                Next::Read => continue,
                // Some of a request has come: how long the rest may take, is known where all of that is.
                Next::Rest => return Left::Special(io.with_early(input.freeze())),
                Next::End => return Left::Gone,
            },
        };
        let is_head = request.method() == Method::HEAD;
        // It is large, and stays where it is made.
        let answering = pin!(exchange(Rc::clone(worker), Rc::clone(client), request));
        let Some(Ok(response)) = unless_hung_up(&io, answering).await else { return Left::Gone };
        let is_last = worker.is_draining();
        let about = About { is_head, is_last };
        if !sent(&mut io, &mut writer, &mut input, response, about, (worker, client, watch)).await {
            return Left::Gone;
        }
        if is_last || worker.is_draining() {
            return Left::Ended(io);
        }
    }
}

/// What the future comes to, unless the client hangs up meanwhile.
async fn unless_hung_up<T>(io: &ClientIo, mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if io.is_hung_up(cx) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Sends the response; `false` if there is nobody to take it, or no more of it.
async fn sent(
    io: &mut ClientIo,
    writer: &mut Writer,
    input: &mut BytesMut,
    response: Response<Out>,
    about: About,
    (worker, client, watch): (&Worker, &Client, &Watch),
) -> bool {
    let (head, body) = response.into_parts();
    writer.begin(&head, &body, about, &worker.spawner.clock);
    drop(head);
    let mut body = pin!(body);
    poll_fn(|cx| match writer.poll_send(cx, io, body.as_mut()) {
        Poll::Ready(sent) => Poll::Ready(sent.is_ok()),
        Poll::Pending if io.is_hung_up(cx) => Poll::Ready(false),
        Poll::Pending => {
            // Nothing is read before all of this is sent, and that may take its time.
            if input.is_empty() && input.capacity() > 0 {
                worker.spare.give(std::mem::take(input));
            }
            // All was said and is not all sent: it has as long as a connection on which nothing happens.
            if watch.has_paused() {
                client.rest();
            }
            Poll::Pending
        }
    })
    .await
}

/// Reads more of a request of which some has come.
async fn next(io: &mut ClientIo, input: &mut BytesMut, watch: &Watch) -> Next {
    input.reserve(READ_AT_ONCE);
    let mut reading = pin!(io.read_buf(input));
    poll_fn(|cx| match reading.as_mut().poll(cx) {
        Poll::Ready(Ok(1..)) => Poll::Ready(Next::Read),
        Poll::Ready(_) => Poll::Ready(Next::End),
        Poll::Pending if watch.has_paused() => Poll::Ready(Next::Rest),
        Poll::Pending => Poll::Pending,
    })
    .await
}
