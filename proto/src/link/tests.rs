//! A client's and a relay's link over two wires in virtual time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand::RngExt;
use smallvec::smallvec;

use super::*;
use crate::mode::Sides;
use crate::wire::control::{Frame, Message, seal};
use crate::wire::header::{Header, HoldClass, Part};

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

/// PATH-10
#[test]
fn before_an_address_is_proved_it_gets_three_times_what_came_from_it() {
    let mut pair = Pair::new(Mode::Single);
    pair.send_from_client(&[0xc0; 1_200]);
    pair.run(30 * MS);
    for _ in 0..20 {
        pair.send_from_relay(&[0xc0; 1_200]);
    }
    for (port, sent) in &pair.relay_sent_to {
        assert!(*sent <= 3 * pair.relay_got_from[port], "{sent} bytes went to {port}");
    }
    assert_eq!(pair.relay_sent_to.len(), 2);
}

/// A valid control datagram that an on-path attacker sends on from another address moves nothing there.
#[test]
fn an_address_that_does_not_answer_the_challenge_gets_no_data() {
    let mut pair = Pair::joined(Mode::Single);
    pair.wires[0].cut = true;
    let stolen = {
        pair.client.ping(PathId(0), pair.now);
        pair.client.poll_transmit().expect("a ping").bytes
    };
    for _ in 0..50 {
        pair.inject_at_relay(6_666, stolen.clone());
    }
    pair.run(100 * MS);
    for number in 0..50 {
        let departure = pair.send_from_relay(&numbered(number));
        assert!(departure.targets.iter().all(|(_, address)| address.remote.port() != 6_666));
    }
    assert_eq!(pair.relay.counters().replayed, 49);
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
fn a_silent_path_is_given_up_within_half_a_second_and_comes_back() {
    for wire in 0..2 {
        let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
        for number in 0..100 {
            pair.send_from_client(&numbered(number));
            pair.run(10 * MS);
        }
        pair.wires[wire].cut = true;
        let cut_at = pair.now;
        let mut seen = None;
        for number in 100..300 {
            pair.send_from_client(&numbered(number));
            pair.run(10 * MS);
            if pair.client.paths[wire].state == PathState::Down {
                seen.get_or_insert(pair.now - cut_at);
            }
        }
        let after = seen.expect("the path goes down");
        assert!(after <= 500 * MS, "after {after:?}");
        assert_eq!(pair.relay_got.len(), 300, "nothing is lost meanwhile");
        pair.wires[wire].cut = false;
        pair.run(3_000 * MS);
        assert_eq!(pair.states(), [vec![PathState::Up; 2], vec![PathState::Up; 2]]);
    }
}

/// SLEEP-1
#[test]
fn after_a_sleep_no_path_is_believed_until_it_answers_and_one_round_trip_is_enough() {
    let mut pair = Pair::joined(Mode::Single);
    pair.wires[1].cut = true;
    pair.client.suspect_all("slept", pair.now);
    assert!(pair.client.signs().all(|signs| signs.state == PathState::Down));
    assert_eq!(pair.send_from_client(&[0x40; 500]).targets.len(), 2, "either may be the first to work again");
    pair.run(25 * MS);
    assert_eq!(pair.states()[0], [PathState::Up, PathState::Down]);
    pair.wires[1].cut = false;
    pair.run(70 * MS);
    assert_eq!(pair.states()[0], [PathState::Up, PathState::Up]);
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

/// PATH-8
#[test]
fn a_path_whose_socket_fails_is_left_out_and_tried_again() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
    let mut departure = pair.send_from_client(&numbered(0));
    let (failed, _) = departure.targets.iter().next().expect("two targets");
    pair.client.not_sent(&mut departure, failed, Some("network is unreachable"), pair.now);
    let next = pair.send_from_client(&numbered(1));
    assert!(next.targets.iter().all(|(path, _)| path != failed));
    assert_eq!(pair.client.snapshot(pair.now).up.copies_skipped, 1);
    pair.run(250 * MS);
    assert_eq!(pair.send_from_client(&numbered(2)).targets.len(), 2);
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

/// PATH-8: in single mode the datagram that could not be sent goes by the other path at once.
#[test]
fn what_a_failing_socket_did_not_take_goes_by_the_other_path() {
    let mut pair = Pair::joined(Mode::Single);
    let mut out = Vec::new();
    let mut departure = pair.client.depart(&numbered(0), 1_200, HoldClass::Full, pair.now, &mut out);
    let (failed, _) = departure.targets.iter().next().expect("a target");
    pair.client.not_sent(&mut departure, failed, Some("network is unreachable"), pair.now);
    pair.run(11 * MS);
    assert_eq!(pair.relay_got, [numbered(0)]);
}

/// When a path dies in silence, what was on its way there and a round trip's worth of what followed arrives by the other.
#[test]
fn what_was_lost_with_a_path_goes_again_by_the_other() {
    let mut pair = Pair::joined(Mode::Single);
    for number in 0..100 {
        pair.send_from_client(&numbered(number));
        pair.run(10 * MS);
    }
    let used = usize::from(pair.client.scheduler.preferred().expect("a path").0);
    pair.wires[used].cut = true;
    for number in 100..150 {
        pair.send_from_client(&numbered(number));
        pair.run(10 * MS);
    }
    pair.run(100 * MS);
    let got: std::collections::BTreeSet<_> = pair.relay_got.iter().cloned().collect();
    assert_eq!(got, (0..150).map(numbered).collect());
    assert!((20..50).contains(&pair.client.counters().rescued), "{}", pair.client.counters().rescued);
}

/// A direction that dies alone: what comes in tells nothing of what gets out.
#[test]
fn a_relay_that_is_heard_but_hears_nothing_or_the_reverse_keeps_to_the_other_path() {
    for (to_relay, used_by_relay) in [(true, false), (false, true)] {
        let mut pair = Pair::joined(Mode::Single);
        let mut moved_back = 0;
        for number in 0..600 {
            pair.send_from_client(&numbered(number));
            pair.send_from_relay(&numbered(number));
            pair.run(10 * MS);
            if number == 100 {
                let link = if used_by_relay { &pair.relay } else { &pair.client };
                pair.cut_one_way = link.scheduler.preferred().map(|path| (to_relay, usize::from(path.0)));
            }
            let link = if used_by_relay { &pair.relay } else { &pair.client };
            let dead = pair.cut_one_way.map(|(_, wire)| wire);
            let preferred = link.scheduler.preferred().map(|path| usize::from(path.0));
            moved_back += u32::from(number > 150 && preferred == dead);
        }
        assert_eq!(moved_back, 0, "to the relay: {to_relay}");
        let lost = 600
            - if to_relay { &pair.relay_got } else { &pair.client_got }
                .iter()
                .collect::<std::collections::BTreeSet<_>>()
                .len();
        assert!(lost <= 2, "{lost} lost, to the relay: {to_relay}");
    }
}

/// A Leave that gets lost: the relay forgets the path by itself.
#[test]
fn what_was_on_its_way_over_a_path_that_is_removed_goes_again_by_the_other() {
    let mut pair = Pair::joined(Mode::Single);
    let [carrier, _] = [pair.send_from_client(&numbered(0)), pair.send_from_relay(&numbered(0))]
        .map(|departure| departure.targets.iter().next().expect("a path").0);
    pair.run(50 * MS);
    pair.wires[usize::from(carrier.0)].cut = true;
    for number in 1..20 {
        pair.send_from_client(&numbered(number));
        pair.send_from_relay(&numbered(number));
    }
    pair.client.remove_path(carrier, pair.now);
    pair.run(25 * MS);
    assert_eq!((pair.relay_got.len(), pair.client_got.len()), (20, 20));
}

#[test]
fn a_relay_that_hears_from_a_path_it_had_given_up_asks_at_once_whether_it_works() {
    let mut pair = Pair::joined(Mode::Single);
    pair.run(2_000 * MS);
    let (clock, now) = (pair.relay.clock(pair.now), pair.now);
    pair.relay.paths[0].go_down("test", clock, now);
    pair.client.ping(PathId(0), now);
    pair.run(29 * MS);
    assert_eq!(pair.relay.paths[0].state, PathState::Down);
    pair.run(2 * MS);
    assert_eq!(pair.relay.paths[0].state, PathState::Up);
}

#[test]
fn a_queue_that_is_reported_no_more_is_forgotten() {
    let mut pair = Pair::joined(Mode::Single);
    pair.client.queued.insert(PathId(0));
    pair.run(20_000 * MS);
    assert!(pair.client.queued.is_empty());
}

#[test]
fn a_relay_forgets_a_path_that_nothing_comes_on() {
    let mut pair = Pair::joined(Mode::Single);
    pair.client.remove_path(PathId(1), pair.now);
    while pair.client.poll_transmit().is_some() {}
    pair.run(60_000 * MS);
    assert_eq!(pair.relay.addresses().count(), 2);
    pair.run(60_000 * MS);
    assert_eq!(pair.relay.addresses().collect::<Vec<_>>(), [at_relay(1_000)]);
    pair.wires[0].cut = true;
    pair.run(600_000 * MS);
    assert_eq!(pair.relay.addresses().count(), 1, "the last one stays");
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
fn garbage_forgeries_and_replays_change_nothing() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
    let stranger = SessionKeys::derive(&[1; SECRET_LEN], Role::Client);
    let mut out = Vec::new();
    for number in 0..400u32 {
        // Forged headers with good numbers come before the real datagram, replays after it.
        let mut forged = Vec::new();
        Header::encode_into(
            &stranger.send,
            number.into(),
            0,
            HoldClass::Full,
            Part::Whole,
            &numbered(number),
            &mut forged,
        );
        pair.inject_at_relay(1_000, forged);
        let message = Message { path: PathId(0), clock: 1, echo: None, frames: smallvec![Frame::Leave(PathId(1))] };
        seal(
            &stranger.send,
            pair.client.session_id().expect("keys"),
            1_000_000 + u64::from(number),
            &message,
            &mut out,
        );
        pair.inject_at_relay(1_000, out.clone());
        pair.send_from_client(&numbered(number));
        let real = pair.flying.values().last().expect("just sent").payload.clone();
        pair.run(11 * MS);
        pair.inject_at_relay(1_000, real);
    }
    assert_eq!(pair.relay_got, (0..400).map(numbered).collect::<Vec<_>>());
    assert_eq!(pair.states(), [vec![PathState::Up; 2], vec![PathState::Up; 2]]);
    assert!(pair.relay.counters().forged >= 800);
}

#[test]
fn what_is_longer_than_any_network_carries_is_dropped_though_it_is_signed() {
    let mut pair = Pair::joined(Mode::Single);
    let client = SessionKeys::derive(&SECRET, Role::Client);
    for (number, len, got) in [(0, 1_488, 1), (1, 1_489, 1)] {
        let (mut out, body) = (Vec::new(), vec![0x40; len]);
        Header::encode_into(&client.send, number, 0, HoldClass::Full, Part::Whole, &body, &mut out);
        pair.inject_at_relay(1_000, out);
        assert_eq!(pair.relay_got.len(), got, "{len} bytes behind the header");
    }
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_on_either_end_are_survived(
        payloads in prop::collection::vec((any::<bool>(), 0usize..3, prop::collection::vec(any::<u8>(), 0..80)), 1..80),
    ) {
        let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
        for (to_relay, kind, mut payload) in payloads {
            // Also what looks like ours: header or control datagram by its first byte.
            if let Some(first) = payload.first_mut() {
                *first = [*first, 0b0001_0001, 0b0010_0000][kind];
            }
            if to_relay {
                pair.inject_at_relay(1_000, payload);
            } else {
                pair.client.handle(at_client(0), &mut payload, pair.now, &mut |_: &[u8]| {});
            }
        }
        pair.relay_got.clear();
        pair.send_from_client(&numbered(1));
        pair.run(200 * MS);
        prop_assert!(pair.relay_got.contains(&numbered(1)));
    }
}
