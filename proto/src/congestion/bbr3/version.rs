//! Version 2 of BBR, which has the same model and states as version 3, and where it differs.
//!
//! After draft-cardwell-iccrg-bbr-congestion-control-01 ("version 2's draft"; its sections are marked B2). What differs:
//! - *Down* paces slower (0.75 instead of 0.90: the mean of *up* and *down* is 1) and lasts, once there is room for others, no
//!   longer than one round trip (B2 4.3.3.1 and 4.3.3.2).
//! - *Up* ends once it has lasted a round trip and has put 1.25 bandwidth-delay products in flight (B2 4.3.3.4), not when the rate
//!   grows no more; and its window is two bandwidth-delay products as in the other states.
//! - No probe ends as a precaution, to be followed by another.
//! - Startup ends at three separate losses in a round instead of six, and then one bandwidth-delay product is the flight that
//!   losses allowed. Whether it grows is seen from the largest rate of two cycles, not from that of the round.
//! - *Drain* takes as long as it takes.
//! - A recovery begins with a round of packet conservation, a byte out for a byte that arrived, and what is lost during it comes off
//!   the window (B2 4.6.4.4).
//! - Below 1.2 Mbit/s a burst is one datagram.
//!
//! The rules are taken from a summary of version 2's draft, whose text was not at hand: details of recovery, and numbers of sections,
//! may differ from it.
//!
//! Version 2's draft has another bound of the rate, `bw_hi`. Its rules raise it from infinity and never lower it, so it bounds
//! nothing, and is not here. What it names `inflight_hi`, `inflight_lo` and `bw_lo` are `inflight_longterm` and the short-term bounds.
//!
//! As in version 3's draft variant a recovery lasts until a packet sent after the *newest* loss is acknowledged, and the window
//! never falls under four datagrams.

use std::time::Instant;

use super::Bbr3;
use crate::congestion::rate_sample::{AckBatch, LossBatch, RateSample};

/// What *up* of version 2 puts in flight before it ends, in bandwidth-delay products (B2 4.3.3.4).
const UP_FLIGHT: f64 = 1.25;

/// 1.2 Mbit/s in bytes per second (B2 4.6.3).
const SLOW: u64 = 150_000;

/// The drafts' versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Two,
    Three,
}

impl Version {
    /// Pacing gain of *down* (5.6.1; B2 4.3.3.1).
    pub(super) fn down_gain(self) -> f64 {
        match self {
            Version::Two => 0.75,
            Version::Three => 0.90,
        }
    }

    /// Window gain of *up* (5.6.1).
    pub(super) fn up_cwnd_gain(self) -> f64 {
        match self {
            Version::Two => 2.0,
            Version::Three => 2.25,
        }
    }

    /// Separate losses in a round from which startup ends (5.3.1.3; B2 4.3.1.3).
    pub(super) fn startup_losses(self) -> u32 {
        match self {
            Version::Two => 3,
            Version::Three => 6,
        }
    }

    /// Rounds after which *drain* ends whatever is in flight (5.3.2).
    pub(super) fn drain_rounds(self) -> Option<u64> {
        match self {
            Version::Two => None,
            Version::Three => Some(3),
        }
    }

    /// Datagrams of the smallest burst at a pacing rate in bytes per second (5.6.3; B2 4.6.3).
    pub(super) fn least_burst(self, pacing_rate: u64) -> u64 {
        match self {
            Version::Two if pacing_rate < SLOW => 1,
            Version::Two | Version::Three => 2,
        }
    }
}

impl Bbr3 {
    /// BBR version 2 by its draft.
    ///
    /// The same `seed` gives the same decisions.
    pub fn version_2(smss: u64, seed: u64, now: Instant) -> Self {
        Bbr3 { version: Version::Two, ..Bbr3::draft(smss, seed, now) }
    }

    /// The sample from which the test of growth takes the rate.
    pub(super) fn growth_sample(&self, sample: &RateSample) -> RateSample {
        match self.version {
            Version::Two => RateSample { delivery_rate: Some(self.max_bandwidth.get()), ..*sample },
            Version::Three => *sample,
        }
    }

    /// The flight that losses allowed, when they ended startup.
    pub(super) fn flight_after_startup_loss(&self) -> u64 {
        let bdp = self.bdp(1.0, self.bandwidth());
        match self.version {
            Version::Two => bdp,
            Version::Three => bdp.max(self.latest.inflight),
        }
    }

    /// Whether version 2 has probed enough.
    pub(super) fn has_filled_pipe(&self, in_flight: u64, now: Instant) -> bool {
        self.min_rtt.get().is_some_and(|min_rtt| now > self.cycle.up_began + min_rtt)
            && in_flight > self.flight(UP_FLIGHT, self.max_bandwidth.get())
    }

    /// Whether version 2 waits no longer in *down* for the queue to drain.
    pub(super) fn has_been_down_long_enough(&self, now: Instant) -> bool {
        self.version == Version::Two && self.min_rtt.get().is_some_and(|min_rtt| now > self.cycle.began + min_rtt)
    }

    /// Whether no more is sent than arrives: in the first round of a recovery of version 2.
    pub(super) fn is_conserving(&self, acked: &AckBatch) -> bool {
        self.version == Version::Two
            && self.recovery.is_some_and(|recovery| acked.sample.prior_delivered < recovery.began_at_delivered)
    }

    /// More is lost in a recovery: version 2 takes it off the window (B2 4.6.4.4).
    pub(super) fn give_up_lost(&mut self, lost: &LossBatch) {
        if self.version == Version::Two {
            self.cwnd = self.cwnd.saturating_sub(lost.bytes).max(self.min_window());
        }
    }

    /// A recovery begins with this loss.
    pub(super) fn begin_conserving(&mut self, lost: &LossBatch) {
        if self.version == Version::Two {
            self.cwnd = (lost.in_flight + self.smss).min(self.cwnd).max(self.min_window());
        }
    }
}
