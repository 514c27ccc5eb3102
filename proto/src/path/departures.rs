//! What was sent on one path and what the reports say of it: loss, delivered rate, queue.
//!
//! All delays are relative one-way delays, so only their changes count: the least mean of the last ten seconds stands for
//! an empty queue, which also takes out clock drift.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use crate::congestion::copy_governor::CopyGovernor;
use crate::congestion::noise_floor::NoiseFloor;
use crate::recent::RecentMax;
use crate::wire::control::PathReport;
use crate::wire::header::TICK_MICROS;

/// Over which time the delivered rate is taken.
const RATE_SPAN: Duration = Duration::from_secs(1);

/// And over which the rate at which things arrive just now.
const ARRIVING_SPAN: Duration = Duration::from_millis(50);

/// Over which time the longest queue of the originals is what copies may bear.
const PEAK_SPAN: Duration = Duration::from_millis(200);

/// Over which changes of the delay are taken that copies must bear.
const SLOW_SPAN: Duration = Duration::from_millis(100);

/// Over which time the least delay stands for an empty queue.
const BASE_SPAN: Duration = Duration::from_secs(10);

/// A queue below this is none: scheduling noise is no queue.
const LEAST_TOLERATED: Duration = Duration::from_millis(1);

/// Send side of one path.
#[derive(Debug)]
pub(crate) struct Departures {
    /// Framed datagrams sent.
    pub(crate) datagrams: u64,
    /// Bytes of UDP payload of everything sent.
    pub(crate) bytes: u64,
    /// Errors of the socket.
    pub(crate) send_errors: u64,
    /// Datagrams whose arrival is known, and those of them that did not arrive.
    pub(crate) judged: u64,
    pub(crate) lost: u64,
    /// The highest number that is known to have arrived.
    pub(crate) highest: Option<u64>,
    /// All numbers up to here are judged.
    pub(crate) judged_to: u64,
    /// How much of the loss is noise.
    pub(crate) noise: NoiseFloor,
    /// How fast copies may go here while another path is the primary one.
    pub(crate) governor: CopyGovernor,
    /// Copies that the governor held back.
    pub(crate) skipped: u64,
    recent_loss: f64,
    arriving: f64,
    arriving_from: Option<(Instant, u64)>,
    rate: f64,
    rate_from: Option<(Instant, u64)>,
    last: Option<PathReport>,
    mean: Option<f64>,
    base: RecentMax<Reverse<i64>>,
    queue: Duration,
    peak: RecentMax<Duration>,
    deviation: f64,
    /// A mean some [`SLOW_SPAN`] ago, and the mean change since the one before.
    slow_mean: Option<(Instant, f64)>,
    slow_deviation: f64,
}

impl Departures {
    pub(crate) fn new() -> Self {
        Self {
            datagrams: 0,
            bytes: 0,
            send_errors: 0,
            judged: 0,
            lost: 0,
            highest: None,
            judged_to: 0,
            noise: NoiseFloor::default(),
            governor: CopyGovernor::new(),
            skipped: 0,
            recent_loss: 0.0,
            arriving: f64::MAX,
            arriving_from: None,
            rate: 0.0,
            rate_from: None,
            last: None,
            mean: None,
            base: RecentMax::new(BASE_SPAN),
            queue: Duration::ZERO,
            peak: RecentMax::new(PEAK_SPAN),
            deviation: 0.0,
            slow_mean: None,
            slow_deviation: 0.0,
        }
    }

