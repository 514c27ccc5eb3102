//! Notices within some 10 ms that the primary path has fallen silent, long before it can be known to be dead.
//!
//! In bicast the other paths carry only what their governors let pass. If the primary path dies, all else is lost until QUIC
//! finds out. So it is doubted as soon as acknowledgements pause on it for longer than they ever did of late, or others
//! overtake it, here or at the far side, while nothing arrives on it. As long as it is doubted, copies are not held back,
//! and what went over it alone goes again at once. A doubt costs some copies, so that it may be wrong; a sign of the path
//! ends it.

use std::time::{Duration, Instant};

use super::Link;
use crate::mode::Copying;
use crate::recent::RecentMax;
use crate::wire::control::PathId;

/// So many datagrams newer than all of the primary path's must have arrived on others, and nothing on it meanwhile.
const OVERTAKEN_BY: u32 = 8;

/// The primary path must have been silent for at least this long.
const LEAST_SILENCE: Duration = Duration::from_millis(15);

/// Silence of this long on a path whose acknowledgements flow is a doubt as well, if no silence of the last 2 s was two thirds
/// as long. QUIC's receivers take a packet for a duplicate once 129 later ones are there, so it must be noticed soon.
const LEAST_PAUSE: Duration = Duration::from_millis(4);
const PAUSES: f64 = 1.5;
const PAUSE_SPAN: Duration = Duration::from_secs(2);

/// Longer pauses are no measure.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A sender that pauses for this long begins anew: acknowledgements pause with it.
const BUSY_GAP: Duration = Duration::from_millis(20);

/// What was on its way goes again at most this often.
const RESCUE_INTERVAL: Duration = Duration::from_millis(250);

/// What is held against the primary path.
#[derive(Debug)]
pub(super) struct Doubt {
    /// Since when QUIC has sent without a pause, and when it last did.
    busy: Option<(Instant, Instant)>,
    /// Pauses between arrivals on the primary path while it should have delivered.
    pauses: RecentMax<Duration>,
    /// What arrives here.
    heard: Race,
    /// What arrives at the far side, as its reports tell.
    told: Race,
    rescued_at: Option<Instant>,
}

/// The primary path against the others, in one direction.
#[derive(Debug, Default)]
struct Race {
    /// When the primary path last delivered something.
    last: Option<Instant>,
    /// Datagrams that came on others since, newer than all of its own.
    overtaken_by: u32,
    lost: bool,
}

impl Default for Doubt {
    fn default() -> Self {
        Self {
            busy: None,
            pauses: RecentMax::new(PAUSE_SPAN),
            heard: Race::default(),
            told: Race::default(),
            rescued_at: None,
        }
    }
}

impl Race {
    fn on_primary(&mut self, now: Instant) {
        *self = Self { last: Some(now), overtaken_by: 0, lost: false };
    }

    fn on_other(&mut self, newer: u32) {
        self.overtaken_by = self.overtaken_by.saturating_add(newer);
    }

    /// Whether the primary path has just fallen behind for good.
    fn falls_behind(&mut self, silence: Duration, now: Instant) -> bool {
        let is_silent = self.last.is_some_and(|last| now.saturating_duration_since(last) >= silence);
        let was_lost = self.lost;
        self.lost |= is_silent && self.overtaken_by >= OVERTAKEN_BY;
        self.lost && !was_lost
    }
}

impl Link {
    /// A datagram with this number arrived on a path.
    pub(super) fn watch_arrival(&mut self, id: PathId, number: u64, now: Instant) {
        let Some(primary) = self.primary else { return };
        if id == primary {
            if let Some(pause) = self.pause(now).filter(|pause| *pause <= LONGEST_PAUSE) {
                self.doubt.pauses.insert(pause, now);
            }
            self.doubt.heard.on_primary(now);
            return;
        }
        self.doubt_a_pause(now);
        if self.hold.highest_on(primary).is_some_and(|highest| highest < number) {
            self.doubt.heard.on_other(1);
            if self.doubt.heard.falls_behind(LEAST_SILENCE, now) {
                self.begin_to_doubt(now);
            }
        }
    }

