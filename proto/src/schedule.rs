//! Decides which paths carry the next datagram.
//!
//! A scheduler sees what is known of the usable paths and names those that get a copy, the preferred one first. It never
//! sends. *Single* names the preferred path, *bicast* every usable path. The preferred path stays preferred while it is
//! usable, so that nothing flaps, unless another one that is not on probation
//! - loses surely less than it does now, or
//! - has a clearly lower least round-trip time, and has not lost more lately.
//!
//! When the preferred path fails, the best of the others takes over: not on probation, then what it is for, then little loss,
//! then the lowest round-trip time.
//!
//! A *backup* carries nothing while a path for use works. It takes over when the last of those fails or surely loses much
//! more, and is left again once one of them is no longer on probation and loses hardly more. In the same way, with the usual
//! margin, a path whose rate is limited gives way to one of its kind without a limit.

use std::time::Duration;

use crate::mode::Copying;
use crate::path::loss::LossBounds;
use crate::path::order::PathRole;
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

/// A path is left for one that loses at least this share less.
const LOSS_MARGIN: f64 = 0.03;

/// A path for use is left for a backup that loses at least this share less: till then it works.
const BACKUP_MARGIN: f64 = 0.10;

/// And a backup for a path for use that loses no more than this beyond it.
const RETURN_MARGIN: f64 = 0.05;

/// Paths whose loss differs by less count as equally good.
const LOSS_TOLERANCE: f64 = 0.02;

/// What a scheduler knows of one usable path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// The path.
    pub(crate) path: PathId,
    /// What it is for, and whether its rate is limited: the lower goes first.
    pub(crate) rank: (PathRole, bool),
    /// Its least round-trip time; `None` before the first sample.
    pub(crate) min_rtt: Option<Duration>,
    /// What it loses.
    pub(crate) loss: LossBounds,
    /// It came back a short while ago, or was left because of its loss.
    pub(crate) on_probation: bool,
}

/// Remembers the preferred path.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    preferred: Option<PathId>,
}

/// What a scheduler decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The preferred path.
    pub(crate) preferred: PathId,
    /// All paths that carry a copy.
    pub(crate) set: PathSet,
    /// The path that was preferred until now and still works, but loses more.
    pub(crate) left_for_loss: Option<PathId>,
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
    ) -> Option<Choice> {
        let rank = |c: &Candidate| {
            let lossy = (c.loss.share / LOSS_MARGIN) as u32;
            (c.on_probation, c.rank, lossy, c.min_rtt.unwrap_or(Duration::MAX), c.path)
        };
        let best = usable.clone().min_by_key(rank)?;
        let current = self.preferred.and_then(|path| usable.clone().find(|c| c.path == path));
        let mut left_for_loss = None;
        let chosen = match current {
            None => best.path,
            Some(current) => {
                let others = usable.clone().filter(|c| c.path != current.path && !c.on_probation);
                let cleaner = others.clone().filter(|c| is_surely_cleaner(c, &current));
                let rather = others.clone().filter(|c| is_rather_for_this(c, &current));
                let nearer = others.filter(|c| c.rank == current.rank && is_clearly_nearer(c, &current));
                if let Some(cleaner) = cleaner.min_by_key(rank) {
                    left_for_loss = Some(current.path);
                    cleaner.path
                } else if let Some(rather) = rather.min_by_key(rank) {
                    rather.path
                } else {
                    nearer.min_by_key(rank).map_or(current.path, |nearer| nearer.path)
                }
            }
        };
        self.preferred = Some(chosen);
        let mut set = PathSet::only(chosen);
        if copying == Copying::Bicast {
            usable.filter(|c| c.rank.0 == PathRole::Use).for_each(|c| set.insert(c.path));
        }
        Some(Choice { preferred: chosen, set, left_for_loss })
    }
}

