//! When the next transmit may leave, so that the long-run rate is the controller's pacing rate.
//!
//! A transmit is what leaves the machine in one piece: one datagram, or a batch for segmentation offload. The pacer hands
//! out release times that never decrease; whoever sends keeps a transmit back until its release time less [`SLACK`]. A
//! sender that is late may catch up by at most [`CREDIT`], so that coarse timers cost no rate.

use std::time::{Duration, Instant};

/// How far a late sender may catch up.
///
/// Timers have a granularity of 1 ms; without credit each late wake-up would cost rate, up to half of it.
pub const CREDIT: Duration = Duration::from_millis(2);

/// How much before its release time a transmit may leave, as waiting for less than this is not worth a timer.
pub const SLACK: Duration = Duration::from_micros(500);

/// Bytes beyond one send quantum that the credit may be worth at most.
const CREDIT_BYTES: u64 = 64_000;

/// The longest that a transmit waits after the one before it.
///
/// Below one transmit in this time the window paces, not this: a waiting acknowledgement must not be stuck behind data.
const HORIZON: Duration = Duration::from_millis(25);

/// Turns a pacing rate into release times.
#[derive(Debug, Clone, Default)]
pub struct Pacer {
    /// The earliest the next transmit may be released; `None` before the first.
    next: Option<Instant>,
}

/// When one transmit may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The release time by the pacing rate; may lie up to [`CREDIT`] in the past.
    pub at: Instant,
    /// When the gate will let it go: never before the time of asking.
    pub departure: Instant,
}

impl Pacer {
    /// Answers when a transmit of `bytes`, built `now`, may leave at `rate` bytes per second.
    ///
    /// `send_quantum` is the largest burst the controller allows, in bytes.
    pub fn release(&mut self, now: Instant, bytes: u64, rate: u64, send_quantum: u64) -> Release {
        let credit = CREDIT.min(time_for(send_quantum + CREDIT_BYTES, rate));
        let earliest = now.checked_sub(credit).unwrap_or(now);
        let at = self.next.map_or(earliest, |next| next.max(earliest));
        self.next = Some(at + time_for(bytes, rate).min(HORIZON));
        let departure = at.checked_sub(SLACK).unwrap_or(at).max(now);
        Release { at, departure }
    }
}

/// How long `bytes` take at `rate` bytes per second; a rate of 0 counts as 1.
fn time_for(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::testing::base;
    use proptest::prelude::*;

    #[test]
    fn transmits_leave_at_the_pacing_rate_with_two_milliseconds_of_credit() {
        let base = base() + Duration::from_secs(1);
        let at = |ms: i64| {
            if ms < 0 {
                base - Duration::from_millis(ms.unsigned_abs())
            } else {
                base + Duration::from_millis(ms as u64)
            }
        };
        let mut pacer = Pacer::default();
        let releases: Vec<_> =
            [0, 0, 0, 5].map(|ms| pacer.release(at(ms), 1_250, 1_250_000, 64_000)).into_iter().collect();
        assert_eq!(releases.iter().map(|release| release.at).collect::<Vec<_>>(), [-2, -1, 0, 3].map(at));
        assert_eq!(releases.iter().map(|release| release.departure).collect::<Vec<_>>(), [0, 0, 0, 5].map(at));
        assert_eq!(pacer.next, Some(at(4)));
    }

    #[test]
    fn a_very_low_rate_never_holds_a_transmit_for_more_than_the_horizon() {
        let mut now = base();
        let mut pacer = Pacer::default();
        for _ in 0..10 {
            let departure = pacer.release(now, 1_200, 1, 2_400).departure;
            assert!(departure <= now + HORIZON);
            now = departure;
        }
    }

    proptest! {
        #[test]
        fn releases_never_decrease_and_no_window_carries_more_than_the_rate_allows(
            steps in prop::collection::vec((0u64..5_000, 100u64..12_000), 1..300),
            rate in 500_000u64..200_000_000,
        ) {
            const QUANTUM: u64 = 12_000;
            let start = base();
            let mut now = start;
            let mut pacer = Pacer::default();
            let mut sent: Vec<(Instant, u64)> = Vec::new();
            let mut last = None;
            for (wait, bytes) in steps {
                now += Duration::from_micros(wait);
                let release = pacer.release(now, bytes, rate, QUANTUM);
                prop_assert!(last.is_none_or(|last| last <= release.at));
                prop_assert!(release.departure >= now);
                last = Some(release.at);
                now = release.departure;
                sent.push((release.departure, bytes));
            }
            // Bytes of any window W <= rate x (W + credit and slack) + quantum + one transmit.
            for (first, &(from, _)) in sent.iter().enumerate() {
                let mut total = 0;
                for &(until, bytes) in &sent[first..] {
                    total += bytes;
                    let window = until - from + CREDIT + SLACK;
                    let allowed = rate as f64 * window.as_secs_f64() + (QUANTUM + 12_000) as f64;
                    prop_assert!(total as f64 <= allowed, "{total} bytes where {allowed} are allowed");
                }
            }
        }
    }
}
