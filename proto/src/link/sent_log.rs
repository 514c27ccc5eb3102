//! Remembers what was sent where, so that reports can be judged.
//!
//! One entry for each of the last [`LOG_LEN`] numbers: on which paths the datagram went, and on which it is known to have
//! arrived or not. A number that falls out of the log unjudged on a path counts as lost there.

use std::collections::VecDeque;
use std::time::Instant;

use crate::congestion::SendPhase;
use crate::hold::WINDOW;
use crate::schedule::PathSet;
use crate::wire::control::PathId;

/// Numbers remembered: as many as a receiver tells apart.
pub(crate) const LOG_LEN: u64 = WINDOW;

/// One datagram as sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// When it left.
    pub(crate) sent_at: Instant,
    /// UDP payload bytes.
    pub(crate) size: u16,
    paths: PathSet,
    judged: PathSet,
    arrived: PathSet,
    /// Paths that had a queue beyond the tolerated one when it left.
    pub(crate) queued: PathSet,
    /// The phase in which it was sent.
    pub(crate) phase: SendPhase,
    /// The path that carried everything then.
    primary: Option<PathId>,
}

impl Entry {
    /// Whether it went over more than one path: QUIC may not see its loss on one.
    pub(crate) fn is_copied(&self) -> bool {
        self.paths.len() > 1
    }

    /// Whether it went over this path.
    pub(crate) fn went_on(&self, path: PathId) -> bool {
        self.paths.contains(path)
    }

    /// Whether a report has told that it arrived.
    pub(crate) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Whether no report has told yet that it arrived, or that it is lost wherever it went.
    pub(crate) fn is_open(&self) -> bool {
        self.arrived.is_empty() && (self.judged != self.paths || self.paths.is_empty())
    }
}

/// The log of one direction.
#[derive(Debug, Default)]
pub(crate) struct SentLog {
    /// Oldest first; the newest is number `next - 1`.
    entries: VecDeque<Entry>,
    /// The next number.
    next: u64,
    /// Datagrams judged on every path that carried them, and those of them of which no copy arrived.
    pub(crate) judged: u64,
    pub(crate) lost: u64,
    /// Those of which a copy arrived though the primary path's did not.
    pub(crate) rescued: u64,
    /// The path that carries every datagram from now on.
    pub(crate) primary: Option<PathId>,
}

impl SentLog {
    /// The number of the next datagram.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// Notes the next datagram.
    pub(crate) fn push(&mut self, sent_at: Instant, size: usize, paths: PathSet, queued: PathSet, phase: SendPhase) {
        let entry = Entry {
            sent_at,
            size: size as u16,
            paths,
            judged: PathSet::default(),
            arrived: PathSet::default(),
            queued,
            phase,
            primary: self.primary,
        };
        if self.entries.len() as u64 == LOG_LEN {
            self.settle_oldest();
        }
        self.entries.push_back(entry);
        self.next += 1;
    }

    /// Forgets the oldest; what is not judged counts as lost.
    fn settle_oldest(&mut self) {
        if let Some(old) = self.entries.pop_front()
            && old.judged != old.paths
            && !old.paths.is_empty()
        {
            self.judged += 1;
            self.lost += u64::from(old.arrived.is_empty());
        }
    }

    /// Forgets everything and gives the memory back.
    pub(crate) fn rest(&mut self) {
        while !self.entries.is_empty() {
            self.settle_oldest();
        }
        self.entries = VecDeque::new();
    }

    /// Takes back the newest datagrams down to `first`: they were not sent after all.
    pub(crate) fn take_back(&mut self, first: u64) {
        while self.next > first {
            self.next -= 1;
            self.entries.pop_back();
        }
    }

    /// A datagram that left nowhere leaves on `path` after all.
    pub(crate) fn sent_on(&mut self, path: PathId, number: u64) {
        if let Some(entry) = self.entry_mut(number) {
            let was_lost = entry.paths.is_empty();
            entry.paths.insert(path);
            self.judged -= u64::from(was_lost);
            self.lost -= u64::from(was_lost);
        }
    }

    /// A datagram did not leave on `path`.
    pub(crate) fn not_sent_on(&mut self, path: PathId, number: u64) {
        if let Some(entry) = self.entry_mut(number) {
            entry.paths.remove(path);
            if entry.paths.is_empty() {
                self.judged += 1;
                self.lost += 1;
            }
        }
    }

    /// The entry of a number that is still remembered.
    pub(crate) fn entry(&self, number: u64) -> Option<&Entry> {
        self.entries.get(self.index(number)?)
    }

    fn entry_mut(&mut self, number: u64) -> Option<&mut Entry> {
        let index = self.index(number)?;
        self.entries.get_mut(index)
    }

    fn index(&self, number: u64) -> Option<usize> {
        let oldest = self.next - self.entries.len() as u64;
        number.checked_sub(oldest).map(|index| index as usize)
    }

    /// Settles whether `number` arrived on `path`; `None` if it was not sent there, or is settled or forgotten.
    pub(crate) fn judge(&mut self, path: PathId, number: u64, arrived: bool) -> Option<Entry> {
        let entry = self.entry_mut(number)?;
        if !entry.paths.contains(path) || entry.judged.contains(path) {
            return None;
        }
        entry.judged.insert(path);
        if arrived {
            entry.arrived.insert(path);
        }
        let entry = *entry;
        if entry.judged == entry.paths {
            self.judged += 1;
            self.lost += u64::from(entry.arrived.is_empty());
            let on_primary = entry.primary.is_none_or(|primary| entry.arrived.contains(primary));
            self.rescued += u64::from(!on_primary && !entry.arrived.is_empty());
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> PathSet {
        let mut set = PathSet::only(PathId(0));
        set.insert(PathId(1));
        set
    }

    #[test]
    fn a_datagram_is_lost_only_if_no_copy_arrived() {
        let now = crate::testing::start();
        let mut log = SentLog { primary: Some(PathId(0)), ..SentLog::default() };
        for _ in 0..3 {
            log.push(now, 1_200, both(), PathSet::default(), SendPhase::Steady);
        }
        for (number, wifi, cell) in [(0, true, true), (1, false, true), (2, false, false)] {
            assert!(log.judge(PathId(0), number, wifi).is_some());
            assert!(log.judge(PathId(1), number, cell).is_some());
            assert!(log.judge(PathId(1), number, true).is_none(), "settled once");
        }
        assert_eq!((log.judged, log.lost, log.rescued), (3, 1, 1));
        assert!(log.judge(PathId(0), 3, true).is_none(), "never sent");
    }

    #[test]
    fn what_was_taken_back_is_numbered_anew() {
        let now = crate::testing::start();
        let mut log = SentLog::default();
        for _ in 0..LOG_LEN + 5 {
            log.push(now, 1_200, both(), PathSet::default(), SendPhase::Steady);
        }
        assert_eq!((log.judged, log.lost), (5, 5), "unjudged entries that fall out are lost");
        log.take_back(LOG_LEN + 2);
        assert_eq!(log.next_number(), LOG_LEN + 2);
        log.push(now, 900, both(), PathSet::default(), SendPhase::Steady);
        assert_eq!(log.entry(LOG_LEN + 2).map(|entry| entry.size), Some(900));
        assert_eq!((log.judged, log.lost), (5, 5));
    }
}
