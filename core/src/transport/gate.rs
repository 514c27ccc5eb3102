//! A path's socket that can fall silent at will, for finding out what a network makes of silence.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};

use super::socket::{PathSocket, Writable};

/// A socket that can be kept from sending, and counts what arrives.
#[derive(Debug)]
pub(crate) struct Gate {
    inner: Arc<dyn PathSocket>,
    closed: AtomicBool,
    heard: AtomicU64,
}

impl Gate {
    /// Passes everything on until it is closed.
    pub(crate) fn new(inner: Arc<dyn PathSocket>) -> Arc<Self> {
        Arc::new(Self { inner, closed: AtomicBool::new(false), heard: AtomicU64::new(0) })
    }

    /// Swallows whatever is sent from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Batches of datagrams that have arrived so far.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }
}

impl PathSocket for Gate {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(cx, bufs, meta);
        if let Poll::Ready(Ok(count)) = &received {
            self.heard.fetch_add(*count as u64, Relaxed);
        }
        received
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if self.closed.load(Relaxed) { Ok(()) } else { self.inner.try_send(transmit) }
    }

    fn writable(self: Arc<Self>) -> Writable {
        Arc::clone(&self.inner).writable()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }
}
