//! How fast copies may go over one path.
//!
//! A path that is slower than the one the controller is driven by would drown in full copies, and with it all who share
//! it. So each other path has a governor of its own in each direction: a token bucket whose rate `g` follows that path's
//! reports. A queue beyond the tolerated one, or more loss than the path's noise explains, cuts it by 7.5 to 25 %; without a
//! queue it grows by 1 % a round trip, up to 1.5 times the controller's rate; silence halves it. Until the first cut it goes
//! along with the controller, as startup doubles its rate each round. (The rules are ours: docs/CONGESTION.md, "Copies".)
//!
//! The bucket may be overdrawn by one transmit, so that large batches are not starved; over time no more than `g` passes,
//! and what passes is spread evenly. Rates are bytes per second, lengths bytes of UDP payload.

use std::time::{Duration, Instant};

use super::noise_floor::Tally;
use super::{SendPhase, SenderState};

/// Copies never go faster than so many times the controller's rate.
const MOST_OF_PACING: f64 = 1.5;

/// Growth in a round trip: factor, and datagrams besides.
const GROWTH: f64 = 1.01;
const GROWTH_DATAGRAMS: f64 = 0.1;

/// The largest cut, and the least share of it.
const DEEPEST_CUT: f64 = 0.25;
const LEAST_CUT: f64 = 0.3;

/// No verdict on losses with fewer copies.
const LEAST_JUDGED: u32 = 20;

/// Loss above the floor that is no reason for a cut.
const LOSS_ALLOWANCE: f64 = 0.02;

/// The rate never falls below one datagram a round trip and this.
const LEAST_RATE: f64 = 10_000.0;

/// The bucket holds what comes in this time, and at least so many datagrams: as much as the QUIC library may send at once.
const DEPTH_TIME: f64 = 0.002;
const DEPTH_DATAGRAMS: f64 = 10.0;

/// Silence below this is none.
const LEAST_SILENCE: Duration = Duration::from_millis(250);

/// In a trial copies go at this share of their rate, as the originals do.
const TRIAL_SHARE: f64 = 0.75;

/// How much a copy matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Goes in any case: handshakes, and acknowledgements, which are next to nothing.
    Always,
    /// Goes before bulk, even on credit: small datagrams, and the first after a silence.
    Soon,
    /// Goes if there is room.
    Bulk,
}

/// What a report told of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyReport {
    /// Copies whose fate it told.
    pub fates: Tally,
    /// The highest number that arrived on the path.
    pub highest: u64,
    /// The number that the next datagram will have.
    pub next: u64,
    /// How much longer the way through the path takes than its least of late.
    pub queue: Duration,
    /// The queue that is taken for none.
    pub tolerated: Duration,
    /// What of that the path's jitter explains; the rest is what the originals bear. Four times as much above the tolerated
    /// queue is the deepest cut.
    pub bearable: Duration,
    /// What would be tolerated without any jitter; half of it below the tolerated queue, copies may grow.
    pub without_jitter: Duration,
    /// Loss that is taken for noise, 0 to 0.4.
    pub floor: f64,
    /// Bytes per second that arrived over the path lately.
    pub delivered: f64,
}

/// The governor of one path and direction.
#[derive(Debug, Clone)]
pub struct CopyGovernor {
    /// `None` until the first cut, and when all wounds have healed: it goes along with the controller.
    rate: Option<f64>,
    sender: SenderState,
    smss: f64,
    round_trip: Duration,
    report_interval: Duration,
    tokens: f64,
    filled_at: Option<Instant>,
    /// The first number sent after the last cut.
    cut_at: u64,
    grown_at: Option<Instant>,
    unjudged: Tally,
    /// Since when copies wait for a report, and when the last one left.
    waiting_since: Option<Instant>,
    last_copy: Option<Instant>,
}

impl CopyGovernor {
    /// A governor that lets everything pass until it learns better.
    pub fn new() -> Self {
        Self {
            rate: None,
            sender: SenderState::default(),
            smss: 1_200.0,
            round_trip: Duration::from_millis(100),
            report_interval: Duration::from_millis(50),
            tokens: 0.0,
            filled_at: None,
            cut_at: 0,
            grown_at: None,
            unjudged: Tally::default(),
            waiting_since: None,
            last_copy: None,
        }
    }

    /// Takes in how the connection sends, the length of its full datagrams, the path's round trip and how often the far
    /// side reports.
    pub fn update(&mut self, sender: SenderState, smss: usize, round_trip: Duration, report_interval: Duration) {
        self.sender = sender;
        self.smss = smss as f64;
        self.round_trip = round_trip.max(Duration::from_micros(1));
        self.report_interval = report_interval;
    }

