//! Relay: which session a datagram belongs to.
//!
//! A datagram is known by the address it came from; a control datagram by the session it names, whatever its address;
//! and before a session is established, a QUIC long-header packet by its destination connection ID, so that copies of a
//! handshake that come over several networks meet in one session. Everything else is a stranger and begins a new entry.
//! Strangers cost little and are bounded: beyond [`MOST_STRANGERS`] the oldest is forgotten, until the relay takes up its
//! handshake ([`Peers::claim`]), so that a flood of strangers ends no handshake under way.
//!
//! A stranger that was forgotten, as everyone who got a Retry is, gets the same number when it comes again: the number
//! follows from the connection ID that it chose for itself, which stays the same over a handshake and on all its networks.
//! QUIC's tokens are bound to that number in place of an address.

#[cfg(any(test, feature = "fuzzing"))]
mod check;

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::keys::SessionId;
use crate::path::PathAddress;
use crate::wire::control::{self, MAX_PATHS};
use crate::wire::header;

/// Entries kept that no established session stands behind.
pub const MOST_STRANGERS: usize = 1_024;

/// Longest connection ID of QUIC version 1 (RFC 9000, section 17.2).
const LONGEST_CID: usize = 20;

/// Shortest connection ID by which a peer is known.
const SHORTEST_CID: u8 = 8;

/// Names a peer of the relay: a session, or a stranger that may become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u64);

type ConnectionId = [u8; LONGEST_CID + 1];

/// The table of one relay endpoint.
#[derive(Debug, Default)]
pub struct Peers {
    /// Nobody else knows it, so nobody else can tell which number a stranger gets.
    seed: u64,
    addresses: HashMap<PathAddress, PeerId>,
    sessions: HashMap<SessionId, PeerId>,
    connection_ids: HashMap<ConnectionId, PeerId>,
    peers: HashMap<PeerId, Peer>,
    strangers: VecDeque<PeerId>,
    next: u64,
}

#[derive(Debug, Default)]
struct Peer {
    addresses: Vec<PathAddress>,
    connection_ids: Vec<ConnectionId>,
    session: Option<SessionId>,
    established: bool,
}

/// Where a datagram belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To a peer that is known.
    Known(PeerId),
    /// To a new peer; `forgotten` had to make room.
    New {
        /// The new peer.
        peer: PeerId,
        /// A stranger that was forgotten for it.
        forgotten: Option<PeerId>,
    },
    /// Nowhere: it names a session that does not exist.
    Nowhere,
}

impl Peers {
    /// An empty table.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The peer that owns an address.
    pub fn at(&self, from: PathAddress) -> Option<PeerId> {
        self.addresses.get(&from).copied()
    }

    /// Finds or makes the peer of a datagram.
    pub fn route(&mut self, from: PathAddress, payload: &[u8]) -> Route {
        if let Some(session) = control::session_of(payload) {
            let named = self.sessions.get(&session).or_else(|| self.addresses.get(&from));
            return named.map_or(Route::Nowhere, |peer| Route::Known(*peer));
        }
        let ids = long_header_ids(payload);
        if let Some((destination, _)) = &ids
            && let Some(peer) = self.connection_ids.get(destination).copied()
        {
            return if self.take_part(peer, from) { Route::Known(peer) } else { Route::Nowhere };
        }
        let owner = self.at(from);
        let owned = owner.is_some_and(|owner| self.is_established(owner));
        // An Initial that no handshake under way knows begins a new one, whoever used the address before: it may be forged,
        // or the NAT gave the address to somebody else. It must not touch the session that is there.
        if let Some(owner) = owner
            && !(ids.is_some() && is_initial(payload))
        {
            return Route::Known(owner);
        }
        if !header::is_quic(payload) && !header::is_framed(payload) {
            return Route::Nowhere;
        }
        let peer = self.number(from, ids.as_ref().map(|(_, source)| source));
        self.peers.insert(peer, Peer::default());
        self.strangers.push_back(peer);
        if !owned {
            self.add_address(peer, from);
        }
        if let Some((destination, _)) = ids {
            self.add_connection_id(peer, destination);
        }
        let forgotten = (self.strangers.len() > MOST_STRANGERS).then(|| self.strangers.pop_front()).flatten();
        if let Some(oldest) = forgotten {
            self.remove(oldest);
        }
        Route::New { peer, forgotten }
    }