    /// Takes in a report's counters and delays; `false` if it tells nothing new. What was sent while `probing` for more
    /// bandwidth makes queues of its own, which are no jitter.
    pub(crate) fn on_report(&mut self, report: &PathReport, probing: bool, now: Instant) -> bool {
        let (mut count, mut sum) = (report.datagrams, report.delay_sum as i64);
        if let Some(last) = &self.last {
            count = report.datagrams.wrapping_sub(last.datagrams);
            sum = report.delay_sum.wrapping_sub(last.delay_sum) as i64;
        }
        if count == 0 || count > u32::MAX / 2 {
            return false;
        }
        let mean = sum as f64 / f64::from(count);
        if let Some(before) = self.mean.filter(|_| !probing) {
            self.deviation += ((mean - before).abs() - self.deviation) / 16.0;
        }
        match self.slow_mean {
            Some((at, before)) if now.saturating_duration_since(at) >= SLOW_SPAN => {
                if !probing {
                    self.slow_deviation += ((mean - before).abs() - self.slow_deviation) / 16.0;
                }
                self.slow_mean = Some((now, mean));
            }
            Some(_) => {}
            None => self.slow_mean = Some((now, mean)),
        }
        self.mean = Some(mean);
        self.base.insert(Reverse(mean as i64), now);
        let base = self.base.get(now).map_or(mean, |Reverse(base)| base as f64);
        self.queue = ticks((f64::from(report.delay_average) - base).max(0.0));

        self.peak.insert(self.queue, now);
        match self.arriving_from {
            Some((from, bytes)) if now.saturating_duration_since(from) >= ARRIVING_SPAN => {
                self.arriving = report.bytes.saturating_sub(bytes) as f64 / (now - from).as_secs_f64();
                self.arriving_from = Some((now, report.bytes));
            }
            Some(_) => {}
            None => self.arriving_from = Some((now, report.bytes)),
        }
        match self.rate_from {
            Some((from, bytes)) if now > from => {
                let elapsed = now - from;
                if elapsed >= RATE_SPAN / 4 {
                    let sample = report.bytes.saturating_sub(bytes) as f64 / elapsed.as_secs_f64();
                    let weight = match self.rate {
                        0.0 => 1.0,
                        _ => (elapsed.as_secs_f64() / RATE_SPAN.as_secs_f64()).min(1.0),
                    };
                    self.rate += (sample - self.rate) * weight;
                    self.rate_from = Some((now, report.bytes));
                }
            }
            _ => self.rate_from = Some((now, report.bytes)),
        }
        match &mut self.last {
            Some(last) => last.clone_from(report),
            None => self.last = Some(report.clone()),
        }
        true
    }

    /// The far side may have begun to count anew: the next report is a first one.
    pub(crate) fn on_reset(&mut self) {
        self.last = None;
        self.rate_from = None;
        self.arriving_from = None;
        self.mean = None;
        self.slow_mean = None;
        self.base = RecentMax::new(BASE_SPAN);
    }

    /// Counts one datagram as arrived or lost.
    pub(crate) fn judge(&mut self, lost: bool) {
        self.judged += 1;
        self.lost += u64::from(lost);
        self.recent_loss += (f64::from(u8::from(lost)) - self.recent_loss) / 1_000.0_f64.min(self.judged as f64);
    }

    /// Delivered bytes per second lately; 0 if no report came for long.
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        if self.is_reported(now) { self.rate } else { 0.0 }
    }

    /// Whether reports came lately, so that what they told holds.
    pub(crate) fn is_reported(&self, now: Instant) -> bool {
        self.rate_from.is_some_and(|(from, _)| now.saturating_duration_since(from) < 2 * RATE_SPAN)
    }

    /// Bytes per second that arrived over some 50 ms before the last report; endless if that is not known.
    pub(crate) fn arriving(&self) -> f64 {
        self.arriving
    }

    /// Queueing delay on the path.
    pub(crate) fn queue(&self) -> Duration {
        self.queue
    }

    /// The longest of it of about the last 200 ms.
    pub(crate) fn peak_queue(&mut self, now: Instant) -> Duration {
        self.peak.get(now).unwrap_or_default()
    }

    /// The queueing delay that is still taken for none, on a path of this least round-trip time:
    /// `max(0.1 min_rtt, 1 ms, min(3 D, 0.25 min_rtt + 10 ms))` with the mean deviation `D` of the reports' delays.
    pub(crate) fn tolerated_queue(&self, min_rtt: Duration) -> Duration {
        let jitter = ticks(3.0 * self.deviation).min(most_tolerated(min_rtt));
        tolerated_without_jitter(min_rtt).max(jitter)
    }

    /// The queueing delay that copies bear: as [`Self::tolerated_queue`], but with changes over 100 ms as well as those from
    /// report to report, as the slow jitter of radio links would else look like a queue that never ends.
    pub(crate) fn bearable_queue(&self, min_rtt: Duration) -> Duration {
        self.tolerated_queue(min_rtt).max(ticks(3.0 * self.slow_deviation).min(most_tolerated(min_rtt)))
    }

    /// Share lost among about the last thousand datagrams.
    pub(crate) fn recent_loss(&self) -> f64 {
        self.recent_loss
    }

    /// How far copies arrive behind the first, as the far side last reported.
    pub(crate) fn reported_lag(&self) -> Duration {
        self.last.as_ref().map_or(Duration::ZERO, |last| ticks(f64::from(last.lag)))
    }
}

