//! What is read off a running transfer.

use std::time::{Duration, Instant};

/// The part of a transfer at its beginning that does not count: slow starts, and queues that fill.
const WARM_UP: f64 = 0.2;

/// How far back what is shown as "of late" looks.
const OF_LATE: Duration = Duration::from_secs(1);

/// Reads one transfer of a known length. It begins with the first bytes; what comes after its length does not count.
#[derive(Debug)]
pub struct Meter {
    length: Duration,
    begin: Option<Instant>,
    /// Cumulative bytes when the warm-up was over, and when that was.
    from: Option<(Instant, u64)>,
    last: Option<(Instant, u64)>,
    /// Where "of late" begins, and where the next begins.
    late: [Option<(Instant, u64)>; 2],
    round_trips: Vec<f64>,
}

impl Meter {
    /// Of a transfer of this length.
    pub fn new(length: Duration) -> Self {
        Self { length, begin: None, from: None, last: None, late: [None; 2], round_trips: Vec::new() }
    }

    /// Takes note that so many bytes have come in all.
    pub fn see(&mut self, total: u64, now: Instant) {
        if total == 0 {
            return;
        }
        let begin = *self.begin.get_or_insert(now);
        let elapsed = now.saturating_duration_since(begin);
        if elapsed > self.length {
            return;
        }
        if self.from.is_none() && elapsed >= self.length.mul_f64(WARM_UP) {
            self.from = Some((now, total));
        }
        self.last = Some((now, total));
        match &mut self.late {
            [_, Some((since, _))] if now.saturating_duration_since(*since) < OF_LATE => {}
            late => *late = [late[1], Some((now, total))],
        }
    }

    /// Takes note of a round-trip time, in milliseconds, once the transfer has begun.
    pub fn see_round_trip(&mut self, ms: f64) {
        if self.begin.is_some() {
            self.round_trips.push(ms);
        }
    }

    /// Bytes per second of late, in Mbit/s; `None` before the first ones.
    pub fn of_late(&self) -> Option<f64> {
        let since = self.late[0].or(self.late[1])?;
        Some(mbps(since, self.last?))
    }

    /// The rate after the warm-up, in Mbit/s; `None` if hardly anything came.
    pub fn rate(&self) -> Option<f64> {
        let (from, last) = (self.from?, self.last?);
        (last.0 > from.0).then(|| mbps(from, last))
    }

    /// The median of the round-trip times, in milliseconds.
    pub fn round_trip(&self) -> Option<f64> {
        let mut sorted = self.round_trips.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

fn mbps((from, before): (Instant, u64), (to, after): (Instant, u64)) -> f64 {
    let seconds = to.saturating_duration_since(from).as_secs_f64();
    if seconds > 0.0 { after.saturating_sub(before) as f64 * 8.0 / 1e6 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_fifth_and_what_comes_too_late_do_not_count() {
        let (mut meter, begin) = (Meter::new(Duration::from_secs(10)), start());
        let mut total = 0;
        for tick in 0..200u32 {
            // 1 Mbit/s at first, then 8 Mbit/s, and 80 after the end.
            total += match tick {
                0..20 => 12_500,
                20..=100 => 100_000,
                _ => 1_000_000,
            };
            meter.see(total, begin + 100 * MS * tick);
        }
        let rate = meter.rate().unwrap();
        assert!((rate - 8.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn of_late_follows_the_rate() {
        let (mut meter, begin) = (Meter::new(Duration::from_secs(10)), start());
        assert_eq!(meter.of_late(), None);
        let mut total = 0;
        for tick in 1..80u32 {
            total += if tick < 40 { 1_250_000 } else { 125_000 };
            meter.see(total, begin + 100 * MS * tick);
        }
        let late = meter.of_late().unwrap();
        assert!((late - 10.0).abs() < 0.1, "{late}");
    }

    #[test]
    fn the_median_of_round_trips_during_the_transfer() {
        let (mut meter, begin) = (Meter::new(Duration::from_secs(1)), start());
        meter.see_round_trip(1.0);
        assert_eq!((meter.round_trip(), meter.rate()), (None, None));
        meter.see(1, begin);
        for ms in [30.0, 10.0, 20.0] {
            meter.see_round_trip(ms);
        }
        assert_eq!(meter.round_trip(), Some(20.0));
    }
}
