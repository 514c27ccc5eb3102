//! The task that carries a forwarder's datagrams from socket to link to socket.
//!
//! Whatever wakes it, it does the same round: read what has come, up to a batch a socket, release what is due on both
//! links, then sleep until the next packet is due. Datagrams are read into large blocks and shared from there, so that no
//! packet has an allocation of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use socket2::{SockAddr, SockRef};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::nat::Nat;
use super::{Datagram, Shared, State};

/// Datagrams read from one socket before the others have their turn: a segmentation-offload burst, 64 segments.
const BATCH: usize = 64;

/// The largest UDP payload there is, rounded up.
const MAX_DATAGRAM: usize = 1 << 16;

/// Bytes allocated at a time for received datagrams: some 300 full-sized packets.
const BLOCK: usize = 512 << 10;

/// How much later than asked tokio's timer mostly fires: it counts whole milliseconds, and so does the system call below.
///
/// The task asks for that much less. Woken early, it asks for the next tick, so that a packet leaves less than a tick late.
const TIMER_LATENESS: Duration = Duration::from_millis(1);

/// Carries until `stop` is cancelled.
pub(super) async fn carry(listen: UdpSocket, mut nat: Nat, shared: Arc<Shared>, stop: CancellationToken) {
    let mut blocks = Blocks::default();
    let sleep = tokio::time::sleep_until(tokio::time::Instant::now());
    tokio::pin!(sleep);
    let mut armed = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = shared.changed.notified() => {}
            ready = listen.readable() => if let Err(error) = ready {
                tracing::warn!(%error, "the forwarder stops: its runtime is shutting down");
                return;
            },
            () = nat.readable() => {}
            () = &mut sleep, if armed => {}
        }
        let now = tokio::time::Instant::now().into_std();
        let due = {
            let mut state = shared.state.lock();
            let state = &mut *state;
            if std::mem::take(&mut state.rebind) {
                nat.forget_all(now);
            }
            nat.expire(now, state.idle_expiry);
            receive(&listen, &nat, state, &mut blocks, now);
            release(&listen, &mut nat, state, now);
            [state.up.poll_timeout(), state.down.poll_timeout(), nat.next_expiry(state.idle_expiry)]
                .into_iter()
                .flatten()
                .min()
        };
        armed = due.is_some();
        if let Some(due) = due {
            let early = due.checked_sub(TIMER_LATENESS).unwrap_or(due);
            let next_tick = now + Duration::from_micros(1);
            sleep.as_mut().reset(early.max(next_tick).into());
        }
    }
}

/// Puts what has come on the links.
fn receive(listen: &UdpSocket, nat: &Nat, state: &mut State, blocks: &mut Blocks, now: Instant) {
    for _ in 0..BATCH {
        match blocks.fill(|block| listen.try_recv_buf_from(block)) {
            Ok((payload, (_, client))) => state.up.enqueue(now, Datagram { client, payload }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // An earlier datagram could not be delivered: to a client that is gone that may happen.
            Err(_) => {}
        }
    }
    for (client, socket) in nat.sockets() {
        for _ in 0..BATCH {
            match blocks.fill(|block| socket.try_recv_buf(block)) {
                Ok((payload, _)) => state.down.enqueue(now, Datagram { client, payload }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Nobody listened upstream for an earlier datagram; someone may later.
                Err(_) => {}
            }
        }
    }
}

/// Sends what has arrived at the links' ends.
fn release(listen: &UdpSocket, nat: &mut Nat, state: &mut State, now: Instant) {
    while let Some(Datagram { client, payload }) = state.up.poll(now) {
        let sent = nat.outgoing(client, now).and_then(|socket| send(socket, &payload, None));
        state.unsent += u64::from(sent.is_err());
    }
    while let Some(Datagram { client, payload }) = state.down.poll(now) {
        state.unsent += u64::from(send(listen, &payload, Some(client)).is_err());
    }
}

/// Sends without waiting: what the socket's buffer has no room for is lost.
///
/// This goes past tokio, whose sockets refuse to send before their first turn in the reactor.
fn send(socket: &UdpSocket, payload: &Bytes, to: Option<SocketAddr>) -> io::Result<usize> {
    let socket = SockRef::from(socket);
    let attempt = || match to {
        Some(to) => socket.send_to(payload, &SockAddr::from(to)),
        None => socket.send(payload),
    };
    match attempt() {
        // This tells of an earlier datagram (ICMP port unreachable); this one has not been tried.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => attempt(),
        other => other,
    }
}

/// The memory that datagrams are read into.
#[derive(Debug, Default)]
struct Blocks(BytesMut);

impl Blocks {
    /// Reads one datagram and splits it off the block.
    fn fill<R>(&mut self, read: impl FnOnce(&mut BytesMut) -> io::Result<R>) -> io::Result<(Bytes, R)> {
        // A block is used again once no datagram in it is left, else it is replaced.
        if self.0.capacity() < MAX_DATAGRAM && !self.0.try_reclaim(MAX_DATAGRAM) {
            self.0 = BytesMut::with_capacity(BLOCK);
        }
        let result = read(&mut self.0)?;
        Ok((self.0.split().freeze(), result))
    }
}