/// Whether `current` loses so much more that it is left for `other`.
fn is_surely_cleaner(other: &Candidate, current: &Candidate) -> bool {
    let margin = if other.rank.0 > current.rank.0 { BACKUP_MARGIN } else { LOSS_MARGIN };
    other.loss.at_most + margin < current.loss.at_least_now
}

/// Whether `other` is rather meant to carry data than `current`, and not much worse.
fn is_rather_for_this(other: &Candidate, current: &Candidate) -> bool {
    other.rank < current.rank && other.loss.share <= current.loss.share + RETURN_MARGIN
}

/// Whether a change from `current` to `other` is worth it: a third nearer, and at least 5 ms, for no more loss.
fn is_clearly_nearer(other: &Candidate, current: &Candidate) -> bool {
    let (Some(rtt), Some(current_rtt)) = (other.min_rtt, current.min_rtt) else { return false };
    rtt * 3 / 2 + Duration::from_millis(5) < current_rtt && other.loss.share <= current.loss.share + LOSS_TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(path: u8, rtt_ms: u64) -> Candidate {
        let loss = LossBounds { at_least_now: 0.0, at_most: 0.02, share: 0.0 };
        let rank = (PathRole::Use, false);
        Candidate { path: PathId(path), rank, min_rtt: Some(Duration::from_millis(rtt_ms)), loss, on_probation: false }
    }

    fn lossy(path: u8, rtt_ms: u64, share: f64) -> Candidate {
        let loss = LossBounds { at_least_now: share * 0.8, at_most: share * 1.2, share };
        Candidate { loss, ..candidate(path, rtt_ms) }
    }

    fn single(scheduler: &mut Scheduler, usable: &[Candidate]) -> Option<PathId> {
        scheduler.choose(Copying::Single, usable.iter().copied()).map(|choice| choice.preferred)
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

    /// MULTI-2, in the ranking.
    #[test]
    fn a_path_that_loses_much_is_left_for_a_clean_one_and_not_preferred_for_its_round_trip_while_it_does() {
        let mut scheduler = Scheduler::default();
        assert_eq!(single(&mut scheduler, &[candidate(0, 20), candidate(1, 60)]), Some(PathId(0)));
        assert_eq!(single(&mut scheduler, &[lossy(0, 20, 0.04), candidate(1, 60)]), Some(PathId(0)), "a little");
        let choice = scheduler.choose(Copying::Single, [lossy(0, 20, 0.2), candidate(1, 60)].into_iter());
        let choice = choice.expect("two are usable");
        assert_eq!((choice.preferred, choice.left_for_loss), (PathId(1), Some(PathId(0))));
        assert_eq!(single(&mut scheduler, &[lossy(0, 20, 0.05), candidate(1, 60)]), Some(PathId(1)), "not clean yet");
        assert_eq!(single(&mut scheduler, &[candidate(0, 20), candidate(1, 60)]), Some(PathId(0)));
    }

    #[test]
    fn of_two_bad_paths_neither_is_left() {
        let mut scheduler = Scheduler::default();
        single(&mut scheduler, &[candidate(0, 20)]);
        assert_eq!(single(&mut scheduler, &[lossy(0, 20, 0.2), lossy(1, 20, 0.25)]), Some(PathId(0)));
    }

    #[test]
    fn a_path_on_probation_is_taken_only_if_there_is_no_other() {
        let back = Candidate { on_probation: true, ..candidate(0, 9) };
        let mut scheduler = Scheduler::default();
        assert_eq!(single(&mut scheduler, &[back, candidate(1, 60)]), Some(PathId(1)));
        assert_eq!(single(&mut scheduler, &[back]), Some(PathId(0)));
        let lossy_one = lossy(1, 60, 0.3);
        let mut scheduler = Scheduler { preferred: Some(PathId(1)) };
        assert_eq!(single(&mut scheduler, &[back, lossy_one]), Some(PathId(1)));
    }

    fn backup(path: u8, rtt_ms: u64) -> Candidate {
        Candidate { rank: (PathRole::Backup, false), ..candidate(path, rtt_ms) }
    }

    #[test]
    fn a_backup_is_taken_only_while_no_path_for_use_works_however_near_it_is() {
        let mut scheduler = Scheduler::default();
        assert_eq!(single(&mut scheduler, &[backup(0, 5), candidate(1, 90)]), Some(PathId(1)));
        assert_eq!(single(&mut scheduler, &[backup(0, 5), lossy(1, 90, 0.1)]), Some(PathId(1)), "it works");
        assert_eq!(single(&mut scheduler, &[backup(0, 5)]), Some(PathId(0)));
        let back = Candidate { on_probation: true, ..candidate(1, 90) };
        assert_eq!(single(&mut scheduler, &[backup(0, 5), back]), Some(PathId(0)), "calmly");
        assert_eq!(single(&mut scheduler, &[backup(0, 5), lossy(1, 90, 0.04)]), Some(PathId(1)), "it works again");
    }

    #[test]
    fn a_path_for_use_that_loses_much_is_left_for_a_backup_until_it_loses_little() {
        let mut scheduler = Scheduler::default();
        single(&mut scheduler, &[backup(0, 5), candidate(1, 90)]);
        let choice = scheduler.choose(Copying::Single, [backup(0, 5), lossy(1, 90, 0.2)].into_iter());
        let choice = choice.expect("two are usable");
        assert_eq!((choice.preferred, choice.left_for_loss), (PathId(0), Some(PathId(1))));
        assert_eq!(single(&mut scheduler, &[backup(0, 5), lossy(1, 90, 0.08)]), Some(PathId(0)));
        assert_eq!(single(&mut scheduler, &[backup(0, 5), lossy(1, 90, 0.05)]), Some(PathId(1)));
    }

    #[test]
    fn no_copies_travel_on_a_backup_that_is_not_needed() {
        let set = |scheduler: &mut Scheduler, usable: &[Candidate]| {
            let choice = scheduler.choose(Copying::Bicast, usable.iter().copied()).expect("some are usable");
            choice.set.iter().map(|path| path.0).collect::<Vec<_>>()
        };
        let mut scheduler = Scheduler::default();
        assert_eq!(set(&mut scheduler, &[candidate(0, 30), backup(1, 5), candidate(2, 60), backup(3, 9)]), [0, 2]);
        assert_eq!(set(&mut scheduler, &[backup(1, 5), candidate(2, 60), backup(3, 9)]), [2]);
        assert_eq!(set(&mut scheduler, &[backup(1, 5), backup(3, 9)]), [1], "one backup is enough");
        let back = Candidate { on_probation: true, ..candidate(0, 30) };
        assert_eq!(set(&mut scheduler, &[back, backup(1, 5)]), [0, 1], "copies help a path that has just come back");
    }

    #[test]
    fn a_path_that_is_slowed_gives_way_to_one_that_is_not_and_goes_before_a_backup() {
        let slowed = Candidate { rank: (PathRole::Use, true), ..candidate(0, 5) };
        let mut scheduler = Scheduler::default();
        single(&mut scheduler, &[candidate(0, 5), candidate(1, 60)]);
        assert_eq!(single(&mut scheduler, &[slowed, candidate(1, 60)]), Some(PathId(1)));
        assert_eq!(single(&mut scheduler, &[slowed, backup(2, 5)]), Some(PathId(0)));
    }

    #[test]
    fn bicast_names_every_usable_path() {
        let mut scheduler = Scheduler::default();
        let usable = [candidate(0, 30), candidate(3, 60)];
        let choice = scheduler.choose(Copying::Bicast, usable.into_iter()).expect("two are usable");
        assert_eq!(choice.preferred, PathId(0));
        assert_eq!(choice.set.iter().collect::<Vec<_>>(), [PathId(0), PathId(3)]);
    }
}
