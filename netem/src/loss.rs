//! Which packets a link loses: not at all, each by the same chance, or in bursts.
//!
//! Bursts follow the Gilbert-Elliott chain: before each packet the link moves between a good and a bad state, and each
//! state loses packets with a chance of its own. The mean is `loss_good * g + loss_bad * b` with
//! `b = good_to_bad / (good_to_bad + bad_to_good)` and `g = 1 - b`; a bad spell lasts `1 / bad_to_good` packets.

use serde::{Deserialize, Serialize};

use crate::chance::Chance;
use crate::config::ConfigError;

/// Which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each packet by itself with this probability, 0 to 1.
    Random(f64),
    /// In bursts, by a chain of two states that starts in the good one.
    GilbertElliott {
        /// The probability of turning bad before a packet, while good.
        good_to_bad: f64,
        /// The probability of turning good before a packet, while bad.
        bad_to_good: f64,
        /// The probability of losing a packet while good.
        loss_good: f64,
        /// The probability of losing a packet while bad.
        loss_bad: f64,
    },
}

/// Where on its way a packet may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossPlace {
    /// Before the queue: a lost packet takes nothing of the rate. This is what Linux's netem does.
    #[default]
    BeforeQueue,
    /// Behind the queue, as on a radio: a lost packet has used its share of the rate.
    AfterQueue,
}

impl Loss {
    /// Loss of the given mean in bursts of the given mean length in packets (at least 1); between bursts none is lost.
    ///
    /// The mean must be below `burst / (burst + 1)`; what cannot be reached is refused where the link is made.
    pub fn bursts(mean: f64, burst_packets: f64) -> Self {
        let bad_to_good = 1.0 / burst_packets;
        Self::GilbertElliott {
            good_to_bad: bad_to_good * mean / (1.0 - mean),
            bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }

    /// The share of packets lost in the long run.
    pub fn mean(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Random(probability) => probability,
            Self::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                let moves = good_to_bad + bad_to_good;
                let bad = if moves > 0.0 { good_to_bad / moves } else { 0.0 };
                loss_good * (1.0 - bad) + loss_bad * bad
            }
        }
    }

    pub(crate) fn validate(self) -> Result<(), ConfigError> {
        match self {
            Self::None => Ok(()),
            Self::Random(probability) => ConfigError::check_share("loss.random", probability),
            Self::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                ConfigError::check_share("loss.gilbert_elliott.good_to_bad", good_to_bad)?;
                ConfigError::check_share("loss.gilbert_elliott.bad_to_good", bad_to_good)?;
                ConfigError::check_share("loss.gilbert_elliott.loss_good", loss_good)?;
                ConfigError::check_share("loss.gilbert_elliott.loss_bad", loss_bad)
            }
        }
    }
}

/// The chain's state on one link.
#[derive(Debug, Default)]
pub(crate) struct LossProcess {
    bad: bool,
}

impl LossProcess {
    /// Decides the next packet's fate.
    ///
    /// The two draws are made for every packet and every kind of loss, so that a change of loss in mid-run leaves the
    /// draws of the packets after it where they were, and a higher probability loses the same packets and more.
    pub(crate) fn loses_next(&mut self, loss: Loss, chance: &mut Chance) -> bool {
        let (turn, fate) = (chance.uniform(), chance.uniform());
        match loss {
            Loss::None => false,
            Loss::Random(probability) => fate < probability,
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                let turns = turn < if self.bad { bad_to_good } else { good_to_bad };
                self.bad ^= turns;
                fate < if self.bad { loss_bad } else { loss_good }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chances;

    const PACKETS: usize = 400_000;

    #[test]
    fn random_loss_has_its_mean_and_no_memory() {
        let lost = draw(Loss::Random(0.05));
        let mean = share(&lost);
        assert!((mean - 0.05).abs() < 0.002, "mean {mean}");
        let again = lost.windows(2).filter(|pair| pair[0] && pair[1]).count();
        let after_a_loss = again as f64 / (mean * PACKETS as f64);
        assert!((after_a_loss - 0.05).abs() < 0.01, "loss after a loss {after_a_loss}");
    }

    #[test]
    fn bursts_have_the_mean_and_the_length_asked_for() {
        let loss = Loss::bursts(0.1, 5.0);
        assert!((loss.mean() - 0.1).abs() < 1e-12);
        let lost = draw(loss);
        let mean = share(&lost);
        assert!((mean - 0.1).abs() < 0.005, "mean {mean}");
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let length = mean * PACKETS as f64 / bursts as f64;
        assert!((length - 5.0).abs() < 0.2, "burst length {length}");
    }

    #[test]
    fn both_states_of_the_chain_lose_their_share() {
        let loss = Loss::GilbertElliott { good_to_bad: 0.02, bad_to_good: 0.08, loss_good: 0.01, loss_bad: 0.5 };
        assert!((loss.mean() - (0.8 * 0.01 + 0.2 * 0.5)).abs() < 1e-12);
        let mean = share(&draw(loss));
        assert!((mean - loss.mean()).abs() < 0.005, "mean {mean}");
    }

    #[test]
    fn a_higher_probability_loses_the_same_packets_and_more() {
        let (few, many) = (draw(Loss::Random(0.01)), draw(Loss::Random(0.1)));
        assert!(few.iter().zip(&many).all(|(few, many)| !few || *many));
    }

    #[test]
    fn a_probability_outside_its_range_is_refused_by_name() {
        for (loss, field) in [
            (Loss::Random(1.1), "loss.random"),
            (Loss::Random(f64::NAN), "loss.random"),
            (Loss::bursts(0.5, 0.5), "loss.gilbert_elliott.good_to_bad"),
            (Loss::bursts(0.9, 2.0), "loss.gilbert_elliott.good_to_bad"),
            (Loss::bursts(1.0, 2.0), "loss.gilbert_elliott.good_to_bad"),
        ] {
            let error = loss.validate().unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }

    fn draw(loss: Loss) -> Vec<bool> {
        let (mut process, mut chances) = (LossProcess::default(), Chances::from_seed(7));
        (0..PACKETS).map(|_| process.loses_next(loss, &mut chances.loss)).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64
    }
}
