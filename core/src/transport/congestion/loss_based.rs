//! The QUIC library's own loss-based controllers, with the one rule they need under an in-order hold.
//!
//! CUBIC and NewReno run as delivered, paced by the library. What is added is *rule Q*: a loss on the reference path that
//! the hold hides counts as congestion if that path had a queue. The library's controllers react at most once to all
//! that was sent before a reaction, so losses that it sees as well are not counted twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, CubicConfig, NewRenoConfig};
use tandem_proto::congestion::{Algorithm, initial_window};

use super::{Metrics, ReportedLoss};

/// A controller of the library's.
pub(super) struct LossBased {
    algorithm: Algorithm,
    /// The library's controller; its hooks may be called as they come.
    pub(super) inner: Box<dyn Controller>,
    /// The library's round-trip time, once it has told one.
    pub(super) smoothed_rtt: Option<Duration>,
}

impl LossBased {
    /// CUBIC, as the library has it.
    pub(super) fn cubic(now: Instant, mtu: u16) -> Self {
        let mut config = CubicConfig::default();
        config.initial_window(initial_window(mtu.into()));
        LossBased { algorithm: Algorithm::Cubic, inner: Arc::new(config).build(now, mtu), smoothed_rtt: None }
    }

    /// NewReno, as the library has it.
    pub(super) fn new_reno(now: Instant, mtu: u16) -> Self {
        let mut config = NewRenoConfig::default();
        config.initial_window(initial_window(mtu.into()));
        LossBased { algorithm: Algorithm::NewReno, inner: Arc::new(config).build(now, mtu), smoothed_rtt: None }
    }

    /// Takes in a loss that counts by rule Q.
    pub(super) fn reference_path_lost(&mut self, loss: ReportedLoss, now: Instant) {
        self.inner.on_congestion_event(now, loss.sent_at, false, loss.bytes);
    }

    /// What the window amounts to in bytes per second; `None` before the first round trip.
    pub(super) fn rate(&self) -> Option<u64> {
        let rtt = self.smoothed_rtt.filter(|rtt| !rtt.is_zero())?;
        Some((self.inner.window() as f64 / rtt.as_secs_f64()) as u64)
    }

    pub(super) fn metrics(&self) -> Metrics {
        let metrics = self.inner.metrics();
        let growing = metrics.ssthresh.is_none_or(|ssthresh| metrics.congestion_window < ssthresh);
        Metrics {
            algorithm: self.algorithm,
            cwnd_bytes: metrics.congestion_window,
            pacing_rate: None,
            phase: if growing { "slow_start" } else { "avoidance" },
        }
    }
}

impl Clone for LossBased {
    fn clone(&self) -> Self {
        LossBased { algorithm: self.algorithm, inner: self.inner.clone_box(), smoothed_rtt: self.smoothed_rtt }
    }
}
