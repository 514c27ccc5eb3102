//! A client's and a relay's link over two wires in virtual time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand::RngExt;
use smallvec::smallvec;

use super::*;
use crate::mode::Sides;
use crate::wire::control::{Frame, Message, seal};
use crate::wire::header::{Header, HoldClass, Part};

mod failing;
mod hostile;
mod roles;

const SECRET: [u8; SECRET_LEN] = [9; SECRET_LEN];
const MS: Duration = Duration::from_millis(1);

/// One network between the ends.
#[derive(Clone)]
struct Wire {
    delay: Duration,
    loss: f64,
    cut: bool,
    /// Largest UDP payload that passes.
    mtu: usize,
    /// Where the relay sees the client come from.
    port: u16,
}

/// A datagram on its way.
struct Flying {
    to_relay: bool,
    wire: usize,
    /// Where the relay sees it come from.
    port: u16,
    payload: Vec<u8>,
}

struct Pair {
    client: Link,
    relay: Link,
    wires: [Wire; 2],
    /// Towards the relay or from it, on this wire, nothing passes.
    cut_one_way: Option<(bool, usize)>,
    now: Instant,
    rng: Pcg64,
    /// By arrival time, then by order of sending.
    flying: BTreeMap<(Instant, u64), Flying>,
    sent: u64,
    client_got: Vec<Vec<u8>>,
    relay_got: Vec<Vec<u8>>,
    /// Bytes that went to and came from each client port, as the relay sees it.
    relay_sent_to: BTreeMap<u16, u64>,
    relay_got_from: BTreeMap<u16, u64>,
    events: Vec<LinkEvent>,
}

fn at_client(wire: usize) -> PathAddress {
    PathAddress { socket: wire, remote: ([198, 51, 100, 1], 4433).into(), local: None }
}

fn at_relay(port: u16) -> PathAddress {
    PathAddress { socket: 0, remote: ([192, 0, 2, 1], port).into(), local: None }
}

/// The UDP payloads that leave on a path.
fn payloads(departure: &Departure, path: PathId, wire: &[u8]) -> Vec<Vec<u8>> {
    let batches = departure.batches(path, wire);
    batches
        .flat_map(|batch| batch.contents.chunks(batch.segment_size.unwrap_or(usize::MAX)).map(<[u8]>::to_vec))
        .collect()
}

