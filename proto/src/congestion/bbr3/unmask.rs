//! Rules B1 and B2: what counts as lost, and how much loss is too much.
//!
//! With copies on several paths, one path's losses are hidden by the other's copy: congestion looks like nothing at all. So
//! losses are taken from the reference path, as the far side reports it (B1). And what that path loses anyway, its *noise
//! floor* `p0`, is no sign of congestion (B2): every test of loss stands on it, with room for chance.
//!
//! Losses are counted by datagram, and within the flight or the round that they were sent in: reports bring them in lumps.
//! Without reports (a plain QUIC peer) the library's own losses and round trips stand in.

use std::time::{Duration, Instant};

use super::queue::{Queue, Sighting};
use super::trial::Trials;
use crate::congestion::noise_floor::{HIGHEST_FLOOR, NoiseFloor, Tally, TrialClock};
use crate::congestion::path_signals::{ReferenceReport, SendPhase};
use crate::congestion::rate_sample::{AckBatch, LossBatch};

/// A report older than this says nothing of now: while data flows they come at least every 100 ms.
const REPORT_AGE: Duration = Duration::from_secs(1);

/// Loss above the floor that is allowed in any case: the draft's threshold.
const ALLOWANCE: f64 = 0.02;

/// Behind a queue of so many tolerated ones no more noise than the allowance is believed.
const LONG_QUEUE: u32 = 5;

/// Up to this floor the allowance grows with it; above, chance alone is allowed for.
const KNOWN_FLOOR: f64 = 0.05;

/// A queue shorter than this is none: scheduling noise is no queue.
const LEAST_TOLERATED: Duration = Duration::from_millis(1);

/// The rounds of startup that may have found the path's end already: noise is what was lost before them.
const STARTUP_ROUNDS: usize = 3;

/// Losses fewer than this never make a flight too large.
pub(super) const LEAST_LOSSES: u64 = 2;

/// Startup ends by loss only in a round of so many datagrams and losses, above this rate beyond what it lost before.
const STARTUP_DATAGRAMS: u32 = 40;
const STARTUP_LOSSES: u32 = 6;
const STARTUP_EXCESS: f64 = 0.10;
const STARTUP_EXCESS_BEHIND_QUEUE: f64 = 0.04;

/// Losses of a flight of so many datagrams that are just not too many over a floor of `floor`.
pub(super) fn allowed(datagrams: f64, floor: f64) -> f64 {
    datagrams * (ALLOWANCE + floor) + 2.0 * (datagrams * floor).sqrt()
}

/// Whether a round lost so much that the short-term model shrinks.
fn reacts(round: Tally, floor: f64, queue: bool) -> bool {
    let chance = (floor / f64::from(round.datagrams.max(1))).sqrt();
    let limit = match queue {
        // Any loss.
        true if floor <= ALLOWANCE => 0.0,
        true => floor + chance,
        false => floor + ALLOWANCE + floor.min(KNOWN_FLOOR).max(2.0 * chance),
    };
    round.loss() > limit
}

/// Whether a round of startup lost so much more than startup did `before` that it has found the path's end.
fn ends_startup(round: Tally, before: Tally, queue: bool) -> bool {
    let floor = (f64::from(before.lost + 2) / f64::from(before.datagrams + 10)).min(HIGHEST_FLOOR);
    let excess = if queue { STARTUP_EXCESS_BEHIND_QUEUE } else { STARTUP_EXCESS };
    round.datagrams >= STARTUP_DATAGRAMS
        && round.lost >= STARTUP_LOSSES
        && round.loss() > floor + 2.0 * (floor / f64::from(round.datagrams)).sqrt() + excess
}

/// What is known beside the draft's model.
#[derive(Debug, Clone, Default)]
pub(super) struct Unmask {
    pub(super) trials: Trials,
    /// Rules B3 to B5.
    pub(super) queue: Queue,
    latest: Option<(ReferenceReport, Instant)>,
    /// The current round, as the far side reports it.
    reported: Tally,
    /// All that was reported since the start, as it was after each of the last rounds, the newest first.
    since_start: [Tally; STARTUP_ROUNDS],
    library: Library,
    probe_ended: Option<Instant>,
}

/// What the library tells, for when there are no reports.
#[derive(Debug, Clone, Default)]
struct Library {
    round: Tally,
    /// Bytes acknowledged in the round that make no datagram yet.
    rest: u64,
    /// The shortest round trip of this round.
    rtt: Option<Duration>,
    /// The phase of the last round, in which what is acknowledged in this one was sent.
    phase: SendPhase,
    floor: NoiseFloor,
    trials: TrialClock,
}

/// What a round's losses mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The short-term model shrinks.
    pub(super) too_much: bool,
    /// Startup has found the path's end.
    pub(super) ends_startup: bool,
}

impl Unmask {
    /// The newest report, if it is not too old.
    pub(super) fn current(&self, now: Instant) -> Option<&ReferenceReport> {
        let fresh = |at: Instant| now.saturating_duration_since(at) < REPORT_AGE;
        self.latest.as_ref().filter(|(_, at)| fresh(*at)).map(|(report, _)| report)
    }

    /// The noise floor `p0` of the reference path.
    pub(super) fn floor(&self, now: Instant) -> f64 {
        match self.current(now) {
            // Behind so long a queue what is lost may well be its overflow.
            Some(report) if report.queue > LONG_QUEUE * report.tolerated => report.floor.min(ALLOWANCE),
            Some(report) => report.floor,
            None => self.library.floor.floor(),
        }
    }

