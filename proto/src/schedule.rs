//! Decides which paths carry the next datagram.
//!
//! A scheduler sees what is known of the usable paths and names those that get a copy, the preferred one first. It never
//! sends. *Single* names the preferred path, *bicast* every usable path. The preferred path stays preferred while it is
//! usable, unless another one's least round-trip time is clearly lower, so that nothing flaps.

use std::time::Duration;

use crate::mode::Copying;
use crate::wire::control::{MAX_PATHS, PathId};

/// A set of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathSet(u8);

impl PathSet {
    /// The set of one path.
    pub fn only(path: PathId) -> Self {
        Self(1 << path.0)
    }

    /// Adds a path.
    pub fn insert(&mut self, path: PathId) {
        self.0 |= 1 << path.0;
    }

    /// Whether it has the path.
    pub fn contains(self, path: PathId) -> bool {
        self.0 & (1 << path.0) != 0
    }

    /// Takes a path out.
    pub fn remove(&mut self, path: PathId) {
        self.0 &= !(1 << path.0);
    }

    /// How many paths it has.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its paths, lowest number first.
    pub fn iter(self) -> impl Iterator<Item = PathId> {
        (0..MAX_PATHS as u8).map(PathId).filter(move |path| self.contains(*path))
    }
}

/// What a scheduler knows of one usable path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The path.
    pub(crate) path: PathId,
    /// Its least round-trip time; `None` before the first sample.
    pub(crate) min_rtt: Option<Duration>,
}

/// Remembers the preferred path.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    preferred: Option<PathId>,
}

impl Scheduler {
    /// The preferred path, if one was usable when last asked.
    pub(crate) fn preferred(&self) -> Option<PathId> {
        self.preferred
    }

    /// The preferred one of the usable paths, and all that carry a copy.
    pub(crate) fn choose(
        &mut self,
        copying: Copying,
        usable: impl Iterator<Item = Candidate> + Clone,
    ) -> Option<(PathId, PathSet)> {
        let best = usable.clone().min_by_key(|c| (c.min_rtt.unwrap_or(Duration::MAX), c.path))?;
        let current = self.preferred.and_then(|path| usable.clone().find(|c| c.path == path));
        let chosen = match current {
            Some(current) if !clearly_lower(best.min_rtt, current.min_rtt) => current.path,
            _ => best.path,
        };
        self.preferred = Some(chosen);
        let mut set = PathSet::only(chosen);
        if copying == Copying::Bicast {
            usable.for_each(|c| set.insert(c.path));
        }
        Some((chosen, set))
    }
}

/// Whether a change from `current` to `best` is worth it: a third less, and at least 5 ms.
fn clearly_lower(best: Option<Duration>, current: Option<Duration>) -> bool {
    let (Some(best), Some(current)) = (best, current) else { return false };
    best * 3 / 2 + Duration::from_millis(5) < current
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(path: u8, rtt_ms: u64) -> Candidate {
        Candidate { path: PathId(path), min_rtt: Some(Duration::from_millis(rtt_ms)) }
    }

    fn single(scheduler: &mut Scheduler, usable: &[Candidate]) -> Option<PathId> {
        scheduler.choose(Copying::Single, usable.iter().copied()).map(|(path, _)| path)
    }

    #[test]
    fn the_preferred_path_stays_until_another_is_clearly_better_or_it_fails() {
        let mut scheduler = Scheduler::default();
        assert_eq!(single(&mut scheduler, &[candidate(0, 30), candidate(1, 20)]), Some(PathId(1)));
        assert_eq!(single(&mut scheduler, &[candidate(0, 18), candidate(1, 20)]), Some(PathId(1)));
        assert_eq!(single(&mut scheduler, &[candidate(0, 9), candidate(1, 20)]), Some(PathId(0)));
        assert_eq!(single(&mut scheduler, &[candidate(1, 20)]), Some(PathId(1)));
        assert_eq!(single(&mut scheduler, &[]), None);
    }

    #[test]
    fn bicast_names_every_usable_path() {
        let mut scheduler = Scheduler::default();
        let usable = [candidate(0, 30), candidate(3, 60)];
        let (preferred, set) = scheduler.choose(Copying::Bicast, usable.into_iter()).expect("two are usable");
        assert_eq!(preferred, PathId(0));
        assert_eq!(set.iter().collect::<Vec<_>>(), [PathId(0), PathId(3)]);
    }
}
