//! What a queue on the reference path means: rules B3 to B5.
//!
//! The draft heeds a queue only once it overflows. Copies hide that, and beside loss-based flows it comes too late: what they
//! lose to an overflow is their share. So a queue itself is heeded:
//! - *B3*: a probe ends as soon as a report tells of a queue: what it looked for is found.
//! - *B4*: in *cruise* the short-term bandwidth shrinks while there is a queue, and grows again once there is none. (In *down* the
//!   queue is still that of our own probe.)
//! - *B5*: a queue that never went away in 16 rounds is kept by others, who fill whatever room they are given. Then B3 and B4
//!   rest, and losses alone count.
//!
//! While nobody keeps a queue, probes are a third as frequent as the draft's coexistence with Reno asks for.
//!
//! A queue is one beyond the tolerated, as the far side reports it; with a peer without reports the rules rest.

use std::time::{Duration, Instant};

use super::{Bbr3, State};

/// The largest cut of the bandwidth, at so many tolerated queues above the tolerated one.
const DEEPEST_CUT: f64 = 0.35;
const DEEPEST_AT: f64 = 4.0;

/// The bandwidth gives way to queues no further than to this part of the long-term one.
const LEAST_SHARE: f64 = 0.5;

/// What the bandwidth grows by in a round without a queue, and to which part of the long-term one: that is a maximum, and one or two
/// percent more than the path carries. The next probe tries it all.
const GROWTH: f64 = 1.04;
const MOST_SHARE: f64 = 0.985;

/// How much more seldom than by the draft a probe comes where no queue is kept.
const SELDOM: u64 = 3;

/// Rounds in which a queue that others keep must not go away, and how many tolerated ones it must be.
const KEPT_ROUNDS: usize = 16;
const KEPT_TOLERATED: u32 = 2;

/// A queue as it was seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sighting {
    pub(super) queue: Duration,
    /// The queue that is still taken for none.
    pub(super) tolerated: Duration,
    /// When the newest datagram left that tells of it.
    pub(super) sent_at: Instant,
}

impl Sighting {
    fn is_queue(&self) -> bool {
        self.queue > self.tolerated
    }

    /// Part of the bandwidth that is left of a cut because of this queue.
    fn kept(&self) -> f64 {
        let tolerated = self.tolerated.as_secs_f64();
        let excess = (self.queue.as_secs_f64() - tolerated) / (DEEPEST_AT * tolerated);
        1.0 - DEEPEST_CUT * excess.clamp(0.0, 1.0)
    }
}

/// What is known of queues.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// What was seen since the last round began, and the least of it.
    newest: Option<Sighting>,
    least: Option<Duration>,
    /// The least of the last rounds, in a ring.
    rounds: [Duration; KEPT_ROUNDS],
    seen: usize,
    /// Others keep a queue.
    kept: bool,
    /// There was one when last looked, and others do not keep it.
    ends_probe: bool,
    /// What was sent before this was sent at a higher rate, or made the queue that *down* has emptied.
    cut_at: Option<Instant>,
}

impl Queue {
    pub(super) fn see(&mut self, sighting: Sighting) {
        self.least = Some(self.least.map_or(sighting.queue, |least| least.min(sighting.queue)));
        self.newest = Some(sighting);
        self.ends_probe = sighting.is_queue() && !self.kept;
    }

    /// A round is over; `calm` if what was seen in it was sent calmly. Answers what was seen last.
    fn end_round(&mut self, calm: bool) -> Option<Sighting> {
        let (newest, least) = (self.newest.take(), self.least.take());
        if let (true, Some(sighting), Some(least)) = (calm, newest, least) {
            self.rounds[self.seen % KEPT_ROUNDS] = least;
            self.seen += 1;
            let least = self.rounds.iter().min().copied().unwrap_or_default();
            self.kept = self.seen >= KEPT_ROUNDS && least > KEPT_TOLERATED * sighting.tolerated;
        }
        newest
    }
}

impl Bbr3 {
    /// Once per round, heeds the queue; see the module's text.
    pub(super) fn heed_queue(&mut self, now: Instant) {
        if !self.rounds.start {
            return;
        }
        let Some(unmask) = &mut self.unmask else { return };
        let calm = !self.state.is_probing();
        let Some(sighting) = unmask.queue.end_round(calm) else { return };
        let tells = unmask.queue.cut_at.is_none_or(|at| sighting.sent_at > at);
        let kept = unmask.queue.kept;
        let gives_way = self.state == State::Cruise && !unmask.trials.is_running();
        if !gives_way || !tells || kept {
            return;
        }
        let max = self.max_bandwidth.get() as f64;
        let bandwidth = self.short_term.bandwidth.map(|bandwidth| bandwidth as f64);
        if sighting.is_queue() {
            unmask.queue.cut_at = Some(now + self.min_rtt.get().unwrap_or_default());
            let cut = bandwidth.unwrap_or(max) * sighting.kept();
            self.short_term.bandwidth = Some(cut.max(LEAST_SHARE * max) as u64);
        } else if sighting.queue < sighting.tolerated / 2 {
            let grown = |bandwidth: f64| (GROWTH * bandwidth).min(MOST_SHARE * max).max(bandwidth) as u64;
            self.short_term.bandwidth = bandwidth.map(grown);
            // A flight that was too large before may no longer be: it would keep the rate down until the next probe.
            self.short_term.inflight = self.short_term.inflight.map(|flight| (GROWTH * flight as f64) as u64);
        }
    }

