//! How much a relay takes on: `[limits]` of `relay.toml`, checked as it is read.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tandem_core::transport::STREAMS;
use tandem_proto::admission::HandshakeRates;

/// How much a relay takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Sessions at the same time; more are refused as "full".
    pub sessions: u32,
    /// Sessions of one token at the same time; more are refused as "full".
    pub sessions_per_device: u32,
    /// Flows open in one session at the same time; more are answered [`tandem_proto::wire::flow::OpenError::Limit`].
    pub flows_per_session: u32,
    /// Memory in use above which new sessions are refused as "full" and new flows answered "limit", in MiB.
    pub memory_mib: u32,
    /// What one session may have on its way to targets, in MiB.
    pub memory_per_session_mib: u32,
    /// What the flows of one token may carry each way, in Mbit/s; 0 for as much as they can.
    pub mbit_per_device: u32,
    /// Handshakes begun each second, from everywhere together.
    pub handshakes_per_second: u32,
    /// Handshakes begun each second from one network, /24 or /56.
    pub handshakes_per_second_and_network: u32,
    /// How long open flows may go on once the relay is told to stop, in seconds.
    pub drain_seconds: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let HandshakeRates { per_second, per_second_and_network } = HandshakeRates::default();
        Limits {
            sessions: 1000,
            sessions_per_device: 8,
            flows_per_session: STREAMS,
            memory_mib: 512,
            memory_per_session_mib: 64,
            mbit_per_device: 0,
            handshakes_per_second: per_second,
            handshakes_per_second_and_network: per_second_and_network,
            drain_seconds: 10,
        }
    }
}

/// A limit that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A number out of its range.
    #[error("limits.{key} is {found}; {} to {} is allowed", allowed.start(), allowed.end())]
    Range {
        /// The key.
        key: &'static str,
        /// What it is.
        found: u32,
        /// What it may be.
        allowed: RangeInclusive<u32>,
    },
}

impl Limits {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`LimitError`] for the first that is out of its range.
    pub fn check(&self) -> Result<(), LimitError> {
        let ranges = [
            ("sessions", self.sessions, 1..=100_000),
            ("sessions_per_device", self.sessions_per_device, 1..=100_000),
            ("flows_per_session", self.flows_per_session, 1..=STREAMS),
            ("memory_mib", self.memory_mib, 32..=1_048_576),
            ("memory_per_session_mib", self.memory_per_session_mib, 1..=1_024),
            ("mbit_per_device", self.mbit_per_device, 0..=100_000),
            ("handshakes_per_second", self.handshakes_per_second, 1..=100_000),
            ("handshakes_per_second_and_network", self.handshakes_per_second_and_network, 1..=100_000),
            ("drain_seconds", self.drain_seconds, 0..=86_400),
        ];
        for (key, found, allowed) in ranges {
            if !allowed.contains(&found) {
                return Err(LimitError::Range { key, found, allowed });
            }
        }
        Ok(())
    }

    /// Memory in use above which nothing new is taken on, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        u64::from(self.memory_mib) << 20
    }

    /// What one session may have on its way, in bytes.
    pub(crate) fn session_bytes(&self) -> u64 {
        u64::from(self.memory_per_session_mib) << 20
    }

    /// What the flows of one token may carry each way, in bytes per second.
    pub(crate) fn device_rate(&self) -> Option<f64> {
        (self.mbit_per_device > 0).then(|| f64::from(self.mbit_per_device) * 1e6 / 8.0)
    }

    pub(crate) fn handshakes(&self) -> HandshakeRates {
        HandshakeRates {
            per_second: self.handshakes_per_second,
            per_second_and_network: self.handshakes_per_second_and_network,
        }
    }

    pub(crate) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_and_a_wrong_number_is_told_with_key_value_and_range() {
        assert_eq!(Limits::default().check(), Ok(()));
        let error = |limits: Limits| limits.check().unwrap_err().to_string();
        let no_sessions = Limits { sessions: 0, ..Limits::default() };
        assert_eq!(error(no_sessions), "limits.sessions is 0; 1 to 100000 is allowed");
        let many_flows = Limits { flows_per_session: 2049, ..Limits::default() };
        assert_eq!(error(many_flows), "limits.flows_per_session is 2049; 1 to 2048 is allowed");
    }
}
