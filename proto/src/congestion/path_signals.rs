//! What paths and controller tell each other beside the QUIC library.
//!
//! Copies hide losses and queues of the single paths from the library. So the link tells the controller, report by report,
//! how the *reference path* does: the one with the largest delivered rate. The controller in turn tells the link what phase
//! it sends in and how fast, as some measurements are worth nothing while it probes, and copies may not go faster than it.
//!
//! Numbers are the link's 64-bit datagram numbers of the sending direction; rates are bytes per second.

use std::time::{Duration, Instant};

/// What one report of the far side told of the reference path; only reports that settled the fate of some datagram there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferenceReport {
    /// Datagrams whose arrival or loss on the path became known by this report.
    pub judged: u32,
    /// Those of them that did not arrive there.
    pub lost: u32,
    /// When the newest of them left.
    pub newest_sent_at: Instant,
    /// How much longer the way through the path takes than its least of the last 10 s.
    pub queue: Duration,
    /// The queue that is still taken for none: `T` in docs/CONGESTION.md.
    pub tolerated: Duration,
    /// The path's loss that is believed not to come from congestion, 0 to 0.4: `p0` in docs/CONGESTION.md.
    pub floor: f64,
    /// Whether the floor of some path needs a trial: 256 datagrams paced at three quarters of the rate.
    pub trial_wanted: bool,
}

impl ReferenceReport {
    /// Whether the path has a queue beyond the tolerated one.
    pub fn has_queue(&self) -> bool {
        self.queue > self.tolerated
    }
}

/// What a controller is about, as far as it matters to what is measured on the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum SendPhase {
    /// Looks for the bandwidth for the first time.
    Startup,
    /// Sends more than it believes the path to carry, or gets ready to: REFILL and UP of BBRv3.
    Probing,
    /// Sends what it believes the path to carry, or less; loss-based controllers always do.
    #[default]
    Steady,
    /// Sends at three quarters of that, so that losses of its own making show as such.
    Trial,
}

impl SendPhase {
    /// Every phase, in the order of their numbers.
    pub const ALL: [SendPhase; 4] = [SendPhase::Startup, SendPhase::Probing, SendPhase::Steady, SendPhase::Trial];

    /// Whether queues and losses that appear are not of the controller's own probing.
    pub fn is_calm(self) -> bool {
        matches!(self, SendPhase::Steady | SendPhase::Trial)
    }
}

/// How a connection sends now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderState {
    /// What the controller is about.
    pub phase: SendPhase,
    /// How fast it sends, in bytes per second; `None` while nothing is known of it.
    pub pacing_rate: Option<u64>,
    /// Whether it gives way to the queues of others; its copies then do so, too.
    pub gives_way: bool,
}
