//! Gives back the memory that only traffic needs once a session has idled for a while: a relay has thousands that do.

use std::time::{Duration, Instant};

use super::Link;
use super::halves::Halves;

/// How long nothing of QUIC's came or went before.
const REST_AFTER: Duration = Duration::from_secs(5);

impl Link {
    /// When the session may rest.
    pub(super) fn rest_at(&self) -> Option<Instant> {
        self.active_until.filter(|_| !self.rested).map(|until| until + REST_AFTER)
    }

    /// Rests, if it is time.
    pub(super) fn rest_if_due(&mut self, now: Instant) {
        if self.rest_at().is_none_or(|at| at > now) {
            return;
        }
        self.rested = true;
        self.hold.rest();
        self.kept.trim(&self.log);
        if self.kept.rest() {
            self.log.rest();
        }
        self.halves = std::array::from_fn(|_| Halves::default());
        (self.joined, self.scratch, self.spare) = (Vec::new(), Vec::new(), Vec::new());
        self.outgoing.shrink_to_fit();
        self.events.shrink_to_fit();
    }
}