    /// *Down* is over: what is sent from the next round on meets no queue of the probe any more.
    pub(super) fn enter_cruise(&mut self, now: Instant) {
        if let Some(unmask) = &mut self.unmask {
            unmask.queue.cut_at = Some(now + self.min_rtt.get().unwrap_or_default());
        }
        self.enter(State::Cruise);
    }

    /// So many times as many rounds lie between probes as the draft has it. Each may cost a loss-based neighbour a packet, and
    /// what that gets falls with the root of how often it loses one; but who keeps a queue himself leaves us only what we ask for.
    pub(super) fn between_probes(&self, now: Instant) -> u64 {
        match &self.unmask {
            Some(unmask) if unmask.current(now).is_some() && !unmask.queue.kept => SELDOM,
            _ => 1,
        }
    }

    /// Whether a probe has nothing left to find, as there is a queue.
    pub(super) fn ends_probe(&self, now: Instant) -> bool {
        self.unmask.as_ref().is_some_and(|unmask| unmask.queue.ends_probe && unmask.current(now).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::testing::{SMSS, base};
    use crate::congestion::{Congestion, ReferenceReport};

    const T: Duration = Duration::from_millis(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A controller in *cruise* that takes a megabyte per second for the bandwidth.
    fn cruising() -> Bbr3 {
        let mut bbr = Bbr3::new(SMSS, 1, base());
        bbr.state = State::Cruise;
        bbr.max_bandwidth.set(1_000_000);
        bbr.rounds.start = true;
        bbr
    }

    /// A round ends in which such a queue was reported of what was sent until `sent_ms`; the short-term bandwidth.
    fn round(bbr: &mut Bbr3, queue: Duration, sent_ms: u64, now_ms: u64) -> Option<u64> {
        let now = base() + ms(now_ms);
        let report = ReferenceReport {
            judged: 10,
            lost: 0,
            newest_sent_at: base() + ms(sent_ms),
            queue,
            tolerated: T,
            floor: 0.0,
            trial_wanted: false,
        };
        bbr.on_report(&report, now);
        bbr.heed_queue(now);
        bbr.short_term.bandwidth
    }

    #[test]
    fn cruise_gives_way_to_a_queue_once_for_what_was_sent_before_and_comes_back_without_one() {
        let mut bbr = cruising();
        assert_eq!(round(&mut bbr, T, 10, 20), None);
        // Four tolerated queues above: the deepest cut.
        assert_eq!(round(&mut bbr, 5 * T, 20, 30), Some(650_000));
        assert_eq!(round(&mut bbr, 9 * T, 29, 40), Some(650_000), "what was sent before the cut");
        // Two above: 17.5 %, but never less than half of the long-term bandwidth.
        assert_eq!(round(&mut bbr, 3 * T, 41, 50), Some(536_250));
        assert_eq!(round(&mut bbr, 3 * T, 51, 60), Some(500_000));
        assert_eq!(round(&mut bbr, T / 2, 61, 70), Some(500_000));
        assert_eq!(round(&mut bbr, T / 4, 71, 80), Some(520_000));
        bbr.short_term.bandwidth = Some(980_000);
        assert_eq!(round(&mut bbr, Duration::ZERO, 81, 90), Some(985_000));
        bbr.short_term.bandwidth = Some(990_000);
        assert_eq!(round(&mut bbr, Duration::ZERO, 91, 100), Some(990_000));
    }

    #[test]
    fn only_cruise_gives_way_and_not_to_its_own_probes_queue() {
        for state in [State::Startup, State::Drain, State::Down, State::Refill, State::Up, State::ProbeRtt] {
            let mut bbr = cruising();
            bbr.state = state;
            assert_eq!(round(&mut bbr, 5 * T, 20, 30), None, "{state:?}");
        }
        let mut bbr = cruising();
        bbr.state = State::Down;
        bbr.enter_cruise(base() + ms(20));
        assert_eq!(round(&mut bbr, 5 * T, 19, 30), None);
        assert_eq!(round(&mut bbr, 5 * T, 21, 40), Some(650_000));
    }

    #[test]
    fn a_queue_that_does_not_go_away_in_sixteen_rounds_is_kept_by_others() {
        let mut bbr = cruising();
        for step in 0..15 {
            round(&mut bbr, 3 * T, 10 * step + 9, 10 * step + 10);
        }
        bbr.short_term.bandwidth = None;
        assert_eq!(round(&mut bbr, 3 * T, 200, 210), None, "the sixteenth");
        assert_eq!(round(&mut bbr, 9 * T, 220, 230), None);
        assert_eq!(round(&mut bbr, 2 * T, 240, 250), Some(912_500), "it nearly went away");
    }

    #[test]
    fn a_probe_ends_with_the_first_report_of_a_queue_unless_others_keep_it() {
        let mut bbr = cruising();
        bbr.state = State::Up;
        bbr.rounds.start = false;
        round(&mut bbr, T, 20, 30);
        assert!(!bbr.ends_probe(base() + ms(30)));
        round(&mut bbr, 2 * T, 30, 40);
        assert!(bbr.ends_probe(base() + ms(40)));
        assert!(!bbr.ends_probe(base() + ms(1_040)), "nothing was reported for a second");
        bbr.unmask.as_mut().unwrap().queue.kept = true;
        round(&mut bbr, 2 * T, 40, 50);
        assert!(!bbr.ends_probe(base() + ms(50)));
    }
}