    /// Whether a trial is wanted; if so, when the newest datagram left whose fate the one who wants it knows.
    pub(super) fn wants_trial(&self, now: Instant) -> Option<Instant> {
        match self.current(now) {
            Some(report) => report.trial_wanted.then_some(report.newest_sent_at),
            None => self.library.trials.wants_trial([&self.library.floor].into_iter(), now).then_some(now),
        }
    }

    pub(super) fn sent(&mut self, bytes: u64, phase: SendPhase, now: Instant) {
        self.trials.sent(bytes);
        self.library.trials.on_sent(phase, now);
    }

    /// What was sent before this tells of the last probe: another test judges that.
    pub(super) fn set_probe_ended(&mut self, at: Option<Instant>) {
        self.probe_ended = at;
    }

    fn is_of_probe(&self, sent_at: Instant) -> bool {
        self.probe_ended.is_some_and(|ended| sent_at < ended)
    }

    pub(super) fn acked(&mut self, acked: &AckBatch, smss: u64) {
        if self.is_of_probe(acked.sample.send_time) {
            return;
        }
        let library = &mut self.library;
        library.rest += acked.newly_acked;
        library.round.datagrams += (library.rest / smss) as u32;
        library.rest %= smss;
        library.rtt = [library.rtt, acked.sample.rtt].into_iter().flatten().min();
    }

    pub(super) fn lost(&mut self, lost: &LossBatch, smss: u64) {
        if !lost.reported && !self.is_of_probe(lost.send_time) {
            let datagrams = lost.bytes.div_ceil(smss) as u32;
            self.library.round.add(Tally { datagrams, lost: datagrams });
        }
    }

    pub(super) fn report(&mut self, report: &ReferenceReport, now: Instant) {
        if !self.is_of_probe(report.newest_sent_at) {
            self.reported.add(Tally { datagrams: report.judged, lost: report.lost });
        }
        let ReferenceReport { queue, tolerated, newest_sent_at: sent_at, .. } = *report;
        self.queue.see(Sighting { queue, tolerated, sent_at });
        self.latest = Some((*report, now));
    }

    /// A round is over, at the end of which the controller is in `phase`: what to make of its losses.
    ///
    /// While it is `draining` a queue of its own, that queue is no sign of others.
    pub(super) fn end_round(
        &mut self,
        phase: SendPhase,
        draining: bool,
        min_rtt: Option<Duration>,
        now: Instant,
    ) -> Verdict {
        let queue = match (self.current(now), self.library.rtt, min_rtt) {
            (Some(report), ..) => report.has_queue(),
            (None, Some(rtt), Some(min_rtt)) => rtt.saturating_sub(min_rtt) > (min_rtt / 10).max(LEAST_TOLERATED),
            (None, ..) => false,
        };
        let library = &mut self.library;
        // What is judged now was sent a round ago: only if nothing changed in between does the phase tell.
        let sent_in = if library.phase == phase { phase } else { SendPhase::Probing };
        library.floor.on_judged(library.round, sent_in, queue, Duration::ZERO, now);
        library.phase = phase;
        library.rtt = None;
        let by_library = std::mem::take(&mut library.round);
        let reported = std::mem::take(&mut self.reported);
        let round = if reported.datagrams > 0 { reported } else { by_library };
        let before = self.since_start[STARTUP_ROUNDS - 1];
        let mut all = self.since_start[0];
        all.add(round);
        self.since_start.rotate_right(1);
        self.since_start[0] = all;
        Verdict {
            too_much: reacts(round, self.floor(now), queue && !draining),
            ends_startup: ends_startup(round, before, queue),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(datagrams: u32, lost: u32) -> Tally {
        Tally { datagrams, lost }
    }

    #[test]
    fn a_flight_is_too_large_only_if_it_lost_more_than_noise_and_chance_explain() {
        // Flight, floor, and the fewest losses that are too many.
        for (flight, floor, fewest) in [(100.0, 0.01, 6), (100.0, 0.20, 31), (400.0, 0.10, 61)] {
            assert!(f64::from(fewest) > allowed(flight, floor), "{flight} {floor}");
            assert!(f64::from(fewest - 1) <= allowed(flight, floor), "{flight} {floor}");
        }
    }

    #[test]
    fn a_round_without_a_queue_may_lose_its_floor_and_some_chance() {
        assert!(!reacts(tally(100, 2), 0.0, false));
        assert!(reacts(tally(100, 3), 0.0, false));
        // 1 % of noise: 1 + 2 + max(1, 2) %.
        assert!(!reacts(tally(100, 5), 0.01, false));
        assert!(reacts(tally(100, 6), 0.01, false));
        assert!(!reacts(tally(0, 0), 0.0, false));
    }

    #[test]
    fn behind_a_queue_any_loss_counts_unless_there_is_much_noise() {
        assert!(reacts(tally(100, 1), 0.02, true));
        assert!(!reacts(tally(100, 0), 0.02, true));
        // 10 % of noise: 10 + 3.2 %.
        assert!(!reacts(tally(100, 13), 0.10, true));
        assert!(reacts(tally(100, 14), 0.10, true));
    }

    #[test]
    fn startup_ends_by_loss_only_beyond_what_it_lost_before() {
        // Nothing before: a floor of 20 % is allowed for.
        assert!(!ends_startup(tally(100, 20), tally(0, 0), true));
        assert!(!ends_startup(tally(39, 39), tally(390, 0), true), "too few to tell");
        // 2 of 400: 0.5 %, with chance 1.9 %, with the excess 5.9 and 11.9 %.
        assert!(ends_startup(tally(100, 6), tally(390, 0), true));
        assert!(!ends_startup(tally(100, 11), tally(390, 0), false));
        assert!(ends_startup(tally(100, 12), tally(390, 0), false));
        assert!(!ends_startup(tally(50, 5), tally(390, 0), true), "five losses may be chance");
    }
}
