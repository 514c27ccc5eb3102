//! What arrives on one path, for the reports to the sender.

use std::time::{Duration, Instant};

use crate::recent::RecentMax;
use crate::wire::header::TICK_MICROS;

/// Weight of one datagram in the moving average of one-way delays (`congestion` signals: 0.15 per datagram).
const DELAY_WEIGHT: f64 = 0.15;

/// Over which time the rate is taken.
const RATE_SPAN: Duration = Duration::from_secs(1);

/// Receive side of one path. Delays are relative one-way delays in ticks: only their changes mean something.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Framed datagrams that arrived.
    pub(crate) datagrams: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Sum of their delays.
    pub(crate) delay_sum: u64,
    rate: f64,
    /// Since when the rate is being taken anew, and the bytes until then.
    rate_from: Option<(Instant, u64)>,
    average: Option<f64>,
    deviation: f64,
    reordering: RecentMax<u32>,
    /// Highest number told in each of the last four reports, oldest first.
    pub(crate) reported: [u64; 4],
    /// Clock of the newest control datagram, and when it came.
    pub(crate) clock: Option<(u32, Instant)>,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Self {
            datagrams: 0,
            bytes: 0,
            delay_sum: 0,
            rate: 0.0,
            rate_from: None,
            average: None,
            deviation: 0.0,
            reordering: RecentMax::new(Duration::from_secs(2)),
            reported: [0; 4],
            clock: None,
        }
    }

    /// Counts a datagram of `len` bytes that took `delay`; `overtaken` tells that a later number came before it.
    pub(crate) fn on_arrival(&mut self, len: usize, delay: i32, overtaken: bool, now: Instant) {
        self.datagrams += 1;
        self.bytes += len as u64;
        self.delay_sum = self.delay_sum.wrapping_add_signed(delay.into());
        let delay = f64::from(delay);
        let average = self.average.get_or_insert(delay);
        if overtaken {
            self.reordering.insert((delay - *average).max(0.0) as u32, now);
        }
        self.deviation += ((delay - *average).abs() - self.deviation) / 16.0;
        *average += (delay - *average) * DELAY_WEIGHT;
        self.take_rate(now);
    }

    fn take_rate(&mut self, now: Instant) {
        let (from, bytes) = *self.rate_from.get_or_insert((now, self.bytes));
        let elapsed = now.saturating_duration_since(from);
        if elapsed >= RATE_SPAN / 4 {
            let sample = (self.bytes - bytes) as f64 / elapsed.as_secs_f64();
            let weight = (elapsed.as_secs_f64() / RATE_SPAN.as_secs_f64()).min(1.0);
            self.rate += (sample - self.rate) * weight;
            self.rate_from = Some((now, self.bytes));
        }
    }

    /// Bytes per second that arrived lately; 0 if nothing came for long.
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        let fresh = self.rate_from.is_some_and(|(from, _)| now.saturating_duration_since(from) < 2 * RATE_SPAN);
        if fresh { self.rate } else { 0.0 }
    }

    /// Moving average of the delay, in ticks.
    pub(crate) fn delay_average(&self) -> i32 {
        self.average.unwrap_or(0.0) as i32
    }

    /// By how much datagrams overtake each other lately, in ticks.
    pub(crate) fn reordering(&mut self, now: Instant) -> u32 {
        self.reordering.get(now).unwrap_or(0)
    }

    /// Mean deviation of the delay, in milliseconds.
    pub(crate) fn jitter_ms(&self) -> f64 {
        self.deviation * TICK_MICROS as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overtaken_datagram_tells_the_extent_of_reordering() {
        let now = crate::testing::start();
        let mut arrivals = Arrivals::new();
        for _ in 0..100 {
            arrivals.on_arrival(1_000, 2_500, false, now);
        }
        assert_eq!(arrivals.reordering(now), 0);
        arrivals.on_arrival(1_000, 3_750, true, now);
        assert_eq!(arrivals.reordering(now), 1_250, "5 ms in ticks of 4 us");
        assert_eq!((arrivals.datagrams, arrivals.bytes), (101, 101_000));
    }

    #[test]
    fn the_rate_is_that_of_the_last_second() {
        let start = crate::testing::start();
        let mut arrivals = Arrivals::new();
        let at = |millis| start + Duration::from_millis(millis);
        for millis in 0..5_000 {
            arrivals.on_arrival(1_250, 0, false, at(millis));
        }
        let rate = arrivals.rate(at(5_000));
        assert!((rate / 1_250_000.0 - 1.0).abs() < 0.02, "{rate}");
        assert_eq!(arrivals.rate(at(8_000)), 0.0);
    }
}
