//! The cycle of probing: *down*, *cruise*, *refill*, *up* (5.3.3), and how far a flight may go (`inflight_longterm`).

use std::time::{Duration, Instant};

use rand_pcg::rand_core::Rng;

use super::model::BETA;
use super::version::Version;
use super::{Bbr3, State};
use crate::congestion::rate_sample::{AckBatch, LossBatch};

/// Rounds after which it is time to probe, at most: as often as a Reno flow of 63 datagrams loses one (5.3.3.8).
const MOST_ROUNDS: u64 = 63;

/// Least time between probes, and how much longer it may be (5.3.3.8).
const LEAST_WAIT_MILLIS: u32 = 2_000;
const RANDOM_WAIT_MILLIS: u32 = 1_000;

/// Part of `inflight_longterm` left to others (2.8).
const HEADROOM: f64 = 0.15;

/// The slope of growth in *up* doubles with each round, up to this power of two.
const STEEPEST: u32 = 30;

/// What acknowledgements are taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// Nothing of a probe.
    Init,
    /// Of *refill*.
    Refilling,
    /// *Up* has begun, but what is acknowledged was sent before.
    ProbeStarting,
    /// What is acknowledged was sent in *up*.
    ProbeFeedback,
    /// *Up* is over, but what is acknowledged was sent in it.
    ProbeStopping,
}

/// Where in the cycle we are.
#[derive(Debug, Clone)]
pub(super) struct Cycle {
    pub(super) ack_phase: AckPhase,
    /// Whether losses tell of the probe (the draft's `is_bw_probe_sample`).
    pub(super) judges: bool,
    /// When *down* began.
    pub(super) began: Instant,
    /// When *up* began.
    pub(super) up_began: Instant,
    /// Whether *up* was reached since the bandwidth filter last moved on.
    probed: bool,
    pub(super) rounds_since_up: u64,
    wait: Duration,
    up_rounds: u32,
    up_acked: u64,
    /// Bytes acknowledged for each datagram of growth; `None` for no growth.
    up_acked_per_datagram: Option<u64>,
    /// Whether the previous probe was too high.
    too_high: bool,
    /// Whether it ended as soon as it reached what had been too high.
    precautionary: bool,
}

impl Cycle {
    pub(super) fn new(now: Instant) -> Self {
        Cycle {
            ack_phase: AckPhase::Init,
            judges: false,
            began: now,
            up_began: now,
            probed: false,
            rounds_since_up: 0,
            wait: Duration::ZERO,
            up_rounds: 0,
            up_acked: 0,
            up_acked_per_datagram: None,
            too_high: false,
            precautionary: false,
        }
    }

    /// Whether a probe was found too high since `before`.
    #[cfg(test)]
    pub(super) fn too_high_since(&self, before: &Cycle) -> bool {
        before.judges && !self.judges
    }

    /// Growth gets twice as steep.
    fn raise_slope(&mut self, cwnd: u64, smss: u64) {
        self.up_acked_per_datagram = Some((cwnd >> self.up_rounds).max(smss));
        self.up_rounds = (self.up_rounds + 1).min(STEEPEST);
    }
}

impl Bbr3 {
    pub(super) fn update_cycle(&mut self, acked: &AckBatch, now: Instant) {
        if self.adapt_long_term(acked, now) {
            return;
        }
        match self.state {
            State::Down => {
                if self.is_time_to_probe(now) {
                    self.enter_refill();
                } else if self.is_drained(acked.in_flight, now) {
                    self.enter_cruise(now);
                }
            }
            State::Cruise => {
                if !self.run_trial(now) && self.is_time_to_probe(now) {
                    self.enter_refill();
                }
            }
            State::Refill => {
                if self.rounds.start {
                    self.cycle.judges = true;
                    self.enter_up(acked, now);
                }
            }
            State::Up => {
                if self.is_time_to_go_down(acked, now) {
                    self.cycle.too_high = false;
                    self.enter_down(now);
                }
            }
            State::Startup | State::Drain | State::ProbeRtt => {}
        }
    }

    /// Learns from a probe (5.3.3.9); answers whether that began another.
    fn adapt_long_term(&mut self, acked: &AckBatch, now: Instant) -> bool {
        if self.rounds.start {
            match self.cycle.ack_phase {
                AckPhase::ProbeStarting => self.cycle.ack_phase = AckPhase::ProbeFeedback,
                AckPhase::ProbeStopping => {
                    self.cycle.ack_phase = AckPhase::Init;
                    // Reports come later than acknowledgements; the one that covers the probe ends this itself.
                    if self.unmask.as_ref().is_none_or(|unmask| unmask.current(now).is_none()) {
                        self.cycle.judges = false;
                    }
                    // To the draft *probe_rtt* also ends a cycle; but it has tried nothing, so it refutes nothing.
                    let ends_cycle = self.unmask.is_none() || self.cycle.probed;
                    if self.state.is_probe_bw() && !acked.sample.app_limited && ends_cycle {
                        self.max_bandwidth.shift();
                        self.cycle.probed = false;
                        if self.cycle.precautionary && !self.cycle.too_high {
                            self.enter_refill();
                            return true;
                        }
                    }
                }
                AckPhase::Init | AckPhase::Refilling | AckPhase::ProbeFeedback => {}
            }
        }
        let sample = &acked.sample;
        let (_, too_high) = self.judge_flight(sample.tx_in_flight, sample.lost, sample.lost_in_flight, now);
        if let Some(bound) = self.inflight_longterm
            && !too_high
        {
            self.inflight_longterm = Some(bound.max(sample.tx_in_flight));
            if self.state == State::Up {
                self.grow_upward(acked);
            }
        }
        false
    }

