//! The body of a request on its way to the upstream.
//!
//! Owns how much of it may come, when it may be asked for, and what is known if it does not come. Nothing is kept here: a
//! frame is asked of the client when the upstream takes one.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::{
    client::Client,
    clock::Span,
    fault::Fault,
    headers::strip_trailers,
    inbound::Inbound,
    table::Plan,
    watch::{Stage, Watch},
};
use crate::wire::{Cut, Load};

/// How long an upstream that was asked to say whether it wants a body may take; many never say.
const PATIENCE: Duration = Duration::from_secs(1);

/// The body of a request; the default is none. If it is cut off, [`Flow::fault`] says why.
#[derive(Debug, Default)]
pub(super) struct Upload(Option<Sending>);

#[derive(Debug)]
struct Sending {
    /// A piece that was taken and is back.
    back: Option<Bytes>,
    body: Inbound,
    flow: Rc<Flow>,
}

/// What is known of a body under way.
#[derive(Debug)]
pub(super) struct Flow {
    client: Rc<Client>,
    watch: Rc<Watch>,
    /// How long the next piece may take.
    stream: Span,
    /// How long the upstream may take once it has everything.
    response: Span,
    left: Cell<u64>,
    stage: Cell<At>,
    fault: Cell<Option<Fault>>,
    /// Whether the body is held back until the upstream has asked for it.
    is_shut: Cell<bool>,
}

/// Who has to move next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Nothing was asked for yet.
    Start,
    Client,
    Upstream,
    End,
}

impl Upload {
    /// A body as the plan allows it. `expects`: the client waits for word that it is wanted.
    pub(super) fn new(
        body: Inbound,
        client: &Rc<Client>,
        watch: &Rc<Watch>,
        plan: &Plan,
        expects: bool,
    ) -> (Self, Rc<Flow>) {
        let flow = Rc::new(Flow {
            client: Rc::clone(client),
            watch: Rc::clone(watch),
            stream: plan.stream_timeout,
            response: plan.response_timeout,
            left: Cell::new(plan.max_body.unwrap_or(u64::MAX)),
            stage: Cell::new(At::Start),
            fault: Cell::new(None),
            is_shut: Cell::new(expects),
        });
        (Upload(Some(Sending { back: None, body, flow: Rc::clone(&flow) })), flow)
    }
}

impl Flow {
    /// What went wrong with the body, if anything did.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.get()
    }

    /// What it is if nothing moves any more: the client's fault, if it owes the next piece.
    pub(super) fn standstill(&self) -> Fault {
        if self.stage.get() == At::Client { Fault::Stalled } else { Fault::Late }
    }

    /// How long it may take now until something moves, where an upstream is asked: perhaps not for the first time.
    pub(super) fn span(&self) -> Span {
        if self.has_ended() {
            self.response
        } else if self.is_shut.get() {
            Span::of(PATIENCE)
        } else {
            self.stream
        }
    }

    /// Whether all of the body was read.
    pub(super) fn has_ended(&self) -> bool {
        self.stage.get() == At::End
    }

    /// The body is asked for; `false` if it was already.
    pub(super) fn open(&self) -> bool {
        self.is_shut.replace(false)
    }

    fn cut(&self, fault: Fault) -> Cut {
        self.fault.set(Some(fault));
        Cut
    }

    fn note(&self, frame: &Frame<Bytes>) -> Result<(), Cut> {
        self.watch.touch();
        let bytes = frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| self.cut(Fault::TooLarge))?;
        self.left.set(left);
        Ok(())
    }

    /// What is sent on of a frame; `None` is the end of the body.
    fn pass(&self, frame: Frame<Bytes>, is_last: bool) -> Option<Frame<Bytes>> {
        // Nobody asks again for what is known to have ended, and nothing comes behind trailers.
        if is_last || frame.is_trailers() {
            self.end();
        }
        match frame.into_trailers() {
            Ok(mut trailers) => {
                strip_trailers(&mut trailers);
                (!trailers.is_empty()).then(|| Frame::trailers(trailers))
            }
            Err(frame) => Some(frame),
        }
    }

    /// All of it is there: now it is the upstream's turn.
    fn end(&self) {
        self.stage.set(At::End);
        // Where the response is on its way already, that is what is waited for.
        if self.watch.stage() == Stage::Asking {
            self.watch.begin(Stage::Asking, self.response);
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.flow.has_ended() && self.body.is_unread() {
            self.flow.client.leave_unread();
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let Some(Sending { back, body, flow }) = &mut self.0 else { return Poll::Ready(None) };
        if let Some(piece) = back.take() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if flow.is_shut.get() {
            // Whoever asks for it, the upstream or the end of our patience, has this polled then.
            return Poll::Pending;
        }
        if flow.stage.replace(At::Client) == At::Start && flow.watch.stage() == Stage::Asking {
            flow.watch.begin(Stage::Asking, flow.stream);
        }
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        flow.stage.set(At::Upstream);
        Poll::Ready(match frame {
            Some(Ok(frame)) => match flow.note(&frame) {
                Ok(()) => flow.pass(frame, body.is_end_stream()).map(Ok),
                Err(cut) => Some(Err(cut)),
            },
            Some(Err(_)) => Some(Err(flow.cut(Fault::Request("The body of the request is broken.")))),
            None => {
                flow.end();
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|sending| sending.back.is_none() && sending.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |sending| sending.body.size_hint())
    }
}

impl Load for Upload {
    const ADDED: usize = 8;

    fn put_back(&mut self, piece: Bytes) {
        if let Some(sending) = &mut self.0 {
            sending.back = Some(piece);
        }
    }

    fn open(&self) {
        if let Some(sending) = &self.0 {
            sending.flow.open();
        }
    }
}
