//! How much of a path's loss is noise: lost for other reasons than that too much was sent.
//!
//! A controller or governor that took every loss for congestion would crawl over a bad radio link; one that took none for
//! it would starve others. The *floor* `p0` of a path is what both may disregard. It is the median loss of the last
//! windows of at least 400 datagrams that were sent calmly and met no queue, but above 5 % only as far as a *trial* has
//! confirmed it: loss that our rate causes shrinks when the rate does, random loss stays. In a trial the controller paces at
//! three quarters of its rate until 256 datagrams were sent or a second passed.
//!
//! The early rounds of a controller's startup count as the first window, as they are far below the final rate. Where copies go
//! over another path they count as the first trial as well.
//!
//! Without copies little is believed in a crowd. Many flows that fill one queue all lose the same whatever a single one does, and
//! to who joined late the full queue looks like none: its delay never changes. So nothing is measured until a queue has come
//! and gone, as any controller's own probing makes it do on a path that is its own. All rates are shares of datagrams, 0 to 1. (The rules are ours: docs/CONGESTION.md, "What the paths tell".)

use std::time::{Duration, Instant};

use super::SendPhase;

/// The floor is never above this.
pub const HIGHEST_FLOOR: f64 = 0.4;

/// Up to here the measured loss is believed without a trial.
pub const BELIEVED: f64 = 0.05;

/// Windows of which the median is taken, and datagrams in each at least.
const WINDOWS: usize = 16;
const WINDOW_DATAGRAMS: u32 = 400;

/// A trial ends after so many datagrams or so long, whichever comes first; the controller keeps to it.
pub const TRIAL_DATAGRAMS: u32 = 256;
/// See [`TRIAL_DATAGRAMS`].
pub const LONGEST_TRIAL: Duration = Duration::from_secs(1);

/// With fewer datagrams than this the next trial's are added before a verdict.
const LEAST_TRIAL_DATAGRAMS: u32 = 128;

/// Weight of a further trial's loss in what is confirmed.
const TRIAL_WEIGHT: f64 = 0.4;

/// Rounds at the end of startup that tell nothing of noise: they may have filled the queue.
const LATE_ROUNDS: usize = 3;

/// How long it is known that the path can have a queue, as long as the least delay is remembered.
const QUEUE_KNOWN: Duration = Duration::from_secs(10);

/// Datagrams that the early part of startup must have to be believed.
const LEAST_EARLY_DATAGRAMS: u32 = 100;

/// The floor of one path.
#[derive(Debug, Clone, Default)]
pub struct NoiseFloor {
    windows: [f64; WINDOWS],
    /// Windows closed so far.
    closed: usize,
    open: Tally,
    trial: Tally,
    confirmed: Option<f64>,
    startup: Option<Startup>,
    /// Nothing is measured before a queue was seen.
    needs_queue: bool,
    queue_seen: Option<Instant>,
}

/// Datagrams whose fate is known, and those of them that were lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Datagrams.
    pub datagrams: u32,
    /// Those of them that were lost.
    pub lost: u32,
}

/// Losses of a startup under way: of its last rounds, newest first, and of all before them.
#[derive(Debug, Clone, Copy)]
struct Startup {
    rounds: [Tally; LATE_ROUNDS],
    round_began: Instant,
    early: Tally,
}

impl Tally {
    /// Share that was lost; 0 of nothing.
    pub fn loss(self) -> f64 {
        if self.datagrams == 0 { 0.0 } else { f64::from(self.lost) / f64::from(self.datagrams) }
    }

    /// Counts one datagram.
    pub fn count(&mut self, lost: bool) {
        self.datagrams += 1;
        self.lost += u32::from(lost);
    }

