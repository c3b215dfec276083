//! One plain request after the other.
//!
//! Owns the loop, and when it ends: at the first thing that is not plain, when all is answered, or with the connection. Of a
//! request that is turned away nothing is made but its answer: it is read where it stands, and so is its key.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::Poll,
};

use bytes::{Bytes, BytesMut};
use flowgate::http::{GatedBody, Told};
use http::{Method, header};
use tokio::io::AsyncReadExt;

use super::{
    request::{Plain, Special},
    response::{About, Writer},
};
use crate::gateway::{
    asked::Head,
    client::Client,
    clock::Clock,
    connection::in_place,
    exchange::{self, Allowed, Failed},
    io::ClientIo,
    relay::Out,
    spare::READ_AT_ONCE,
    view::View,
    watch::Watch,
    worker::Worker,
};

/// How it ended.
pub(in crate::gateway) enum Left {
    /// With something that is not plain: it is in the input, and yet to be read.
    Special,
    /// All that was said is answered.
    Quiet,
    /// The connection is to be closed.
    Ended,
    /// There is nobody to talk to any more.
    Gone,
}

/// What there is to do before the next request.
enum Next {
    Read,
    Rest,
    End,
}

/// Why there is no answer.
enum Unanswered {
    /// It was not plain after all.
    Special,
    /// There is nobody to answer to.
    Gone,
}

/// Serves requests for as long as they are plain.
///
/// Cancel safety: dropped, what was under way is dropped, and the connection is of no more use.
#[expect(clippy::manual_async_fn, reason = "an `async fn` has room for its arguments twice")]
pub(in crate::gateway) fn serve(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    (io, input): (&mut ClientIo, &mut BytesMut),
    watch: &Watch,
) -> impl Future<Output = Left> {
    async move {
        let mut writer = Writer::new(worker.spare.take_to_write());
        let mut plain = worker.spare.take_plain();
        loop {
            match plain.find(input) {
                Ok(true) => {}
                Err(Special) => return Left::Special,
                Ok(false) if input.is_empty() && !io.has_early() => {
                    if input.capacity() > 0 {
                        worker.spare.give(std::mem::take(input));
                    }
                    worker.spare.give_to_write(writer.into_text());
                    worker.spare.give_plain(plain);
                    return Left::Quiet;
                }
                Ok(false) => match next(io, input, watch).await {
                    Next::Read => continue,
                    // Some of a request has come: how long the rest may take, is known where all of that is.
                    Next::Rest => return Left::Special,
                    Next::End => return Left::Gone,
                },
            }
            let (body, is_last) = match answered(&plain, io, &mut writer, input, (worker, client)).await {
                Ok(answered) => answered,
                Err(Unanswered::Special) => return Left::Special,
                Err(Unanswered::Gone) => return Left::Gone,
            };
            if !sent(io, &mut writer, input, body, (worker, client, watch)).await {
                return Left::Gone;
            }
            if is_last || worker.is_draining() {
                return Left::Ended;
            }
        }
    }
}

/// Takes the request out of the input and begins to write its answer: what there is of its body behind that, and whether it is
/// the last answer on this connection.
async fn answered(
    plain: &Plain,
    io: &ClientIo,
    writer: &mut Writer,
    input: &mut BytesMut,
    (worker, client): (&Rc<Worker>, &Rc<Client>),
) -> Result<(Out, bool), Unanswered> {
    let busy = client.begin();
    let view = worker.view();
    let is_head = plain.method == Method::HEAD;
    let about = || About { is_head, is_last: worker.is_draining() };
    let clock = &worker.spawner.clock;
    let response = match ask((plain, input), io, &view, client, (writer, about, clock)).await {
        Asked::Allowed(allowed) => {
            let (parts, body) = plain.take(input).map_err(|Special| Unanswered::Special)?;
            // It takes some kilobytes: not for those who are turned away, and not while the body of the answer is sent.
            let mut answering = in_place(|| allowed.go((worker, &view, client), parts, body, busy));
            unless_hung_up(io, answering.as_mut()).await.ok_or(Unanswered::Gone)?
        }
        Asked::Refused { is_last } => {
            plain.skip(input);
            return Ok((GatedBody::refusal(Bytes::new()), is_last));
        }
        Asked::Failed(failed) => {
            plain.skip(input);
            failed.told().map(GatedBody::refusal)
        }
        Asked::Gone => return Err(Unanswered::Gone),
    };
    let about = about();
    let (head, body) = response.into_parts();
    writer.begin(&head, &body, about, clock);
    Ok((body, about.is_last))
}

/// What came of asking for a pass.
enum Asked<'t> {
    Allowed(Allowed<'t>),
    /// It was turned away, and what it is told is written.
    Refused {
        is_last: bool,
    },
    /// It goes nowhere.
    Failed(Failed<'t>),
    Gone,
}

/// Finds where a request goes and waits for its pass, while it is in the input still. Who is turned away is told so.
async fn ask<'v>(
    (plain, input): (&Plain, &[u8]),
    io: &ClientIo,
    view: &'v View,
    client: &Client,
    (writer, about, clock): (&mut Writer, impl Fn() -> About, &Clock),
) -> Asked<'v> {
    let head = plain.over(input);
    let found = match exchange::find(&view.table, &head, plain.body(), client.peer) {
        Ok(found) => found,
        Err(failed) => return Asked::Failed(failed),
    };
    match unless_hung_up(io, pin!(found.enter())).await {
        Some(Ok(allowed)) => Asked::Allowed(allowed),
        Some(Err(turned)) => {
            let is_grpc = head.values(&header::CONTENT_TYPE).next().is_some_and(Told::is_for_grpc);
            let about = about();
            view.refusals(found.plan()).write(&turned, is_grpc, about, clock, writer);
            Asked::Refused { is_last: about.is_last }
        }
        None => Asked::Gone,
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

/// Sends what is written and the body behind it; `false` if there is nobody to take it, or no more of it.
async fn sent(
    io: &mut ClientIo,
    writer: &mut Writer,
    input: &mut BytesMut,
    body: Out,
    (worker, client, watch): (&Worker, &Client, &Watch),
) -> bool {
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
