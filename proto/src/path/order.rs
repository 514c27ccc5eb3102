//! What a path is for, and how fast it may go: orders that its user's wishes for the network come down to.
//!
//! The client gives them, and tells the relay in its Wish; each end keeps to them for what it sends. [`PathOrder`] is the order,
//! `Allowance` what a rate leaves to send now. Rates count whole IP packets, in bytes per second.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// An allowance saves up to this time's bytes, and [`DEPTH_DATAGRAMS`] at least.
const DEPTH: Duration = Duration::from_millis(50);
const DEPTH_DATAGRAMS: f64 = 3.0 * 1_500.0;

/// What goes in any case is paid for within this time.
const LONGEST_DEBT: Duration = Duration::from_millis(500);

/// What a path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum PathRole {
    /// It carries data.
    #[default]
    Use = 0,
    /// It is kept alive, and carries data only while no path for use works.
    Backup = 1,
    /// It is no more; for numbers whose path has left.
    Gone = 2,
}

/// How a path is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PathOrder {
    /// What it is for.
    pub role: PathRole,
    /// Bytes of IP packets per second that an end may send on it; `None` for as many as it carries.
    pub rate: Option<u32>,
}

impl PathOrder {
    /// Which paths carry data before which: the lower first.
    pub(crate) fn rank(self) -> (PathRole, bool) {
        (self.role, self.rate.is_some())
    }
}

/// What a rate leaves to send.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    rate: Option<f64>,
    tokens: f64,
    filled_at: Option<Instant>,
}

impl Allowance {
    /// Another rate from now on.
    pub(crate) fn set_rate(&mut self, rate: Option<u32>, now: Instant) {
        self.fill(now);
        self.rate = rate.map(f64::from);
        self.tokens = self.tokens.min(self.depth());
        self.filled_at = Some(now);
    }

    /// So many bytes leave.
    pub(crate) fn spend(&mut self, bytes: usize, now: Instant) {
        if let Some(rate) = self.rate {
            self.fill(now);
            self.tokens = (self.tokens - bytes as f64).max(-rate * LONGEST_DEBT.as_secs_f64() - bytes as f64);
        }
    }

    /// They did not leave after all.
    pub(crate) fn refund(&mut self, bytes: usize) {
        self.tokens += bytes as f64;
    }

    /// When something may leave again; `None` if it may now.
    pub(crate) fn shut_until(&mut self, now: Instant) -> Option<Instant> {
        let rate = self.rate?;
        self.fill(now);
        // A path that may carry nothing at all has no such time; it is asked again after a while.
        (self.tokens <= 0.0).then(|| now + Duration::from_secs_f64((1.0 - self.tokens) / rate.max(1_000.0)))
    }

    fn fill(&mut self, now: Instant) {
        let Some(rate) = self.rate else { return };
        let elapsed = self.filled_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.tokens = (self.tokens + rate * elapsed.as_secs_f64()).min(self.depth());
        self.filled_at = Some(now);
    }

    fn depth(&self) -> f64 {
        self.rate.map_or(0.0, |rate| (rate * DEPTH.as_secs_f64()).max(DEPTH_DATAGRAMS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_allowance_passes_what_its_rate_says_and_without_one_everything() {
        let start = crate::testing::start();
        for (rate, most) in [(Some(125_000), 1_250_000), (Some(10_000), 100_000), (None, usize::MAX)] {
            let mut allowance = Allowance::default();
            allowance.set_rate(rate, start);
            let (mut passed, mut offered) = (0, 0);
            for ms in 0..10_000u32 {
                let now = start + ms * MS;
                offered += 1_228;
                if allowance.shut_until(now).is_none() {
                    allowance.spend(1_228, now);
                    passed += 1_228;
                }
            }
            let allowed = most.min(offered);
            assert!(passed <= allowed + 8_000 && passed >= allowed - 8_000, "{rate:?}: {passed}");
        }
    }

    #[test]
    fn it_tells_when_it_opens_again_and_debts_are_bounded() {
        let start = crate::testing::start();
        let mut allowance = Allowance::default();
        allowance.set_rate(Some(100_000), start);
        allowance.spend(9_999, start);
        let until = allowance.shut_until(start).expect("it is in debt");
        assert_eq!((until - start).as_millis(), 100);
        assert_eq!(allowance.shut_until(until), None);
        (0..1_000).for_each(|_| allowance.spend(14_000, until));
        let until = allowance.shut_until(until).expect("it is in debt") - until;
        assert!(until <= LONGEST_DEBT + 150 * MS, "{until:?}");
        allowance.set_rate(None, start + 1_000 * MS);
        assert_eq!(allowance.shut_until(start + 1_000 * MS), None);
    }

    #[test]
    fn use_goes_before_backup_and_unlimited_before_limited() {
        let order = |role, rate| PathOrder { role, rate }.rank();
        let ranks = [
            order(PathRole::Use, None),
            order(PathRole::Use, Some(9)),
            order(PathRole::Backup, None),
            order(PathRole::Backup, Some(9)),
        ];
        assert!(ranks.is_sorted());
    }
}
