//! How much of what travels a path is lost lately, with how sure that is.
//!
//! Counted are pings without echo (both directions together, on every path) and datagrams that a report shows as missing
//! (the direction of the data, on paths in use). What is lost while the path has a queue is not counted: that is
//! congestion, which another path would have too.

use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(500);
const SLICES: usize = 20;
/// Slices that tell how the path in use does now.
const NOW_SLICES: usize = 4;
/// Standard deviations of the bounds: one in twenty is beyond.
const Z: f64 = 1.64;

/// Loss of the last ten seconds in slices of half a second.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    /// Judged, lost.
    slices: [(u32, u32); SLICES],
    current: usize,
    turned: Option<Instant>,
}

/// What is known of a path's loss; shares from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct LossBounds {
    /// It loses at least so much now (two seconds).
    pub(crate) at_least_now: f64,
    /// It has lost at most so much (ten seconds); 1 if hardly anything is known.
    pub(crate) at_most: f64,
    /// The share of the last ten seconds.
    pub(crate) share: f64,
}

impl Loss {
    pub(crate) fn new() -> Self {
        Self { slices: [(0, 0); SLICES], current: 0, turned: None }
    }

    /// Counts things whose fate is known.
    pub(crate) fn count(&mut self, judged: u32, lost: u32, now: Instant) {
        self.turn(now);
        let slice = &mut self.slices[self.current];
        *slice = (slice.0 + judged, slice.1 + lost);
    }

    /// What is known now.
    pub(crate) fn bounds(&mut self, now: Instant) -> LossBounds {
        self.turn(now);
        let newest_first = (0..SLICES).map(|back| self.slices[(self.current + SLICES - back) % SLICES]);
        let sum = |(judged, lost), (more, more_lost)| (judged + more, lost + more_lost);
        let recent = newest_first.clone().take(NOW_SLICES);
        // A single burst is no state.
        let lasting = recent.clone().filter(|(_, lost)| *lost > 0).count() >= 2;
        let (judged, lost) = recent.fold((0, 0), sum);
        let at_least_now = if lasting { bound(judged, lost, -Z) } else { 0.0 };
        let (judged, lost) = newest_first.fold((0, 0), sum);
        LossBounds {
            at_least_now,
            at_most: bound(judged, lost, Z),
            share: if judged == 0 { 0.0 } else { f64::from(lost) / f64::from(judged) },
        }
    }

    fn turn(&mut self, now: Instant) {
        let turned = *self.turned.get_or_insert(now);
        let passed = (now.saturating_duration_since(turned).as_millis() / SLICE.as_millis()) as u32;
        for _ in 0..passed.min(SLICES as u32) {
            self.current = (self.current + 1) % SLICES;
            self.slices[self.current] = (0, 0);
        }
        self.turned = Some(turned + SLICE * passed);
    }
}

/// Wilson's bound of the share `lost / judged`, `z` standard deviations up or down.
fn bound(judged: u32, lost: u32, z: f64) -> f64 {
    let (n, z2) = (f64::from(judged), z * z);
    if judged == 0 {
        return if z > 0.0 { 1.0 } else { 0.0 };
    }
    let share = f64::from(lost) / n;
    let spread = (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    ((share + z2 / (2.0 * n) + z * spread) / (1.0 + z2 / n)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_surround_the_share_and_close_in_on_it() {
        let now = crate::testing::start();
        let mut loss = Loss::new();
        assert_eq!(loss.bounds(now), LossBounds { at_least_now: 0.0, at_most: 1.0, share: 0.0 });
        loss.count(10, 2, now);
        loss.count(10, 2, now + SLICE);
        let few = loss.bounds(now + SLICE);
        loss.count(1_000, 200, now + 2 * SLICE);
        let many = loss.bounds(now + 2 * SLICE);
        assert!(few.at_least_now > 0.08 && few.at_least_now < many.at_least_now && many.at_least_now < 0.2);
        assert!(few.at_most < 0.4 && many.at_most < few.at_most && many.at_most > 0.2);
    }

    #[test]
    fn what_was_lost_is_forgotten_after_ten_seconds_and_one_burst_is_no_state() {
        let now = crate::testing::start();
        let mut loss = Loss::new();
        loss.count(100, 50, now);
        assert_eq!(loss.bounds(now).at_least_now, 0.0, "one burst");
        assert!(loss.bounds(now + SLICE * 19).share > 0.4);
        assert_eq!(loss.bounds(now + SLICE * 20).share, 0.0);
        loss.count(100, 0, now + Duration::from_secs(100));
        assert!(loss.bounds(now + Duration::from_secs(100)).at_most < 0.03);
    }
}