    /// Counts those of another.
    pub fn add(&mut self, other: Tally) {
        self.datagrams = self.datagrams.saturating_add(other.datagrams);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

impl NoiseFloor {
    /// Whether nothing is to be measured before a queue was seen, as no copies go over other paths.
    pub fn set_needs_queue(&mut self, needs_queue: bool) {
        self.needs_queue = needs_queue;
    }

    /// Takes in the fate of datagrams that were sent in `phase`, in the order of their sending.
    ///
    /// `queue` tells whether they met a queue beyond the tolerated one, or there was one when their fate was told; `round`
    /// is the path's round-trip time.
    pub fn on_judged(&mut self, fates: Tally, phase: SendPhase, queue: bool, round: Duration, now: Instant) {
        if fates.datagrams == 0 {
            return;
        }
        if queue {
            self.queue_seen = Some(now);
        }
        let tells =
            !self.needs_queue || self.queue_seen.is_some_and(|at| now.saturating_duration_since(at) < QUEUE_KNOWN);
        if phase == SendPhase::Startup {
            self.on_startup(fates, round, now);
            return;
        }
        if let Some(startup) = self.startup.take()
            && startup.early.datagrams >= LEAST_EARLY_DATAGRAMS
            && tells
        {
            self.close_window(startup.early.loss());
            self.confirmed = (!self.needs_queue).then_some(startup.early.loss().min(HIGHEST_FLOOR));
        }
        if phase == SendPhase::Trial {
            self.trial.add(fates);
        } else if self.trial.datagrams >= LEAST_TRIAL_DATAGRAMS {
            let loss = std::mem::take(&mut self.trial).loss();
            self.confirmed =
                Some(self.confirmed.map_or(loss, |before| before * (1.0 - TRIAL_WEIGHT) + loss * TRIAL_WEIGHT));
        }
        if phase.is_calm() && !queue && tells {
            self.open.add(fates);
            if self.open.datagrams >= WINDOW_DATAGRAMS {
                let loss = std::mem::take(&mut self.open).loss();
                self.close_window(loss);
            }
        }
    }

    /// The loss that is taken for noise, 0 to [`HIGHEST_FLOOR`].
    pub fn floor(&self) -> f64 {
        let confirmed = self.confirmed.unwrap_or(0.0);
        let trusted = (confirmed + (confirmed / f64::from(TRIAL_DATAGRAMS)).sqrt()).max(BELIEVED);
        self.median().unwrap_or(0.0).min(trusted).min(HIGHEST_FLOOR)
    }

    /// Whether more is lost than is believed without a trial.
    pub fn doubts(&self) -> bool {
        self.median().is_some_and(|median| median > BELIEVED)
    }

    /// Whether any trial, or the early part of a startup, has been judged.
    pub fn has_verdict(&self) -> bool {
        self.confirmed.is_some()
    }

    /// Median loss of the last windows; `None` before the first.
    fn median(&self) -> Option<f64> {
        let count = self.closed.min(WINDOWS);
        if count == 0 {
            return None;
        }
        let mut sorted = self.windows;
        let sorted = &mut sorted[..count];
        sorted.sort_unstable_by(f64::total_cmp);
        Some((sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0)
    }

    fn close_window(&mut self, loss: f64) {
        self.windows[self.closed % WINDOWS] = loss;
        self.closed += 1;
    }

    fn on_startup(&mut self, fates: Tally, round: Duration, now: Instant) {
        let began = Startup { rounds: Default::default(), round_began: now, early: Tally::default() };
        let startup = self.startup.get_or_insert(began);
        if now.saturating_duration_since(startup.round_began) >= round {
            startup.round_began = now;
            startup.early.add(startup.rounds[LATE_ROUNDS - 1]);
            startup.rounds.rotate_right(1);
            startup.rounds[0] = Tally::default();
        }
        startup.rounds[0].add(fates);
    }
}

/// When the next trial may be asked for, over all paths of one direction.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrialClock {
    began: Option<Instant>,
    ended: Option<(Instant, Duration)>,
}

impl TrialClock {
    /// Takes in the phase in which is sent `now`.
    pub fn on_sent(&mut self, phase: SendPhase, now: Instant) {
        match (phase == SendPhase::Trial, self.began) {
            (true, None) => self.began = Some(now),
            (false, Some(began)) => {
                // One in whose midst nothing was left to send ends with what is sent next.
                self.ended = Some((now, now.saturating_duration_since(began).min(LONGEST_TRIAL)));
                self.began = None;
            }
            _ => {}
        }
    }

    /// Whether a trial is wanted for any of `floors`, those of the paths that carry traffic: every 0.3 s until the first
    /// verdict, then every 2 s or eight times the last trial's length, whichever is more.
    pub fn wants_trial<'a>(&self, floors: impl Iterator<Item = &'a NoiseFloor>, now: Instant) -> bool {
        if self.began.is_some() {
            return false;
        }
        floors.filter(|floor| floor.doubts()).any(|floor| {
            let Some((ended, length)) = self.ended else { return true };
            let pause = match floor.has_verdict() {
                true => Duration::from_secs(2).max(8 * length),
                false => Duration::from_millis(300),
            };
            now.saturating_duration_since(ended) >= pause
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RTT: Duration = Duration::from_millis(20);

    fn tally(datagrams: u32, lost: u32) -> Tally {
        Tally { datagrams, lost }
    }

    /// A floor that judged these in turn.
    fn judged(fates: &[(SendPhase, u32, u32)]) -> NoiseFloor {
        let mut floor = NoiseFloor::default();
        for (phase, datagrams, lost) in fates {
            floor.on_judged(tally(*datagrams, *lost), *phase, false, RTT, crate::testing::start());
        }
        floor
    }

    const STEADY_20: (SendPhase, u32, u32) = (SendPhase::Steady, 400, 80);

    #[test]
    fn loss_is_believed_up_to_five_percent_and_above_as_far_as_trials_confirm_it() {
        let untried = judged(&[STEADY_20; 3]);
        assert_eq!(untried.floor(), 0.05);
        assert!(untried.doubts() && !untried.has_verdict());
        let mut once = vec![STEADY_20; 3];
        once.extend([(SendPhase::Trial, 250, 50), STEADY_20]);
        assert_eq!(judged(&once).confirmed, Some(0.2));
        once.extend([(SendPhase::Trial, 250, 25), STEADY_20]);
        let twice = judged(&once);
        assert!((twice.confirmed.expect("two trials") - 0.16).abs() < 1e-9);
        assert!((twice.floor() - 0.185).abs() < 1e-9, "{}", twice.floor());
    }

    #[test]
    fn a_policers_loss_shrinks_in_a_trial_and_stays_no_noise() {
        let steady = (SendPhase::Steady, 400, 48);
        let policer = judged(&[steady, steady, (SendPhase::Trial, 200, 2), steady]);
        assert_eq!(policer.floor(), 0.05);
    }

    #[test]
    fn a_small_trial_waits_for_the_next_ones_datagrams() {
        let floor = judged(&[STEADY_20, (SendPhase::Trial, 100, 20), STEADY_20]);
        assert!(!floor.has_verdict());
        let floor = judged(&[STEADY_20, (SendPhase::Trial, 100, 20), STEADY_20, (SendPhase::Trial, 28, 0), STEADY_20]);
        assert_eq!(floor.confirmed, Some(20.0 / 128.0));
    }

    #[test]
    fn what_probes_or_meets_a_queue_is_not_measured() {
        let mut floor = NoiseFloor::default();
        let now = crate::testing::start();
        floor.on_judged(tally(4_000, 400), SendPhase::Probing, false, RTT, now);
        floor.on_judged(tally(4_000, 400), SendPhase::Steady, true, RTT, now);
        assert_eq!(floor.floor(), 0.0);
        floor.on_judged(tally(400, 4), SendPhase::Steady, false, RTT, now);
        assert_eq!(floor.floor(), 0.01);
    }

    #[test]
    fn the_early_rounds_of_startup_are_the_first_window_and_the_first_trial() {
        let start = crate::testing::start();
        let mut floor = NoiseFloor::default();
        // Ten rounds; the last three lose half.
        for round in 0..10u32 {
            let lost = if round < 7 { 2 } else { 20 };
            floor.on_judged(tally(40, lost), SendPhase::Startup, false, RTT, start + RTT * round);
        }
        assert_eq!(floor.floor(), 0.0, "nothing is settled before startup is over");
        floor.on_judged(tally(1, 0), SendPhase::Steady, false, RTT, start + RTT * 10);
        assert_eq!((floor.floor(), floor.confirmed), (0.05, Some(0.05)));
    }

    #[test]
    fn without_copies_nothing_is_measured_until_a_queue_has_come_and_gone() {
        let start = crate::testing::start();
        let mut floor = NoiseFloor { needs_queue: true, ..NoiseFloor::default() };
        let mut judge = |phase, lost, queue, second| {
            floor.on_judged(tally(400, lost), phase, queue, RTT, start + Duration::from_secs(second));
            (floor.floor(), floor.doubts(), floor.has_verdict())
        };
        assert_eq!(judge(SendPhase::Startup, 80, false, 0), (0.0, false, false));
        assert_eq!(judge(SendPhase::Steady, 80, false, 1), (0.0, false, false));
        assert_eq!(judge(SendPhase::Probing, 80, true, 2), (0.0, false, false));
        assert_eq!(judge(SendPhase::Steady, 80, false, 11), (0.05, true, false), "no more is believed without a trial");
        assert_eq!(judge(SendPhase::Steady, 0, false, 12), (0.05, true, false), "the queue is forgotten");
    }

    #[test]
    fn trials_are_wanted_soon_until_the_first_verdict_and_seldom_afterwards() {
        let start = crate::testing::start();
        let at = |ms| start + Duration::from_millis(ms);
        let mut clock = TrialClock::default();
        let untried = judged(&[STEADY_20]);
        let tried = judged(&[STEADY_20, (SendPhase::Trial, 250, 50), STEADY_20]);
        let clean = judged(&[(SendPhase::Steady, 400, 4)]);
        assert!(clock.wants_trial([&clean, &untried].into_iter(), at(0)));
        assert!(!clock.wants_trial([&clean].into_iter(), at(0)));
        clock.on_sent(SendPhase::Trial, at(0));
        assert!(!clock.wants_trial([&untried].into_iter(), at(400)), "one is under way");
        clock.on_sent(SendPhase::Steady, at(500));
        assert!(!clock.wants_trial([&untried].into_iter(), at(799)));
        assert!(clock.wants_trial([&untried].into_iter(), at(800)));
        assert!(!clock.wants_trial([&tried].into_iter(), at(4_499)), "eight times 500 ms");
        assert!(clock.wants_trial([&tried].into_iter(), at(4_500)));
        clock.on_sent(SendPhase::Trial, at(5_000));
        clock.on_sent(SendPhase::Steady, at(600_000));
        assert!(clock.wants_trial([&tried].into_iter(), at(608_000)), "ten idle minutes are no long trial");
    }

    proptest! {
        #[test]
        fn a_floor_is_a_share_whatever_is_judged(
            fates in prop::collection::vec((0usize..4, 0u32..2_000, 0.0..=1.0, any::<bool>()), 0..200),
        ) {
            let mut floor = NoiseFloor { needs_queue: fates.len() % 2 == 0, ..NoiseFloor::default() };
            let mut now = crate::testing::start();
            for (phase, datagrams, share, queue) in fates {
                now += Duration::from_millis(7);
                let lost = (f64::from(datagrams) * share) as u32;
                floor.on_judged(tally(datagrams, lost), SendPhase::ALL[phase], queue, RTT, now);
                prop_assert!((0.0..=HIGHEST_FLOOR).contains(&floor.floor()));
            }
        }
    }
}
