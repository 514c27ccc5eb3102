//! Receives from all path sockets and hands on what the links let through.

use std::fmt;
use std::io::IoSliceMut;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use quinn::udp::RecvMeta;
use tandem_proto::congestion::Algorithm;
use tandem_proto::keys::Role;
use tandem_proto::mode::Mode;
use tandem_proto::path::PathAddress;
use tandem_proto::peers::{PeerId, Route};
use tokio::time::Sleep;

use super::BicastSocket;
use super::packer::{Overflow, Packer};
use crate::transport::congestion::CongestionHandle;
use crate::transport::session::{Session, session_address};

/// Kernel receive calls fill so many buffers at most.
const BUFFERS: usize = 8;

/// One buffer takes a whole batch of receive offload.
const BUFFER_LEN: usize = 65_535;

/// Receive calls before other tasks get their turn, though none brought anything for QUIC.
const CALLS_PER_TURN: usize = 32;

/// What receiving needs to remember between calls.
pub(super) struct Receive {
    buffers: Vec<u8>,
    overflow: Overflow,
    /// Sessions in which something is held.
    holding: Vec<Arc<Session>>,
    hold_timer: Option<Pin<Box<Sleep>>>,
    /// The socket to begin with: all get their turn.
    turn: usize,
    waker: Option<Waker>,
}

impl fmt::Debug for Receive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("holding", &self.holding.len()).finish_non_exhaustive()
    }
}

impl Receive {
    pub(super) fn new() -> Self {
        Self {
            buffers: vec![0; BUFFERS * BUFFER_LEN],
            overflow: Overflow::default(),
            holding: Vec::new(),
            hold_timer: None,
            turn: 0,
            waker: None,
        }
    }

    /// Wakes the receiving task: there is another socket.
    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Fills quinn's buffers, or registers the task with every socket and the hold timer.
    pub(super) fn poll(
        &mut self,
        socket: &BicastSocket,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<std::io::Result<usize>> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
        let now = tokio::time::Instant::now().into_std();
        let mut packer = Packer::new(bufs, meta, &mut self.overflow);
        release_due(socket, &mut self.holding, now, &mut packer);
        let count = socket.sockets.read().len();
        let (mut calls, mut silent) = (0, 0);
        while silent < count && !packer.is_full() && packer.used() == 0 {
            if calls == CALLS_PER_TURN {
                cx.waker().wake_by_ref();
                self.arm_hold_timer(cx);
                return Poll::Pending;
            }
            self.turn = (self.turn + 1) % count;
            let Some(path_socket) = socket.socket(self.turn) else {
                silent += 1;
                continue;
            };
            let mut chunks = self.buffers.chunks_mut(BUFFER_LEN);
            let mut slices: [IoSliceMut<'_>; BUFFERS] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            let mut metas = [RecvMeta::default(); BUFFERS];
            match path_socket.poll_recv(cx, &mut slices, &mut metas) {
                Poll::Ready(Ok(filled)) => {
                    calls += 1;
                    silent = 0;
                    for (buffer, meta) in slices.iter_mut().zip(&metas).take(filled) {
                        let arrival = Arrival { socket_index: self.turn, meta, now };
                        socket.take_in(arrival, buffer, &mut self.holding, &mut packer);
                    }
                }
                // Such as a port unreachable: an event of that path, whose silence tells more.
                Poll::Ready(Err(error)) => {
                    calls += 1;
                    tracing::debug!(%error, "cannot receive on a path's socket");
                }
                Poll::Pending => silent += 1,
            }
        }
        let used = packer.used();
        if used > 0 {
            return Poll::Ready(Ok(used));
        }
        self.arm_hold_timer(cx);
        Poll::Pending
    }

    fn arm_hold_timer(&mut self, cx: &mut Context<'_>) {
        let deadlines = self.holding.iter().filter_map(|session| session.link.lock().poll_hold_timeout());
        let Some(deadline) = deadlines.min() else { return };
        let deadline = tokio::time::Instant::from_std(deadline);
        let timer = self.hold_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        if timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}

/// Hands on what has waited long enough, and forgets sessions in which nothing waits.
fn release_due(socket: &BicastSocket, holding: &mut Vec<Arc<Session>>, now: Instant, packer: &mut Packer<'_, '_>) {
    holding.retain(|session| {
        let mut link = session.link.lock();
        if link.poll_hold_timeout().is_some_and(|at| at <= now) {
            let address = session_address(session.number);
            link.release_held(now, &mut |datagram: &[u8]| {
                session.congestion.note_arrived(datagram.len());
                packer.push(address, datagram);
            });
            socket.after(session, &mut link, now);
        }
        link.poll_hold_timeout().is_some()
    });
}

/// One filled buffer: where it came in, and what the kernel says of it.
struct Arrival<'a> {
    socket_index: usize,
    meta: &'a RecvMeta,
    now: Instant,
}

impl BicastSocket {
    fn take_in(
        &self,
        arrival: Arrival<'_>,
        buffer: &mut [u8],
        holding: &mut Vec<Arc<Session>>,
        packer: &mut Packer<'_, '_>,
    ) {
        let Arrival { socket_index, meta, now } = arrival;
        let local = (self.role == Role::Relay).then_some(meta.dst_ip).flatten();
        let from = PathAddress { socket: socket_index, remote: meta.addr, local };
        let mut payloads = buffer[..meta.len].chunks_mut(meta.stride.max(1)).peekable();
        while let Some(first) = payloads.peek() {
            let Some(session) = self.route(from, first, now) else {
                payloads.next();
                continue;
            };
            let address = session_address(session.number);
            let mut link = session.link.lock();
            // Datagrams of one buffer come from one address; only a control datagram may name another session.
            while let Some(payload) = payloads.next() {
                link.handle(from, payload, now, &mut |datagram: &[u8]| {
                    session.congestion.note_arrived(datagram.len());
                    packer.push(address, datagram);
                });
                if payloads.peek().is_some_and(|next| tandem_proto::wire::control::is_control(next)) {
                    break;
                }
            }
            self.after(&session, &mut link, now);
            let holds = link.poll_hold_timeout().is_some();
            drop(link);
            if holds && !holding.iter().any(|known| known.number == session.number) {
                holding.push(session);
            }
        }
    }

    /// The session of a datagram; the relay makes one for a stranger.
    fn route(&self, from: PathAddress, payload: &[u8], now: Instant) -> Option<Arc<Session>> {
        if self.role == Role::Client {
            return self.sessions.read().values().next().cloned();
        }
        let route = self.peers.lock().route(from, payload);
        match route {
            Route::Known(PeerId(number)) => self.session(number),
            Route::New { peer: PeerId(number), forgotten } => {
                if let Some(PeerId(forgotten)) = forgotten {
                    self.sessions.write().remove(&forgotten);
                }
                let congestion = CongestionHandle::new(Algorithm::default(), now);
                Some(self.add_session(number, Mode::default(), congestion, now))
            }
            Route::Nowhere => None,
        }
    }
}
