//! Which copies of a datagram leave: in bicast one path, the *primary*, carries everything, and the others what their
//! governors let pass.
//!
//! Primary is the reference path, the one with the largest delivered rate, as the controller is driven by it. Copies held
//! back are numbered like all others; should the primary's socket fail, the shell sends them after all.

use std::time::{Duration, Instant};

use super::depart::Targets;
use super::doubt::Doubt;
use super::{LEAST_REPORT_INTERVAL, Link, MOST_REPORT_INTERVAL};
use crate::congestion::copy_governor::{CopyGovernor, Urgency};
use crate::congestion::rate_sample::ACK_ONLY_BELOW;
use crate::mode::Copying;
use crate::path::Path;
use crate::schedule::PathSet;
use crate::wire::control::PathId;
use crate::wire::header::HEADER_LEN;

/// Datagrams of at most this size are copied before larger ones: acknowledgements, and what people wait for.
const SMALL: usize = 200;

/// So many of the first datagrams after a silence are copied before others.
const FIRST_DATAGRAMS: u32 = 10;

impl Link {
    /// The path that carries everything among those of `set`: `preferred`, or in bicast the reference path.
    pub(super) fn primary_of(&mut self, preferred: PathId, set: PathSet) -> PathId {
        let primary = match (self.copying, self.reference_path()) {
            (Copying::Bicast, Some(reference)) if set.contains(reference) => reference,
            _ => preferred,
        };
        if self.primary.replace(primary) != Some(primary) {
            self.doubt = Doubt::default();
            self.log.primary = Some(primary);
            // What was learnt of copies says nothing of a path that carried everything, and the other way round.
            self.paths.iter_mut().for_each(|path| path.departures.governor = CopyGovernor::new());
        }
        primary
    }

    /// How urgent copies of these QUIC datagrams are.
    pub(super) fn urgency(&mut self, contents: &[u8], count: u64, now: Instant) -> Urgency {
        let silence =
            self.last_departure.replace(now).is_none_or(|last| now.saturating_duration_since(last) >= self.fast_rtt);
        self.since_silence = if silence { 0 } else { self.since_silence };
        let is_first = self.since_silence < FIRST_DATAGRAMS;
        self.since_silence = self.since_silence.saturating_add(count as u32);
        let is_handshake = contents.first().is_some_and(|first| first & 0x80 != 0);
        if is_handshake || contents.len() < ACK_ONLY_BELOW as usize {
            Urgency::Always
        } else if is_first || contents.len() <= SMALL {
            Urgency::Soon
        } else {
            Urgency::Bulk
        }
    }

    /// Takes those paths out of `targets` that have no room for `bytes` more, and names them; the first one, the primary,
    /// always stays.
    pub(super) fn spare(&mut self, targets: &mut Targets, bytes: usize, urgency: Urgency, now: Instant) -> Targets {
        let all = std::mem::take(targets);
        let doubted = self.doubts_primary();
        let mut spared = Targets::default();
        for (index, (id, address)) in all.iter().enumerate() {
            let passes = index == 0
                || (self.has_allowance(id, urgency, now) && (doubted || self.admits(id, bytes, urgency, now)));
            if passes {
                targets.push(id, address);
            } else {
                spared.push(id, address);
            }
        }
        spared
    }

    /// Whether the rate of a path, if it has one, leaves room for copies; what is smallest goes in any case.
    fn has_allowance(&mut self, id: PathId, urgency: Urgency, now: Instant) -> bool {
        let is_shut = |path: &mut Path| path.allowance.shut_until(now).is_some();
        urgency == Urgency::Always || !self.path_mut(id).is_some_and(is_shut)
    }

    /// Whether the governor of a path lets so many bytes pass; if so they are counted.
    fn admits(&mut self, id: PathId, bytes: usize, urgency: Urgency, now: Instant) -> bool {
        let (sender, interval) = (self.sender, self.report_interval());
        let smss = self.largest.max(1_200 + HEADER_LEN);
        self.path_mut(id).is_none_or(|path| {
            let round_trip = path.rtt.or_assumed();
            let governor = &mut path.departures.governor;
            governor.update(sender, smss, round_trip, interval);
            governor.admit(bytes, urgency, now)
        })
    }

