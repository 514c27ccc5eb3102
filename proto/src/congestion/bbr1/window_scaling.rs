//! Scaling of BBR's window gain, so that it shares with loss-based flows (BBR-CWS).
//!
//! BBRv1 keeps up to two bandwidth-delay products in flight: too many before a short queue, which it keeps full, and too few
//! before a long one that a loss-based flow fills. Published is that the gain is scaled until both share fairly, with Jain's
//! index at 0.9 or more before most queues and up to 96 % fewer retransmissions; not the formula. This is a *reconstruction*
//! from that abstract, to be replaced by the published rule. After each cycle of *probe_bw*, with `q` the queueing delay at the
//! longest round trip of the cycle, in least round trips:
//! - *The queue overflowed*: packets got lost while the queueing delay was above half of that. The gain becomes `1 + q / 4`, which
//!   fills a quarter of the queue: less than CUBIC leaves after a loss, so that the rest is its room.
//! - *Others keep a queue*: every round trip was above twice the least of the last five minutes, though *probe_rtt* took our own
//!   packets out of it. Then the gain grows by 0.1 a cycle, and an overflow, which is theirs as well, moves it only by 0.3 of the
//!   way to `1 + q / 2`. The least round trip of the usual ten seconds would not tell, as it contains that queue.
//! - Otherwise the gain goes back towards 2, by 0.1 from above and by 0.03 from below: within thirty cycles from either bound.
//!   Beside a loss-based flow before a short queue it is this slow return that leaves the flow time to grow.

use std::time::{Duration, Instant};

/// The gain at first, and bounds.
const USUAL: f64 = 2.0;
const LEAST: f64 = 1.1;
const MOST: f64 = 4.0;

/// Part of the longest queueing delay above which a loss is an overflow.
const FULL: f64 = 0.5;

/// Part of the queue that the gain fills after an overflow.
const FILLED: f64 = 0.25;

/// The same of a queue that others keep, and how much of the way there one overflow moves the gain.
const KEPT_FILLED: f64 = 0.5;
const KEPT_WEIGHT: f64 = 0.3;

/// Growth per cycle behind such a queue.
const GROWTH: f64 = 0.1;

/// Return towards the usual gain per cycle, from below and from above.
const RISE: f64 = 0.03;
const FALL: f64 = 0.1;

/// A round trip of so many least ones that never gets shorter means a queue of others.
const STANDING: f64 = 2.0;

/// How long the least round trip is remembered for that. After a change to a longer route the gain may be too large for as long.
const MEMORY: Duration = Duration::from_secs(300);

/// The gain, and what the current cycle has seen.
#[derive(Debug, Clone)]
pub(super) struct WindowScaling {
    gain: f64,
    /// The least round trip within [`MEMORY`], and when it was seen.
    bare: Option<(Duration, Instant)>,
    cycle: Cycle,
}

/// What one cycle has seen.
#[derive(Debug, Clone, Default)]
struct Cycle {
    least: Option<Duration>,
    most: Duration,
    newest: Duration,
    /// The longest round trip at which something got lost.
    at_loss: Option<Duration>,
}

impl WindowScaling {
    pub(super) fn new() -> Self {
        Self { gain: USUAL, bare: None, cycle: Cycle::default() }
    }

    /// Window gain in *probe_bw*, from 1.1 to 4.
    pub(super) fn gain(&self) -> f64 {
        self.gain
    }

    /// Takes in a round trip; `cycling` tells whether it is one of *probe_bw*.
    pub(super) fn on_rtt(&mut self, rtt: Duration, cycling: bool, now: Instant) {
        let outlived = |at: Instant| now.saturating_duration_since(at) > MEMORY;
        if self.bare.is_none_or(|(bare, at)| rtt <= bare || outlived(at)) {
            self.bare = Some((rtt, now));
        }
        if cycling {
            let cycle = &mut self.cycle;
            cycle.least = Some(cycle.least.map_or(rtt, |least| least.min(rtt)));
            cycle.most = cycle.most.max(rtt);
            cycle.newest = rtt;
        }
    }

    /// Something got lost; what is acknowledged with it came first.
    pub(super) fn on_lost(&mut self) {
        self.cycle.at_loss = self.cycle.at_loss.max(Some(self.cycle.newest));
    }

