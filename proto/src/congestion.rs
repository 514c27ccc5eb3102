//! Congestion controllers as pure state machines; they know no QUIC library.
//!
//! An [`Algorithm`] names a controller. Those the QUIC library brings itself (CUBIC and NewReno) are wrapped where that
//! library is met. The model-based ones live here, one file each, and implement [`Congestion`]: they see what was sent,
//! acknowledged and lost, and answer with a window, a pacing rate and a burst size. [`PacedSender`] puts one of them
//! together with what they share: the measuring of delivery rates ([`rate_sample`]), windowed [`filters`] and the
//! [`pacer`].
//!
//! Lengths are bytes of UDP payload, rates are bytes per second, times are passed in. `SMSS` is the largest UDP payload
//! that passes now; a *round* is counted by packets: it ends when one sent after the last round's end is acknowledged.

use std::fmt::Debug;
use std::time::{Duration, Instant};

mod algorithm;
mod bbr1;
mod bbr3;
pub mod copy_governor;
pub mod filters;
pub mod noise_floor;
mod paced_sender;
pub mod pacer;
pub mod path_signals;
pub mod rate_sample;
#[cfg(test)]
mod testing;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use bbr1::Bbr1;
pub use bbr3::Bbr3;
pub use paced_sender::PacedSender;
pub use path_signals::{ReferenceReport, SendPhase, SenderState};
use rate_sample::{AckBatch, LossBatch};

/// A congestion controller that works from a model of the path.
pub trait Congestion: Debug + Send + Sync {
    /// Takes in that a transmit is about to be sent.
    fn on_sent(&mut self, sent: &Sent, now: Instant);

    /// Takes in what one acknowledgement frame told.
    fn on_ack(&mut self, acked: &AckBatch, now: Instant);

    /// Takes in losses, or an ECN mark.
    fn on_lost(&mut self, lost: &LossBatch, now: Instant);

    /// Whether reports of the reference path matter to it.
    fn heeds_reports(&self) -> bool {
        false
    }

    /// Takes in what a report told of the reference path, after the losses it told of.
    fn on_report(&mut self, _report: &ReferenceReport, _now: Instant) {}

    /// Takes in a new SMSS, in bytes.
    fn on_mtu(&mut self, smss: u64);

    /// How sending is limited from now on.
    fn control(&self) -> Control;

    /// What the controller is about, for those who measure paths meanwhile.
    fn send_phase(&self) -> SendPhase;

    /// What to show in statistics and traces.
    fn metrics(&self) -> Metrics;

    /// Duplicates the controller with its model.
    fn clone_box(&self) -> Box<dyn Congestion>;
}

/// A transmit about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Its length.
    pub bytes: u64,
    /// Bytes in flight before it.
    pub in_flight: u64,
    /// Whether the application limited the rate until now.
    pub app_limited: bool,
}

/// How a controller limits sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Bytes that may be in flight.
    pub cwnd: u64,
    /// Bytes per second, never 0.
    pub pacing_rate: u64,
    /// Bytes that may leave in one burst.
    pub send_quantum: u64,
    /// Whether the controller itself holds the rate down, so that what is measured now tells nothing of the path.
    pub app_limited: bool,
}

/// What a controller believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// The phase in one lower-case word, such as `startup`.
    pub phase: &'static str,
    /// The bandwidth of the path in bytes per second; `None` before the first sample.
    pub bandwidth: Option<u64>,
    /// The least round-trip time of the path; `None` before the first sample.
    pub min_rtt: Option<Duration>,
}

/// The window before anything is known, in bytes (RFC 9002, section 7.2).
pub fn initial_window(smss: u64) -> u64 {
    (10 * smss).min(14_720.max(2 * smss))
}