    /// How often the far side reports while much arrives there.
    fn report_interval(&self) -> Duration {
        (self.fast_rtt / 2).clamp(LEAST_REPORT_INTERVAL, MOST_REPORT_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::copy_governor::CopyReport;
    use crate::congestion::noise_floor::Tally;
    use crate::congestion::{SendPhase, SenderState};
    use crate::keys::{Role, SECRET_LEN};
    use crate::link::{Departure, LinkConfig};
    use crate::mode::{Mode, Sides};
    use crate::path::PathAddress;
    use crate::wire::header::HoldClass;

    const MS: Duration = Duration::from_millis(1);

    /// A client's link over two paths of 20 and 60 ms, under a controller that sends 5 MB/s; the second path carries less.
    fn link(now: Instant) -> Link {
        let mut link = Link::new(LinkConfig { role: Role::Client, mode: Mode::Bicast(Sides::Both), seed: 1 }, now);
        for (socket, rtt_ms) in [(0, 20), (1, 60)] {
            let address = PathAddress { socket, remote: ([198, 51, 100, 1], 4433).into(), local: None };
            let id = link.add_path(address, now).expect("there is room");
            let path = link.path_mut(id).expect("just added");
            path.rtt.update(rtt_ms * MS);
            path.come_up(now);
        }
        link.set_keys(&[9; SECRET_LEN], now);
        link.framing = true;
        link.set_sender_state(SenderState { phase: SendPhase::Steady, pacing_rate: Some(5_000_000), gives_way: true });
        send(&mut link, 1_200, now);
        let narrow = CopyReport {
            fates: Tally::default(),
            highest: 0,
            next: 0,
            queue: 100 * MS,
            tolerated: 6 * MS,
            bearable: 6 * MS,
            without_jitter: 6 * MS,
            floor: 0.0,
            delivered: 1_000_000.0,
        };
        link.paths[1].departures.governor.on_report(&narrow, now);
        link
    }

    fn send(link: &mut Link, bytes: usize, now: Instant) -> Departure {
        link.depart(&vec![0x40; bytes], bytes, HoldClass::None, now, &mut Vec::new())
    }

    #[test]
    fn bulk_is_copied_as_far_as_the_slower_path_bears_it_and_small_things_always() {
        let mut now = crate::testing::start();
        let mut link = link(now);
        let mut copied = [0, 0];
        for step in 0..800 {
            now += MS / 4;
            let small = step % 10 == 9;
            let departure = send(&mut link, if small { 60 } else { 1_200 }, now);
            assert_eq!(departure.targets.iter().next().map(|(path, _)| path), Some(PathId(0)));
            copied[usize::from(small)] += departure.targets.len() - 1;
        }
        // 750 kB/s in datagrams of 1,212 bytes, for 200 ms and what the bucket holds, less the small ones.
        assert!((120..=140).contains(&copied[0]), "{copied:?}");
        assert_eq!(copied[1], 80);
        let spared = link.counters().copies_skipped;
        assert_eq!(spared, 801 - link.counters().copies);
        assert_eq!(link.paths[1].departures.skipped, spared);
    }

    #[test]
    fn the_first_after_a_silence_are_copied_before_others() {
        let mut now = crate::testing::start();
        let mut link = link(now);
        while !send(&mut link, 1_200, now).has_spared() {}
        now += 2 * MS;
        assert!((0..5).any(|_| send(&mut link, 1_200, now).has_spared()), "no silence");
        now += 25 * MS;
        assert!((0..10).all(|_| !send(&mut link, 1_200, now).has_spared()));
        assert!((0..20).any(|_| send(&mut link, 1_200, now).has_spared()));
    }

    #[test]
    fn what_fails_on_the_primary_goes_to_the_path_that_was_spared() {
        let now = crate::testing::start();
        let mut link = link(now);
        let mut departure = send(&mut link, 1_200, now);
        while !departure.has_spared() {
            departure = send(&mut link, 1_200, now);
        }
        let (counters, number) = (link.counters(), link.log.next_number() - 1);
        assert!(!departure.is_stranded());
        link.not_sent(&mut departure, PathId(0), Some("network is down"), now);
        assert!(departure.is_stranded());
        let called: Vec<PathId> = link.call_spared(&mut departure, now).iter().map(|(path, _)| path).collect();
        assert_eq!(called, [PathId(1)]);
        assert_eq!(link.counters().copies_skipped, counters.copies_skipped - 1);
        assert_eq!(link.counters().copies, counters.copies);
        assert!(!departure.is_stranded() && link.call_spared(&mut departure, now).is_empty());
        assert!(link.log.judge(PathId(1), number, true).is_some());
        assert_eq!((link.log.judged, link.log.lost), (1, 0));
    }

    #[test]
    fn what_is_taken_back_was_neither_copied_nor_spared() {
        let now = crate::testing::start();
        let mut link = link(now);
        while !send(&mut link, 1_200, now).has_spared() {}
        let counters = link.counters();
        let departure = send(&mut link, 1_200, now);
        assert!(departure.has_spared());
        link.take_back(&departure);
        assert_eq!(link.counters(), counters);
    }
}
