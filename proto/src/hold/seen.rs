//! Which numbers have come, on which paths, and when the first copy did.
//!
//! The tables reach back [`WINDOW`] numbers from the highest, but are only as long as what has come makes necessary: most
//! sessions of a relay idle.

use super::WINDOW;
use crate::wire::control::{MAX_PATHS, PathId};

/// Stands for the paths that are gone among those that delivered a number.
const GONE: u16 = 1 << MAX_PATHS;

/// Tables are so long at least.
const LEAST_LEN: u64 = 64;

/// The window of one direction.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// By number modulo length, a power of two: a bit for each path that delivered it, or [`GONE`], and when the first did, in the owner's
    /// units. Long enough for all from `lowest` to `highest`, or for [`WINDOW`].
    paths: Vec<u16>,
    first_at: Vec<u32>,
    highest: Option<u64>,
    lowest: u64,
    /// Numbers below this count as seen on every path.
    over: u64,
}

impl Seen {
    /// The highest number so far.
    pub(super) fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Begins anew with `number` as the highest, which has not come yet.
    pub(super) fn start_at(&mut self, number: u64) {
        *self = Self { highest: Some(number), lowest: number, ..Self::default() };
        self.reach(number);
    }

    /// Makes `number` the highest; no more than [`WINDOW`] above the one before.
    pub(super) fn advance(&mut self, number: u64) {
        self.reach(number);
        let highest = self.highest.map_or(number, |highest| highest + 1);
        for skipped in highest..=number {
            let slot = self.slot(skipped);
            self.paths[slot] = 0;
        }
        self.highest = Some(number);
    }

    /// The paths that delivered a number within the window.
    pub(super) fn on(&self, number: u64) -> u16 {
        match number {
            _ if number < self.over => u16::MAX,
            _ if number < self.lowest || self.paths.is_empty() => 0,
            _ => self.paths[self.slot(number)],
        }
    }

    /// When the first copy of a number came that has.
    pub(super) fn first_at(&self, number: u64) -> u32 {
        self.first_at.get(self.slot(number)).copied().unwrap_or(0)
    }

    /// Notes that a number within the window came on `path`; the first copy at `at`.
    pub(super) fn mark(&mut self, path: PathId, number: u64, at: u32) {
        self.reach(number);
        let slot = self.slot(number);
        if self.paths[slot] == 0 {
            self.first_at[slot] = at;
        }
        self.paths[slot] |= 1 << path.0;
    }

    /// A path is gone, and a new one may take its number. What it delivered stays known.
    pub(super) fn forget_path(&mut self, path: PathId) {
        let bit = 1 << path.0;
        self.paths.iter_mut().filter(|seen| **seen & bit != 0).for_each(|seen| *seen = *seen & !bit | GONE);
    }

    /// Gives the tables back. What has not come so far counts as seen.
    pub(super) fn rest(&mut self) {
        let Some(highest) = self.highest else { return };
        (self.over, self.lowest) = (highest + 1, highest + 1);
        (self.paths, self.first_at) = (Vec::new(), Vec::new());
    }

    fn slot(&self, number: u64) -> usize {
        (number & (self.paths.len() as u64).saturating_sub(1)) as usize
    }

    /// Makes the tables long enough for `number`.
    fn reach(&mut self, number: u64) {
        let highest = self.highest.unwrap_or(number);
        self.lowest = self.lowest.min(number).max(self.over.min(number));
        let needed = number.max(highest) - self.lowest + 1;
        let len = needed.min(WINDOW).next_power_of_two().max(LEAST_LEN) as usize;
        if len <= self.paths.len() {
            return;
        }
        let (paths, first_at) = (vec![0; len], vec![0; len]);
        let old = Self { paths: std::mem::replace(&mut self.paths, paths), ..Self::default() };
        let old_first_at = std::mem::replace(&mut self.first_at, first_at);
        let reached = (old.paths.len() as u64).min(highest - self.lowest.min(highest) + 1);
        for known in (highest + 1 - reached)..=highest {
            let (from, to) = (old.slot(known), self.slot(known));
            if !old.paths.is_empty() {
                (self.paths[to], self.first_at[to]) = (old.paths[from], old_first_at[from]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_session_has_short_tables_and_one_that_rests_has_none() {
        let mut seen = Seen::default();
        seen.start_at(7);
        for number in 7..100 {
            seen.advance(number);
            seen.mark(PathId(0), number, number as u32);
        }
        assert_eq!(seen.paths.len(), 128);
        assert_eq!((seen.on(50), seen.first_at(50), seen.on(6)), (1, 50, 0));
        seen.rest();
        assert_eq!((seen.paths.capacity(), seen.on(99), seen.on(98)), (0, u16::MAX, u16::MAX));
        seen.advance(101);
        seen.mark(PathId(1), 101, 5);
        assert_eq!((seen.on(101), seen.on(100), seen.on(99), seen.paths.len()), (2, 0, u16::MAX, 64));
    }

    proptest! {
        /// Whatever comes, it is as if there were an entry for every number.
        #[test]
        fn the_tables_are_as_good_as_endless_ones(
            first in 0u64..20_000,
            steps in prop::collection::vec((0u64..12_000, 0u8..4, any::<bool>()), 1..200),
        ) {
            let (mut seen, mut model) = (Seen::default(), BTreeMap::<u64, u16>::new());
            seen.start_at(first);
            let mut highest = first;
            for (step, path, up) in steps {
                let number = if up { highest + step % 300 } else { highest.saturating_sub(step) };
                if highest >= number + WINDOW {
                    continue;
                }
                if number > highest {
                    seen.advance(number);
                    highest = number;
                }
                let expected = model.get(&number).copied().unwrap_or(0);
                prop_assert_eq!(seen.on(number), expected, "number {} of {}", number, highest);
                seen.mark(PathId(path), number, 0);
                *model.entry(number).or_default() |= 1 << path;
                prop_assert_eq!(seen.on(number), model[&number]);
                prop_assert!(seen.paths.len() as u64 <= WINDOW);
            }
        }
    }
}
