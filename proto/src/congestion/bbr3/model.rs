//! What BBRv3 believes of the path: rounds, bandwidth, round trip, aggregation, and the latest round's signals.
//!
//! Each part is a small machine of its own that takes what one acknowledgement frame told; the controller asks them in the
//! draft's order (draft-ietf-ccwg-bbr-06, section 5.2.3). Lengths are bytes, rates bytes per second.

use std::time::{Duration, Instant};

use crate::congestion::filters::WindowedMax;
use crate::congestion::rate_sample::{AckBatch, RateSample};

/// Part of the bounds that is kept in a round with losses (2.8).
pub(super) const BETA: f64 = 0.7;

/// How long a least round trip is believed (2.16).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);

/// After which time without a round trip as short as the least it is looked for (2.16).
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);

/// Rounds over which aggregation is remembered, once the pipe was full and before (2.12).
const EXTRA_ACKED_ROUNDS: u64 = 10;

/// Rounds counted by packets (5.5.1). The controller starts one at will, so it counts them itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    /// How many have ended.
    pub(super) count: u64,
    /// Whether one ended with the latest acknowledgement.
    pub(super) start: bool,
    next_delivered: u64,
}

impl Rounds {
    pub(super) fn update(&mut self, acked: &AckBatch) {
        self.start = acked.sample.prior_delivered >= self.next_delivered;
        if self.start {
            self.restart(acked.delivered);
            self.count += 1;
        }
    }

    /// Lets a round begin now, when `delivered` bytes are delivered.
    pub(super) fn restart(&mut self, delivered: u64) {
        self.next_delivered = delivered;
    }
}

/// The largest delivery rate of this cycle and the one before it (2.11, 5.5.6).
#[derive(Debug, Clone, Default)]
pub(super) struct MaxBandwidth {
    before: u64,
    cycle: u64,
}

impl MaxBandwidth {
    /// 0 before the first sample.
    pub(super) fn get(&self) -> u64 {
        self.before.max(self.cycle)
    }

    pub(super) fn update(&mut self, sample: &RateSample) {
        if let Some(rate) = sample.delivery_rate
            && rate > 0
            && (rate >= self.get() || !sample.app_limited)
        {
            self.cycle = self.cycle.max(rate);
        }
    }

    /// Whether a cycle ended since `before`.
    #[cfg(test)]
    pub(super) fn is_of_later_cycle(&self, before: &MaxBandwidth) -> bool {
        self.before != before.before || self.cycle < before.cycle
    }

    /// Forgets what was: this is the bandwidth.
    pub(super) fn set(&mut self, rate: u64) {
        *self = MaxBandwidth { before: 0, cycle: rate };
    }

    /// A cycle is over. One without samples does not count: what was known stays known.
    pub(super) fn shift(&mut self) {
        if self.cycle > 0 {
            self.before = std::mem::take(&mut self.cycle);
        }
    }
}

/// The mean delivery rate of a round.
///
/// Over two paths what arrives in the time of one round trip varies with which path was the quicker: the largest of many single
/// samples is a fifth more than the paths carry.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundRate {
    /// Of the samples that the application did not limit, and of all.
    unlimited: Mean,
    all: Mean,
}

#[derive(Debug, Clone, Default)]
struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, rate: u64) {
        self.sum += rate;
        self.count += 1;
    }

    fn get(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }
}

impl RoundRate {
    pub(super) fn update(&mut self, sample: &RateSample) {
        if let Some(rate) = sample.delivery_rate.filter(|rate| *rate > 0) {
            self.all.add(rate);
            if !sample.app_limited {
                self.unlimited.add(rate);
            }
        }
    }

    /// The round is over: what it tells as one sample.
    pub(super) fn end(&mut self, sample: &RateSample) -> RateSample {
        let RoundRate { unlimited, all } = std::mem::take(self);
        let delivery_rate = unlimited.get().or(all.get());
        RateSample { delivery_rate, app_limited: unlimited.count == 0, ..*sample }
    }
}

