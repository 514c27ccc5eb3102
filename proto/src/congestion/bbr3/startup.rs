//! Startup and drain: finding the bandwidth for the first time, and emptying the queue that this leaves.
//!
//! Startup ends when the delivery rate grows no more, or when it costs too much loss. The test of growth also ends *up*.

use std::time::Instant;

use super::unmask::Verdict;
use super::{Bbr3, LOSS_THRESHOLD, State};
use crate::congestion::rate_sample::{AckBatch, RateSample};

/// Growth in a round below which the pipe may be full, and how many such rounds in a row say it is (5.3.1.2). Where the bandwidth
/// is the mean of a round, it and the pacing rate follow later, and each round of a probe brings less.
const GROWTH: f64 = 1.25;
const GROWTH_OF_MEANS: f64 = 1.1;
const ROUNDS: u32 = 3;

/// Whether sending more brings more (5.3.1.2).
#[derive(Debug, Clone, Default)]
pub(super) struct FullPipe {
    /// It was found full once, so startup is over.
    pub(super) reached: bool,
    /// It was found full in this probe.
    pub(super) now: bool,
    bandwidth: u64,
    rounds: u32,
}

impl FullPipe {
    pub(super) fn update(&mut self, sample: &RateSample, round_start: bool, growth: f64) {
        if self.now || !round_start || sample.app_limited {
            return;
        }
        let rate = sample.delivery_rate.unwrap_or(0);
        if rate as f64 >= self.bandwidth as f64 * growth {
            self.bandwidth = rate;
            self.rounds = 0;
            return;
        }
        self.rounds += 1;
        if self.rounds >= ROUNDS {
            self.found();
        }
    }

    pub(super) fn found(&mut self) {
        self.now = true;
        self.reached = true;
    }

    /// Begins to look anew; `rate` is what growth is measured against.
    pub(super) fn restart(&mut self, rate: u64) {
        self.now = false;
        self.bandwidth = rate;
        self.rounds = 0;
    }
}

/// Losses of one round, in bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundLoss {
    pub(super) delivered: u64,
    pub(super) lost: u64,
    /// Batches of losses.
    pub(super) events: u32,
}

impl Bbr3 {
    pub(super) fn check_full_pipe(&mut self, sample: &RateSample) {
        let growth = if self.takes_means() { GROWTH_OF_MEANS } else { GROWTH };
        self.full_pipe.update(sample, self.rounds.start, growth);
    }

    /// Ends startup if the round lost too much (5.3.1.3).
    pub(super) fn check_startup_loss(&mut self, acked: &AckBatch, verdict: Option<Verdict>) {
        if self.state != State::Startup || self.full_pipe.reached {
            return;
        }
        let too_much = match verdict {
            None => {
                let whole_round =
                    self.recovery.is_some_and(|recovery| acked.sample.prior_delivered >= recovery.began_at_delivered);
                let sum = self.round_loss.lost + self.round_loss.delivered;
                whole_round
                    && self.round_loss.events >= self.version.startup_losses()
                    && self.round_loss.lost as f64 > LOSS_THRESHOLD * sum as f64
            }
            Some(verdict) => verdict.ends_startup,
        };
        if too_much {
            self.full_pipe.found();
            self.inflight_longterm = Some(self.flight_after_startup_loss());
        }
    }

    pub(super) fn check_startup(&mut self) {
        if self.state == State::Startup && self.full_pipe.reached {
            self.enter(State::Drain);
            self.drain_began_round = self.rounds.count;
            self.aggregation.remember_longer();
        }
    }

    pub(super) fn check_drain(&mut self, acked: &AckBatch, now: Instant) {
        let drained = acked.in_flight <= self.flight(1.0, self.bandwidth());
        let rounds = self.rounds.count - self.drain_began_round;
        if self.state == State::Drain && (drained || self.version.drain_rounds().is_some_and(|most| rounds > most)) {
            self.enter_down(now);
        }
    }
}
