//! Sends again what was on its way when its path failed.
//!
//! QUIC's probe timeout doubles with each probe that gets no answer. After a path has failed it may take hundreds of
//! milliseconds until QUIC tries the next one, and after a long outage many seconds. So datagrams are kept until it is
//! known whether they arrived; when traffic moves to another path, or a path comes back, those of which nobody knows go
//! again, under new numbers: the oldest, with which the flows go on, and a few of the newest, whose acknowledgement tells
//! QUIC what else is lost. It drops what it has seen.
//!
//! After an outage QUIC's round-trip estimate is as long as the outage was, and with it every timer of its: what is lost
//! then, a datagram of the rescue or one of the next window's last, would be missed for seconds. So after a rescue QUIC is
//! watched for a while: when it sends nothing of size, what it sent and nobody has goes once more.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::halves::{encode_halves, front_len};
use super::sent_log::SentLog;
use super::{Link, Outgoing};
use crate::congestion::rate_sample::ACK_ONLY_BELOW;
use crate::path::Path;
use crate::stats::PathState;
use crate::wire::header::{HEADER_LEN, Header, HoldClass, Part};

/// Datagrams kept at most: twice a window of 50 Mbit/s and 100 ms, as QUIC goes on sending until the silence is sure.
const MOST_KEPT: usize = 1_024;

/// Of the oldest so many go again at once: what stands in a path of 10 Mbit/s for 50 ms.
const AT_ONCE: usize = 40;

/// And of the newest.
const NEWEST: usize = 8;

/// So many of the newest that carry acknowledgements alone go at once as well: one of them holds the last, and QUIC does not
/// acknowledge again what it has.
const SMALL: usize = 64;

/// What left longer ago than this goes again only if it is among the newest: its acknowledgement would be a round-trip sample
/// of that length, and QUIC sends again by itself what it learns to be lost.
const STALE: Duration = Duration::from_secs(2);

/// Then so many of the oldest in each [`STEP`], about 12 Mbit/s, until [`MOST_AGAIN`] have gone: QUIC is awake by then.
const EACH_STEP: usize = 10;
const STEP: Duration = Duration::from_millis(10);
const MOST_AGAIN: usize = 160;

/// For how long QUIC is watched after a rescue: by then it has measured the round trip anew.
const WATCHED_FOR: Duration = Duration::from_secs(10);

/// How long it may send nothing of size: two round trips, and the time until a report is due.
const PATIENCE: Duration = Duration::from_millis(150);
const MOST_PATIENCE: Duration = Duration::from_millis(800);

/// Buffers that wait for their next datagram at most: one report may tell the fate of all that are kept.
const MOST_SPARE: usize = MOST_KEPT;

