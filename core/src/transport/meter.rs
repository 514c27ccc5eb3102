//! A socket that counts what passes: whole IP packets, both ways.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use tandem_proto::path::ip_udp_headers;
use tokio::sync::Notify;

use super::socket::{PathSocket, Writable};

/// What one network has carried since the client started, by all its sockets.
#[derive(Debug)]
pub(crate) struct Meter {
    total: AtomicU64,
    /// When it has counted so much, someone is to look.
    alarm: AtomicU64,
    /// When it has counted so much, nothing more is sent.
    stop: AtomicU64,
    wake: Arc<Notify>,
}

impl Meter {
    /// A meter that has counted nothing, and wakes with the first byte.
    pub(crate) fn new(wake: Arc<Notify>) -> Self {
        Self { total: AtomicU64::new(0), alarm: AtomicU64::new(1), stop: AtomicU64::new(u64::MAX), wake }
    }

    /// What it has counted, in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Wakes at `alarm`, and lets nothing be sent from `stop` on.
    pub(crate) fn set_limits(&self, alarm: u64, stop: u64) {
        self.alarm.store(alarm, Relaxed);
        self.stop.store(stop, Relaxed);
    }

    fn count(&self, bytes: u64) {
        let total = self.total.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if total >= self.alarm.load(Relaxed) {
            self.wake.notify_one();
        }
    }

    fn is_stopped(&self) -> bool {
        self.total() >= self.stop.load(Relaxed)
    }
}

/// A socket towards `remote` that a meter counts for.
pub(crate) fn measure(meter: Arc<Meter>, inner: Arc<dyn PathSocket>, remote: IpAddr) -> Arc<dyn PathSocket> {
    Arc::new(Measured { meter, inner, overhead: ip_udp_headers(remote).into() })
}

struct Measured {
    meter: Arc<Meter>,
    inner: Arc<dyn PathSocket>,
    /// Headers of IP and UDP, in bytes a datagram.
    overhead: u64,
}

impl Measured {
    fn count(&self, bytes: usize, segment: usize) {
        let datagrams = bytes.div_ceil(segment.max(1)).max(1) as u64;
        self.meter.count(bytes as u64 + datagrams * self.overhead);
    }
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PathSocket for Measured {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(cx, bufs, meta);
        if let Poll::Ready(Ok(filled)) = &received {
            meta.iter().take(*filled).for_each(|meta| self.count(meta.len, meta.stride));
        }
        received
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if self.meter.is_stopped() {
            return Err(io::Error::other("the network's data cap is reached"));
        }
        self.inner.try_send(transmit)?;
        self.count(transmit.contents.len(), transmit.segment_size.unwrap_or(transmit.contents.len()));
        Ok(())
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
