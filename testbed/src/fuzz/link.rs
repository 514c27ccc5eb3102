//! Both ends of a session, the networks between them, and everyone who may write to them.
//!
//! An input is a row of acts: datagrams of QUIC's leave; what flies arrives, twice, late, changed, from elsewhere or never;
//! strangers send anything; a far side that has the keys and keeps to no rule says anything; networks come and go; time
//! passes. Nothing may panic, no timer may stand still, what is kept is bounded, and as long as no far side cheats QUIC gets
//! each number at most once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tandem_proto::congestion::{SendPhase, SenderState};
use tandem_proto::fuzzing::FarSide;
use tandem_proto::keys::{Role, SECRET_LEN};
use tandem_proto::link::{Departure, Link, LinkConfig};
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::path::PathAddress;
use tandem_proto::wire::control::{Message, PathId};
use tandem_proto::wire::header::{Header, HoldClass, Part};

use super::input::Input;

const SECRET: [u8; SECRET_LEN] = [9; SECRET_LEN];
/// Datagrams that fly at once; more are lost.
const MOST_FLYING: usize = 256;
/// Networks of the client.
const NETWORKS: usize = 5;
/// Where a datagram's identity stands, behind what makes it look like QUIC's.
const IDENTITY: std::ops::Range<usize> = 1..9;

struct Flying {
    to_relay: bool,
    from: PathAddress,
    payload: Vec<u8>,
}

#[derive(Default)]
struct Fate {
    /// Numbers under which it left.
    numbers: BTreeSet<u32>,
    /// It left without a header, so that nobody counts its copies but QUIC.
    plain: bool,
    delivered: usize,
}

struct World {
    ends: [Link; 2],
    now: Instant,
    flying: Vec<Flying>,
    sent: u64,
    fates: BTreeMap<[u8; 8], Fate>,
    /// Where the relay sees the client come from, per network.
    ports: [u16; NETWORKS],
    /// A far side with the keys has lied.
    cheated: bool,
    counters: [u64; 2],
}

fn at_client(network: usize) -> PathAddress {
    PathAddress { socket: network, remote: ([198, 51, 100, 1], 4433).into(), local: None }
}

fn at_relay(port: u16) -> PathAddress {
    PathAddress { socket: 0, remote: ([192, 0, 2, 1], port).into(), local: None }
}