    /// Lets the bound grow while it is what limits.
    fn grow_upward(&mut self, acked: &AckBatch) {
        let (Some(bound), Some(per_datagram)) = (self.inflight_longterm, self.cycle.up_acked_per_datagram) else {
            return;
        };
        if !acked.cwnd_limited || self.cwnd < bound {
            return;
        }
        self.cycle.up_acked += acked.newly_acked;
        let datagrams = self.cycle.up_acked / per_datagram;
        self.cycle.up_acked -= datagrams * per_datagram;
        self.inflight_longterm = Some(bound + datagrams * self.smss);
        if self.rounds.start {
            self.cycle.raise_slope(self.cwnd, self.smss);
        }
    }

    /// Looks whether a flight lost too much, and if so, remembers how far one may go (5.5.10.2).
    pub(super) fn check_too_high(&mut self, lost: &LossBatch, now: Instant) {
        if !self.cycle.judges {
            return;
        }
        let (threshold, too_high) =
            self.judge_flight(lost.tx_in_flight, lost.lost_since_sent, lost.lost_in_flight, now);
        if !too_high {
            return;
        }
        let all_lost = match &self.unmask {
            None => lost.lost_since_sent,
            Some(_) => lost.lost_in_flight * self.smss,
        };
        self.cycle.too_high = true;
        self.cycle.judges = false;
        if !lost.app_limited {
            let flight = inflight_at_loss(lost.tx_in_flight, lost.bytes, all_lost, threshold);
            self.inflight_longterm = Some(flight.max((BETA * self.target() as f64) as u64));
        }
        if self.state == State::Up {
            self.enter_down(now);
        }
    }

    fn is_time_to_go_down(&mut self, acked: &AckBatch, now: Instant) -> bool {
        if self.version == Version::Two {
            return self.has_filled_pipe(acked.in_flight, now);
        }
        let bound = self.inflight_longterm.unwrap_or(u64::MAX);
        if self.cycle.too_high && acked.in_flight >= bound {
            self.cycle.precautionary = true;
            return true;
        }
        if self.ends_probe(now) {
            return true;
        }
        if acked.cwnd_limited && self.cwnd >= bound {
            // The bound limits, not the path: growth is yet to come.
            self.full_pipe.restart(acked.sample.delivery_rate.unwrap_or(0));
            return false;
        }
        self.full_pipe.now
    }

    pub(super) fn is_time_to_probe(&self, now: Instant) -> bool {
        let reno_rounds = (self.target() / self.smss).min(MOST_ROUNDS) * self.between_probes(now);
        now > self.cycle.began + self.cycle.wait || self.cycle.rounds_since_up >= reno_rounds
    }

    /// Whether *down* has done its work: there is room for others, and no queue.
    fn is_drained(&self, in_flight: u64, now: Instant) -> bool {
        self.headroom_cap().is_none_or(|cap| in_flight <= cap)
            && (in_flight <= self.flight(1.0, self.max_bandwidth.get()) || self.has_been_down_long_enough(now))
    }

    /// The flight that may be used now: one bandwidth-delay product, if the window allows.
    fn target(&self) -> u64 {
        self.bdp(1.0, self.bandwidth()).min(self.cwnd)
    }

    /// What is left of `inflight_longterm` with room for others.
    pub(super) fn headroom_cap(&self) -> Option<u64> {
        let bound = self.inflight_longterm?;
        let headroom = ((HEADROOM * bound as f64) as u64).max(self.smss);
        Some(bound.saturating_sub(headroom).max(self.min_window()))
    }

    pub(super) fn enter_down(&mut self, now: Instant) {
        self.latest.reset();
        self.cycle.up_acked_per_datagram = None;
        self.cycle.wait =
            Duration::from_millis((LEAST_WAIT_MILLIS + self.random.next_u32() % RANDOM_WAIT_MILLIS).into());
        self.cycle.rounds_since_up = u64::from(self.random.next_u32() % 2);
        self.cycle.began = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.enter(State::Down);
    }

    fn enter_refill(&mut self) {
        self.short_term.unset();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked = 0;
        self.cycle.precautionary = false;
        self.cycle.judges = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.enter(State::Refill);
    }

    fn enter_up(&mut self, acked: &AckBatch, now: Instant) {
        self.cycle.up_began = now;
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.cycle.probed = true;
        self.start_round();
        self.full_pipe.restart(acked.sample.delivery_rate.unwrap_or(0));
        self.cycle.raise_slope(self.cwnd, self.smss);
        self.enter(State::Up);
    }
}

/// The flight at which losses reached the threshold, going back from a flight of `tx_in_flight` bytes that with `batch`, the
/// newest loss, had lost `all_lost` (5.5.10.2).
fn inflight_at_loss(tx_in_flight: u64, batch: u64, all_lost: u64, threshold: f64) -> u64 {
    let flight = tx_in_flight.saturating_sub(batch) as f64;
    let lost = all_lost.saturating_sub(batch) as f64;
    (flight + (threshold * flight - lost) / (1.0 - threshold)).max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flight_at_loss_is_that_at_which_two_percent_were_lost() {
        // A flight of 100 datagrams of 1,000 bytes loses its third.
        assert_eq!(inflight_at_loss(100_000, 1_000, 3_000, 0.02), 98_979);
        assert_eq!(inflight_at_loss(1_000, 5_000, 9_000, 0.02), 0);
    }

    #[test]
    fn growth_doubles_with_each_round() {
        let smss = 1_200;
        let mut cycle = Cycle::new(crate::testing::start());
        let mut per_datagram = || {
            cycle.raise_slope(64 * smss, smss);
            cycle.up_acked_per_datagram.unwrap() / smss
        };
        assert_eq!([(); 8].map(|()| per_datagram()), [64, 32, 16, 8, 4, 2, 1, 1]);
    }
}
