//! Where a datagram of QUIC goes, and what is put in front of it.

use std::time::Instant;

use super::halves::{encode_halves, front_len};
use super::{AMPLIFICATION, Link};
use crate::congestion::copy_governor::Urgency;
use crate::keys::Role;
use crate::mode::Copying;
use crate::path::{Path, PathAddress};
use crate::schedule::{self, Choice, PathSet};
use crate::stats::PathState;
use crate::wire::control::{MAX_PATHS, PathId};
use crate::wire::header::{HEADER_LEN, Header, HoldClass, Part};

/// The largest QUIC datagram that every path carries, over either address family and with a header (RFC 8200, section 5).
const LARGEST_PLAIN: usize = 1_280 - 48 - HEADER_LEN;

/// The paths of one departure, the preferred one first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Targets {
    list: [Option<(PathId, PathAddress)>; MAX_PATHS],
    len: usize,
}

impl Targets {
    pub(super) fn push(&mut self, path: PathId, address: PathAddress) {
        if self.len < MAX_PATHS {
            self.list[self.len] = Some((path, address));
            self.len += 1;
        }
    }

    /// The paths and their addresses.
    pub fn iter(&self) -> impl Iterator<Item = (PathId, PathAddress)> + '_ {
        self.list[..self.len].iter().flatten().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none: the datagram is not sent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What leaves on one path in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The UDP payloads, one behind the other.
    pub contents: &'a [u8],
    /// The length of each, the last perhaps shorter; `None` if there is only one.
    pub segment_size: Option<usize>,
}

/// One batch of datagrams on its way out.
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    /// Where they go.
    pub targets: Targets,
    /// Length of each as it travels whole, the last perhaps shorter.
    segment_size: usize,
    /// Targets on which each travels in two halves, and how many bytes the front one takes.
    halved: PathSet,
    front: usize,
    /// Length of all datagrams in the whole; behind it are the halves.
    whole: usize,
    /// The number of the first, if they carry headers.
    first: Option<u64>,
    count: u64,
    bytes: u64,
    /// Targets that have not failed.
    remaining: u64,
    /// Paths that are spared for want of room: to be used only if every target fails.
    spared: Targets,
}

impl Departure {
    /// Whether a path was spared.
    pub fn has_spared(&self) -> bool {
        !self.spared.is_empty()
    }

    /// Whether every target failed and a path was spared: see [`Link::call_spared`].
    pub fn is_stranded(&self) -> bool {
        self.remaining == 0 && self.first.is_some() && self.has_spared()
    }

    /// What leaves on `path`, in order; `wire` is what [`Link::depart`] filled.
    pub fn batches<'a>(&self, path: PathId, wire: &'a [u8]) -> impl Iterator<Item = Batch<'a>> + use<'a> {
        let (whole, halves) = wire.split_at(self.whole);
        // The two halves of one datagram make a batch, as only the last of a batch may be shorter.
        let (bytes, batch, size) = if self.halved.contains(path) {
            (halves, self.segment_size + HEADER_LEN, self.front)
        } else {
            (whole, self.whole, self.segment_size)
        };
        bytes.chunks(batch.max(1)).map(move |contents| {
            let segment_size = (size < contents.len()).then_some(size);
            Batch { contents, segment_size }
        })
    }
}