/// What the latest round delivered, and whether it lost something (5.5.10.3).
#[derive(Debug, Clone, Default)]
pub(super) struct Latest {
    pub(super) bandwidth: u64,
    pub(super) inflight: u64,
    /// Whether a round of this reckoning ended with the latest acknowledgement: the first loss starts one, too.
    pub(super) round_start: bool,
    /// Whether something was lost in the round.
    pub(super) lossy: bool,
    round_delivered: u64,
}

impl Latest {
    /// At the beginning of an acknowledgement.
    pub(super) fn update(&mut self, acked: &AckBatch) {
        self.bandwidth = self.bandwidth.max(acked.sample.delivery_rate.unwrap_or(0));
        self.inflight = self.inflight.max(acked.sample.delivered);
        self.round_start = acked.sample.prior_delivered >= self.round_delivered;
        if self.round_start {
            self.round_delivered = acked.delivered;
        }
    }

    /// At its end.
    pub(super) fn advance(&mut self, sample: &RateSample) {
        if self.round_start {
            self.bandwidth = sample.delivery_rate.unwrap_or(0);
            self.inflight = sample.delivered;
        }
    }

    /// Notes losses, when `delivered` bytes are delivered.
    pub(super) fn lost(&mut self, delivered: u64) {
        if !self.lossy {
            self.round_delivered = delivered;
        }
        self.lossy = true;
    }

    /// Forgets the round (on entry to DOWN).
    pub(super) fn reset(&mut self) {
        self.lossy = false;
        self.bandwidth = 0;
        self.inflight = 0;
    }
}

/// Bounds from recent losses, until the next probe; `None` means no bound (5.5.10.3).
#[derive(Debug, Clone, Default)]
pub(super) struct ShortTerm {
    pub(super) bandwidth: Option<u64>,
    pub(super) inflight: Option<u64>,
}

impl ShortTerm {
    /// A round lost too much.
    pub(super) fn cut(&mut self, max_bandwidth: u64, cwnd: u64, latest: &Latest) {
        let cut = |bound: u64, latest: u64| latest.max((BETA * bound as f64) as u64);
        self.bandwidth = Some(cut(self.bandwidth.unwrap_or(max_bandwidth), latest.bandwidth));
        self.inflight = Some(cut(self.inflight.unwrap_or(cwnd), latest.inflight));
    }

    pub(super) fn unset(&mut self) {
        *self = ShortTerm::default();
    }
}

/// How much more is acknowledged at a time than the bandwidth explains (5.5.9).
#[derive(Debug, Clone)]
pub(super) struct Aggregation {
    since: Instant,
    acked: u64,
    extra: WindowedMax,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Aggregation { since: now, acked: 0, extra: WindowedMax::new(1) }
    }

    pub(super) fn update(&mut self, acked: &AckBatch, bandwidth: u64, cwnd: u64, round: u64, now: Instant) {
        let mut expected = (bandwidth as f64 * now.saturating_duration_since(self.since).as_secs_f64()) as u64;
        if self.acked <= expected {
            self.restart(now);
            expected = 0;
        }
        self.acked += acked.newly_acked;
        self.extra.insert(round, self.acked.saturating_sub(expected).min(cwnd));
    }

    pub(super) fn restart(&mut self, now: Instant) {
        self.acked = 0;
        self.since = now;
    }

    /// The pipe was full: what aggregates now is worth remembering.
    pub(super) fn remember_longer(&mut self) {
        self.extra = WindowedMax::new(EXTRA_ACKED_ROUNDS);
    }

    pub(super) fn extra(&self) -> u64 {
        self.extra.get().unwrap_or(0)
    }
}

/// The least round trip, and when to look for it (5.3.4.3).
#[derive(Debug, Clone)]
pub(super) struct MinRtt {
    least: Option<Duration>,
    at: Instant,
    probed: Option<Duration>,
    probed_at: Instant,
}

