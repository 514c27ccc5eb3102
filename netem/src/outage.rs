//! When a link carries nothing, by schedule.
//!
//! Times count from the moment the link was made. What is offered to a link in an outage, and what would leave its queue
//! then, is dropped in silence; what was already on its way still arrives.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

/// The outages of a link.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outages {
    /// None.
    #[default]
    None,
    /// In each of these windows.
    Windows(Vec<Window>),
    /// Again and again.
    Periodic {
        /// When the first outage begins.
        #[serde(with = "humantime_serde")]
        first: Duration,
        /// How long each lasts; at most `every`.
        #[serde(with = "humantime_serde")]
        lasting: Duration,
        /// The time from the beginning of one to the beginning of the next.
        #[serde(with = "humantime_serde")]
        every: Duration,
    },
}

/// One outage, from a time up to, not including, another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// When it begins.
    #[serde(with = "humantime_serde")]
    pub from: Duration,
    /// When the link carries again.
    #[serde(with = "humantime_serde")]
    pub to: Duration,
}

impl Outages {
    /// Whether the link carries nothing at that time after it was made.
    pub fn covers(&self, time: Duration) -> bool {
        match self {
            Self::None => false,
            Self::Windows(windows) => windows.iter().any(|window| (window.from..window.to).contains(&time)),
            Self::Periodic { first, lasting, every } => time.checked_sub(*first).is_some_and(|since| {
                // A validated period is above zero.
                since.as_nanos() % every.as_nanos().max(1) < lasting.as_nanos()
            }),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::None => Ok(()),
            Self::Windows(windows) => match windows.iter().find(|window| window.from >= window.to) {
                None => Ok(()),
                Some(Window { from, to }) => Err(ConfigError {
                    field: "outages.windows",
                    found: format!("from {from:?} to {to:?}"),
                    allowed: "each \"from\" before its \"to\"".to_owned(),
                }),
            },
            Self::Periodic { lasting, every, .. } if every.is_zero() || lasting > every => Err(ConfigError {
                field: "outages.periodic",
                found: format!("lasting {lasting:?}, every {every:?}"),
                allowed: "\"every\" above zero, \"lasting\" at most \"every\"".to_owned(),
            }),
            Self::Periodic { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_window_holds_its_beginning_and_not_its_end() {
        let outages = Outages::Windows(vec![Window { from: ms(10), to: ms(20) }, Window { from: ms(50), to: ms(60) }]);
        let covered = [9, 10, 19, 20, 49, 55, 60].map(|at| outages.covers(ms(at)));
        assert_eq!(covered, [false, true, true, false, false, true, false]);
    }

    #[test]
    fn a_periodic_outage_comes_back() {
        let outages = Outages::Periodic { first: ms(100), lasting: ms(20), every: ms(50) };
        let covered = [0, 99, 100, 119, 120, 149, 150, 5_110, 5_120].map(|at| outages.covers(ms(at)));
        assert_eq!(covered, [false, false, true, true, false, false, true, true, false]);
    }

    #[test]
    fn a_schedule_that_cannot_be_is_refused() {
        let backwards = Outages::Windows(vec![Window { from: ms(2), to: ms(1) }]);
        assert!(backwards.validate().unwrap_err().to_string().contains("from 2ms to 1ms"));
        for (lasting, every) in [(ms(1), ms(0)), (ms(3), ms(2))] {
            let outages = Outages::Periodic { first: ms(0), lasting, every };
            let error = outages.validate().unwrap_err().to_string();
            assert!(error.starts_with("outages.periodic is "), "{error}");
        }
    }
}
