//! Trials of the noise floor (rule B2): a while at three quarters of the rate.
//!
//! Loss that our own rate causes shrinks when the rate does; random loss stays. So a high loss is believed to be random only
//! after a trial has shown it. The link says when one is wanted and judges the datagrams sent in it; *cruise* runs it.

use std::time::Instant;

use super::Bbr3;
use crate::congestion::noise_floor::{BELIEVED, LONGEST_TRIAL, TRIAL_DATAGRAMS};

/// The trial that runs, and when the last one ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Trials {
    running: Option<Running>,
    /// Nothing above what is believed anyway was confirmed before it.
    first: bool,
    ended: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    began: Instant,
    sent: u64,
}

impl Trials {
    pub(super) fn sent(&mut self, bytes: u64) {
        if let Some(running) = &mut self.running {
            running.sent += bytes;
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether what was reported up to `newest_sent_at` knows all that the last trial told.
    fn is_told(&self, newest_sent_at: Instant) -> bool {
        self.ended.is_none_or(|ended| ended < newest_sent_at)
    }

    fn is_over(&self, smss: u64, now: Instant) -> bool {
        self.running.is_some_and(|running| {
            running.sent >= u64::from(TRIAL_DATAGRAMS) * smss
                || now.saturating_duration_since(running.began) >= LONGEST_TRIAL
        })
    }

    pub(super) fn end(&mut self, now: Instant) {
        if self.running.take().is_some() {
            self.ended = Some(now);
        }
    }
}

impl Bbr3 {
    /// Begins and ends trials; answers whether one runs, so that no probe may begin.
    pub(super) fn run_trial(&mut self, now: Instant) -> bool {
        let smss = self.smss;
        let Some(unmask) = &mut self.unmask else { return false };
        if unmask.trials.is_over(smss, now) {
            unmask.trials.end(now);
        }
        let wanted = unmask.wants_trial(now).is_some_and(|newest_sent_at| unmask.trials.is_told(newest_sent_at));
        if wanted && !unmask.trials.is_running() {
            unmask.trials.first = unmask.floor(now) <= BELIEVED;
            unmask.trials.running = Some(Running { began: now, sent: 0 });
        }
        unmask.trials.is_running()
    }

    pub(super) fn end_trial(&mut self, now: Instant) {
        if let Some(unmask) = &mut self.unmask {
            unmask.trials.end(now);
        }
    }

    /// Whether the running trial is one of the first.
    pub(super) fn is_first_trial(&self) -> bool {
        self.unmask.as_ref().is_some_and(|unmask| unmask.trials.first)
    }

    /// Lifts what noise has cut, once trials have shown that it was noise.
    pub(super) fn lift_cuts(&mut self, floor_before: f64, now: Instant) {
        let floor = self.unmask.as_ref().map_or(0.0, |unmask| unmask.floor(now));
        if floor_before <= BELIEVED && floor > BELIEVED {
            self.short_term.unset();
        }
    }

    pub(super) fn is_on_trial(&self) -> bool {
        self.unmask.as_ref().is_some_and(|unmask| unmask.trials.is_running())
    }
}