/// Datagrams of QUIC whose fate is open, oldest first, each with the number under which it last left.
#[derive(Debug, Default)]
pub(super) struct Kept {
    datagrams: VecDeque<(u64, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

/// The time after a rescue in which QUIC's own timers are not to be relied on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    until: Instant,
    patience: Duration,
    /// When to look next.
    pub(super) look_at: Instant,
    /// What QUIC had sent when last looked at.
    sent: u64,
}

/// What besides a path's failure tells that a datagram may be lost.
#[derive(Debug, Clone, Copy, Default)]
struct Grounds {
    /// Nobody has it so long after it left.
    patience: Option<Duration>,
    /// What left before this has arrived, though no report tells it yet.
    arrived_until: Option<Instant>,
}

impl Kept {
    /// Keeps a datagram.
    pub(super) fn push(&mut self, number: u64, datagram: &[u8]) {
        if self.datagrams.len() == MOST_KEPT {
            // Flows go on with the oldest, and QUIC with the newest.
            let middle = self.datagrams.remove(MOST_KEPT / 2);
            self.recycle(middle);
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(datagram);
        self.datagrams.push_back((number, buffer));
    }

    /// Lets go of the oldest whose fate is known.
    pub(super) fn trim(&mut self, log: &SentLog) {
        while self.datagrams.front().is_some_and(|(number, _)| !is_open(log, *number)) {
            let oldest = self.datagrams.pop_front();
            self.recycle(oldest);
        }
    }

    /// Datagrams from this number on were not sent after all.
    pub(super) fn take_back(&mut self, first: u64) {
        while self.datagrams.back().is_some_and(|(number, _)| *number >= first) {
            let newest = self.datagrams.pop_back();
            self.recycle(newest);
        }
    }

    /// Gives back what holds nothing; whether that is all.
    pub(super) fn rest(&mut self) -> bool {
        self.spare = Vec::new();
        self.datagrams.shrink_to_fit();
        self.datagrams.is_empty()
    }

    fn recycle(&mut self, dropped: Option<(u64, Vec<u8>)>) {
        if let Some((_, mut buffer)) = dropped
            && self.spare.len() < MOST_SPARE
        {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// Whether a datagram of QUIC's has room for acknowledgements only.
fn is_ack_only(len: usize) -> bool {
    len < ACK_ONLY_BELOW as usize
}

fn is_open(log: &SentLog, number: u64) -> bool {
    log.entry(number).is_some_and(|entry| entry.is_open())
}

impl Link {
    /// Begins to send what may be lost with its path again.
    pub(super) fn rescue(&mut self, now: Instant) {
        let patience = (2 * self.fast_rtt + PATIENCE).min(MOST_PATIENCE);
        let (until, look_at) = (now + WATCHED_FOR, now + patience);
        self.watch = Some(Watch { until, patience, look_at, sent: self.sent_of_size });
        self.wake = true;
        self.rescue_left = MOST_AGAIN;
        self.rescue_some(AT_ONCE, NEWEST, Grounds::default(), now);
    }

    /// Sends what may be lost with the primary path, which is doubted, again at once: in order and before anything new, so
    /// that flows go on without a second pause. QUIC's window bounds it; what left before `sent_after` has arrived.
    pub(super) fn rescue_from_primary(&mut self, sent_after: Option<Instant>, now: Instant) {
        self.rescue_left = MOST_AGAIN;
        self.rescue_some(MOST_AGAIN, 0, Grounds { arrived_until: sent_after, ..Grounds::default() }, now);
    }

    /// So many datagrams of so many bytes, as QUIC made them, leave for the first time.
    pub(super) fn note_sent(&mut self, size: usize, count: u64) {
        self.sent_of_size += if is_ack_only(size) { 0 } else { count };
    }

    /// Lets go of what need not be kept.
    ///
    /// While a path that came back is being used for a rescue, what arrives late shows to be lost what was lost before; QUIC
    /// need not know of that yet. And while it is watched, it may not look at what it could know.
    pub(super) fn trim_kept(&mut self) {
        if self.rescue_at.is_none() && self.watch.is_none() {
            self.kept.trim(&self.log);
        }
    }

    /// Goes on with that, once it is time; sends once more what QUIC waits for in vain.
    pub(super) fn rescue_on(&mut self, now: Instant) {
        self.trim_kept();
        if self.rescue_at.is_some_and(|at| at <= now) {
            self.rescue_some(EACH_STEP, 0, Grounds::default(), now);
        }
        let Some(watch) = self.watch.filter(|watch| watch.look_at <= now) else { return };
        if self.sent_of_size == watch.sent {
            self.rescue_left = AT_ONCE;
            self.rescue_some(AT_ONCE, NEWEST, Grounds { patience: Some(watch.patience), ..Grounds::default() }, now);
        } else {
            self.kept.trim(&self.log);
        }
        let look_at = now + watch.patience;
        self.watch = (look_at < watch.until).then_some(Watch { look_at, sent: self.sent_of_size, ..watch });
    }

    /// Sends some of what may be lost again.
    fn rescue_some(&mut self, oldest: usize, newest: usize, grounds: Grounds, now: Instant) {
        self.rescue_at = None;
        if !self.framing || !self.paths.iter().any(|path| path.usable(now)) {
            return;
        }
        let oldest = oldest.min(self.rescue_left);
        let kept = &self.kept.datagrams;
        let lost = kept.iter().filter(|(number, _)| self.may_be_lost(*number, grounds, now)).count();
        let mut again = Vec::new();
        let is_small = |datagram: &[u8]| newest > 0 && is_ack_only(datagram.len());
        let small = kept.iter().filter(|(number, d)| is_small(d) && self.may_be_lost(*number, grounds, now)).count();
        let (mut seen, mut chosen, mut small_seen) = (0, 0, 0);
        // Each is put back at the end: all of them keep their order, and the queue its memory.
        for _ in 0..kept.len() {
            let Some((number, datagram)) = self.kept.datagrams.pop_front() else { break };
            let may_be_lost = self.may_be_lost(number, grounds, now);
            seen += usize::from(may_be_lost);
            let is_old = chosen < oldest && !self.is_stale(number, now);
            small_seen += usize::from(may_be_lost && is_small(&datagram));
            let is_new_and_small = is_small(&datagram) && small_seen + SMALL > small;
            if may_be_lost && (is_old || is_new_and_small || seen + newest > lost) {
                chosen += 1;
                again.push(datagram);
            } else {
                self.kept.datagrams.push_back((number, datagram));
            }
        }
        self.rescue_left -= oldest.min(chosen);
        // Whoever sends QUIC's datagrams does not look for ours.
        self.wake |= chosen > 0;
        for datagram in again {
            if let Some(number) = self.send_again(&datagram, now) {
                self.kept.datagrams.push_back((number, datagram));
            }
        }
        if chosen >= oldest && lost > chosen && self.rescue_left > 0 {
            self.rescue_at = Some(now + STEP);
            self.wake = true;
        }
    }

    fn is_stale(&self, number: u64, now: Instant) -> bool {
        self.log.entry(number).is_none_or(|entry| now.saturating_duration_since(entry.sent_at) > STALE)
    }

    /// Whether nothing is known of the datagram's arrival, and no path that works has carried it since it works.
    fn may_be_lost(&self, number: u64, grounds: Grounds, now: Instant) -> bool {
        let Some(entry) = self.log.entry(number).filter(|entry| !entry.has_arrived()) else { return false };
        if grounds.arrived_until.is_some_and(|until| entry.sent_at < until) {
            return false;
        }
        if grounds.patience.is_some_and(|patience| now.saturating_duration_since(entry.sent_at) >= patience) {
            return true;
        }
        let doubted = self.primary.filter(|_| self.doubts_primary());
        let works = |path: &&Path| path.usable(now) && doubted != Some(path.id);
        let mut carriers = self.paths.iter().filter(works).filter(|path| entry.went_on(path.id));
        !carriers.any(|path| path.carries_since().is_some_and(|since| entry.sent_at >= since))
    }

    /// Sends one datagram of QUIC as if it had come just now; its new number, or `None` if there is no path.
    fn send_again(&mut self, datagram: &[u8], now: Instant) -> Option<u64> {
        let (targets, set) = self.targets(now);
        if targets.is_empty() {
            return None;
        }
        let (number, size) = (self.log.next_number(), datagram.len() + HEADER_LEN);
        // Nothing waits for what was lost with the path.
        let (departed, hold) = (self.ticks(now), HoldClass::None);
        self.log.push(now, size, set, self.queued, self.sender.phase);
        self.counters.copies += targets.len() as u64 - 1;
        self.counters.copy_bytes += size as u64 * (targets.len() as u64 - 1);
        self.counters.rescued += 1;
        for (id, address) in targets.iter() {
            let keys = self.keys.as_ref()?;
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            let path = self.paths.iter_mut().find(|path| path.id == id)?;
            path.departures.datagrams += 1;
            path.departures.bytes += size as u64;
            path.spend(1, size, now);
            path.on_sent(now);
            if size <= usize::from(path.mtu.known()) {
                Header::encode_into(&keys.send, number, departed, hold, Part::Whole, datagram, &mut bytes);
            } else {
                let front = front_len(datagram.len());
                encode_halves(&keys.send, number, (departed, hold), front, datagram, &mut bytes);
                let back = bytes.split_off(front + HEADER_LEN);
                self.outgoing.push_back(Outgoing { address, bytes: back });
            }
            self.outgoing.push_back(Outgoing { address, bytes });
        }
        Some(number)
    }

    /// Whether the path that carries everything works no longer, so that traffic has moved or must.
    pub(super) fn has_lost_primary(&self, now: Instant) -> bool {
        let primary = self.primary.and_then(|id| self.path(id));
        primary.is_none_or(|path| path.state != PathState::Up || !path.usable(now))
    }
}