impl Pair {
    fn new(mode: Mode) -> Self {
        let now = crate::testing::start();
        let wire = |port| Wire { delay: 10 * MS, loss: 0.0, cut: false, mtu: 1_472, port };
        let mut client = Link::new(LinkConfig { role: Role::Client, mode, seed: 1 }, now);
        client.add_path(at_client(0), now);
        client.add_path(at_client(1), now);
        Self {
            client,
            relay: Link::new(LinkConfig { role: Role::Relay, mode: Mode::Single, seed: 2 }, now),
            wires: [wire(1_000), wire(2_000)],
            cut_one_way: None,
            now,
            rng: Pcg64::seed_from_u64(3),
            flying: BTreeMap::new(),
            sent: 0,
            client_got: Vec::new(),
            relay_got: Vec::new(),
            relay_sent_to: BTreeMap::new(),
            relay_got_from: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// A session whose handshake is done and whose paths have had time to join.
    fn joined(mode: Mode) -> Self {
        let mut pair = Self::new(mode);
        pair.send_from_client(&[0xc0; 1_200]);
        pair.run(30 * MS);
        pair.client.set_keys(&SECRET, pair.now);
        pair.relay.set_keys(&SECRET, pair.now);
        pair.run(200 * MS);
        pair.client_got.clear();
        pair.relay_got.clear();
        pair.events.clear();
        pair
    }

    fn fly(&mut self, to_relay: bool, wire: usize, payload: Vec<u8>) {
        let port = self.wires[wire].port;
        if !to_relay {
            *self.relay_sent_to.entry(port).or_default() += payload.len() as u64;
        }
        let Wire { delay, loss, cut, mtu, .. } = self.wires[wire];
        let lost = self.rng.random_bool(loss);
        if cut || self.cut_one_way == Some((to_relay, wire)) || lost || payload.len() > mtu {
            return;
        }
        self.sent += 1;
        self.flying.insert((self.now + delay, self.sent), Flying { to_relay, wire, port, payload });
    }

    fn wire_of(&self, address: PathAddress) -> Option<usize> {
        self.wires.iter().position(|wire| wire.port == address.remote.port())
    }

    fn send_from_client(&mut self, datagram: &[u8]) -> Departure {
        let mut out = Vec::new();
        let departure = self.client.depart(datagram, datagram.len(), HoldClass::Full, self.now, &mut out);
        for (path, address) in departure.targets.iter() {
            for payload in payloads(&departure, path, &out) {
                self.fly(true, address.socket, payload);
            }
        }
        self.flush();
        departure
    }

    fn send_from_relay(&mut self, datagram: &[u8]) -> Departure {
        let mut out = Vec::new();
        let departure = self.relay.depart(datagram, datagram.len(), HoldClass::Full, self.now, &mut out);
        for (path, address) in departure.targets.iter() {
            for payload in payloads(&departure, path, &out) {
                if let Some(wire) = self.wire_of(address) {
                    self.fly(false, wire, payload);
                }
            }
        }
        self.flush();
        departure
    }

    fn flush(&mut self) {
        while let Some(outgoing) = self.client.poll_transmit() {
            self.fly(true, outgoing.address.socket, outgoing.bytes);
        }
        while let Some(outgoing) = self.relay.poll_transmit() {
            if let Some(wire) = self.wire_of(outgoing.address) {
                self.fly(false, wire, outgoing.bytes);
            }
        }
        self.events.extend(std::iter::from_fn(|| self.client.poll_event()));
        self.events.extend(std::iter::from_fn(|| self.relay.poll_event()));
    }

    /// Hands a datagram to the relay as if it came from this port.
    fn inject_at_relay(&mut self, port: u16, mut payload: Vec<u8>) {
        *self.relay_got_from.entry(port).or_default() += payload.len() as u64;
        let got = &mut self.relay_got;
        self.relay.handle(at_relay(port), &mut payload, self.now, &mut |datagram: &[u8]| {
            got.push(datagram.to_vec());
        });
        self.flush();
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        self.flush();
        loop {
            let now = self.now;
            let timers = [
                self.client.poll_timeout(now),
                self.relay.poll_timeout(now),
                self.client.poll_hold_timeout(),
                self.relay.poll_hold_timeout(),
                self.flying.keys().next().map(|(at, _)| *at),
            ];
            let next = timers.into_iter().flatten().min().unwrap_or(end).max(now);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= next) {
                let Flying { to_relay, wire, port, mut payload } = entry.remove();
                if to_relay {
                    self.inject_at_relay(port, payload);
                } else {
                    let got = &mut self.client_got;
                    self.client.handle(at_client(wire), &mut payload, next, &mut |datagram: &[u8]| {
                        got.push(datagram.to_vec());
                    });
                    self.flush();
                }
            }
            for (link, got) in [(&mut self.client, &mut self.client_got), (&mut self.relay, &mut self.relay_got)] {
                link.handle_timeout(next);
                link.release_held(next, &mut |datagram: &[u8]| got.push(datagram.to_vec()));
            }
            self.flush();
            if next == end {
                return;
            }
        }
    }

    fn states(&self) -> [Vec<PathState>; 2] {
        [&self.client, &self.relay].map(|link| link.paths.iter().map(|path| path.state).collect())
    }
}

fn numbered(number: u32) -> Vec<u8> {
    [&[0x40][..], &number.to_be_bytes(), &[7; 1_195]].concat()
}

#[test]
fn both_paths_join_and_the_relay_learns_the_wished_mode() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Server));
    assert_eq!(pair.states(), [vec![PathState::Up; 2], vec![PathState::Up; 2]]);
    assert_eq!(pair.send_from_relay(&numbered(1)).targets.len(), 2);
    assert_eq!(pair.send_from_client(&numbered(1)).targets.len(), 1);
    pair.run(50 * MS);
    assert_eq!((pair.client_got.len(), pair.relay_got.len()), (1, 1));

    pair.client.set_mode(Mode::Bicast(Sides::Client), pair.now);
    pair.run(50 * MS);
    assert_eq!(pair.send_from_relay(&numbered(2)).targets.len(), 1);
    assert_eq!(pair.send_from_client(&numbered(2)).targets.len(), 2);
}

