//! The socket that quinn sees: one peer a session, however many networks lie below.
//!
//! What quinn sends goes to the session's link, which numbers it and names the paths; what arrives goes to the link of the
//! session it belongs to, which drops duplicates, holds what must wait, and hands the rest up. An error of one path's
//! socket is an event of that path; quinn never sees it. A copy that a socket does not take is skipped, and only if the
//! preferred path's socket is full does quinn wait, for a moment if there are others.
//!
//! Locks are taken in this order and held across no wait: receive state, a session's link, peers. The tables of sockets
//! and sessions are locked for a look or a change only.

mod packer;
mod poller;
mod receive;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use receive::Receive;
use tandem_proto::keys::Role;
use tandem_proto::link::{Batch, Departure, Link, LinkConfig};
use tandem_proto::mode::Mode;
use tandem_proto::path::PathAddress;
use tandem_proto::peers::{PeerId, Peers};
use tandem_proto::wire::control::PathId;

use super::congestion::CongestionHandle;
use super::session::{AddressChange, Session, session_address, session_number};
use super::socket::{self, PathSocket};

/// Most datagrams of one batch; what quinn asks for at most.
const MOST_SEGMENTS: usize = 10;

/// How many datagrams one buffer of quinn's receive ring holds at most.
const RECEIVE_SEGMENTS: usize = 16;

/// How long the batch size is used before it is taken anew.
const BATCH_AGE: Duration = Duration::from_millis(10);

/// Many path sockets as one socket with one peer a session.
#[derive(Debug)]
pub(super) struct BicastSocket {
    role: Role,
    /// Index = `PathAddress::socket`; that of a removed one is free.
    sockets: RwLock<Vec<Option<Arc<dyn PathSocket>>>>,
    sessions: RwLock<HashMap<u64, Arc<Session>>>,
    /// Relay only.
    peers: Mutex<Peers>,
    receive: Mutex<Receive>,
    seeds: AtomicU64,
    batch: Mutex<(Option<Instant>, usize)>,
}

