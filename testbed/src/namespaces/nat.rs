//! The address translation between a client's networks and the internet.
//!
//! Endpoint-independent mapping as in most home routers and carriers (RFC 4787): an inner address and port is one outer
//! port, whatever the destination; outer ports count up and are never given twice in a run of ordinary length. Filtering
//! depends on address and port: only who was sent something may answer, the last [`PEERS`] of them. A mapping
//! of UDP that is not used from inside for the network's timeout is forgotten; other mappings last. [`Nat::rebind`] forgets
//! a network's UDP mappings at once, so that the next packet from inside gets another outer port, and packets to the old one
//! reach nobody.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use super::packet::UDP;

/// The most mappings; the oldest half is forgotten when they are reached.
const MOST: usize = 20_000;
/// The first outer port.
const FIRST_PORT: u16 = 20_000;

/// How many ends outside a mapping remembers to have sent to.
const PEERS: usize = 4;

/// A flow's end inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Inside {
    /// The network it is on.
    pub(super) network: usize,
    pub(super) protocol: u8,
    pub(super) address: IpAddr,
    pub(super) port: u16,
}

/// What the flow looks like outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Outside {
    pub(super) protocol: u8,
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

#[derive(Debug, Clone, Copy)]
struct Mapping {
    outside: Outside,
    used: Instant,
    /// The ends outside that were sent to, the latest at `next_peer - 1`.
    peers: [Option<(Ipv4Addr, u16)>; PEERS],
    next_peer: usize,
    /// Where the client believes to be connected to, if a captive network sent it elsewhere.
    redirected_from: Option<(Ipv4Addr, u16)>,
}

impl Mapping {
    fn sends_to(&mut self, peer: (Ipv4Addr, u16)) {
        if !self.peers.contains(&Some(peer)) {
            self.peers[self.next_peer] = Some(peer);
            self.next_peer = (self.next_peer + 1) % PEERS;
        }
    }
}

/// All mappings of a router.
#[derive(Debug, Default)]
pub(super) struct Nat {
    out: HashMap<Inside, Mapping>,
    back: HashMap<Outside, Inside>,
    given: u16,
    rebindings: u64,
}

impl Nat {
    /// The outer end of a packet from inside, new if there is none or it was forgotten.
    pub(super) fn outbound(
        &mut self,
        inside: Inside,
        public: Ipv4Addr,
        peer: (Ipv4Addr, u16),
        timeout: Option<Duration>,
        redirected_from: Option<(Ipv4Addr, u16)>,
        now: Instant,
    ) -> Outside {
        if let Some(mapping) = self.out.get_mut(&inside)
            && mapping.outside.address == public
            && mapping.redirected_from == redirected_from
            && !is_forgotten(inside.protocol, mapping.used, timeout, now)
        {
            mapping.used = now;
            mapping.sends_to(peer);
            return mapping.outside;
        }
        self.make_room();
        let port = FIRST_PORT + self.given;
        self.given = (self.given + 1) % (u16::MAX - FIRST_PORT);
        let outside = Outside { protocol: inside.protocol, address: public, port };
        let mut mapping = Mapping { outside, used: now, peers: [None; PEERS], next_peer: 0, redirected_from };
        mapping.sends_to(peer);
        if let Some(old) = self.out.insert(inside, mapping) {
            self.back.remove(&old.outside);
            self.rebindings += 1;
        }
        self.back.insert(outside, inside);
        outside
    }

    /// Who is meant by a packet from `peer` outside, and where he believes it comes from; `None` if nobody asked for it.
    pub(super) fn inbound(
        &self,
        outside: Outside,
        peer: (Ipv4Addr, u16),
        timeout: impl Fn(usize) -> Option<Duration>,
        now: Instant,
    ) -> Option<(Inside, Option<(Ipv4Addr, u16)>)> {
        let inside = *self.back.get(&outside)?;
        let mapping = self.out.get(&inside)?;
        let forgotten = is_forgotten(inside.protocol, mapping.used, timeout(inside.network), now);
        (!forgotten && mapping.peers.contains(&Some(peer))).then_some((inside, mapping.redirected_from))
    }

    /// Forgets the UDP mappings of a network.
    pub(super) fn rebind(&mut self, network: usize) {
        for (inside, mapping) in &mut self.out {
            if inside.network == network && inside.protocol == UDP {
                // The entry stays, so that its successor counts as a rebinding; nothing leads back to it.
                self.back.remove(&mapping.outside);
                mapping.outside.address = Ipv4Addr::UNSPECIFIED;
            }
        }
    }

