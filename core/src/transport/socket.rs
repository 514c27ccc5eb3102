//! One UDP socket that carries paths: the seam between the transport and a real or virtual network.
//!
//! A client has one per network, bound to its interface; a relay one per listen address. The real one keeps segmentation
//! offload (GSO/GRO) and ECN through `quinn::udp`; `send` goes on without offload when the kernel or a driver refuses it.

use std::fmt::Debug;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;

/// Resolves when a socket can be tried again after it would have blocked.
pub type Writable = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// A UDP socket that carries paths.
pub trait PathSocket: Send + Sync + Debug + 'static {
    /// Receives datagrams into `bufs`, or registers the one task that receives.
    ///
    /// Each filled buffer holds datagrams of `meta.stride` bytes, the last perhaps shorter.
    ///
    /// # Errors
    /// An error is an event of this socket alone; the transport counts it and goes on.
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>>;

    /// Sends the datagrams of one transmit, all or none as far as can be told.
    ///
    /// # Errors
    /// `WouldBlock` if the socket's buffer is full; anything else is an event of this socket alone. If segmentation offload
    /// was refused, nothing was sent and [`Self::max_transmit_segments`] is 1 from then on.
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()>;

    /// Resolves when a send is worth another try. May be called by any number of tasks.
    fn writable(self: Arc<Self>) -> Writable;

    /// The local address.
    ///
    /// # Errors
    /// The operating system's.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Most datagrams that one transmit should hold: 1 without segmentation offload.
    fn max_transmit_segments(&self) -> usize;

    /// Most datagrams that may arrive in one buffer: 1 without receive offload.
    fn max_receive_segments(&self) -> usize;
}

/// A kernel UDP socket.
#[derive(Debug)]
pub struct UdpPathSocket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
}

impl UdpPathSocket {
    /// Wraps a bound socket; to be called within a tokio runtime.
    ///
    /// # Errors
    /// The operating system's, if the socket cannot be made non-blocking or lacks a needed option.
    pub fn new(socket: std::net::UdpSocket) -> io::Result<Arc<Self>> {
        let state = UdpSocketState::new((&socket).into())?;
        socket.set_nonblocking(true)?;
        Ok(Arc::new(Self { io: tokio::net::UdpSocket::from_std(socket)?, state }))
    }
}

/// Sends a transmit on a socket, its datagrams one by one where offload does not work (any more).
///
/// # Errors
/// As [`PathSocket::try_send`].
pub(super) fn send(socket: &dyn PathSocket, transmit: &Transmit<'_>) -> io::Result<()> {
    let Some(size) = transmit.segment_size.filter(|size| *size < transmit.contents.len()) else {
        return socket.try_send(transmit);
    };
    if socket.max_transmit_segments() > 1 {
        match socket.try_send(transmit) {
            // The socket has noticed that offload fails and turned it off: the same datagrams go one by one.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock && socket.max_transmit_segments() <= 1 => {}
            done => return done,
        }
    }
    for (index, segment) in transmit.contents.chunks(size).enumerate() {
        let one = Transmit { contents: segment, segment_size: None, ..clone_head(transmit) };
        match socket.try_send(&one) {
            Ok(()) => {}
            // Some have left: the rest counts as lost on the way rather than being sent twice.
            Err(_) if index > 0 => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn clone_head<'a>(transmit: &Transmit<'a>) -> Transmit<'a> {
    Transmit {
        destination: transmit.destination,
        ecn: transmit.ecn,
        contents: transmit.contents,
        segment_size: transmit.segment_size,
        src_ip: transmit.src_ip,
    }
}

impl PathSocket for UdpPathSocket {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(cx))?;
            match self.io.try_io(Interest::READABLE, || self.state.recv((&self.io).into(), bufs, meta)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.io.try_io(Interest::WRITABLE, || self.state.try_send((&self.io).into(), transmit))
    }

    fn writable(self: Arc<Self>) -> Writable {
        Box::pin(async move { self.io.writable().await })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
