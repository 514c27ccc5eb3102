//! Tells control datagrams that were seen before, as in RFC 4303, section 3.4.3.

const WORDS: u64 = 16;

/// Counters this far below the highest are told apart; older ones are refused.
const WINDOW: u64 = WORDS * 64;

/// A sliding window over counters.
#[derive(Debug, Default)]
pub(crate) struct ReplayWindow {
    /// One above the highest counter seen; 0 before any.
    top: u64,
    bits: [u64; WORDS as usize],
}

impl ReplayWindow {
    /// Whether `counter` is new; it is not from then on.
    pub(crate) fn accept(&mut self, counter: u64) -> bool {
        if counter == u64::MAX || counter.saturating_add(WINDOW) < self.top {
            return false;
        }
        if counter >= self.top {
            if counter - self.top >= WINDOW {
                self.bits = [0; WORDS as usize];
            } else {
                (self.top..=counter).for_each(|skipped| self.bits[word(skipped)] &= !bit(skipped));
            }
            self.top = counter + 1;
        } else if self.bits[word(counter)] & bit(counter) != 0 {
            return false;
        }
        self.bits[word(counter)] |= bit(counter);
        true
    }
}

fn word(counter: u64) -> usize {
    (counter / 64 % WORDS) as usize
}

fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_counter_is_accepted_once_and_old_ones_never(counters in prop::collection::vec(0u64..5_000, 1..500)) {
            let (mut window, mut seen) = (ReplayWindow::default(), BTreeSet::new());
            for counter in counters {
                let highest = seen.last().copied().unwrap_or(0);
                let fresh = !seen.contains(&counter) && counter + WINDOW > highest;
                prop_assert_eq!(window.accept(counter), fresh);
                if fresh {
                    seen.insert(counter);
                }
            }
        }
    }
}
