//! *Probe_rtt*: for 200 ms half the flight, to see the round trip without a queue of our own (5.3.4).

use std::time::{Duration, Instant};

use super::probe_bw::AckPhase;
use super::{Bbr3, State};
use crate::congestion::rate_sample::AckBatch;

const DURATION: Duration = Duration::from_millis(200);

/// Bandwidth-delay products in flight meanwhile.
const CWND_GAIN: f64 = 0.5;

/// The time of a small flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quiet {
    until: Instant,
    /// It lasts at least one round.
    round_done: bool,
}

impl Bbr3 {
    pub(super) fn check_probe_rtt(&mut self, acked: &AckBatch, expired: bool, now: Instant) {
        if self.state != State::ProbeRtt && expired && !self.idle_restart {
            self.save_cwnd();
            self.enter(State::ProbeRtt);
            self.quiet = None;
            self.end_trial(now);
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            let small = acked.in_flight <= self.probe_rtt_cwnd();
            match &mut self.quiet {
                None if small => {
                    self.quiet = Some(Quiet { until: now + DURATION, round_done: false });
                    self.start_round();
                }
                None => {}
                Some(quiet) => {
                    quiet.round_done |= self.rounds.start;
                    if quiet.round_done {
                        self.check_probe_rtt_done(now);
                    }
                }
            }
        }
        if acked.newly_acked > 0 {
            self.idle_restart = false;
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.quiet.is_none_or(|quiet| now <= quiet.until) {
            return;
        }
        self.quiet = None;
        self.min_rtt.looked(now);
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.short_term.unset();
        if self.full_pipe.reached {
            self.enter_down(now);
            self.enter(State::Cruise);
        } else {
            self.enter(State::Startup);
        }
    }

    pub(super) fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp(CWND_GAIN, self.bandwidth()).max(self.min_window())
    }
}
