//! Windowed filters that the model-based controllers share.

use std::collections::VecDeque;

/// The largest value of the last `window` steps, where a step is a round, a probing cycle or the like.
///
/// Holds at most one value per step of the window, each smaller than the one before it.
#[derive(Debug, Clone)]
pub struct WindowedMax {
    window: u64,
    /// `(step, value)`: steps grow, values fall.
    candidates: VecDeque<(u64, u64)>,
}

impl WindowedMax {
    /// A filter over the current step and the `window - 1` before it.
    pub fn new(window: u64) -> Self {
        WindowedMax { window: window.max(1), candidates: VecDeque::new() }
    }

    /// Takes in a value of `step`, which never decreases from call to call.
    pub fn insert(&mut self, step: u64, value: u64) {
        while self.candidates.back().is_some_and(|&(_, smaller)| smaller <= value) {
            self.candidates.pop_back();
        }
        // A smaller value of a step that already has one can never become the largest.
        if self.candidates.back().is_none_or(|&(known, _)| known < step) {
            self.candidates.push_back((step, value));
        }
        self.advance(step);
    }

    /// Forgets what lies more than the window before `step`.
    pub fn advance(&mut self, step: u64) {
        while self.candidates.front().is_some_and(|&(old, _)| old + self.window <= step) {
            self.candidates.pop_front();
        }
    }

    /// The largest value in the window, or `None` if there is none.
    pub fn get(&self) -> Option<u64> {
        self.candidates.front().map(|&(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_value_leaves_with_its_cycle() {
        let mut filter = WindowedMax::new(2);
        filter.insert(1, 90);
        filter.insert(1, 100);
        filter.advance(2);
        filter.insert(2, 80);
        assert_eq!(filter.get(), Some(100));
        filter.advance(3);
        assert_eq!(filter.get(), Some(80));
        filter.advance(4);
        assert_eq!(filter.get(), None);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_search_and_stays_small(
            window in 1u64..12,
            values in prop::collection::vec((0u64..3, 0u64..100), 1..200),
        ) {
            let mut filter = WindowedMax::new(window);
            let mut all = Vec::new();
            let mut step = 0;
            for (ahead, value) in values {
                step += ahead;
                filter.insert(step, value);
                all.push((step, value));
                let expected = all.iter().filter(|(old, _)| old + window > step).map(|&(_, value)| value).max();
                prop_assert_eq!(filter.get(), expected);
                prop_assert!(filter.candidates.len() as u64 <= window);
            }
        }
    }
}