    /// The number of a stranger at `from`, which calls itself `source`.
    fn number(&mut self, from: PathAddress, source: Option<&ConnectionId>) -> PeerId {
        let mut hasher = DefaultHasher::new();
        self.seed.hash(&mut hasher);
        match source.filter(|source| source[0] >= SHORTEST_CID) {
            Some(source) => source.hash(&mut hasher),
            None => from.hash(&mut hasher),
        }
        let mut number = hasher.finish();
        // Somebody who calls itself like another, or sends more than belongs together, gets any other.
        while self.peers.contains_key(&PeerId(number)) {
            self.next += 1;
            self.next.hash(&mut hasher);
            number = hasher.finish();
        }
        PeerId(number)
    }

    /// The relay takes up the peer's handshake: it is not forgotten for other strangers, but stays until [`Self::remove`].
    pub fn claim(&mut self, peer: PeerId) {
        self.strangers.retain(|stranger| *stranger != peer);
    }

    /// The relay answers a peer that is not established: the connection ID it chose for itself names the peer as well.
    pub fn on_answer(&mut self, peer: PeerId, payload: &[u8]) {
        let established = self.peers.get(&peer).is_none_or(|peer| peer.established);
        if !established && let Some((_, source)) = long_header_ids(payload) {
            self.add_connection_id(peer, source);
        }
    }

    /// The peer's handshake is done: it is a session from now on, and never forgotten.
    pub fn establish(&mut self, peer: PeerId, session: SessionId) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        entry.established = true;
        entry.session = Some(session);
        for id in std::mem::take(&mut entry.connection_ids) {
            self.connection_ids.remove(&id);
        }
        self.strangers.retain(|stranger| *stranger != peer);
        self.sessions.insert(session, peer);
    }

    /// Datagrams from this address are the peer's from now on. A stranger that was nothing but the sender of the first
    /// datagrams from there, as a session behind a NAT that gave it another port seems to be, is forgotten and returned.
    pub fn add_address(&mut self, peer: PeerId, address: PathAddress) -> Option<PeerId> {
        let entry = self.peers.get_mut(&peer)?;
        if !entry.addresses.contains(&address) {
            entry.addresses.push(address);
        }
        let before = self.addresses.insert(address, peer).filter(|before| *before != peer)?;
        let entry = self.peers.get_mut(&before)?;
        entry.addresses.retain(|known| *known != address);
        let is_nobody = !entry.established && entry.addresses.is_empty() && entry.connection_ids.is_empty();
        is_nobody.then(|| self.remove(before))?;
        Some(before)
    }

    /// An address is no longer the peer's.
    pub fn remove_address(&mut self, peer: PeerId, address: PathAddress) {
        if self.at(address) == Some(peer) {
            self.addresses.remove(&address);
        }
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.addresses.retain(|known| *known != address);
        }
    }

    /// Forgets a peer and all that pointed to it.
    pub fn remove(&mut self, peer: PeerId) {
        let Some(entry) = self.peers.remove(&peer) else { return };
        for address in entry.addresses {
            if self.addresses.get(&address) == Some(&peer) {
                self.addresses.remove(&address);
            }
        }
        for id in entry.connection_ids {
            if self.connection_ids.get(&id) == Some(&peer) {
                self.connection_ids.remove(&id);
            }
        }
        if let Some(session) = entry.session
            && self.sessions.get(&session) == Some(&peer)
        {
            self.sessions.remove(&session);
        }
        self.strangers.retain(|stranger| *stranger != peer);
    }

    fn is_established(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.established)
    }

    /// A datagram of a handshake comes from this address too, if the peer has room for it and no session owns it.
    fn take_part(&mut self, peer: PeerId, from: PathAddress) -> bool {
        let Some(entry) = self.peers.get(&peer) else { return false };
        if entry.addresses.contains(&from) {
            return true;
        }
        if entry.addresses.len() >= MAX_PATHS {
            return false;
        }
        if !self.at(from).is_some_and(|owner| self.is_established(owner)) {
            self.add_address(peer, from);
        }
        true
    }

    fn add_connection_id(&mut self, peer: PeerId, id: ConnectionId) {
        // Those that name a peer have at least 8 bytes (RFC 9000, section 7.2; ours always 8): shorter ones collide.
        if id[0] < SHORTEST_CID {
            return;
        }
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        if !entry.connection_ids.contains(&id) && entry.connection_ids.len() < 4 {
            entry.connection_ids.push(id);
            self.connection_ids.entry(id).or_insert(peer);
        }
    }
}