impl Link {
    /// Puts the datagrams `contents`, each of `segment_size` bytes but perhaps the last, into `out` as they are to travel,
    /// and says where to: [`Departure::batches`] finds what leaves on each path. They count as sent on all targets;
    /// [`Self::not_sent`] and [`Self::take_back`] correct that.
    pub fn depart(
        &mut self,
        contents: &[u8],
        segment_size: usize,
        hold: HoldClass,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Departure {
        out.clear();
        let mut departure = Departure {
            targets: Targets::default(),
            segment_size,
            halved: PathSet::default(),
            front: 0,
            whole: 0,
            first: None,
            count: 0,
            bytes: contents.len() as u64,
            remaining: 0,
            spared: Targets::default(),
        };
        if !self.framing || self.keys.is_none() {
            // No path's MTU is known yet, and headers may be agreed on while QUIC's own search goes on.
            if segment_size.min(contents.len()) > LARGEST_PLAIN {
                self.counters.oversized += 1;
                return departure;
            }
            departure.targets = self.plain_targets(contents.len() as u64);
            out.extend_from_slice(contents);
            departure.whole = out.len();
            return departure;
        }
        self.touch(now);
        self.trials.on_sent(self.sender.phase, now);
        let size = segment_size.min(contents.len()) + HEADER_LEN;
        let (mut targets, all) = self.targets(now);
        // A datagram larger than any before is a probe of QUIC's: it fails unless every path is known to carry it whole. So
        // halves are for datagrams that became too large when a path narrowed, or a narrow one joined.
        let is_probe = size > self.largest;
        let narrow = |path: &&Path| size > usize::from(path.mtu.known());
        if targets.is_empty() || (is_probe && self.paths.iter().filter(narrow).any(|path| path.usable(now))) {
            self.counters.oversized += 1;
            return departure;
        }
        self.largest = self.largest.max(size);
        let count = contents.len().div_ceil(segment_size.max(1)) as u64;
        departure.bytes = contents.len() as u64 + count * HEADER_LEN as u64;
        let urgency = self.urgency(contents, count, now);
        if urgency == Urgency::Bulk {
            self.watch_pause(now);
        }
        departure.spared = self.spare(&mut targets, departure.bytes as usize, urgency, now);
        let mut set = all;
        departure.spared.iter().for_each(|(path, _)| set.remove(path));
        for path in self.paths.iter_mut().filter(|path| all.contains(path.id)) {
            if size > usize::from(path.mtu.known()) {
                departure.halved.insert(path.id);
            } else if set.contains(path.id) {
                path.mtu.on_sent(size, now);
            }
        }
        self.trim_kept();
        self.note_sent(segment_size, count);
        let keys = self.keys.as_ref().expect("checked above");
        let departed = self.ticks(now);
        let first = self.log.next_number();
        departure.first = Some(first);
        departure.segment_size = segment_size + HEADER_LEN;
        for segment in contents.chunks(segment_size) {
            let number = self.log.next_number();
            if departure.halved != all {
                Header::encode_into(&keys.send, number, departed, hold, Part::Whole, segment, out);
            }
            self.kept.push(number, segment);
            self.log.push(now, segment.len() + HEADER_LEN, set, self.queued, self.sender.phase);
            departure.count += 1;
        }
        departure.whole = out.len();
        if !departure.halved.is_empty() {
            let front = front_len(segment_size);
            departure.front = front + HEADER_LEN;
            for (number, segment) in (first..).zip(contents.chunks(segment_size)) {
                encode_halves(&keys.send, number, (departed, hold), front, segment, out);
            }
        }
        self.count_spared(&departure.spared, departure.count as i64);
        departure.remaining = targets.len() as u64;
        self.counters.copies += departure.count * departure.remaining.saturating_sub(1);
        self.counters.copy_bytes += departure.bytes * departure.remaining.saturating_sub(1);
        for path in self.paths.iter_mut().filter(|path| set.contains(path.id)) {
            path.departures.datagrams += departure.count;
            path.departures.bytes += departure.bytes;
            path.spend(departure.count, departure.bytes as usize, now);
            self.wake |= path.on_sent(now);
        }
        departure.targets = targets;
        departure
    }

    /// The whole departure is to be tried again later: its numbers are free again, unless something has left since.
    pub fn take_back(&mut self, departure: &Departure) {
        let Some(first) = departure.first else { return };
        if self.log.next_number() == first + departure.count {
            self.log.take_back(first);
            self.kept.take_back(first);
        } else {
            // Something else has left since: no number may be given twice, so these go to nobody.
            for (path, _) in departure.targets.iter() {
                (first..first + departure.count).for_each(|number| self.log.not_sent_on(path, number));
            }
        }
        self.counters.copies -= departure.count * departure.remaining.saturating_sub(1);
        self.counters.copy_bytes -= departure.bytes * departure.remaining.saturating_sub(1);
        self.count_spared(&departure.spared, -(departure.count as i64));
        for (path, _) in departure.targets.iter() {
            self.uncount(path, departure);
        }
    }

    /// The socket of one target did not take the departure; with an `error` it failed, else it was merely full.
    pub fn not_sent(&mut self, departure: &mut Departure, path: PathId, error: Option<&str>, now: Instant) {
        if let Some(error) = error
            && let Some(path) = self.path_mut(path)
        {
            path.on_send_error(error, now);
        }
        let Some(first) = departure.first else { return };
        self.uncount(path, departure);
        (first..first + departure.count).for_each(|number| self.log.not_sent_on(path, number));
        if departure.remaining > 1 {
            self.counters.copies -= departure.count;
            self.counters.copy_bytes -= departure.bytes;
            self.counters.copies_skipped += departure.count;
        }
        departure.remaining = departure.remaining.saturating_sub(1);
        if error.is_some() && departure.remaining == 0 && !departure.has_spared() && self.has_lost_primary(now) {
            self.rescue(now);
        }
    }

    /// Every target failed: the paths that were spared, if any, to be sent on now.
    pub fn call_spared(&mut self, departure: &mut Departure, now: Instant) -> Targets {
        let Some(first) = departure.first.filter(|_| departure.is_stranded()) else { return Targets::default() };
        let called = std::mem::take(&mut departure.spared);
        self.count_spared(&called, -(departure.count as i64));
        departure.remaining = called.len() as u64;
        self.counters.copies += departure.count * departure.remaining.saturating_sub(1);
        self.counters.copy_bytes += departure.bytes * departure.remaining.saturating_sub(1);
        for (id, _) in called.iter() {
            (first..first + departure.count).for_each(|number| self.log.sent_on(id, number));
            if let Some(path) = self.path_mut(id) {
                path.departures.datagrams += departure.count;
                path.departures.bytes += departure.bytes;
                path.spend(departure.count, departure.bytes as usize, now);
                path.on_sent(now);
            }
        }
        // Those before it may have been on the path alone that failed.
        if self.has_lost_primary(now) {
            self.rescue(now);
        }
        called
    }

    /// Counts datagrams that were held back, or takes them back.
    fn count_spared(&mut self, spared: &Targets, datagrams: i64) {
        for (path, _) in spared.iter() {
            self.counters.copies_skipped = self.counters.copies_skipped.saturating_add_signed(datagrams);
            if let Some(path) = self.path_mut(path) {
                path.departures.skipped = path.departures.skipped.saturating_add_signed(datagrams);
            }
        }
    }

    fn uncount(&mut self, path: PathId, departure: &Departure) {
        if let Some(path) = self.path_mut(path) {
            // Less only if the number was given to a new path in between.
            path.departures.datagrams = path.departures.datagrams.saturating_sub(departure.count);
            path.departures.bytes = path.departures.bytes.saturating_sub(departure.bytes);
            path.departures.governor.refund(departure.bytes as usize);
            path.refund(departure.count, departure.bytes as usize);
        }
    }

    /// The paths for the next datagrams.
    pub(super) fn targets(&mut self, now: Instant) -> (Targets, PathSet) {
        let usable = self.paths.iter().filter(|path| path.usable(now));
        let candidates = usable.map(|path| schedule::Candidate {
            path: path.id,
            rank: path.order.rank(),
            min_rtt: path.rtt.min(),
            loss: path.loss_bounds,
            on_probation: path.on_probation(now),
        });
        let mut targets = Targets::default();
        let Some(choice) = self.scheduler.choose(self.copying, candidates) else {
            // No path is known to work: any may be the first that does again.
            let mut set = PathSet::default();
            for path in &self.paths {
                targets.push(path.id, path.address);
                set.insert(path.id);
            }
            return (targets, set);
        };
        if let Some(left) = choice.left_for_loss.and_then(|left| self.path_mut(left)) {
            left.on_left_for_loss(now);
        }
        let Choice { preferred, set, .. } = choice;
        let preferred = self.primary_of(preferred, set);
        let preferred_first = self.paths.iter().filter(|path| path.id == preferred);
        let others = self.paths.iter().filter(|path| path.id != preferred && set.contains(path.id));
        preferred_first.chain(others).for_each(|path| targets.push(path.id, path.address));
        (targets, set)
    }

    fn plain_targets(&mut self, bytes: u64) -> Targets {
        let mut targets = Targets::default();
        match self.role {
            Role::Client => self.paths.iter().for_each(|path| targets.push(path.id, path.address)),
            Role::Relay => {
                // With one address alone, QUIC's own handshake has proved that it receives.
                let proved = self.keys.is_some() && self.handshake.len() == 1;
                for (index, peer) in self.handshake.iter_mut().enumerate() {
                    if proved || peer.sent + bytes <= AMPLIFICATION * peer.received {
                        peer.sent += bytes;
                        targets.push(PathId(index as u8), peer.address);
                    }
                }
                for path in self.paths.iter().filter(|path| path.state == PathState::Up) {
                    targets.push(path.id, path.address);
                }
                if self.copying == Copying::Single && !self.paths.is_empty() {
                    targets.len = targets.len.min(1);
                }
            }
        }
        targets
    }
}