impl MinRtt {
    pub(super) fn new(now: Instant) -> Self {
        MinRtt { least: None, at: now, probed: None, probed_at: now }
    }

    pub(super) fn get(&self) -> Option<Duration> {
        self.least
    }

    /// Takes in a sample; answers whether it is time to look for the least again.
    pub(super) fn update(&mut self, rtt: Option<Duration>, now: Instant) -> bool {
        let expired = now > self.probed_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rtt
            && (expired || self.probed.is_none_or(|probed| rtt < probed))
        {
            self.probed = Some(rtt);
            self.probed_at = now;
        }
        if let Some(probed) = self.probed
            && (now > self.at + MIN_RTT_WINDOW || self.least.is_none_or(|least| probed < least))
        {
            self.least = Some(probed);
            self.at = self.probed_at;
        }
        expired
    }

    /// It has been looked for.
    pub(super) fn looked(&mut self, now: Instant) {
        self.probed_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::testing;

    #[test]
    fn a_round_tells_its_mean_of_what_the_application_did_not_limit() {
        let now = testing::base();
        let sample = |rate, app_limited| RateSample { delivery_rate: Some(rate), app_limited, ..testing::sample(now) };
        let mut rate = RoundRate::default();
        let mut round = |samples: &[(u64, bool)]| {
            samples.iter().for_each(|(each, app_limited)| rate.update(&sample(*each, *app_limited)));
            let end = rate.end(&sample(1, false));
            (end.delivery_rate, end.app_limited)
        };
        assert_eq!(round(&[(90, false), (120, false), (10, true), (0, false)]), (Some(105), false));
        assert_eq!(round(&[(10, true), (30, true)]), (Some(20), true));
        assert_eq!(round(&[]).0, None);
    }

    #[test]
    fn the_largest_bandwidth_leaves_after_two_cycles() {
        let sample = |rate| RateSample { delivery_rate: Some(rate), ..testing::sample(testing::base()) };
        let mut filter = MaxBandwidth::default();
        filter.update(&sample(90));
        filter.update(&sample(100));
        filter.shift();
        filter.update(&sample(80));
        filter.update(&RateSample { app_limited: true, ..sample(70) });
        assert_eq!(filter.get(), 100);
        filter.shift();
        assert_eq!(filter.get(), 80);
        filter.shift();
        assert_eq!(filter.get(), 80, "a cycle without samples is none");
    }

    #[test]
    fn a_lossy_round_bounds_by_the_latest_or_seven_tenths() {
        let mut bounds = ShortTerm::default();
        let latest = |bandwidth, inflight| Latest { bandwidth, inflight, ..Latest::default() };
        bounds.cut(100, 200, &latest(60, 150));
        assert_eq!((bounds.bandwidth, bounds.inflight), (Some(70), Some(150)));
        bounds.cut(100, 200, &latest(65, 140));
        assert_eq!((bounds.bandwidth, bounds.inflight), (Some(65), Some(140)));
        bounds.unset();
        assert_eq!((bounds.bandwidth, bounds.inflight), (None, None));
    }

    #[test]
    fn a_longer_round_trip_is_believed_after_ten_seconds_and_looked_for_after_five() {
        let start = crate::testing::start();
        let (ms, secs) = (Duration::from_millis, Duration::from_secs);
        let mut min_rtt = MinRtt::new(start);
        assert!(!min_rtt.update(Some(ms(20)), start));
        assert!(!min_rtt.update(Some(ms(60)), start + secs(5)));
        assert_eq!(min_rtt.get(), Some(ms(20)));
        assert!(min_rtt.update(Some(ms(60)), start + ms(5_001)));
        assert_eq!(min_rtt.get(), Some(ms(20)));
        min_rtt.update(Some(ms(61)), start + ms(10_001));
        assert_eq!(min_rtt.get(), Some(ms(60)));
    }
}