    /// Whether a copy of `bytes` may go now; if so it is counted.
    pub fn admit(&mut self, bytes: usize, urgency: Urgency, now: Instant) -> bool {
        self.fall_silent(now);
        if let Some(rate) = self.limit() {
            let depth = self.depth(rate);
            let elapsed = self.filled_at.map_or(f64::MAX, |at| now.saturating_duration_since(at).as_secs_f64());
            self.tokens = (self.tokens + elapsed * rate).min(depth);
            self.filled_at = Some(now);
            let passes = match urgency {
                Urgency::Always => true,
                Urgency::Soon => self.tokens > -depth,
                Urgency::Bulk => self.tokens > 0.0,
            };
            if !passes {
                return false;
            }
            // What goes in any case is not to be paid for longer than it takes to fill the bucket.
            self.tokens = (self.tokens - bytes as f64).max(-depth - bytes as f64);
        }
        self.waiting_since.get_or_insert(now);
        self.last_copy = Some(now);
        true
    }

    /// A copy that was admitted did not leave after all.
    pub fn refund(&mut self, bytes: usize) {
        self.tokens += bytes as f64;
    }

    /// Takes in a report that told something new of the path.
    pub fn on_report(&mut self, report: &CopyReport, now: Instant) {
        self.waiting_since = None;
        self.unjudged.add(report.fates);
        let loses = self.unjudged.datagrams >= LEAST_JUDGED && {
            let judged = std::mem::take(&mut self.unjudged);
            // While a startup lasts, the path's noise is not known yet.
            self.sender.phase != SendPhase::Startup && judged.loss() > loss_limit(report.floor, judged.datagrams)
        };
        let Some(pacing) = self.pacing() else { return };
        if report.highest < self.cut_at {
            return;
        }
        let (queue, tolerated) = (report.queue.as_secs_f64(), report.tolerated.as_secs_f64());
        if queue > tolerated || loses {
            let excess = ((queue - tolerated) / (4.0 * report.bearable.as_secs_f64())).clamp(LEAST_CUT, 1.0);
            let before = self.rate.unwrap_or(MOST_OF_PACING * pacing);
            // Behind a long queue what arrives is what the path carries.
            let before = if excess >= 1.0 { before.min(report.delivered) } else { before };
            self.rate = Some((before * (1.0 - DEEPEST_CUT * excess)).max(self.least()));
            self.cut_at = report.next;
            self.grown_at = Some(now);
        } else if let Some(rate) = self.rate
            && queue < tolerated - report.without_jitter.as_secs_f64() / 2.0
            && self.grown_at.is_none_or(|at| now.saturating_duration_since(at) >= self.round_trip)
        {
            let grown = GROWTH * rate + GROWTH_DATAGRAMS * self.smss / self.round_trip.as_secs_f64();
            self.rate = (grown < MOST_OF_PACING * pacing).then_some(grown);
            self.grown_at = Some(now);
        }
    }

    /// Bytes per second that may go now; `None` while nothing limits: the controller's rate is not known.
    pub fn rate(&self) -> Option<f64> {
        let pacing = self.pacing()?;
        let most = MOST_OF_PACING * pacing;
        let rate = self.rate.unwrap_or(most);
        let rate = match self.sender.phase {
            SendPhase::Trial => (TRIAL_SHARE * rate).min(pacing),
            SendPhase::Startup | SendPhase::Probing | SendPhase::Steady => rate.min(most),
        };
        Some(rate.max(self.least()))
    }

    /// Whether copies are fewer than originals; as long as they are not, the controller's pacing is theirs.
    fn is_limited(&self) -> bool {
        self.rate.is_some() || self.sender.phase == SendPhase::Trial
    }

    /// Bytes per second if copies are held back to that now; `None` if they may go as fast as the originals.
    pub fn limit(&self) -> Option<f64> {
        self.rate().filter(|_| self.is_limited())
    }

    /// Halves the rate for each time of silence since the first copy that no report answers, while copies go on. Where nothing
    /// follows, one lost copy would be a silence as long as the pause.
    fn fall_silent(&mut self, now: Instant) {
        let patience = (3 * self.round_trip).max(4 * self.report_interval).max(LEAST_SILENCE);
        if self.last_copy.is_some_and(|last| now.saturating_duration_since(last) >= patience) {
            self.waiting_since = None;
        }
        while let (Some(since), Some(pacing)) = (self.waiting_since, self.pacing())
            && now.saturating_duration_since(since) >= patience
        {
            self.rate = Some((self.rate.unwrap_or(pacing) / 2.0).max(self.least()));
            self.waiting_since = Some(since + patience);
            if self.rate.is_some_and(|rate| rate <= self.least()) {
                self.waiting_since = Some(now);
            }
        }
    }

