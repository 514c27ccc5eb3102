//! Notices that the path has become much slower than what the bandwidth filter remembers (a rule of ours).
//!
//! The filter forgets after two probing cycles, some six seconds. Until then a link that fell to a tenth, with a queue deep
//! enough to lose nothing, would hold a window ten times too large: nearly a second of delay. Two rounds in a row that
//! deliver less than half of the bandwidth while every round trip is twice the least leave no doubt: what they delivered
//! is the bandwidth. One such round is not enough, as a radio that falls silent for a moment looks the same.

use std::time::{Duration, Instant};

use super::Bbr3;
use crate::congestion::rate_sample::{AckBatch, RateSample};

/// Less than this part of the bandwidth is slow.
const SLOW: f64 = 0.5;

/// So many least round trips are long.
const LONG: u32 = 2;

/// Rounds of which all must be slow and long.
const ROUNDS: u32 = 2;

/// What the current round delivered at best.
#[derive(Debug, Clone, Default)]
pub(super) struct Fall {
    rate: u64,
    rtt: Option<Duration>,
    /// The application limited some of it.
    app_limited: bool,
    slow_rounds: u32,
}

impl Fall {
    /// Takes in a sample; after slow rounds answers the rate at which the path delivers now.
    fn update(
        &mut self,
        sample: &RateSample,
        round_start: bool,
        bandwidth: u64,
        min_rtt: Option<Duration>,
    ) -> Option<u64> {
        self.rate = self.rate.max(sample.delivery_rate.unwrap_or(0));
        self.rtt = [self.rtt, sample.rtt].into_iter().flatten().min();
        self.app_limited |= sample.app_limited;
        if !round_start {
            return None;
        }
        let round = std::mem::take(self);
        let long = matches!((round.rtt, min_rtt), (Some(rtt), Some(min_rtt)) if rtt > LONG * min_rtt);
        let slow = round.rate > 0 && (round.rate as f64) < SLOW * bandwidth as f64;
        if round.app_limited || !slow || !long {
            return None;
        }
        self.slow_rounds = round.slow_rounds + 1;
        (self.slow_rounds >= ROUNDS).then_some(round.rate)
    }
}

impl Bbr3 {
    /// Takes the bandwidth for what the path delivers now, if that fell, and lets the queue that this left drain.
    pub(super) fn check_fall(&mut self, acked: &AckBatch, now: Instant) {
        if self.unmask.is_none() || !self.state.is_probe_bw() {
            self.fall = Fall::default();
            return;
        }
        let (bandwidth, min_rtt) = (self.bandwidth(), self.min_rtt.get());
        let Some(rate) = self.fall.update(&acked.sample, self.rounds.start, bandwidth, min_rtt) else { return };
        self.max_bandwidth.set(rate);
        if self.state.is_probing() {
            self.enter_down(now);
        }
        self.short_term.inflight = Some(self.bdp(1.0, rate));
        self.fall = Fall::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::testing;

    #[test]
    fn two_slow_rounds_in_a_row_are_a_fall_and_one_is_not() {
        let ms = Duration::from_millis;
        let sample = |rate, rtt, app_limited| RateSample {
            delivery_rate: Some(rate),
            rtt: Some(ms(rtt)),
            app_limited,
            ..testing::sample(testing::base())
        };
        let (slow, fast, short) = (sample(200, 300, false), sample(900, 300, false), sample(200, 50, false));
        let limited = sample(200, 300, true);
        for (rounds, fell) in [
            (vec![slow, slow], Some(200)),
            (vec![slow, fast, slow], None),
            (vec![slow, short, slow], None),
            (vec![limited, limited], None),
        ] {
            let mut fall = Fall::default();
            let answers: Vec<_> = rounds.iter().map(|sample| fall.update(sample, true, 1_000, Some(ms(40)))).collect();
            assert_eq!(answers.last(), Some(&fell), "{answers:?}");
        }
    }
}