fn is_relay(end: usize) -> bool {
    end == 1
}

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.act(&mut input);
    }
    world.pass(Duration::from_millis(200));
    world.deliver_all();
    world.pass(Duration::from_secs(100));
    for (identity, fate) in &world.fates {
        let most = fate.numbers.len();
        assert!(
            fate.plain || world.cheated || fate.delivered <= most,
            "{identity:?} left under {most} numbers and reached QUIC {} times",
            fate.delivered
        );
    }
    // A session that nobody cheated is of use still.
    if !world.cheated {
        world.check_that_it_lives();
    }
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let now = Instant::now();
        let flags = input.u8();
        let mode = if flags & 1 == 0 { Mode::Bicast(Sides::Both) } else { Mode::Single };
        let end = |role, seed| Link::new(LinkConfig { role, mode, seed }, now);
        let mut world = Self {
            ends: [end(Role::Client, 1), end(Role::Relay, 2)],
            now,
            flying: Vec::new(),
            sent: 0,
            fates: BTreeMap::new(),
            ports: [1_000, 2_000, 3_000, 4_000, 5_000],
            cheated: false,
            counters: [1 << 32; 2],
        };
        world.ends[0].add_path(at_client(0), now);
        world.ends[0].add_path(at_client(1), now);
        world.depart(0, 1_200, 1, HoldClass::Full);
        if flags & 2 == 0 {
            world.deliver_all();
            world.keys(0);
            world.keys(1);
            for _ in 0..10 {
                world.pass(Duration::from_millis(20));
                world.deliver_all();
            }
        }
        world
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let end = usize::from(input.u8() & 1);
        match input.below(20) {
            0..3 => {
                let class = [HoldClass::None, HoldClass::Full, HoldClass::Short][input.below(3)];
                let size = 20 + usize::from(input.u8()) * 6;
                self.depart(end, size, 1 + input.below(5), class);
            }
            3..6 => self.arrive(input),
            6 => self.deliver_all(),
            7 => self.pass(Duration::from_millis(u64::from(input.u8()))),
            8 => self.pass(Duration::from_millis(u64::from(input.u8()) * 500)),
            9 => {
                let (from, mut payload) = (self.address(end, input), input.block().to_vec());
                self.handle(end, from, &mut payload);
            }
            10 => self.cheat(end, input),
            11 => {
                let network = input.below(NETWORKS);
                if self.ends[0].addresses().all(|address| address != at_client(network)) {
                    self.ends[0].add_path(at_client(network), self.now);
                }
            }
            12 => self.ends[0].remove_path(PathId(input.u8() & 7), self.now),
            13 => {
                let modes =
                    [Mode::Single, Mode::Bicast(Sides::Both), Mode::Bicast(Sides::Server), Mode::Bicast(Sides::Client)];
                self.ends[end].set_mode(modes[input.below(4)], self.now);
            }
            14 => {
                let network = input.below(NETWORKS);
                self.ports[network] = self.ports[network].wrapping_add(u16::from(input.u8()));
            }
            15 => self.keys(end),
            16 => {
                let address = self.address(end, input);
                self.ends[end].control_not_sent(address, "out of order", self.now);
            }
            17 => self.ends[0].suspect_all("slept", self.now),
            18 => {
                let phases = [SendPhase::Startup, SendPhase::Probing, SendPhase::Steady, SendPhase::Trial];
                let phase = phases[input.below(phases.len())];
                let pacing_rate = Some(u64::from(input.u32())).filter(|rate| *rate > 0);
                let sender = SenderState { phase, pacing_rate, gives_way: input.u8() & 1 != 0 };
                self.ends[end].set_sender_state(sender);
            }
            _ => {
                let keep = input.below(MOST_FLYING);
                self.flying.truncate(keep);
            }
        }
        self.flush();
    }

    fn keys(&mut self, end: usize) {
        if self.ends[end].session_id().is_none() {
            self.ends[end].set_keys(&SECRET, self.now);
            self.flush();
        }
    }

    /// Some address that means something to the end, or a stranger's.
    fn address(&self, end: usize, input: &mut Input<'_>) -> PathAddress {
        let pick = input.below(NETWORKS + 3);
        match (is_relay(end), self.ports.get(pick)) {
            (true, Some(port)) => at_relay(*port),
            (true, None) => at_relay(6_000 + pick as u16),
            (false, _) => at_client(pick),
        }
    }

    /// Datagrams of QUIC's leave, and the sockets take them or do not.
    fn depart(&mut self, end: usize, size: usize, count: usize, class: HoldClass) {
        let mut contents = Vec::new();
        for _ in 0..count {
            self.sent += 1;
            // What an attacker does not hit upon by chance.
            let identity = self.sent.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            self.fates.insert(identity, Fate::default());
            let start = contents.len();
            contents.push(if self.ends[end].session_id().is_some() { 0x40 } else { 0xc0 });
            contents.extend_from_slice(&identity);
            contents.resize(start + size, self.sent as u8);
        }
        let mut wire = Vec::new();
        let mut departure = self.ends[end].depart(&contents, size, class, self.now, &mut wire);
        match self.sent % 11 {
            9 => {
                let first = departure.targets.iter().next();
                if let Some((path, _)) = first {
                    self.ends[end].not_sent(&mut departure, path, Some("broken"), self.now);
                }
                if departure.is_stranded() {
                    let called = self.ends[end].call_spared(&mut departure, self.now);
                    self.send(end, &departure, called.iter().collect(), &wire);
                }
            }
            10 => self.ends[end].take_back(&departure),
            _ => self.send(end, &departure, departure.targets.iter().collect(), &wire),
        }
        self.flush();
    }

    fn send(&mut self, end: usize, departure: &Departure, targets: Vec<(PathId, PathAddress)>, wire: &[u8]) {
        for (path, address) in targets {
            for batch in departure.batches(path, wire) {
                for payload in batch.contents.chunks(batch.segment_size.unwrap_or(usize::MAX)) {
                    self.fly(end, address, payload.to_vec());
                }
            }
        }
    }

    fn fly(&mut self, end: usize, address: PathAddress, payload: Vec<u8>) {
        self.note(&payload);
        let from = if is_relay(end) {
            let network = self.ports.iter().position(|port| address == at_relay(*port));
            let Some(network) = network else { return };
            at_client(network)
        } else {
            at_relay(self.ports[address.socket])
        };
        if self.flying.len() < MOST_FLYING {
            self.flying.push(Flying { to_relay: !is_relay(end), from, payload });
        }
    }

    /// Notes under which number a datagram of QUIC's leaves.
    fn note(&mut self, payload: &[u8]) {
        let framed = Header::decode(payload);
        let (number, body) = match framed {
            Some((header, body)) if header.part != Part::Back => (Some(header.number), body),
            Some(_) => return,
            None => (None, payload),
        };
        if let Some(fate) = identity(body).and_then(|identity| self.fates.get_mut(&identity)) {
            match number {
                Some(number) => drop(fate.numbers.insert(number)),
                None => fate.plain = true,
            }
        }
    }

    /// Something that flies arrives, in its turn or not.
    fn arrive(&mut self, input: &mut Input<'_>) {
        if self.flying.is_empty() {
            return;
        }
        let index = input.below(self.flying.len().min(256));
        let how = input.u8();
        let mut flying = if how & 1 == 0 {
            self.flying.remove(index)
        } else {
            let Flying { to_relay, from, ref payload } = self.flying[index];
            Flying { to_relay, from, payload: payload.clone() }
        };
        let end = usize::from(flying.to_relay);
        if how & 2 != 0 {
            flying.from = self.address(end, input);
        }
        if how & 4 != 0 && !flying.payload.is_empty() {
            let at = usize::from(input.u16()) % flying.payload.len();
            flying.payload[at] ^= input.u8();
            flying.payload.truncate(flying.payload.len() - usize::from(how >> 3) % flying.payload.len());
        }
        self.handle(end, flying.from, &mut flying.payload);
    }

    fn deliver_all(&mut self) {
        for mut flying in std::mem::take(&mut self.flying) {
            self.handle(usize::from(flying.to_relay), flying.from, &mut flying.payload);
        }
    }

    fn handle(&mut self, end: usize, from: PathAddress, payload: &mut [u8]) {
        let fates = &mut self.fates;
        let mut count = |datagram: &[u8]| deliver(fates, datagram);
        self.ends[end].handle(from, payload, self.now, &mut count);
        self.flush();
    }

    /// The other side of `end` has the keys, and says anything.
    fn cheat(&mut self, end: usize, input: &mut Input<'_>) {
        self.cheated = true;
        let role = if is_relay(end) { Role::Client } else { Role::Relay };
        let far = FarSide::new(&SECRET, role);
        let from = self.address(end, input);
        let kind = input.u8();
        let mut payload = if kind & 1 == 0 {
            self.counters[end] += u64::from(kind >> 4);
            let plain = input.block();
            // Shapes that decode are rare among arbitrary bytes: a good beginning, then anything.
            let mut message = Vec::new();
            Message { path: PathId(kind >> 1 & 7), clock: input.u32(), echo: None, frames: Default::default() }
                .encode(&mut message);
            message.extend_from_slice(plain);
            far.control(self.counters[end], &message)
        } else {
            let class = [HoldClass::None, HoldClass::Full, HoldClass::Short][usize::from(kind >> 1) % 3];
            let part = [Part::Whole, Part::Front, Part::Back][usize::from(kind >> 3) % 3];
            let number = if kind & 0x80 == 0 { u64::from(input.u16()) } else { input.u64() };
            far.framed(number, input.u32(), class, part, input.block())
        };
        self.handle(end, from, &mut payload);
    }

    /// Time passes, and every timer is served when it is due.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for end in 0..2 {
            let mut now = self.now;
            let mut served = 0;
            while now < until {
                let timeout = self.ends[end].poll_timeout(now).map(|at| at.max(now));
                let hold = self.ends[end].poll_hold_timeout().map(|at| at.max(now));
                let Some(at) = timeout.into_iter().chain(hold).min().filter(|at| *at <= until) else { break };
                served = if at > now { 0 } else { served + 1 };
                assert!(served < 100, "a timer of {} stands still", ["the client", "the relay"][end]);
                now = at;
                self.ends[end].handle_timeout(now);
                let fates = &mut self.fates;
                self.ends[end].release_held(now, &mut |datagram: &[u8]| deliver(fates, datagram));
                self.flush();
            }
        }
        self.now = until;
    }

    /// What the ends want sent flies, and nobody else takes their events.
    fn flush(&mut self) {
        for end in 0..2 {
            while let Some(outgoing) = self.ends[end].poll_transmit() {
                self.fly(end, outgoing.address, outgoing.bytes.clone());
                self.ends[end].recycle(outgoing);
            }
            while self.ends[end].poll_event().is_some() {}
            self.ends[end].take_wake();
            assert!(self.ends[end].addresses().count() <= 16, "an end has too many addresses");
            let _ = self.ends[end].snapshot(self.now);
        }
    }

    /// With a fresh network on which nothing is lost, both ends hear each other again.
    fn check_that_it_lives(&mut self) {
        self.keys(0);
        self.keys(1);
        self.flying.clear();
        let addresses: Vec<_> = self.ends[0].addresses().collect();
        if addresses.is_empty() {
            self.ends[0].add_path(at_client(0), self.now);
        }
        for _ in 0..600 {
            self.pass(Duration::from_millis(25));
            self.deliver_all();
        }
        for end in 0..2 {
            self.depart(end, 600, 1, HoldClass::Full);
            self.depart(end, 601, 1, HoldClass::Full);
        }
        for end in 0..2 {
            let (up, paths) = self.ends[end].joined_paths();
            assert!(up > 0, "{up} of {paths} paths of end {end} are up after 15 s of a good network");
        }
    }
}