thread_local! {
    /// Datagrams as they leave; one departure at a time.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl BicastSocket {
    pub(super) fn new(role: Role, sockets: Vec<Arc<dyn PathSocket>>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            role,
            sockets: RwLock::new(sockets.into_iter().map(Some).collect()),
            sessions: RwLock::default(),
            peers: Mutex::new(Peers::new(seed)),
            receive: Mutex::new(Receive::new()),
            seeds: AtomicU64::new(seed),
            batch: Mutex::new((None, MOST_SEGMENTS)),
        })
    }

    /// Begins a session; the relay does so for a stranger's first datagram.
    pub(super) fn add_session(
        &self,
        number: u64,
        mode: Mode,
        congestion: CongestionHandle,
        now: Instant,
    ) -> Arc<Session> {
        let seed = self.seeds.fetch_add(1, Relaxed);
        let link = Link::new(LinkConfig { role: self.role, mode, seed }, now);
        let session = Session::new(number, seed, link, congestion, now);
        self.sessions.write().insert(number, Arc::clone(&session));
        session
    }

    /// Ends a session: nothing arrives for it, and its clock stops.
    pub(super) fn remove_session(&self, session: &Session) {
        if self.has(session) {
            self.sessions.write().remove(&session.number);
            self.peers.lock().remove(PeerId(session.number));
        }
        session.changed.notify_one();
    }

    /// Takes up a stranger's handshake: no other stranger takes its place.
    pub(super) fn claim(&self, session: &Session) -> bool {
        let claimed = session.claim();
        if claimed {
            self.peers.lock().claim(PeerId(session.number));
        }
        claimed
    }

    /// The session that QUIC knows under `address`.
    pub(super) fn session_at(&self, address: SocketAddr) -> Option<Arc<Session>> {
        self.session(session_number(address)?)
    }

    /// Whether the session still lives.
    pub(super) fn has(&self, session: &Session) -> bool {
        // A stranger that was forgotten may have come again under the same number.
        self.sessions.read().get(&session.number).is_some_and(|known| std::ptr::eq(&**known, session))
    }

    /// The relay's handshake with this session is done.
    pub(super) fn establish(&self, session: &Session) {
        if let Some(id) = session.link.lock().session_id() {
            self.peers.lock().establish(PeerId(session.number), id);
        }
    }

    /// Adds a socket and returns its index; what arrives on it is received from now on.
    pub(super) fn add_socket(&self, socket: Arc<dyn PathSocket>) -> usize {
        let mut sockets = self.sockets.write();
        let index = sockets.iter().position(Option::is_none).unwrap_or(sockets.len());
        if index == sockets.len() {
            sockets.push(None);
        }
        sockets[index] = Some(socket);
        drop(sockets);
        self.receive.lock().wake();
        index
    }

    /// Removes a socket; its index may be used for another.
    pub(super) fn remove_socket(&self, index: usize) {
        if let Some(socket) = self.sockets.write().get_mut(index) {
            *socket = None;
        }
    }

    /// The socket of this index.
    pub(super) fn socket(&self, index: usize) -> Option<Arc<dyn PathSocket>> {
        self.sockets.read().get(index).cloned().flatten()
    }

    /// After anything was done with a link: passes on its events and sends its control datagrams.
    pub(super) fn after(&self, session: &Session, link: &mut Link, now: Instant) {
        session.drain_events(link, |change| {
            if self.role == Role::Relay {
                let mut peers = self.peers.lock();
                match change {
                    AddressChange::Added(address) => {
                        if let Some(PeerId(nobody)) = peers.add_address(PeerId(session.number), address) {
                            self.sessions.write().remove(&nobody);
                        }
                    }
                    AddressChange::Removed(address) => peers.remove_address(PeerId(session.number), address),
                }
            }
        });
        while let Some(outgoing) = link.poll_transmit() {
            let transmit = Transmit {
                destination: outgoing.address.remote,
                ecn: None,
                contents: &outgoing.bytes,
                segment_size: None,
                src_ip: outgoing.address.local,
            };
            match self.send_on(outgoing.address, &transmit) {
                Ok(()) => {}
                // Control datagrams are superseded, not queued; too large a probe is its own answer.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock || is_too_large(&error) => {}
                Err(error) => link.control_not_sent(outgoing.address, &error.to_string(), now),
            }
            link.recycle(outgoing);
        }
        if link.take_wake() {
            session.changed.notify_one();
        }
    }

    fn session(&self, number: u64) -> Option<Arc<Session>> {
        self.sessions.read().get(&number).cloned()
    }

    fn send_on(&self, address: PathAddress, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.sockets.read().get(address.socket) {
            Some(Some(path_socket)) => socket::send(&**path_socket, transmit),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends what of a departure leaves on one path. ECN is not used: which of the copies would its marks tell of?
    fn send_batches<'a>(&self, address: PathAddress, batches: impl Iterator<Item = Batch<'a>>) -> io::Result<()> {
        for (index, Batch { contents, segment_size }) in batches.enumerate() {
            let PathAddress { remote: destination, local: src_ip, .. } = address;
            match self.send_on(address, &Transmit { destination, ecn: None, contents, segment_size, src_ip }) {
                Ok(()) => {}
                // Some have left: the rest counts as lost on the way rather than being sent twice.
                Err(_) if index > 0 => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends one batch of quinn's as the session's link says.
    fn send(&self, session: &Session, transmit: &Transmit<'_>, wire: &mut Vec<u8>) -> io::Result<()> {
        let now = tokio::time::Instant::now().into_std();
        let size = transmit.segment_size.unwrap_or(transmit.contents.len());
        let hold = session.congestion.hold_class(now);
        session.on_sent(now);
        let mut departure = {
            let mut link = session.link.lock();
            link.set_sender_state(session.congestion.sender_state());
            let departure = link.depart(transmit.contents, size, hold, now, wire);
            session.congestion.pacing().set_cap(link.shut_until(now));
            if link.take_wake() {
                session.changed.notify_one();
            }
            departure
        };
        let targets = departure.targets;
        for (index, (path, address)) in targets.iter().enumerate() {
            match self.send_batches(address, departure.batches(path, wire)) {
                Ok(()) if index == 0 => session.on_room(),
                Ok(()) => {}
                Err(error) => {
                    // A socket that stays full must not keep the datagram from the other paths.
                    let others = targets.len() > 1 || departure.has_spared();
                    if error.kind() == io::ErrorKind::WouldBlock
                        && index == 0
                        && !(others && session.full_for(now) >= poller::FULL_PATIENCE)
                    {
                        session.link.lock().take_back(&departure);
                        if let Some(socket) = self.socket(address.socket) {
                            poller::publish_full(socket);
                        }
                        return Err(error);
                    }
                    self.failed(session, &mut departure, path, &error, now);
                }
            }
        }
        if departure.is_stranded() {
            let spared = {
                let mut link = session.link.lock();
                let spared = link.call_spared(&mut departure, now);
                self.after(session, &mut link, now);
                spared
            };
            for (path, address) in spared.iter() {
                if let Err(error) = self.send_batches(address, departure.batches(path, wire)) {
                    self.failed(session, &mut departure, path, &error, now);
                }
            }
        }
        Ok(())
    }

    /// A path did not take a departure; a socket that is merely full, or a size that is too large, is no error of the path.
    fn failed(&self, session: &Session, departure: &mut Departure, path: PathId, error: &io::Error, now: Instant) {
        let mut link = session.link.lock();
        if error.kind() == io::ErrorKind::WouldBlock || is_too_large(error) {
            link.not_sent(departure, path, None, now);
        } else {
            tracing::debug!(session = session.number, %path, %error, "cannot send on path");
            link.not_sent(departure, path, Some(&error.to_string()), now);
            // It may be under way on another path already.
            self.after(session, &mut link, now);
        }
    }

    /// The largest batch that suits the pacing of every session that sends now.
    fn batch(&self) -> usize {
        let now = tokio::time::Instant::now().into_std();
        let mut batch = self.batch.lock();
        if batch.0.is_none_or(|at| now.saturating_duration_since(at) >= BATCH_AGE) {
            let sessions = self.sessions.read();
            let sending = sessions.values().filter(|session| session.is_sending(now));
            let least = sending.map(|session| session.congestion.pacing().max_segments(MOST_SEGMENTS)).min();
            *batch = (Some(now), least.unwrap_or(MOST_SEGMENTS));
        }
        batch.1
    }
}

fn is_too_large(error: &io::Error) -> bool {
    #[cfg(unix)]
    let code = libc::EMSGSIZE;
    #[cfg(not(unix))]
    let code = 10_040; // WSAEMSGSIZE
    error.raw_os_error() == Some(code)
}

impl AsyncUdpSocket for BicastSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(poller::Gate::default())
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        // A session that ended meanwhile has nowhere to send to.
        let Some(session) = self.session_at(transmit.destination) else { return Ok(()) };
        if self.role == Role::Relay && transmit.contents.first().is_some_and(|first| first & 0x80 != 0) {
            self.peers.lock().on_answer(PeerId(session.number), transmit.contents);
        }
        SCRATCH.with_borrow_mut(|wire| self.send(&session, transmit, wire))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.receive.lock().poll(self, cx, bufs, meta)
    }

    /// The addresses of sessions are of this family.
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(session_address(0))
    }

    fn max_transmit_segments(&self) -> usize {
        self.batch()
    }

    fn max_receive_segments(&self) -> usize {
        RECEIVE_SEGMENTS
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
