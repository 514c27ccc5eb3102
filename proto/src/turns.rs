//! Relay: a rate that many flows share, a turn each.
//!
//! Whoever wants to move bytes books a turn of [`TURN`] bytes behind everybody else's, waits for it to come, and moves so
//! many. So the flows of a device that has a rate come in order, and get alike. What is not moved is given back. Turns that
//! were late, as timers are, do not cost rate: up to `BEHIND` is caught up on. Times are passed in.

use std::time::{Duration, Instant};

/// Bytes of a turn.
pub const TURN: usize = 16 * 1024;

/// How far turns may be behind the clock: what a rate that was not used allows at once.
const BEHIND: Duration = Duration::from_millis(100);

/// Who is next, at a steady rate.
#[derive(Debug)]
pub struct Turns {
    bytes_per_second: f64,
    /// When the next turn to be booked comes.
    next: Instant,
}

impl Turns {
    /// Turns at `bytes_per_second`, which is more than 0; the first comes at once.
    pub fn new(bytes_per_second: f64, now: Instant) -> Self {
        Self { bytes_per_second, next: now }
    }

    /// Books a turn; when it comes.
    pub fn book(&mut self, now: Instant) -> Instant {
        let earliest = now.checked_sub(BEHIND).unwrap_or(now);
        let turn = self.next.max(earliest);
        self.next = turn + self.time(TURN);
        turn
    }

    /// So many bytes of a turn will not be moved.
    pub fn give_back(&mut self, bytes: usize) {
        self.next = self.next.checked_sub(self.time(bytes)).unwrap_or(self.next);
    }

    fn time(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// A turn each 10 ms.
    const RATE: f64 = TURN as f64 * 100.0;

    #[test]
    fn flows_come_in_order_at_the_rate() {
        let now = crate::testing::start();
        let mut turns = Turns::new(RATE, now);
        let booked: Vec<_> = (0..5).map(|_| turns.book(now) - now).collect();
        assert_eq!(booked, [Duration::ZERO, 10 * MS, 20 * MS, 30 * MS, 40 * MS]);
    }

    #[test]
    fn late_turns_cost_no_rate_and_an_unused_rate_allows_a_tenth_of_a_second() {
        let start = crate::testing::start();
        let mut turns = Turns::new(RATE, start);
        // One flow whose timer is 7 ms late every time.
        let (mut now, mut moved) = (start, 0);
        while now < start + 1_000 * MS {
            let turn = turns.book(now);
            if turn > now {
                now = turn + 7 * MS;
            }
            moved += 1;
        }
        assert!((100..=102).contains(&moved), "{moved} turns in a second");
        let later = now + Duration::from_secs(60);
        let at_once = (0..100).filter(|_| turns.book(later) <= later).count();
        assert_eq!(at_once, 11);
    }

    #[test]
    fn what_is_given_back_is_there_for_the_next() {
        let now = crate::testing::start();
        let mut turns = Turns::new(RATE, now);
        // A thousand short flows of a tenth of a turn each.
        let mut last = now;
        for _ in 0..1_000 {
            last = turns.book(now);
            turns.give_back(TURN - TURN / 10);
        }
        let took = last - now;
        assert!((990 * MS..=1_000 * MS).contains(&took), "{took:?}");
    }
}