/// The queueing delay that is taken for none on a path of this least round-trip time, if its delay does not vary.
pub(crate) fn tolerated_without_jitter(min_rtt: Duration) -> Duration {
    (min_rtt / 10).max(LEAST_TOLERATED)
}

/// However much the delay varies, a longer queue is one.
fn most_tolerated(min_rtt: Duration) -> Duration {
    min_rtt / 4 + Duration::from_millis(10)
}

fn ticks(ticks: f64) -> Duration {
    Duration::from_micros((ticks * TICK_MICROS as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(datagrams: u32, delay_ticks: i32) -> PathReport {
        PathReport {
            datagrams,
            bytes: u64::from(datagrams) * 1_000,
            delay_sum: (i64::from(datagrams) * i64::from(delay_ticks)) as u64,
            delay_average: delay_ticks,
            ..PathReport::default()
        }
    }

    #[test]
    fn a_growing_delay_is_a_queue_above_the_least_mean() {
        let start = crate::testing::start();
        let mut departures = Departures::new();
        assert!(departures.on_report(&report(100, -5_000), false, start));
        assert_eq!(departures.queue(), Duration::ZERO);
        let mut longer = report(200, -5_000);
        longer.delay_sum = longer.delay_sum.wrapping_add(100 * 1_000);
        longer.delay_average = -4_000;
        assert!(departures.on_report(&longer, false, start + Duration::from_millis(5)));
        assert_eq!(departures.queue(), Duration::from_millis(4));
        assert!(!departures.on_report(&longer, false, start + Duration::from_millis(6)), "nothing new");
    }

    #[test]
    fn the_tolerated_queue_follows_jitter_within_bounds() {
        // The vectors of the specification: D = 0.2, 1 and 6 ms at a least round-trip time of 10 ms.
        for (deviation_ms, tolerated_ms) in [(0.2, 1.0), (1.0, 3.0), (6.0, 12.5)] {
            let mut departures = Departures::new();
            departures.deviation = deviation_ms * 1e3 / TICK_MICROS as f64;
            assert_eq!(
                departures.tolerated_queue(Duration::from_millis(10)),
                Duration::from_secs_f64(tolerated_ms / 1e3)
            );
        }
    }

    #[test]
    fn queues_of_the_senders_own_probing_are_no_jitter() {
        let start = crate::testing::start();
        for (probing, tolerated_ms) in [(true, 1), (false, 12)] {
            let mut departures = Departures::new();
            let mut told = report(0, 0);
            for step in 1..200u32 {
                told.datagrams += 100;
                // 0 and 8 ms in turn.
                told.delay_sum += if step % 2 == 0 { 0 } else { 200_000 };
                departures.on_report(&told, probing, start + Duration::from_millis(u64::from(step) * 5));
            }
            assert_eq!(departures.tolerated_queue(Duration::from_millis(10)).as_millis(), tolerated_ms);
        }
    }

    #[test]
    fn the_delivered_rate_fades_when_reports_stop() {
        let start = crate::testing::start();
        let mut departures = Departures::new();
        for step in 1..40u32 {
            departures.on_report(&report(step * 100, 0), false, start + Duration::from_millis(u64::from(step) * 100));
        }
        let end = start + Duration::from_millis(3_900);
        assert!((departures.rate(end) / 1e6 - 1.0).abs() < 0.05, "{}", departures.rate(end));
        assert_eq!(departures.rate(end + Duration::from_secs(5)), 0.0);
    }
}