    /// A cycle is over, on a path of this least round trip.
    pub(super) fn end_cycle(&mut self, rt_prop: Duration) {
        let Cycle { least, most, at_loss, .. } = std::mem::take(&mut self.cycle);
        let (Some(least), Some((bare, _))) = (least, self.bare) else { return };
        let queue = most.saturating_sub(rt_prop);
        let overflowed = at_loss.is_some_and(|rtt| rtt > rt_prop + queue.mul_f64(FULL));
        let kept_by_others = least > bare.mul_f64(STANDING);
        let filling = |part: f64| 1.0 + part * queue.as_secs_f64() / rt_prop.as_secs_f64().max(1e-6);
        let gain = if overflowed && kept_by_others {
            self.gain + KEPT_WEIGHT * (filling(KEPT_FILLED) - self.gain)
        } else if overflowed {
            filling(FILLED)
        } else if at_loss.is_none() && kept_by_others {
            self.gain + GROWTH
        } else {
            self.gain + (USUAL - self.gain).clamp(-FALL, RISE)
        };
        self.gain = gain.clamp(LEAST, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::testing::base;
    use proptest::prelude::*;

    const RT_PROP: Duration = Duration::from_millis(40);

    /// The gain after a cycle with these round trips in milliseconds, of which one is followed by a loss.
    fn after_cycle(
        scaling: &mut WindowScaling,
        rt_prop: Duration,
        round_trips: &[u64],
        lost_after: Option<usize>,
    ) -> f64 {
        for (index, rtt) in round_trips.iter().enumerate() {
            scaling.on_rtt(Duration::from_millis(*rtt), true, base());
            if lost_after == Some(index) {
                scaling.on_lost();
            }
        }
        scaling.end_cycle(rt_prop);
        scaling.gain()
    }

    fn assert_near(gain: f64, expected: f64) {
        assert!((gain - expected).abs() < 1e-9, "{gain} is not {expected}");
    }

    #[test]
    fn a_queue_that_overflows_brings_the_gain_down_to_what_fills_a_quarter_of_it() {
        let mut scaling = WindowScaling::new();
        // A queue of a bandwidth-delay product, and next to none.
        assert_near(after_cycle(&mut scaling, RT_PROP, &[40, 80, 50], Some(1)), 1.25);
        assert_near(after_cycle(&mut scaling, RT_PROP, &[40, 41], Some(1)), 1.1);
    }

    #[test]
    fn random_loss_at_a_short_round_trip_changes_nothing() {
        let mut scaling = WindowScaling::new();
        assert_near(after_cycle(&mut scaling, RT_PROP, &[40, 42, 60], Some(1)), 2.0);
    }

    #[test]
    fn before_a_queue_of_others_the_gain_grows_and_an_overflow_takes_some_of_it() {
        let mut scaling = WindowScaling::new();
        scaling.on_rtt(RT_PROP, false, base());
        assert_near(after_cycle(&mut scaling, RT_PROP, &[90, 100], None), 2.1);
        for _ in 0..30 {
            after_cycle(&mut scaling, RT_PROP, &[90, 100], None);
        }
        assert_near(scaling.gain(), 4.0);
        // The usual least round trip contains the queue: 0.7 x 4 + 0.3 x (1 + 0.5 / 2).
        assert_near(after_cycle(&mut scaling, 2 * RT_PROP, &[100, 120], Some(1)), 3.175);
    }

    #[test]
    fn a_longer_route_is_no_queue_of_others_for_more_than_five_minutes() {
        let mut scaling = WindowScaling::new();
        scaling.on_rtt(RT_PROP, false, base());
        assert_near(after_cycle(&mut scaling, 3 * RT_PROP, &[120, 130], None), 2.1);
        scaling.on_rtt(3 * RT_PROP, true, base() + MEMORY + Duration::from_secs(1));
        assert_near(after_cycle(&mut scaling, 3 * RT_PROP, &[120, 130], None), 2.0);
    }

    #[test]
    fn alone_it_is_two_again_within_thirty_cycles() {
        for start in [LEAST, MOST] {
            let mut scaling = WindowScaling { gain: start, ..WindowScaling::new() };
            for _ in 0..30 {
                after_cycle(&mut scaling, RT_PROP, &[40, 50], None);
            }
            assert_near(scaling.gain(), 2.0);
        }
    }

    proptest! {
        #[test]
        fn the_gain_stays_within_its_bounds_whatever_a_cycle_sees(
            cycles in prop::collection::vec((prop::collection::vec(0u64..5_000, 0..8), 0usize..9, 0u64..1_000), 0..60),
        ) {
            let mut scaling = WindowScaling::new();
            for (round_trips, lost_after, rt_prop) in cycles {
                let gain = after_cycle(&mut scaling, Duration::from_millis(rt_prop), &round_trips, Some(lost_after));
                prop_assert!((LEAST..=MOST).contains(&gain), "{gain}");
            }
        }
    }
}
