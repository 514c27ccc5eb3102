//! How long a packet is on its way once it has left the queue.
//!
//! The delay is constant plus jitter. Jitter is a stationary Gauss-Markov process (an Ornstein-Uhlenbeck process sampled
//! at the packets' departures): normal with a standard deviation, and correlated over time so that neighbours in a burst
//! are delayed alike, as on a radio link. A sum below zero counts as zero.
//!
//! A link that keeps order delivers no packet before one sent earlier; where the jitter is large and short-lived, waiting
//! for the slower predecessor makes the mean delay longer than the one configured.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::chance::Chance;
use crate::config::{ConfigError, MAX_TIME};

/// How the delay varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jitter {
    /// The standard deviation of the delay.
    #[serde(with = "humantime_serde")]
    pub sd: Duration,
    /// The time after which the correlation of two delays has fallen to 1/e; zero makes each packet's independent.
    #[serde(with = "humantime_serde")]
    pub correlation: Duration,
    /// Whether packets may overtake each other because of jitter.
    pub order: Order,
}

/// Whether jitter may change the order of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A packet waits for those sent before it, as in one queue.
    #[default]
    Kept,
    /// Each packet arrives after its own delay, as over parallel ways.
    Free,
}

/// A share of packets that arrives later than it should, while those behind it do not wait.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reorder {
    /// The share of packets held back, 0 to 1.
    pub share: f64,
    /// The least extra delay.
    #[serde(with = "humantime_serde")]
    pub least: Duration,
    /// The greatest extra delay; all between the two are equally likely.
    #[serde(with = "humantime_serde")]
    pub most: Duration,
}

impl Jitter {
    pub(crate) fn validate(self) -> Result<(), ConfigError> {
        ConfigError::check_time("jitter.sd", self.sd)?;
        ConfigError::check_time("jitter.correlation", self.correlation)
    }
}

impl Reorder {
    pub(crate) fn validate(self) -> Result<(), ConfigError> {
        ConfigError::check_share("reorder.share", self.share)?;
        ConfigError::check_time("reorder.most", self.most)?;
        if self.least > self.most {
            return Err(ConfigError {
                field: "reorder.least",
                found: format!("{:?}", self.least),
                allowed: format!("at most reorder.most, {:?}", self.most),
            });
        }
        Ok(())
    }

    /// The next packet's extra delay, if it is one of those held back. Always draws two numbers.
    pub(crate) fn next_extra(self, chance: &mut Chance) -> Option<Duration> {
        let (chosen, place) = (chance.happens(self.share), chance.uniform());
        chosen.then(|| self.least + (self.most - self.least).mul_f64(place))
    }
}

/// The jitter process of one link.
#[derive(Debug, Default)]
pub(crate) struct JitterProcess {
    /// The last departure and its deviation, in standard deviations.
    last: Option<(Instant, f64)>,
}

impl JitterProcess {
    /// The delay of a packet that departs at `at`, no earlier than the one before. Always draws one normal number.
    pub(crate) fn delay_at(&mut self, at: Instant, mean: Duration, jitter: Jitter, chance: &mut Chance) -> Duration {
        let fresh = chance.normal();
        if jitter.sd.is_zero() {
            return mean;
        }
        let deviation = match self.last {
            Some((then, deviation)) if !jitter.correlation.is_zero() => {
                let passed = at.saturating_duration_since(then);
                let kept = (-passed.div_duration_f64(jitter.correlation)).exp();
                deviation * kept + fresh * (1.0 - kept * kept).sqrt()
            }
            _ => fresh,
        };
        self.last = Some((at, deviation));
        // Deviations of a normal variable stay below 10 in any run, so that this stays far below Duration's limit.
        let shift = jitter.sd.mul_f64(deviation.abs().min(10.0));
        if deviation < 0.0 { mean.saturating_sub(shift) } else { (mean + shift).min(MAX_TIME) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chances;

    const MEAN: Duration = Duration::from_millis(60);
    const SD: Duration = Duration::from_millis(10);

    #[test]
    fn jitter_has_its_mean_and_standard_deviation() {
        for correlation in [Duration::ZERO, Duration::from_millis(5)] {
            let delays = delays(correlation, Duration::from_millis(1));
            let mean = delays.iter().sum::<f64>() / delays.len() as f64;
            let sd = (delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / delays.len() as f64).sqrt();
            assert!((mean - 0.060).abs() < 0.0005, "mean {mean}");
            assert!((sd - 0.010).abs() < 0.0005, "sd {sd}");
        }
    }

    #[test]
    fn correlation_falls_to_1_over_e_after_its_time() {
        let correlation = Duration::from_millis(20);
        let delays = delays(correlation, Duration::from_millis(1));
        let at_lag = |lag: usize| {
            let products = delays.iter().zip(&delays[lag..]).map(|(a, b)| (a - 0.06) * (b - 0.06));
            products.sum::<f64>() / (delays.len() - lag) as f64 / 0.01f64.powi(2)
        };
        let at_correlation_time = at_lag(20);
        assert!((at_correlation_time - (-1f64).exp()).abs() < 0.05, "{at_correlation_time}");
        assert!(at_lag(200).abs() < 0.05);
    }

    #[test]
    fn a_delay_never_falls_below_zero() {
        let (mut process, mut chances) = (JitterProcess::default(), Chances::from_seed(1));
        let start = Instant::now();
        let jitter = jitter(Duration::ZERO);
        let shortest =
            (0..1_000).map(|_| process.delay_at(start, Duration::from_millis(1), jitter, &mut chances.jitter)).min();
        assert_eq!(shortest, Some(Duration::ZERO));
    }

    #[test]
    fn a_share_of_packets_is_held_back_within_the_range() {
        let reorder = Reorder { share: 0.2, least: Duration::from_millis(3), most: Duration::from_millis(8) };
        let mut chances = Chances::from_seed(3);
        let extras: Vec<_> = (0..50_000).filter_map(|_| reorder.next_extra(&mut chances.reorder)).collect();
        assert!((extras.len() as f64 / 50_000.0 - 0.2).abs() < 0.01);
        assert!(extras.iter().all(|extra| (reorder.least..=reorder.most).contains(extra)));
        let mean = extras.iter().sum::<Duration>().as_secs_f64() / extras.len() as f64;
        assert!((mean - 0.0055).abs() < 0.0001, "mean {mean}");
    }

    fn jitter(correlation: Duration) -> Jitter {
        Jitter { sd: SD, correlation, order: Order::Free }
    }

    fn delays(correlation: Duration, gap: Duration) -> Vec<f64> {
        let (mut process, mut chances) = (JitterProcess::default(), Chances::from_seed(5));
        let start = Instant::now();
        (0..100_000)
            .map(|number| {
                let at = start + gap * number;
                process.delay_at(at, MEAN, jitter(correlation), &mut chances.jitter).as_secs_f64()
            })
            .collect()
    }
}
