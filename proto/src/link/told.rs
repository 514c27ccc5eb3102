//! What the far side tells of its own sending: the newest sent report, and what changed of late.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::wire::control::{PathId, PathSent, SentReport};

/// Over which time loss counts as recent.
const RECENT: Duration = Duration::from_secs(1);
/// Reports that are kept: they come four times a second.
const MAX_REPORTS: usize = 8;

/// The far side's sent reports.
#[derive(Debug, Default)]
pub(super) struct Told {
    newest: SentReport,
    /// Those of the last second and the one before, the newest last.
    recent: VecDeque<(Instant, SentReport)>,
}

impl Told {
    /// Takes a report in, unless a newer one was told.
    pub(super) fn take(&mut self, report: SentReport, now: Instant) {
        if report.datagrams < self.newest.datagrams {
            return;
        }
        while self.recent.len() >= MAX_REPORTS
            || self.recent.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= RECENT)
        {
            self.recent.pop_front();
        }
        self.recent.push_back((now, report.clone()));
        self.newest = report;
    }

    /// The newest report; all zeros before the first.
    pub(super) fn newest(&self) -> &SentReport {
        &self.newest
    }

    /// Share of the datagrams judged within the last second that were lost on a path, 0 to 1.
    pub(super) fn recent_loss(&self, path: PathId, now: Instant) -> f64 {
        let of =
            |report: &SentReport| -> Option<PathSent> { report.paths.iter().find(|sent| sent.path == path.0).cloned() };
        let Some((at, newest)) = self.recent.back().filter(|(at, _)| now.saturating_duration_since(*at) < 2 * RECENT)
        else {
            return 0.0;
        };
        let then = self.recent.front().filter(|(first, _)| first < at).and_then(|(_, report)| of(report));
        let (judged, lost) = then.map_or((0, 0), |then| (then.judged, then.lost));
        let Some(newest) = of(newest) else { return 0.0 };
        match newest.judged.saturating_sub(judged) {
            0 => 0.0,
            judged => newest.lost.saturating_sub(lost) as f64 / judged as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(datagrams: u64, judged: u64, lost: u64) -> SentReport {
        let path = PathSent { path: 0, judged, lost, ..PathSent::default() };
        SentReport { datagrams, paths: [path].into_iter().collect(), ..SentReport::default() }
    }

    #[test]
    fn recent_loss_forgets_what_was_before_the_last_second() {
        let start = crate::testing::start();
        let at = |quarters: u32| start + Duration::from_millis(250) * quarters;
        let mut told = Told::default();
        told.take(report(100, 100, 50), at(0));
        assert_eq!(told.recent_loss(PathId(0), at(0)), 0.5);
        for quarter in 1..=8 {
            told.take(report(100 + u64::from(quarter) * 100, 100 + u64::from(quarter) * 100, 50), at(quarter));
        }
        assert_eq!(told.recent_loss(PathId(0), at(8)), 0.0);
        told.take(report(1000, 1000, 70), at(9));
        assert_eq!(told.recent_loss(PathId(0), at(9)), 0.05, "20 of the 400 since a second before");
        assert_eq!(told.recent_loss(PathId(1), at(9)), 0.0);
        assert_eq!(told.recent_loss(PathId(0), at(17)), 0.0, "nothing was told of late");
    }

    #[test]
    fn a_report_that_was_overtaken_changes_nothing() {
        let start = crate::testing::start();
        let mut told = Told::default();
        told.take(report(200, 10, 1), start);
        told.take(report(100, 5, 5), start);
        assert_eq!(told.newest().datagrams, 200);
    }
}