/// Whether a payload begins like an Initial packet of QUIC version 1 (RFC 9000, section 17.2.2).
fn is_initial(payload: &[u8]) -> bool {
    payload.first().is_some_and(|first| first & 0b1111_0000 == 0b1100_0000)
}

/// Destination and source connection ID of a long-header packet (RFC 8999, section 5.1), each with its length in front.
fn long_header_ids(payload: &[u8]) -> Option<(ConnectionId, ConnectionId)> {
    if payload.first()? & 0b1100_0000 != 0b1100_0000 {
        return None;
    }
    let mut rest = payload.get(5..)?;
    let mut next = || {
        let (len, after) = rest.split_first()?;
        let len = usize::from(*len);
        if len > LONGEST_CID || after.len() < len {
            return None;
        }
        let mut id = [0; LONGEST_CID + 1];
        id[0] = len as u8;
        id[1..=len].copy_from_slice(&after[..len]);
        rest = &after[len..];
        Some(id)
    };
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(port: u16) -> PathAddress {
        PathAddress { socket: 0, remote: ([192, 0, 2, 1], port).into(), local: None }
    }

    fn initial(destination: u8, source: u8) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, 8][..], &[destination; 8], &[8], &[source; 8], &[0; 100]].concat()
    }

    fn new_peer(route: Route) -> PeerId {
        match route {
            Route::New { peer, .. } => peer,
            other => panic!("{other:?} is not new"),
        }
    }

    #[test]
    fn copies_of_a_handshake_meet_in_one_peer() {
        let mut peers = Peers::default();
        let peer = new_peer(peers.route(address(1), &initial(1, 2)));
        assert_eq!(peers.route(address(2), &initial(1, 2)), Route::Known(peer));
        peers.on_answer(peer, &initial(2, 9));
        assert_eq!(peers.route(address(3), &initial(9, 2)), Route::Known(peer));
        assert_ne!(peers.route(address(4), &initial(7, 2)), Route::Known(peer));
    }

    #[test]
    fn an_initial_from_a_sessions_address_begins_a_handshake_of_its_own() {
        let mut peers = Peers::default();
        let session = new_peer(peers.route(address(1), &initial(1, 2)));
        peers.establish(session, SessionId([5; 8]));
        let other = new_peer(peers.route(address(1), &initial(7, 8)));
        assert_ne!(other, session);
        assert_eq!(peers.route(address(1), &initial(7, 8)), Route::Known(other), "its next packet");
        assert_eq!(peers.route(address(1), &[0x40; 50]), Route::Known(session), "the session's own");
        peers.remove(other);
        assert_eq!(peers.at(address(1)), Some(session));
    }

    #[test]
    fn a_handshake_takes_part_from_few_addresses_and_short_ids_name_nobody() {
        let mut peers = Peers::default();
        let peer = new_peer(peers.route(address(1), &initial(1, 2)));
        for port in 2..100 {
            peers.route(address(port), &initial(1, 2));
        }
        assert_eq!(peers.peers[&peer].addresses.len(), MAX_PATHS);
        let empty = [0xc0, 0, 0, 0, 0, 0, 0];
        assert_ne!(peers.route(address(200), &empty), peers.route(address(201), &empty));
        assert_eq!(peers.route(address(300), &[1; 50]), Route::Nowhere);
    }

    #[test]
    fn an_established_session_is_found_by_name_and_keeps_no_connection_ids() {
        let mut peers = Peers::default();
        let peer = new_peer(peers.route(address(1), &initial(1, 2)));
        let session = SessionId([5; 8]);
        peers.establish(peer, session);
        let control = [&[0b0010_0000][..], &session.0, &[0; 40]].concat();
        assert_eq!(peers.route(address(9), &control), Route::Known(peer));
        assert_ne!(peers.route(address(2), &initial(1, 2)), Route::Known(peer));
        peers.remove(peer);
        assert_eq!(peers.route(address(9), &control), Route::Nowhere);
        assert_eq!(peers.at(address(1)), None);
    }

    #[test]
    fn strangers_are_bounded_and_sessions_outlive_them() {
        let mut peers = Peers::default();
        let session = new_peer(peers.route(address(1), &initial(1, 2)));
        peers.establish(session, SessionId([1; 8]));
        for port in 2..4_000 {
            peers.route(address(port), &[0x40; 50]);
        }
        assert_eq!(peers.at(address(1)), Some(session));
        assert_eq!(peers.peers.len(), MOST_STRANGERS + 1);
        assert_eq!(peers.addresses.len(), MOST_STRANGERS + 1);
    }

    #[test]
    fn a_flood_of_strangers_ends_no_handshake_under_way() {
        let mut peers = Peers::default();
        let peer = new_peer(peers.route(address(1), &initial(1, 2)));
        peers.claim(peer);
        for port in 2..4_000 {
            peers.route(address(port), &initial((port % 251) as u8, (port % 241) as u8));
        }
        assert_eq!(peers.route(address(1), &initial(1, 2)), Route::Known(peer));
        peers.remove(peer);
        assert!(peers.peers.len() <= MOST_STRANGERS);
    }

    #[test]
    fn who_comes_again_after_a_retry_is_the_same_on_every_network_and_nobody_else_is() {
        let mut peers = Peers::new(7);
        let first = new_peer(peers.route(address(1), &initial(1, 2)));
        peers.remove(first);
        // With the connection ID that the Retry gave it, and over another network first.
        let again = new_peer(peers.route(address(9), &initial(5, 2)));
        assert_eq!(again, first);
        peers.claim(again);
        let impostor = new_peer(peers.route(address(3), &initial(6, 2)));
        assert_ne!(impostor, again);
        peers.remove(again);
        assert_ne!(new_peer(peers.route(address(1), &initial(1, 3))), first);
        assert_ne!(new_peer(Peers::new(8).route(address(1), &initial(1, 2))), first, "nobody can tell the number");
    }

    /// PATH-3, in the table.
    #[test]
    fn a_session_that_moves_from_port_to_port_leaves_nobody_behind() {
        let mut peers = Peers::default();
        let session = new_peer(peers.route(address(1), &initial(1, 2)));
        peers.establish(session, SessionId([5; 8]));
        for port in 2..200 {
            let stranger = new_peer(peers.route(address(port), &[0b0001_0000; 60]));
            assert_eq!(peers.add_address(session, address(port)), Some(stranger));
            peers.remove_address(session, address(port - 1));
        }
        assert_eq!((peers.peers.len(), peers.addresses.len(), peers.strangers.len()), (1, 1, 0));
    }

    proptest! {
        #[test]
        fn any_payload_is_routed(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..50)) {
            let mut peers = Peers::default();
            for (port, payload) in payloads.iter().enumerate() {
                peers.route(address(port as u16 % 7), payload);
            }
        }
    }
}