    /// How often a flow inside got another outer port.
    pub(super) fn rebindings(&self) -> u64 {
        self.rebindings
    }

    fn make_room(&mut self) {
        if self.out.len() < MOST {
            return;
        }
        let mut times: Vec<_> = self.out.values().map(|mapping| mapping.used).collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.out.retain(|_, mapping| mapping.used > median);
        let out = &self.out;
        self.back.retain(|_, inside| out.contains_key(inside));
    }
}

fn is_forgotten(protocol: u8, used: Instant, timeout: Option<Duration>, now: Instant) -> bool {
    protocol == UDP && timeout.is_some_and(|timeout| now.saturating_duration_since(used) > timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespaces::packet::TCP;

    const PUBLIC: Ipv4Addr = Ipv4Addr::new(81, 2, 3, 4);
    const PEER: (Ipv4Addr, u16) = (Ipv4Addr::new(45, 10, 0, 2), 4_433);
    const THIRTY: Option<Duration> = Some(Duration::from_secs(30));

    fn inside(protocol: u8) -> Inside {
        Inside { network: 0, protocol, address: Ipv4Addr::new(192, 168, 1, 2).into(), port: 5_000 }
    }

    #[test]
    fn a_flow_keeps_its_outer_port_while_it_is_used() {
        let (mut nat, start) = (Nat::default(), Instant::now());
        let first = nat.outbound(inside(UDP), PUBLIC, PEER, THIRTY, None, start);
        let later = start + Duration::from_secs(29);
        assert_eq!(nat.outbound(inside(UDP), PUBLIC, PEER, THIRTY, None, later), first);
        assert_eq!(nat.inbound(first, PEER, |_| THIRTY, later + Duration::from_secs(30)).unwrap().0, inside(UDP));
        assert_eq!(nat.rebindings(), 0);
    }

    #[test]
    fn an_idle_udp_flow_is_forgotten_and_gets_another_port_and_tcp_is_not() {
        let (mut nat, start) = (Nat::default(), Instant::now());
        let later = start + Duration::from_secs(31);
        for (protocol, kept) in [(UDP, false), (TCP, true)] {
            let first = nat.outbound(inside(protocol), PUBLIC, PEER, THIRTY, None, start);
            assert_eq!(nat.inbound(first, PEER, |_| THIRTY, later).is_some(), kept);
            assert_eq!(nat.outbound(inside(protocol), PUBLIC, PEER, THIRTY, None, later) == first, kept);
        }
        assert_eq!(nat.rebindings(), 1);
    }

    #[test]
    fn after_a_rebinding_the_old_port_leads_nowhere() {
        let (mut nat, now) = (Nat::default(), Instant::now());
        let first = nat.outbound(inside(UDP), PUBLIC, PEER, None, None, now);
        nat.rebind(1);
        assert!(nat.inbound(first, PEER, |_| None, now).is_some());
        nat.rebind(0);
        assert!(nat.inbound(first, PEER, |_| None, now).is_none());
        assert_ne!(nat.outbound(inside(UDP), PUBLIC, PEER, None, None, now), first);
        assert_eq!(nat.rebindings(), 1);
    }

    #[test]
    fn only_who_was_sent_something_may_answer() {
        let (mut nat, now) = (Nat::default(), Instant::now());
        let outside = nat.outbound(inside(UDP), PUBLIC, PEER, None, None, now);
        let other = (PEER.0, 4_434);
        assert!(nat.inbound(outside, other, |_| None, now).is_none());
        assert_eq!(nat.outbound(inside(UDP), PUBLIC, other, None, None, now), outside);
        assert!(nat.inbound(outside, other, |_| None, now).is_some());
        assert!(nat.inbound(outside, PEER, |_| None, now).is_some());
    }

    #[test]
    fn mappings_are_bounded() {
        let (mut nat, start) = (Nat::default(), Instant::now());
        for count in 0..40_000u32 {
            let flow = Inside { port: count as u16, network: (count >> 16) as usize, ..inside(UDP) };
            nat.outbound(flow, PUBLIC, PEER, None, None, start + Duration::from_millis(u64::from(count)));
        }
        assert!(nat.out.len() <= MOST && nat.back.len() <= MOST);
    }
}