fn identity(datagram: &[u8]) -> Option<[u8; 8]> {
    datagram.get(IDENTITY).map(|bytes| bytes.try_into().expect("eight bytes"))
}

fn deliver(fates: &mut BTreeMap<[u8; 8], Fate>, datagram: &[u8]) {
    if let Some(fate) = identity(datagram).and_then(|identity| fates.get_mut(&identity)) {
        fate.delivered += 1;
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let send = |end: u8, size: u8, count: u8| [end, 0, 1, size, count];
    let bulk: Vec<u8> = (0..60).flat_map(|step| [&send(step & 1, 200, 3)[..], &[0, 6, 0, 7, 5]].concat()).collect();
    let lossy: Vec<u8> = (0..80)
        .flat_map(|step: u8| [&send(step & 1, 30, 2)[..], &[0, 3, step, step & 1], &[0, 7, 3, 0, 19, step]].concat())
        .collect();
    let moving: Vec<u8> = (0..20)
        .flat_map(|step: u8| {
            [&send(0, 90, 1)[..], &[0, 14, step, 9, 0, 11, step, 0, 6, 0, 7, 50, 0, 12, step]].concat()
        })
        .collect();
    let cheats: Vec<u8> = (0..12)
        .flat_map(|frame: u8| {
            [&[frame & 1, 10, 0, 0x10, 6, frame, 0, 0, 1, 2, 3, 9, 9, 9, 9][..], &[0, 6, 0, 7, 40]].concat()
        })
        .collect();
    let strange: Vec<u8> =
        (0..30).flat_map(|step: u8| [&[step & 1, 9, step, 40, 0x20][..], &[step; 39]].concat()).collect();
    let bodies = [bulk, lossy, moving, cheats, strange];
    let mut seeds: Vec<Vec<u8>> = bodies.iter().map(|body| [&[0][..], body].concat()).collect();
    seeds.push([&[3][..], &bodies[0], &[0, 15, 1, 15], &bodies[1]].concat());
    seeds.push([&[1][..], &bodies[1], &[0, 8, 200, 0, 17], &bodies[2]].concat());
    seeds
}