    /// QUIC sends more: whether acknowledgements of what it sent before have kept coming on the primary path.
    pub(super) fn watch_pause(&mut self, now: Instant) {
        let began = self.doubt.busy.filter(|(_, last)| now.saturating_duration_since(*last) < BUSY_GAP);
        self.doubt.busy = Some((began.map_or(now, |(began, _)| began), now));
        self.doubt_a_pause(now);
    }

    fn doubt_a_pause(&mut self, now: Instant) {
        let most = self.doubt.pauses.get(now).unwrap_or(LONGEST_PAUSE).mul_f64(PAUSES).max(LEAST_PAUSE);
        if !self.doubt.heard.lost && self.pause(now).is_some_and(|pause| pause >= most) {
            self.doubt.heard.lost = true;
            self.begin_to_doubt(now);
        }
    }

    /// For how long nothing has arrived on the primary path although QUIC sent without a pause a round trip ago and since.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let (busy, heard) = (self.doubt.busy?.0, self.doubt.heard.last?);
        let path = self.path(self.primary?)?;
        let awaited = busy + path.rtt.or_assumed() + 4 * path.rtt.deviation();
        (awaited <= heard).then(|| now.saturating_duration_since(heard))
    }

    /// A report tells that `arrived` datagrams arrived on a path at the far side, up to number `highest`.
    pub(super) fn watch_report(&mut self, id: PathId, arrived: u32, highest: u64, now: Instant) {
        let Some(primary) = self.primary else { return };
        let reached = self.path(primary).and_then(|path| path.departures.highest);
        if id == primary {
            self.doubt.told.on_primary(now);
        } else if reached.is_some_and(|reached| reached < highest) {
            self.doubt.told.on_other(arrived);
        }
    }

    /// All paths of a report are taken in.
    pub(super) fn judge_primary(&mut self, now: Instant) {
        if self.doubt.told.falls_behind(2 * LEAST_SILENCE, now) {
            self.begin_to_doubt(now);
        }
    }

    /// Whether the primary path may be dead, and others are there to copy on.
    pub(super) fn doubts_primary(&self) -> bool {
        self.copying == Copying::Bicast && (self.doubt.heard.lost || self.doubt.told.lost)
    }

    fn begin_to_doubt(&mut self, now: Instant) {
        let lately = self.doubt.rescued_at.is_some_and(|at| now.saturating_duration_since(at) < RESCUE_INTERVAL);
        if self.copying == Copying::Bicast && !lately {
            self.doubt.rescued_at = Some(now);
            // What it delivered before it was last heard has arrived.
            let path = self.primary.and_then(|primary| self.path(primary));
            let on_the_way = path.map_or(Duration::ZERO, |p| p.rtt.min().unwrap_or_default() + p.departures.queue());
            let heard = self.doubt.heard.last.and_then(|last| last.checked_sub(on_the_way));
            self.rescue_from_primary(heard, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::copy_governor::Urgency;
    use crate::keys::Role;
    use crate::link::LinkConfig;
    use crate::mode::{Mode, Sides};
    use crate::path::PathAddress;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_silent_path_that_others_overtake_has_fallen_behind() {
        let start = crate::testing::start();
        let mut race = Race::default();
        race.on_other(100);
        assert!(!race.falls_behind(LEAST_SILENCE, start + 100 * MS), "it has not begun yet");
        race.on_primary(start);
        race.on_other(OVERTAKEN_BY - 1);
        assert!(!race.falls_behind(LEAST_SILENCE, start + 100 * MS), "too few");
        race.on_other(1);
        assert!(!race.falls_behind(LEAST_SILENCE, start + 14 * MS), "too early");
        assert!(race.falls_behind(LEAST_SILENCE, start + 15 * MS));
        assert!(!race.falls_behind(LEAST_SILENCE, start + 16 * MS), "told once");
        race.on_primary(start + 17 * MS);
        assert!(!race.lost);
    }

    /// A link over two paths of 20 ms whose sender is busy from `start` on.
    fn link(start: Instant) -> Link {
        let mut link = Link::new(LinkConfig { role: Role::Relay, mode: Mode::Bicast(Sides::Both), seed: 1 }, start);
        for socket in 0..2 {
            let address = PathAddress { socket, remote: ([198, 51, 100, 1], 4433).into(), local: None };
            let id = link.add_path(address, start).expect("there is room");
            let path = link.path_mut(id).expect("just added");
            (0..40).for_each(|_| path.rtt.update(20 * MS));
            path.come_up(start);
        }
        link.primary = Some(PathId(0));
        link
    }

    #[test]
    fn a_pause_longer_than_any_of_late_is_a_doubt_until_something_arrives() {
        let start = crate::testing::start();
        let mut link = link(start);
        let mut doubted_at = None;
        for ms in 0..400u32 {
            let now = start + ms * MS;
            link.watch_pause(now);
            // An acknowledgement every millisecond, but for a pause of 10 ms, another of 14, and the end at 300 ms.
            if (20..300).contains(&ms) && !(100..110).contains(&ms) && !(200..214).contains(&ms) {
                link.watch_arrival(PathId(0), ms.into(), now);
            }
            match ms {
                105..110 => assert!(link.doubts_primary(), "at {ms} ms: 6 ms are a doubt if none was longer"),
                110..300 => assert!(!link.doubts_primary(), "at {ms} ms: 15 ms are none after 11"),
                _ => {}
            }
            if ms > 300 && link.doubts_primary() {
                doubted_at.get_or_insert(ms);
            }
        }
        assert_eq!(doubted_at, Some(322), "half as long again as the longest, of 15 ms");
    }

    #[test]
    fn what_goes_again_when_a_doubt_arises_in_mid_sending_wakes_the_clock_that_sends_it() {
        let start = crate::testing::start();
        let mut link = link(start);
        link.set_keys(&[9; crate::keys::SECRET_LEN], start);
        link.framing = true;
        link.sender.pacing_rate = Some(5_000_000);
        let mut again = 0;
        for ms in 0..200u32 {
            let now = start + ms * MS;
            if (20..100).contains(&ms) {
                link.watch_arrival(PathId(0), ms.into(), now);
            }
            while link.poll_transmit().is_some() {}
            link.take_wake();
            // The other path bears nothing but what is small.
            link.paths[1].departures.governor.admit(50_000, Urgency::Always, now);
            if ms == 1 {
                link.paths[1].departures.governor.on_report(&narrow(), now);
            }
            let (data, mut wire) = ([0x40; 1_200], Vec::new());
            link.depart(&data, data.len(), crate::wire::header::HoldClass::None, now, &mut wire);
            if link.poll_transmit().is_some() {
                again += 1;
                assert!(link.take_wake(), "at {ms} ms");
            }
        }
        assert!(again > 0 && link.counters().rescued > 0, "{:?}", link.counters());
    }

    #[test]
    fn a_sender_that_pauses_expects_no_acknowledgements() {
        let start = crate::testing::start();
        let mut link = link(start);
        for ms in (0..1_000u32).filter(|ms| ms % 100 < 50) {
            let now = start + ms * MS;
            link.watch_pause(now);
            if ms % 100 >= 20 {
                link.watch_arrival(PathId(0), ms.into(), now);
            }
            assert!(!link.doubts_primary(), "at {ms} ms");
        }
    }

    /// What tells the governor that its path carries next to nothing.
    fn narrow() -> crate::congestion::copy_governor::CopyReport {
        crate::congestion::copy_governor::CopyReport {
            fates: Default::default(),
            highest: 0,
            next: 0,
            queue: 100 * MS,
            tolerated: MS,
            bearable: MS,
            without_jitter: MS,
            floor: 0.0,
            delivered: 100_000.0,
        }
    }

    #[test]
    fn while_the_primary_path_is_doubted_no_copy_is_held_back() {
        let start = crate::testing::start();
        let mut link = link(start);
        link.sender.pacing_rate = Some(5_000_000);
        let spared = |link: &mut Link| {
            let (mut targets, _) = link.targets(start);
            link.spare(&mut targets, 1_000_000, Urgency::Bulk, start).len()
        };
        assert_eq!(spared(&mut link), 0);
        link.paths[1].departures.governor.on_report(&narrow(), start);
        assert_eq!((spared(&mut link), spared(&mut link)), (0, 1), "the first overdraws");
        link.doubt.heard.lost = true;
        assert_eq!(spared(&mut link), 0);
        link.copying = Copying::Single;
        assert!(!link.doubts_primary());
    }
}
