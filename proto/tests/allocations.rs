//! A session that has grown its queues allocates nothing for the datagrams that it sends, receives, holds and drops, nor
//! for the reports about them. Pings, a few a second, may.

#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tandem_proto::keys::{Role, SECRET_LEN};
use tandem_proto::link::{Link, LinkConfig};
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::path::PathAddress;
use tandem_proto::wire::header::HoldClass;

/// One-way delays of the two networks: the hold has something to do.
const DELAYS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(25)];
const LOSS: f64 = 0.05;
/// 9 datagrams of 1,300 bytes a millisecond, in batches of three: some 94 Mbit/s.
const BATCH_INTERVAL: Duration = Duration::from_micros(333);
const DATAGRAM: usize = 1_300;
const BATCH: usize = 3;

/// A datagram on its way.
struct Flying {
    arrives: Instant,
    payload: Vec<u8>,
}

/// Both ends, and two networks between them that allocate nothing once grown.
struct Bed {
    client: Link,
    relay: Link,
    now: Instant,
    chance: Pcg64,
    to_client: [VecDeque<Flying>; 2],
    to_relay: [VecDeque<Flying>; 2],
    spare: Vec<Vec<u8>>,
    wire: Vec<u8>,
    delivered: u64,
    /// The largest payload that the second network carries.
    limit: usize,
}

/// As the client sees the relay over a network.
fn at_client(network: usize) -> PathAddress {
    PathAddress { socket: network, remote: ([198, 51, 100, 1], 4433).into(), local: None }
}

/// As the relay sees the client over a network.
fn at_relay(network: usize) -> PathAddress {
    PathAddress { socket: 0, remote: ([192, 0, 2, 1 + network as u8], 1_000).into(), local: None }
}

impl Bed {
    fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "an instant cannot be made otherwise; only differences matter")]
        let now = Instant::now();
        let mode = Mode::Bicast(Sides::Both);
        let mut client = Link::new(LinkConfig { role: Role::Client, mode, seed: 1 }, now);
        for network in 0..2 {
            client.add_path(at_client(network), now).unwrap();
        }
        let mut bed = Self {
            client,
            relay: Link::new(LinkConfig { role: Role::Relay, mode: Mode::Single, seed: 2 }, now),
            now,
            chance: Pcg64::seed_from_u64(3),
            to_client: Default::default(),
            to_relay: Default::default(),
            spare: Vec::new(),
            wire: Vec::new(),
            delivered: 0,
            limit: usize::MAX,
        };
        // The handshake's first datagram, then the keys.
        bed.send(Role::Client, &[0xc0; 1_200], 1_200);
        bed.pass(Duration::from_millis(30));
        bed.client.set_keys(&[9; SECRET_LEN], bed.now);
        bed.relay.set_keys(&[9; SECRET_LEN], bed.now);
        bed.pass(Duration::from_secs(2));
        assert_eq!(bed.client.joined_paths(), (2, 2));
        bed
    }

    /// A download of so many batches; the client answers each with one small datagram.
    fn download(&mut self, batches: u32) {
        let (data, answer) = ([0x40; BATCH * DATAGRAM], [0x40; 40]);
        for _ in 0..batches {
            self.send(Role::Relay, &data, DATAGRAM);
            self.send(Role::Client, &answer, answer.len());
            self.pass(BATCH_INTERVAL);
        }
    }

    fn send(&mut self, from: Role, datagrams: &[u8], size: usize) {
        let mut wire = std::mem::take(&mut self.wire);
        let link = if from == Role::Client { &mut self.client } else { &mut self.relay };
        let departure = link.depart(datagrams, size, HoldClass::Full, self.now, &mut wire);
        for (path, address) in departure.targets.iter() {
            for batch in departure.batches(path, &wire) {
                for payload in batch.contents.chunks(batch.segment_size.unwrap_or(usize::MAX)) {
                    self.fly(from, address, payload, LOSS);
                }
            }
        }
        self.wire = wire;
    }

    fn fly(&mut self, from: Role, address: PathAddress, payload: &[u8], loss: f64) {
        let (network, queues) = match from {
            Role::Client => (address.socket, &mut self.to_relay),
            Role::Relay => (usize::from(address != at_relay(0)), &mut self.to_client),
        };
        if self.chance.random_bool(loss) || (network == 1 && payload.len() > self.limit) {
            return;
        }
        let mut buffer = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(2_048));
        buffer.clear();
        buffer.extend_from_slice(payload);
        queues[network].push_back(Flying { arrives: self.now + DELAYS[network], payload: buffer });
    }

    /// Lets time pass in small steps.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = (self.now + BATCH_INTERVAL).min(end);
            for network in 0..2 {
                while self.to_client[network].front().is_some_and(|flying| flying.arrives <= self.now) {
                    let mut flying = self.to_client[network].pop_front().unwrap();
                    let mut count = |_: &[u8]| self.delivered += 1;
                    self.client.handle(at_client(network), &mut flying.payload, self.now, &mut count);
                    self.spare.push(flying.payload);
                }
                while self.to_relay[network].front().is_some_and(|flying| flying.arrives <= self.now) {
                    let mut flying = self.to_relay[network].pop_front().unwrap();
                    self.relay.handle(at_relay(network), &mut flying.payload, self.now, &mut |_: &[u8]| {});
                    self.spare.push(flying.payload);
                }
            }
            self.client.release_held(self.now, &mut |_: &[u8]| self.delivered += 1);
            self.relay.release_held(self.now, &mut |_: &[u8]| {});
            for end in [Role::Client, Role::Relay] {
                self.keep_clock(end);
            }
        }
    }

    fn keep_clock(&mut self, end: Role) {
        let link = if end == Role::Client { &mut self.client } else { &mut self.relay };
        if link.poll_timeout(self.now).is_some_and(|at| at <= self.now) {
            link.handle_timeout(self.now);
        }
        while link.poll_event().is_some() {}
        loop {
            let link = if end == Role::Client { &mut self.client } else { &mut self.relay };
            let Some(outgoing) = link.poll_transmit() else { return };
            self.fly(end, outgoing.address, &outgoing.bytes, 0.0);
            let link = if end == Role::Client { &mut self.client } else { &mut self.relay };
            link.recycle(outgoing);
        }
    }
}

#[test]
fn a_bicast_session_in_steady_state_does_not_allocate_per_datagram() {
    steady_state_allocates_little(usize::MAX);
}

#[test]
fn nor_does_one_whose_datagrams_travel_in_halves_on_one_path() {
    steady_state_allocates_little(1_252);
}

/// The second network carries payloads of up to `limit` bytes after a while.
fn steady_state_allocates_little(limit: usize) {
    let mut bed = Bed::new();
    bed.download(1_000);
    bed.limit = limit;
    // More than the window of numbers, so that all is grown.
    bed.download(6_000);
    let known = bed.relay.snapshot(bed.now).paths[1].mtu_bytes;
    assert!(usize::from(known) <= limit, "{known} bytes still count as known to pass");
    let before = bed.delivered;
    let batches = 10_000;
    let start = bed.now;
    let measured = allocation_counter::measure(|| bed.download(batches));
    let delivered = bed.delivered - before;
    let sent = u64::from(batches) * BATCH as u64;
    assert!(delivered > sent * 99 / 100 && delivered < sent, "{delivered} of {sent}: copies and losses are at work");
    // Each end pings both paths ten times a second; a ping and its answer take a few small lists.
    let pings = (bed.now - start).as_secs_f64() * 40.0;
    assert!((measured.count_total as f64) < pings * 4.0, "{measured:?} for {sent} datagrams and {pings} pings");
}
