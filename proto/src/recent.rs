//! Extremes of the recent past, in constant memory.
//!
//! The span is kept as eight slices; a value leaves between seven and eight eighths of the span after it came.

use std::time::{Duration, Instant};

const SLICES: u32 = 8;

/// The largest value of about the last `span`.
#[derive(Debug, Clone)]
pub(crate) struct RecentMax<T> {
    slices: [Option<T>; SLICES as usize],
    slice: Duration,
    started: Option<Instant>,
    current: usize,
}

impl<T: Ord + Copy> RecentMax<T> {
    /// Nothing seen yet.
    pub(crate) fn new(span: Duration) -> Self {
        Self { slices: [None; SLICES as usize], slice: span / SLICES, started: None, current: 0 }
    }

    /// Takes a value of now.
    pub(crate) fn insert(&mut self, value: T, now: Instant) {
        self.turn(now);
        let slot = &mut self.slices[self.current];
        *slot = Some(slot.map_or(value, |old| old.max(value)));
    }

    /// The largest value; `None` if none came lately.
    pub(crate) fn get(&mut self, now: Instant) -> Option<T> {
        self.turn(now);
        self.slices.iter().flatten().max().copied()
    }

    fn turn(&mut self, now: Instant) {
        let started = *self.started.get_or_insert(now);
        let elapsed = now.saturating_duration_since(started);
        if elapsed < self.slice {
            return;
        }
        let turns = (elapsed.as_nanos() / self.slice.as_nanos().max(1)).min(u128::from(u32::MAX)) as u32;
        for _ in 0..turns.min(SLICES) {
            self.current = (self.current + 1) % SLICES as usize;
            self.slices[self.current] = None;
        }
        self.started = Some(started + self.slice * turns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_leaves_after_its_span() {
        let start = crate::testing::start();
        let at = |ms| start + Duration::from_millis(ms);
        let mut recent = RecentMax::new(Duration::from_secs(1));
        assert_eq!(recent.get(at(0)), None);
        recent.insert(9, at(0));
        recent.insert(4, at(500));
        assert_eq!(recent.get(at(850)), Some(9));
        assert_eq!(recent.get(at(1001)), Some(4));
        assert_eq!(recent.get(at(60_000)), None);
    }
}
