//! A socket of the network in memory, and the ways in which it can fail.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use quinn::udp::{RecvMeta, Transmit};
use tandem_core::transport::PathSocket;
use tandem_core::transport::socket::Writable;
use tokio::sync::Notify;

use super::{Datagram, Shared};

/// Most datagrams that one transmit may hold, as on Linux (`UDP_MAX_SEGMENTS`).
const SEGMENTS: usize = 64;

/// How sends on a socket fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFault {
    /// The network is unreachable (`ENETUNREACH`).
    NetworkUnreachable,
    /// A firewall forbids it (`EPERM`).
    NotPermitted,
    /// The kernel has no buffers (`ENOBUFS`).
    NoBuffers,
    /// The interface has lost the socket's address (`EADDRNOTAVAIL`).
    AddressGone,
    /// The driver refuses segmentation offload (`EIO`), once: the socket then reports one segment as its limit.
    SegmentationRefused,
    /// The socket's buffer is full (`WouldBlock`) until the fault is taken away.
    BufferFull,
}

impl SendFault {
    fn error(self) -> io::Error {
        match self {
            SendFault::NetworkUnreachable => io::Error::from_raw_os_error(libc::ENETUNREACH),
            SendFault::NotPermitted => io::Error::from_raw_os_error(libc::EPERM),
            SendFault::NoBuffers => io::Error::from_raw_os_error(libc::ENOBUFS),
            SendFault::AddressGone => io::Error::from_raw_os_error(libc::EADDRNOTAVAIL),
            SendFault::SegmentationRefused => io::Error::from_raw_os_error(libc::EIO),
            SendFault::BufferFull => io::ErrorKind::WouldBlock.into(),
        }
    }
}

/// A UDP socket of a [`VirtualNetwork`](super::VirtualNetwork). Its addresses are free again when it is dropped.
pub struct VirtualSocket {
    shared: Arc<Shared>,
    local: SocketAddr,
    addresses: Vec<SocketAddr>,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    writable: Notify,
}

#[derive(Default)]
struct Inbox {
    arrived: VecDeque<(SocketAddr, Datagram)>,
    receiver: Option<Waker>,
}

struct Outbox {
    fault: Option<SendFault>,
    segments: usize,
    failed: u64,
    unplugged: bool,
}

impl VirtualSocket {
    pub(super) fn new(shared: Arc<Shared>, local: SocketAddr, addresses: Vec<SocketAddr>) -> Self {
        Self {
            shared,
            local,
            addresses,
            inbox: Mutex::default(),
            outbox: Mutex::new(Outbox { fault: None, segments: SEGMENTS, failed: 0, unplugged: false }),
            writable: Notify::new(),
        }
    }

    /// Makes sends fail from now on, or succeed again.
    pub fn set_fault(&self, fault: Option<SendFault>) {
        self.outbox.lock().fault = fault;
        self.writable.notify_waiters();
    }

    /// Takes the socket off the network, as a crash of its process does: its addresses are free at once, nothing arrives
    /// any more and what its owner still sends is lost.
    pub fn unplug(&self) {
        self.outbox.lock().unplugged = true;
        self.release_addresses();
    }

    /// Transmits that failed by a fault.
    pub fn failed_sends(&self) -> u64 {
        self.outbox.lock().failed
    }

    /// Puts a datagram, sent to the address `at`, where the socket's owner finds it.
    pub(super) fn arrive(&self, at: SocketAddr, datagram: Datagram) {
        let receiver = {
            let mut inbox = self.inbox.lock();
            inbox.arrived.push_back((at, datagram));
            inbox.receiver.take()
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }

    fn release_addresses(&self) {
        let mut state = self.shared.state.lock();
        for address in &self.addresses {
            // Another socket may have the address by now.
            if state.sockets.get(address).is_some_and(|owner| std::ptr::eq(owner.as_ptr(), self)) {
                state.sockets.remove(address);
            }
        }
    }

    fn is_blocked(&self) -> bool {
        self.outbox.lock().fault == Some(SendFault::BufferFull)
    }
}

impl Outbox {
    /// What happens to a transmit of so many datagrams.
    fn admit(&mut self, segments: usize) -> io::Result<()> {
        let error = match self.fault {
            None => return Ok(()),
            Some(SendFault::SegmentationRefused) if segments == 1 => return Ok(()),
            Some(SendFault::SegmentationRefused) => {
                self.segments = 1;
                SendFault::SegmentationRefused.error()
            }
            Some(fault) => fault.error(),
        };
        self.failed += 1;
        Err(error)
    }
}

impl PathSocket for VirtualSocket {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut inbox = self.inbox.lock();
        let mut filled = 0;
        for (buffer, meta) in bufs.iter_mut().zip(meta) {
            let Some((at, datagram)) = inbox.arrived.pop_front() else { break };
            // A kernel cuts what does not fit, and so does this.
            let length = datagram.contents.len().min(buffer.len());
            buffer[..length].copy_from_slice(&datagram.contents[..length]);
            *meta = RecvMeta::default();
            meta.addr = datagram.source;
            meta.len = length;
            meta.stride = length;
            meta.ecn = datagram.ecn;
            meta.dst_ip = Some(at.ip());
            filled += 1;
        }
        if filled > 0 {
            return Poll::Ready(Ok(filled));
        }
        inbox.receiver = Some(cx.waker().clone());
        Poll::Pending
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let size = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        {
            let mut outbox = self.outbox.lock();
            if outbox.unplugged {
                return Ok(());
            }
            outbox.admit(transmit.contents.len().div_ceil(size))?;
        }
        let source = match transmit.src_ip {
            None => self.addresses.first(),
            Some(ip) => self.addresses.iter().find(|address| address.ip() == ip),
        };
        let source = *source.ok_or_else(|| SendFault::AddressGone.error())?;
        let contents = bytes::Bytes::copy_from_slice(transmit.contents);
        let mut start = 0;
        while start < contents.len() {
            let end = contents.len().min(start + size);
            self.shared.send(source, transmit.destination, transmit.ecn, contents.slice(start..end));
            start = end;
        }
        Ok(())
    }

    fn writable(self: Arc<Self>) -> Writable {
        Box::pin(async move {
            loop {
                let changed = self.writable.notified();
                if !self.is_blocked() {
                    return Ok(());
                }
                changed.await;
            }
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn max_transmit_segments(&self) -> usize {
        self.outbox.lock().segments
    }

    fn max_receive_segments(&self) -> usize {
        1
    }
}

impl fmt::Debug for VirtualSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VirtualSocket").field(&self.local).finish()
    }
}

impl Drop for VirtualSocket {
    fn drop(&mut self) {
        self.release_addresses();
    }
}
