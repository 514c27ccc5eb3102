//! What the tests of this crate share.

use std::time::Instant;

/// Some instant to count from; nothing depends on which.
#[expect(clippy::disallowed_methods, reason = "an instant can be had from a clock alone; its value does not matter")]
pub(crate) fn start() -> Instant {
    Instant::now()
}
