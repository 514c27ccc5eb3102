//! What becomes of a datagram that arrives.

use std::time::{Duration, Instant};

use super::halves::BOTH_HEADERS;
use super::{HandshakeAddress, Link, PLAIN_BURST, PLAIN_RATE};
use crate::hold::Arrival;
use crate::keys::Role;
use crate::path::PathAddress;
use crate::wire::control::{self, MAX_PATHS};
use crate::wire::header::{self, Header, Part, TICK_MICROS, TICK_MODULUS};

/// Longest UDP payload that is taken: all that is kept of what arrives is bounded by it.
const LONGEST_PAYLOAD: usize = 1_500;

/// Where the shell hands datagrams on to QUIC.
pub trait Deliver {
    /// Hands on one QUIC datagram.
    fn deliver(&mut self, datagram: &[u8]);
}

impl<F: FnMut(&[u8])> Deliver for F {
    fn deliver(&mut self, datagram: &[u8]) {
        self(datagram);
    }
}

/// A verified datagram as one path delivered it.
struct Framed<'a> {
    /// Which of the paths.
    index: usize,
    number: u64,
    /// The header, or that of the half that came last.
    header: Header,
    /// The QUIC datagram.
    body: &'a [u8],
    /// UDP payload bytes that it took.
    bytes: usize,
}

impl Link {
    /// Takes a UDP payload that came from `from`, and hands on what QUIC shall see. The payload is scratch space.
    pub fn handle(&mut self, from: PathAddress, payload: &mut [u8], now: Instant, out: &mut impl Deliver) {
        if payload.len() > LONGEST_PAYLOAD {
            self.counters.forged += 1;
        } else if control::is_control(payload) {
            self.handle_control(from, payload, now);
        } else if header::is_framed(payload) {
            self.handle_framed(from, payload, now, out);
        } else if header::is_quic(payload) {
            self.handle_plain(from, payload, now, out);
        } else {
            self.counters.forged += 1;
        }
    }

    /// Hands on what need not wait any longer.
    pub fn release_held(&mut self, now: Instant, out: &mut impl Deliver) {
        while let Some(held) = self.hold.pop_ready(self.fast_rtt, now) {
            out.deliver(&held.bytes);
            self.hold.recycle(held);
        }
    }

    /// When [`Self::release_held`] is to be called; `None` while nothing is held.
    pub fn poll_hold_timeout(&self) -> Option<Instant> {
        self.hold.poll_timeout()
    }

    fn handle_framed(&mut self, from: PathAddress, payload: &[u8], now: Instant, out: &mut impl Deliver) {
        let Some((header, body)) = Header::decode(payload) else {
            self.counters.forged += 1;
            return;
        };
        let Some(keys) = &self.keys else {
            // The far side finished the handshake first, or this relay was restarted and QUIC answers with a stateless
            // reset. The header is not believed, and halves are not put together.
            if self.meet(from, payload.len()) && header.part == Part::Whole {
                out.deliver(body);
            }
            return;
        };
        let Some(index) = self.index_at(from) else {
            self.counters.forged += 1;
            return;
        };
        let number = header::expand_number(header.number, self.hold.expected());
        if !header.verify(&keys.recv, number, body, &mut self.scratch) {
            self.counters.forged += 1;
            return;
        }
        let id = self.paths[index].id;
        if header.part == Part::Whole {
            self.take(Framed { index, number, header, body, bytes: payload.len() }, now, out);
            return;
        }
        let mut joined = std::mem::take(&mut self.joined);
        if self.halves[usize::from(id.0)].join(number, header.part, body, &mut joined) {
            let bytes = joined.len() + BOTH_HEADERS;
            self.take(Framed { index, number, header, body: &joined, bytes }, now, out);
        }
        self.joined = joined;
    }

    /// Takes in a verified datagram that is whole.
    fn take(&mut self, datagram: Framed<'_>, now: Instant, out: &mut impl Deliver) {
        let Framed { index, number, header, body, bytes } = datagram;
        let id = self.paths[index].id;
        let overtaken = self.hold.highest_on(id).is_some_and(|highest| highest > number);
        let arrival = self.hold.accept(id, number, header.hold, body, now);
        if arrival == Arrival::Replay {
            return;
        }
        self.touch(now);
        self.paths[index].heard_at = now;
        let delay = self.relative_delay(header.departure, now);
        let arrivals = &mut self.paths[index].arrivals;
        arrivals.on_arrival(bytes, delay, overtaken, now);
        if overtaken {
            let reordering = u64::from(arrivals.reordering(now)) * TICK_MICROS;
            self.hold.set_reordering(id, Duration::from_micros(reordering));
        }
        self.watch_arrival(id, number, now);
        self.unreported += 1;
        if arrival == Arrival::Now {
            out.deliver(body);
        }
        if arrival != Arrival::Copy || self.hold.held_len() > 0 {
            self.release_held(now, out);
        }
        self.report_if_due(now);
    }

    fn handle_plain(&mut self, from: PathAddress, payload: &[u8], now: Instant, out: &mut impl Deliver) {
        if !self.meet(from, payload.len()) {
            self.counters.forged += 1;
            return;
        }
        if self.framing && !self.spend_plain(now) {
            self.counters.plain_dropped += 1;
            return;
        }
        out.deliver(payload);
    }

    /// A peer that speaks headers sends few datagrams without; more than that is somebody else.
    fn spend_plain(&mut self, now: Instant) -> bool {
        if let Some(from) = self.plain_from.replace(now) {
            let earned = now.saturating_duration_since(from).as_secs_f64() * PLAIN_RATE;
            self.plain_allowance = (self.plain_allowance + earned).min(PLAIN_BURST);
        }
        let enough = self.plain_allowance >= 1.0;
        self.plain_allowance -= f64::from(u8::from(enough));
        enough
    }

    /// Whether datagrams without proof may come from this address; until paths are joined, the relay notes new ones.
    fn meet(&mut self, from: PathAddress, len: usize) -> bool {
        if self.role == Role::Client {
            let path = self.paths.iter_mut().find(|path| path.address == from);
            return path.map(|path| path.heard = true).is_some();
        }
        if !self.paths.is_empty() {
            return self.knows(from);
        }
        let received = len as u64;
        if let Some(peer) = self.handshake.iter_mut().find(|peer| peer.address == from) {
            peer.received += received;
            return true;
        }
        let room = self.handshake.len() < MAX_PATHS;
        if room {
            self.handshake.push(HandshakeAddress { address: from, received, sent: 0 });
        }
        room
    }

    pub(super) fn knows(&self, from: PathAddress) -> bool {
        self.index_at(from).is_some() || self.handshake.iter().any(|peer| peer.address == from)
    }

    /// One-way delay in ticks against that of the session's first datagram.
    fn relative_delay(&mut self, departure: u32, now: Instant) -> i32 {
        let difference = self.ticks(now).wrapping_sub(departure) % TICK_MODULUS;
        let reference = *self.delay_reference.get_or_insert(difference);
        let relative = difference.wrapping_sub(reference) % TICK_MODULUS;
        // The upper half of the modulus stands for negative values.
        if relative >= TICK_MODULUS / 2 { relative as i32 - TICK_MODULUS as i32 } else { relative as i32 }
    }
}
