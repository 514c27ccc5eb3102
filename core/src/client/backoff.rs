//! How long to wait before the next try: twice as long each time, never all clients at once.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(15);

/// The waits between tries.
pub(super) struct Backoff {
    next: Duration,
    rng: Pcg64,
}

impl Backoff {
    /// Starts with the shortest wait; the seed decides the jitter.
    pub(super) fn new(seed: u64) -> Self {
        Self { next: FIRST, rng: Pcg64::seed_from_u64(seed) }
    }

    /// The next wait: half to all of what doubling gives.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        wait.mul_f64(self.rng.random_range(0.5..=1.0))
    }

    /// Starts over, after a success or when the world has changed.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_start_over() {
        let mut backoff = Backoff::new(1);
        let waits: Vec<_> = (0..12).map(|_| backoff.next()).collect();
        assert!(waits[0] >= FIRST / 2 && waits[0] <= FIRST);
        assert!(waits[11] >= LONGEST / 2 && waits[11] <= LONGEST);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }

    #[test]
    fn two_clients_do_not_wait_equally_long() {
        assert_ne!(Backoff::new(1).next(), Backoff::new(2).next());
    }
}
