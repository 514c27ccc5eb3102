//! The gate in front of a connection's transmits: pacing first, then room in the preferred path's socket.
//!
//! quinn asks its poller before each transmit, in the same task poll in which the controller's `on_sent` saw it, and asks
//! again right after a send that would have blocked. Both hand over what the poller must know through a slot of their
//! thread: the connection's pacing, and the socket that was full.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn::UdpPoller;
use tokio::time::Sleep;

use crate::transport::pacing::{self, PacingHandle};
use crate::transport::socket::{PathSocket, Writable};

/// How long a full socket is waited for before the session tries again: its datagrams may have another way by then.
pub(super) const FULL_PATIENCE: Duration = Duration::from_millis(20);

thread_local! {
    static FULL: Cell<Option<Arc<dyn PathSocket>>> = const { Cell::new(None) };
}

/// Leaves the socket that was full for the poller of the connection that tried to send.
pub(super) fn publish_full(socket: Arc<dyn PathSocket>) {
    FULL.set(Some(socket));
}

/// One connection's poller.
#[derive(Default)]
pub(super) struct Gate {
    pacing: Option<PacingHandle>,
    timer: Option<Pin<Box<Sleep>>>,
    writable: Option<(Writable, Pin<Box<Sleep>>)>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("pacing", &self.pacing).finish_non_exhaustive()
    }
}

impl UdpPoller for Gate {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(pacing) = pacing::take() {
            self.pacing = Some(pacing);
        }
        if let Some(socket) = FULL.take() {
            self.writable = Some((socket.writable(), Box::pin(tokio::time::sleep(FULL_PATIENCE))));
        }
        let now = tokio::time::Instant::now();
        if let Some(until) = self.pacing.as_ref().and_then(|pacing| pacing.shut_until(now.into_std())) {
            let until = tokio::time::Instant::from_std(until);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if timer.deadline() != until {
                timer.as_mut().reset(until);
            }
            ready!(timer.as_mut().poll(cx));
        }
        if let Some((writable, patience)) = &mut self.writable {
            // An error of one socket is that path's, and shows at the next send.
            if writable.as_mut().poll(cx).is_pending() {
                ready!(patience.as_mut().poll(cx));
            }
            self.writable = None;
        }
        Poll::Ready(Ok(()))
    }
}