/// MULTI-1: the handshake goes out on every path; one that works is enough.
#[test]
fn a_session_comes_up_over_whichever_path_works() {
    for dead in 0..2 {
        let mut pair = Pair::new(Mode::Single);
        pair.wires[dead].cut = true;
        pair.send_from_client(&[0xc0; 1_200]);
        pair.run(30 * MS);
        pair.client.set_keys(&SECRET, pair.now);
        pair.relay.set_keys(&SECRET, pair.now);
        pair.run(100 * MS);
        assert_eq!(pair.states()[1], [PathState::Up], "the relay knows the living path");
        pair.client_got.clear();
        pair.send_from_relay(&numbered(1));
        pair.run(20 * MS);
        assert_eq!(pair.client_got.len(), 1);
    }
}

/// PATH-3, in the state machines: the NAT gives the client another port.
#[test]
fn a_path_whose_port_changes_goes_on_from_the_new_one() {
    let mut pair = Pair::joined(Mode::Single);
    let Some((preferred, _)) = pair.send_from_client(&numbered(0)).targets.iter().next() else { panic!("no path") };
    let wire = usize::from(preferred.0);
    pair.wires[wire].port = 5_555;
    for number in 1..200 {
        pair.send_from_client(&numbered(number));
        pair.send_from_relay(&numbered(number));
        pair.run(5 * MS);
    }
    assert!(pair.relay.addresses().any(|address| address == at_relay(5_555)));
    assert_eq!(pair.relay.addresses().count(), 2, "the old address is forgotten");
    let got = pair.relay_got.len();
    assert!(got > 150, "{got} of 200 arrived");
    assert_eq!(pair.states()[0], [PathState::Up; 2]);
}

#[test]
fn a_peer_that_sends_no_control_datagram_never_gets_a_header() {
    let mut pair = Pair::new(Mode::Single);
    pair.client.remove_path(PathId(1), pair.now);
    pair.send_from_client(&[0xc0; 1_200]);
    pair.run(30 * MS);
    pair.relay.set_keys(&SECRET, pair.now);
    for number in 0..100 {
        pair.send_from_relay(&numbered(number));
        pair.run(MS);
    }
    pair.run(30 * MS);
    assert_eq!(pair.client_got, (0..100).map(numbered).collect::<Vec<_>>());
}

#[test]
fn losses_are_counted_for_each_path_and_for_both_together() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
    pair.wires[0].loss = 0.05;
    pair.wires[1].loss = 0.20;
    for number in 0..6_000 {
        pair.send_from_relay(&numbered(number));
        pair.run(MS);
    }
    pair.run(1_500 * MS);
    let down = pair.relay.snapshot(pair.now);
    let shown = pair.client.snapshot(pair.now);
    let loss = |snapshot: &LinkSnapshot, path: usize| snapshot.paths[path].down.total_loss_percent;
    for snapshot in [&down, &shown] {
        assert!((loss(snapshot, 0) - 5.0).abs() < 1.0, "{}", loss(snapshot, 0));
        assert!((loss(snapshot, 1) - 20.0).abs() < 2.0, "{}", loss(snapshot, 1));
        assert!((snapshot.down.effective_loss_percent - 1.0).abs() < 0.4, "{}", snapshot.down.effective_loss_percent);
    }
    let unique: std::collections::BTreeSet<_> = pair.client_got.iter().collect();
    assert_eq!(unique.len(), pair.client_got.len(), "nothing is handed on twice");
    let in_order = pair.client_got.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!(in_order + 1 == pair.client_got.len(), "copies fill the gaps in time");
}

