//! What the paper found in place of what is measured here, to be drawn as a mark beside it.
//!
//! Its tables 6 and 7 (section 4.3.2) have one TCP connection (CUBIC) on each of two networks of 100 Mbit/s beside the tunnel. The
//! values here are those at 0.1 % loss of TCP on the network that the tunnel prefers; without loss it calls every mode fair and
//! gives no number.

use serde::Serialize;
use tandem_proto::mode::{Mode, Sides};

/// From what on two shares count as fair, by Jain's index. The paper names no bound; this is the one of `docs/results`.
pub const FAIR_JAIN: f64 = 0.9;

/// What TCP kept in the paper, in percent of what it had alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Kept {
    /// The value.
    pub percent: f64,
    /// Whether the paper says "more than" it.
    pub at_least: bool,
}

/// What TCP kept beside this congestion controller in this mode; `None` if the paper does not have it.
pub fn kept(congestion: &str, mode: Mode) -> Option<Kept> {
    let (percent, at_least) = match (congestion, mode) {
        // Table 7.
        ("bbr3" | "bbr3-draft", Mode::Single | Mode::Bicast(Sides::Both)) => (90.0, true),
        ("bbr3" | "bbr3-draft", Mode::Bicast(Sides::Client)) => (85.0, true),
        ("bbr3" | "bbr3-draft", Mode::Bicast(Sides::Server)) => (82.0, false),
        // Table 6.
        ("bbr1", Mode::Single) => (28.6, false),
        ("bbr1", Mode::Bicast(Sides::Client)) => (74.6, false),
        ("bbr1", Mode::Bicast(Sides::Server)) => (65.0, false),
        ("bbr1", Mode::Bicast(Sides::Both)) => (66.1, false),
        _ => return None,
    };
    Some(Kept { percent, at_least })
}
