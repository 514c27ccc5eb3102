//! The connection to an origin, which lives for one request after another.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BytesMut};
use tandem_proto::wire::flow::Target;

use super::fields::{HeadEnd, TooLarge};
use super::response::LIMITS;
use crate::dial::{Flow, FlowEnd, FlowRecv, FlowSend};
use crate::pump::CountedFlow;

/// Bytes that are taken from the flow before what is there is handed on.
const FILL_BYTES: usize = 128 * 1024;

/// A flow to an origin.
pub(super) struct Origin {
    pub(super) target: Target,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    pub(super) counted: CountedFlow,
    /// A response came over it, so that it may have ended since without anyone's fault.
    pub(super) used: bool,
}

impl Origin {
    pub(super) fn new(target: Target, flow: Flow, counted: CountedFlow) -> Self {
        let incoming = Incoming { flow: flow.recv, inbox: BytesMut::new(), ended: None };
        Self { target, outgoing: Outgoing { flow: flow.send }, incoming, counted, used: false }
    }

    /// The origin again, if its flow stands as a response has left it: open, and silent.
    pub(super) fn if_quiet(mut self) -> Option<Self> {
        let mut cx = Context::from_waker(Waker::noop());
        let quiet = self.incoming.inbox.is_empty() && self.incoming.poll_fill(&mut cx).is_pending();
        quiet.then_some(self)
    }

    /// Makes ready for a pause of unknown length: no memory is held.
    pub(super) fn rest(&mut self) {
        self.incoming.inbox = BytesMut::new();
        self.counted.set_finishing(false);
    }

    /// Resolves when the origin ends the connection, or says something that nobody asked for.
    pub(super) async fn stirs(&mut self) {
        let _ = self.incoming.fill().await;
    }
}

/// Towards the origin.
pub(super) struct Outgoing {
    pub(super) flow: Box<dyn FlowSend>,
}

impl Outgoing {
    /// Sends all of it; waits while the flow's window is full.
    pub(super) async fn send(&mut self, mut bytes: &[u8]) -> Result<(), FlowEnd> {
        while !bytes.is_empty() {
            let taken = poll_fn(|cx| self.flow.poll_write(cx, bytes)).await?;
            bytes.advance(taken);
        }
        Ok(())
    }
}

/// From the origin.
pub(super) struct Incoming {
    pub(super) flow: Box<dyn FlowRecv>,
    /// What has come and was not used yet.
    pub(super) inbox: BytesMut,
    ended: Option<Result<(), FlowEnd>>,
}

/// Why there is no head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHead {
    /// The origin has ended the connection, at once or in the head.
    Ended {
        at_once: bool,
    },
    TooLarge,
}

impl Incoming {
    /// Waits for bytes and takes all that are there; `false` at the clean end.
    pub(super) async fn fill(&mut self) -> Result<bool, FlowEnd> {
        poll_fn(|cx| self.poll_fill(cx)).await
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, FlowEnd>> {
        let before = self.inbox.len();
        while self.ended.is_none() && self.inbox.len() - before < FILL_BYTES {
            match self.flow.poll_chunk(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(Some(chunk))) => self.inbox.extend_from_slice(&chunk),
                Poll::Ready(Ok(None)) => self.ended = Some(Ok(())),
                Poll::Ready(Err(end)) => self.ended = Some(Err(end)),
            }
        }
        if self.inbox.len() > before {
            return Poll::Ready(Ok(true));
        }
        match self.ended {
            Some(end) => Poll::Ready(end.map(|()| false)),
            None => Poll::Pending,
        }
    }

    /// Waits for the whole head of a response and takes it out of the inbox.
    pub(super) async fn head(&mut self) -> Result<BytesMut, NoHead> {
        let mut end = HeadEnd::new(LIMITS);
        loop {
            // Some origins send an empty line too much behind a body.
            if !end.has_begun() {
                skip_empty_lines(&mut self.inbox);
            }
            match end.find(&self.inbox) {
                Ok(Some(length)) => return Ok(self.inbox.split_to(length)),
                Ok(None) => {}
                Err(TooLarge::Line | TooLarge::Fields) => return Err(NoHead::TooLarge),
            }
            if !matches!(self.fill().await, Ok(true)) {
                return Err(NoHead::Ended { at_once: self.inbox.is_empty() });
            }
        }
    }
}

/// Drops line ends in front of a head (RFC 9112 section 2.2).
pub(super) fn skip_empty_lines(inbox: &mut BytesMut) {
    let length = inbox.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    inbox.advance(length);
}