/// PATH-2: a network narrows after large datagrams have passed.
#[test]
fn what_is_too_large_for_a_path_travels_there_in_halves() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
    pair.run(500 * MS);
    let large = |number: u8| vec![0x40 | number; 1_401];
    assert_eq!(pair.send_from_client(&large(0)).targets.len(), 2);
    pair.wires[1].mtu = 1_380 - 28;
    for number in 1..60 {
        pair.send_from_client(&large(number % 60));
        pair.run(20 * MS);
    }
    assert!(pair.client.paths[1].mtu.known() < 1_401);
    pair.relay_got.clear();
    let before = pair.relay.paths[1].arrivals.datagrams;
    for cut in 0..2 {
        // Whichever network is left brings every datagram, whole and once.
        pair.wires[cut].cut = true;
        for number in 0..10 {
            pair.send_from_client(&large(number));
        }
        pair.run(100 * MS);
        pair.wires[cut].cut = false;
        pair.run(100 * MS);
    }
    let wanted: Vec<_> = (0..10).chain(0..10).map(large).collect();
    assert_eq!(pair.relay_got.len(), wanted.len());
    assert!(pair.relay_got.iter().all(|datagram| wanted.contains(datagram)));
    assert_eq!(pair.relay.paths[1].arrivals.datagrams - before, 10, "two halves are one arrival");
    assert_eq!(pair.client.counters().oversized, 0);
}

/// PATH-2, in the state machines.
#[test]
fn a_probe_of_quics_larger_than_the_narrowest_path_is_not_sent() {
    let mut pair = Pair::new(Mode::Bicast(Sides::Both));
    pair.wires[1].mtu = 1_380 - 28;
    pair.send_from_client(&[0xc0; 1_200]);
    pair.run(30 * MS);
    pair.client.set_keys(&SECRET, pair.now);
    pair.relay.set_keys(&SECRET, pair.now);
    for number in 0..2_000 {
        pair.send_from_client(&numbered(number));
        pair.run(2 * MS);
    }
    let mtus: Vec<_> = pair.client.paths.iter().map(|path| path.mtu.known()).collect();
    assert_eq!(mtus, [1_472, 1_352]);
    assert!(pair.send_from_client(&[0x40; 1_341]).targets.is_empty());
    assert_eq!(pair.send_from_client(&[0x40; 1_340]).targets.len(), 2);
}

/// PATH-8: with every network gone, nothing is counted below zero.
#[test]
fn a_departure_that_no_socket_takes_is_no_copy() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
    let before = pair.client.snapshot(pair.now).up;
    let mut out = Vec::new();
    let mut departure = pair.client.depart(&numbered(0), 1_200, HoldClass::Full, pair.now, &mut out);
    let targets: Vec<_> = departure.targets.iter().map(|(path, _)| path).collect();
    for path in targets {
        pair.client.not_sent(&mut departure, path, Some("network is unreachable"), pair.now);
    }
    let after = pair.client.snapshot(pair.now).up;
    assert_eq!((after.copies, after.link_bytes), (before.copies, before.link_bytes));
}

#[test]
fn a_queue_that_is_reported_no_more_is_forgotten() {
    let mut pair = Pair::joined(Mode::Single);
    pair.client.queued.insert(PathId(0));
    pair.run(20_000 * MS);
    assert!(pair.client.queued.is_empty());
}

#[test]
fn a_departure_that_is_taken_back_leaves_no_gap() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
    let mut out = Vec::new();
    let first = pair.client.depart(&numbered(0), 1_200, HoldClass::Full, pair.now, &mut out);
    pair.client.take_back(&first);
    for number in 0..10 {
        pair.send_from_client(&numbered(number));
    }
    pair.run(11 * MS);
    assert_eq!(pair.relay_got, (0..10).map(numbered).collect::<Vec<_>>());
}

#[test]
fn numbers_are_not_taken_back_once_something_else_has_left() {
    let mut pair = Pair::joined(Mode::Single);
    let mut out = Vec::new();
    let full = pair.client.depart(&numbered(1), 1_200, HoldClass::Full, pair.now, &mut out);
    pair.send_from_client(&numbered(2));
    pair.client.take_back(&full);
    pair.send_from_client(&numbered(1));
    pair.send_from_client(&numbered(3));
    pair.run(200 * MS);
    assert_eq!(pair.relay_got, [2, 1, 3].map(numbered));
}

#[test]
fn an_idle_session_costs_little() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
    pair.run(2_000 * MS);
    let before: u64 = pair.client.paths.iter().map(|path| path.departures.bytes).sum();
    pair.run(60_000 * MS);
    let after: u64 = pair.client.paths.iter().map(|path| path.departures.bytes).sum();
    assert!(after > before, "NATs are kept open");
    assert!((after - before) / 2 < 2_000, "{} bytes a minute", after - before);
}
