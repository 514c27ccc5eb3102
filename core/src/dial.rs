//! The one interface through which inbounds reach the far side: open a flow.
//!
//! An inbound (SOCKS5, port forward) knows no session, no QUIC and no relay; it asks a [`Dial`] for a [`Flow`] to a target
//! and pumps bytes. A flow keeps TCP's three endings apart: finished, reset by us, reset by the far side.

#[cfg(test)]
pub(crate) mod loopback;
pub mod memory;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tandem_proto::wire::flow::{OpenError, Target};

/// Opens flows to targets. Real: a session to a relay. In memory: a loopback for tests.
pub trait Dial: Send + Sync + 'static {
    /// Opens a TCP flow; resolves once the far side has a connection to the target.
    ///
    /// # Errors
    /// [`DialError::Open`] with the relay's reason, or [`DialError::NotConnected`] without a session.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the flow on both sides.
    fn open_tcp(&self, target: Target) -> Pin<Box<dyn Future<Output = Result<Flow, DialError>> + Send + '_>>;
}

/// Why a flow could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The relay answered that it could not connect.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no session to a relay, or it ended while the flow was being opened.
    #[error("there is no connection to the relay")]
    NotConnected,
}

/// Both halves of an open flow.
pub struct Flow {
    /// Towards the target.
    pub send: Box<dyn FlowSend>,
    /// From the target.
    pub recv: Box<dyn FlowRecv>,
}

/// How a flow's half ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlowEnd {
    /// The far side reset the flow, or wants no more of it.
    #[error("the far side reset the flow")]
    Reset,
    /// The session ended under the flow.
    #[error("the session ended")]
    Lost,
}

/// The sending half of a flow. Dropping it unfinished resets it.
pub trait FlowSend: Send + Unpin {
    /// Takes bytes to send; `Pending` while the flow's window is full.
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, FlowEnd>>;
    /// Ends the half cleanly: the far side reads everything, then EOF.
    fn finish(&mut self);
    /// Ends the half abruptly, as a TCP reset does.
    fn reset(&mut self);
    /// Resolves when the far side no longer reads: `Ok` when everything was received after [`FlowSend::finish`],
    /// `Err` when it asked to stop.
    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowEnd>>;
}

/// The receiving half of a flow. Dropping it before its end tells the far side to stop.
pub trait FlowRecv: Send + Unpin {
    /// The next bytes in order; `None` at a clean end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, FlowEnd>>;
    /// Tells the far side that nothing more will be read.
    fn stop(&mut self);
}
