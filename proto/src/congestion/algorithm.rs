//! The congestion controllers a user chooses between, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A congestion controller that a session can run, in each direction the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// BBR version 3 that judges loss by path: made for copies over several paths.
    #[default]
    Bbr3,
    /// BBR version 3 as its draft has it.
    #[serde(rename = "bbr3-draft")]
    Bbr3Draft,
    /// CUBIC (RFC 9438): loss-based, what most of TCP runs.
    Cubic,
    /// NewReno (RFC 9002, section 7): loss-based, the most cautious.
    NewReno,
    /// BBR version 1: sends at the delivery rate it measures, whatever the loss.
    Bbr1,
    /// BBR version 2 as its draft has it.
    Bbr2,
    /// BBR version 1 with a window scaled to share with loss-based flows (BBR-CWS).
    #[serde(rename = "bbr-cws")]
    BbrCws,
}

impl Algorithm {
    /// Every algorithm, in the order in which help texts name them.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::Bbr3,
        Algorithm::Bbr3Draft,
        Algorithm::Cubic,
        Algorithm::NewReno,
        Algorithm::Bbr1,
        Algorithm::Bbr2,
        Algorithm::BbrCws,
    ];

    /// The name in configuration files, on the command line and in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Bbr3 => "bbr3",
            Algorithm::Bbr3Draft => "bbr3-draft",
            Algorithm::Cubic => "cubic",
            Algorithm::NewReno => "newreno",
            Algorithm::Bbr1 => "bbr1",
            Algorithm::Bbr2 => "bbr2",
            Algorithm::BbrCws => "bbr-cws",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no congestion controller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("congestion controller {0:?} is unknown: bbr3, bbr3-draft, cubic, newreno, bbr1, bbr2 or bbr-cws")]
pub struct UnknownAlgorithm(pub String);

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Algorithm::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == text)
            .ok_or_else(|| UnknownAlgorithm(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_its_algorithm() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_what_was_found_and_what_is_allowed() {
        let error = "BBR".parse::<Algorithm>().unwrap_err().to_string();
        assert!(error.contains("\"BBR\""), "{error}");
        for algorithm in Algorithm::ALL {
            assert!(error.contains(algorithm.name()), "{error}");
        }
    }
}