    fn pacing(&self) -> Option<f64> {
        self.sender.pacing_rate.map(|rate| rate as f64)
    }

    fn least(&self) -> f64 {
        (self.smss / self.round_trip.as_secs_f64()).max(LEAST_RATE)
    }

    fn depth(&self, rate: f64) -> f64 {
        (DEPTH_TIME * rate).max(DEPTH_DATAGRAMS * self.smss)
    }
}

impl Default for CopyGovernor {
    fn default() -> Self {
        Self::new()
    }
}

/// The loss above which copies are too many, on a path of this floor, judged by `n` of them.
fn loss_limit(floor: f64, n: u32) -> f64 {
    let noise = 2.0 * (floor.max(0.01) / f64::from(n)).sqrt();
    floor + LOSS_ALLOWANCE + floor.min(0.05).max(noise)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(10);

    fn sender(rate: u64) -> SenderState {
        SenderState { phase: SendPhase::Steady, pacing_rate: Some(rate), gives_way: true }
    }

    /// A governor on a path of 10 ms under a controller that sends 10 MB/s.
    fn governor() -> CopyGovernor {
        let mut governor = CopyGovernor::new();
        governor.update(sender(10_000_000), 1_200, RTT, 5 * MS);
        governor
    }

    /// A report without losses.
    fn report(highest: u64, queue_ms: f64) -> CopyReport {
        CopyReport {
            fates: Tally { datagrams: 30, lost: 0 },
            highest,
            next: highest + 100,
            queue: Duration::from_secs_f64(queue_ms / 1e3),
            tolerated: MS,
            bearable: MS,
            without_jitter: MS,
            floor: 0.0,
            delivered: 10_000_000.0,
        }
    }

    #[test]
    fn nothing_is_held_back_before_anything_is_known() {
        let mut governor = CopyGovernor::new();
        assert_eq!(governor.rate(), None);
        assert!((0..1_000).all(|_| governor.admit(14_000, Urgency::Bulk, crate::testing::start())));
    }

    #[test]
    fn a_queue_cuts_the_rate_once_for_what_was_sent_before() {
        let now = crate::testing::start();
        let mut governor = governor();
        governor.on_report(&report(50, 3.0), now);
        assert_eq!(governor.rate(), Some(13_125_000.0), "half of the deepest cut");
        governor.on_report(&report(149, 9.0), now + 5 * MS);
        assert_eq!(governor.rate(), Some(13_125_000.0), "told of nothing that was sent after the cut");
        governor.on_report(&report(150, 9.0), now + 10 * MS);
        assert_eq!(governor.rate(), Some(7_500_000.0), "the deepest cut of what the path carries");
        governor.on_report(&report(160, 0.0), now + 30 * MS);
        assert_eq!(governor.rate(), Some(7_500_000.0), "nor is there growth before");
        governor.on_report(&report(250, 0.4), now + 40 * MS);
        assert_eq!(governor.rate(), Some(1.01 * 7_500_000.0 + 12_000.0));
        governor.on_report(&report(350, 0.4), now + 45 * MS);
        assert_eq!(governor.rate(), Some(1.01 * 7_500_000.0 + 12_000.0), "once a round trip");
    }

    #[test]
    fn only_loss_beyond_the_paths_noise_cuts() {
        let lossy = |lost, floor| {
            let mut governor = governor();
            let fates = Tally { datagrams: 100, lost };
            governor.on_report(&CopyReport { fates, floor, ..report(0, 0.0) }, crate::testing::start());
            governor.rate()
        };
        let free = Some(15_000_000.0);
        // Limits: 0 + 2 + 2 sqrt(1 % / 100) = 4 %; 20 + 2 + 2 sqrt(20 % / 100) = 30.9 %.
        assert_eq!((lossy(4, 0.0), lossy(30, 0.2)), (free, free));
        assert_eq!((lossy(5, 0.0), lossy(31, 0.2)), (Some(13_875_000.0), Some(13_875_000.0)));
        let mut few = governor();
        few.on_report(
            &CopyReport { fates: Tally { datagrams: 19, lost: 10 }, ..report(0, 0.0) },
            crate::testing::start(),
        );
        assert_eq!(few.rate(), free, "too few for a verdict");
        let mut early = governor();
        early.update(SenderState { phase: SendPhase::Startup, ..sender(10_000_000) }, 1_200, RTT, 5 * MS);
        let fates = Tally { datagrams: 100, lost: 40 };
        early.on_report(&CopyReport { fates, ..report(0, 0.0) }, crate::testing::start());
        assert_eq!(early.rate(), free, "the noise is not known yet");
    }

    #[test]
    fn without_reports_the_rate_is_halved_again_and_again() {
        let start = crate::testing::start();
        for (rtt, interval, halved_at) in [(10, 5, [250, 500]), (200, 100, [600, 1_200])] {
            let mut governor = governor();
            governor.update(sender(10_000_000), 1_200, rtt * MS, interval * MS);
            let mut rate_at = |ms: u32| {
                governor.admit(100, Urgency::Always, start + ms * MS);
                governor.rate()
            };
            assert_eq!(rate_at(0), Some(15_000_000.0));
            assert_eq!(rate_at(halved_at[0] - 1), Some(15_000_000.0));
            assert_eq!(rate_at(halved_at[0]), Some(5_000_000.0));
            assert_eq!(rate_at(halved_at[1] - 1), Some(5_000_000.0));
            assert_eq!(rate_at(halved_at[1]), Some(2_500_000.0));
            for step in 1..100 {
                rate_at(halved_at[1] + step * (halved_at[0] - 1));
            }
            assert_eq!(governor.rate(), Some(governor.least()));
        }
    }

    #[test]
    fn a_pause_after_an_unanswered_copy_is_no_silence() {
        let start = crate::testing::start();
        let mut governor = governor();
        for second in 0..100 {
            assert!(governor.admit(1_200, Urgency::Bulk, start + 1_000 * second * MS));
        }
        assert_eq!(governor.rate(), Some(15_000_000.0));
    }

    #[test]
    fn what_matters_goes_first_and_bulk_is_thinned_evenly() {
        let start = crate::testing::start();
        let mut governor = governor();
        governor.on_report(&CopyReport { delivered: 2_000_000.0, ..report(0, 9.0) }, start);
        assert_eq!(governor.rate(), Some(1_500_000.0));
        // 10 MB/s in transmits of 1,200 bytes, of which 3 in 20 fit.
        let passed: Vec<u32> =
            (0..2_000).filter(|k| governor.admit(1_200, Urgency::Bulk, start + *k * MS * 12 / 100)).collect();
        assert!((300..=315).contains(&passed.len()), "{}", passed.len());
        assert!(passed[12..].windows(2).all(|pair| (6..=7).contains(&(pair[1] - pair[0]))), "{passed:?}");
        let now = start + 240 * MS;
        assert!(!governor.admit(1_200, Urgency::Bulk, now));
        assert!(governor.admit(1_200, Urgency::Soon, now) && governor.admit(1_200, Urgency::Soon, now));
        let further = (0..100).filter(|_| governor.admit(1_200, Urgency::Soon, now)).count();
        assert!(further < 12, "credit is bounded: {further}");
        assert!(governor.admit(60, Urgency::Always, now));
    }

    #[test]
    fn a_trial_slows_copies_as_it_slows_originals() {
        let mut governor = governor();
        governor.on_report(&report(0, 9.0), crate::testing::start());
        assert_eq!(governor.rate(), Some(7_500_000.0));
        governor.update(SenderState { phase: SendPhase::Trial, ..sender(7_500_000) }, 1_200, RTT, 5 * MS);
        assert_eq!(governor.rate(), Some(5_625_000.0));
    }

    proptest! {
        /// Rates stay between the least and 1.5 times the controller's, and no more passes than they allow.
        #[test]
        fn no_more_passes_than_the_rate_allows(
            steps in prop::collection::vec((1u32..40, 0.0..20.0f64, 0u32..30, 1u64..20_000_000, 1usize..15_000), 1..300),
        ) {
            let start = crate::testing::start();
            let (mut governor, mut now, mut highest) = (CopyGovernor::new(), start, 0);
            let (mut passed, mut allowed, mut most_depth) = (0.0, 0.0, 0.0f64);
            for (ms, queue_ms, lost, pacing, bytes) in steps {
                governor.update(sender(pacing), 1_200, RTT, 5 * MS);
                let rate = governor.rate().expect("a rate is known");
                let least = governor.least();
                prop_assert!(rate >= least && rate <= (MOST_OF_PACING * pacing as f64).max(least));
                now += ms * MS;
                allowed += rate * f64::from(ms) / 1e3;
                most_depth = most_depth.max(governor.depth(rate) + bytes as f64);
                if !governor.is_limited() {
                    // As many as there are originals, which the controller paces.
                    (passed, allowed, most_depth) = (0.0, 0.0, 0.0);
                    prop_assert!(governor.admit(bytes, Urgency::Bulk, now));
                } else if governor.admit(bytes, Urgency::Bulk, now) {
                    passed += bytes as f64;
                }
                prop_assert!(passed <= allowed + most_depth, "{passed} {allowed} {most_depth}");
                highest += 50;
                let fates = Tally { datagrams: 30, lost };
                governor.on_report(&CopyReport { fates, ..report(highest, queue_ms) }, now);
            }
        }
    }
}
