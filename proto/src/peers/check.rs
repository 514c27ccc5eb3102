//! What always holds of the table, for tests and fuzzers.

use super::{MOST_STRANGERS, Peers};
use crate::wire::control::MAX_PATHS;

/// Connection IDs by which one peer is known at most.
const MOST_IDS: usize = 4;

impl Peers {
    /// Checks that every entry leads to a peer that knows of it, and that nothing grows without bound.
    ///
    /// # Panics
    /// With what does not hold.
    pub fn check(&self) {
        assert!(self.strangers.len() <= MOST_STRANGERS, "{} strangers", self.strangers.len());
        for stranger in &self.strangers {
            assert!(self.peers.get(stranger).is_some_and(|peer| !peer.established), "{stranger:?} is no stranger");
        }
        for (address, id) in &self.addresses {
            let peer = self.peers.get(id).unwrap_or_else(|| panic!("{address:?} leads to {id:?}, who is gone"));
            assert!(peer.addresses.contains(address), "{id:?} does not know its address {address:?}");
        }
        for id in self.connection_ids.values() {
            assert!(self.peers.contains_key(id), "a connection ID leads to {id:?}, who is gone");
        }
        for (session, id) in &self.sessions {
            let peer = self.peers.get(id).unwrap_or_else(|| panic!("{session:?} leads to {id:?}, who is gone"));
            assert!(peer.established, "{id:?} has a session and is a stranger");
        }
        for (id, peer) in &self.peers {
            assert!(peer.connection_ids.len() <= MOST_IDS, "{id:?} has {} connection IDs", peer.connection_ids.len());
            if !peer.established {
                assert!(self.strangers.contains(id), "{id:?} is in no list and is never forgotten");
                assert!(peer.addresses.len() <= MAX_PATHS, "stranger {id:?} has {} addresses", peer.addresses.len());
            }
        }
    }
}
