//! BBR version 3: keeps a model of the path, and probes beyond it only as far as losses allow.
//!
//! After draft-ietf-ccwg-bbr-06 ("the draft"; numbers in brackets below are its sections). The long-term model is the largest
//! delivery rate of two probing cycles and the flight that losses allowed (`inflight_longterm`); the short-term one bounds
//! both after recent losses, until the next probe. The states: *startup* multiplies the rate until it grows no more, *drain*
//! empties the queue this left; then cycles of *down* (gives back what a probe queued), *cruise*, *refill* (one round at full
//! rate) and *up* (looks for more); and *probe_rtt*, at half the flight for 200 ms every five seconds.
//!
//! [`Bbr3::version_2`] is BBR version 2 with the same machinery ([`version`]). Version 3 comes in two variants: [`Bbr3::draft`]
//! is the draft's; [`Bbr3::new`] adds what sending copies over several paths calls for, and replaces every one of the draft's
//! tests of loss ([`unmask`]):
//! - *B1*: losses on the reference path count, though a copy arrived on another. Else copies hide congestion.
//! - *B2*: loss that was there before any congestion is no sign of it ([`unmask`]); what is believed of it is put to the test
//!   by trials ([`trial`]).
//! - *B3* to *B5*: a queue is heeded before it overflows, unless others keep it anyway ([`queue`]).
//! - The bandwidth is the largest *mean* delivery rate of a round, not the largest single sample.
//!
//! Where both differ from the draft: thresholds in its pseudocode that compare bytes with packets are in packets; there is
//! no undo of spurious losses, as the QUIC library reports none; with the first round trip known, the pacing rate starts
//! afresh from it; the window covers what the far side holds back for a copy on another path. See docs/CONGESTION.md.

use std::time::{Duration, Instant};

use rand_pcg::Pcg32;
use rand_pcg::rand_core::SeedableRng;

use super::rate_sample::{AckBatch, LossBatch};
use super::{Congestion, Control, Metrics, ReferenceReport, SendPhase, Sent, initial_window};
use fall::Fall;
use model::{Aggregation, Latest, MaxBandwidth, MinRtt, RoundRate, Rounds, ShortTerm};
use probe_bw::Cycle;
use probe_rtt::Quiet;
use startup::{FullPipe, RoundLoss};
use unmask::Unmask;
use version::Version;

mod control;
mod fall;
mod model;
mod probe_bw;
mod probe_rtt;
mod queue;
mod startup;
mod trial;
mod unmask;
mod version;

/// Loss in a flight above which it is too large (2.8).
const LOSS_THRESHOLD: f64 = 0.02;

/// Of a flight of a few datagrams chance alone may explain the loss of all; the reckoning back from a loss needs some left.
const MOST_ALLOWED: f64 = 0.9;

/// What the controller does now; see the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    fn is_probe_bw(self) -> bool {
        matches!(self, State::Down | State::Cruise | State::Refill | State::Up)
    }

    /// Whether the diagram has a step from here to there.
    fn leads_to(self, next: State) -> bool {
        use State::{Cruise, Down, Drain, ProbeRtt, Refill, Startup, Up};
        matches!(
            (self, next),
            (Startup, Drain)
                | (Drain, Down)
                | (Down, Cruise | Refill)
                | (Cruise, Refill)
                | (Refill, Up | Down)
                | (Up, Down)
                | (Startup | Drain | Down | Cruise | Refill | Up, ProbeRtt)
                | (ProbeRtt, Startup | Down)
        )
    }

    /// Whether losses are expected, as the flight is pushed beyond what was known to fit.
    fn is_probing(self) -> bool {
        matches!(self, State::Startup | State::Refill | State::Up)
    }
}

/// From a loss until a packet sent after the newest loss is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recovery {
    newest_loss: Instant,
    began_at_delivered: u64,
}

/// The controller; see the module's text.
#[derive(Debug, Clone)]
pub struct Bbr3 {
    version: Version,
    smss: u64,
    random: Pcg32,
    state: State,
    /// Bytes delivered so far.
    delivered: u64,
    rounds: Rounds,
    latest: Latest,
    max_bandwidth: MaxBandwidth,
    round_rate: RoundRate,
    short_term: ShortTerm,
    /// The flight that losses allowed, in bytes; `None` while no loss bounded it.
    inflight_longterm: Option<u64>,
    aggregation: Aggregation,
    min_rtt: MinRtt,
    full_pipe: FullPipe,
    fall: Fall,
    /// What the current round lost, for the draft's end of startup.
    round_loss: RoundLoss,
    drain_began_round: u64,
    cycle: Cycle,
    /// The quiet time of *probe_rtt*, once the flight is small enough.
    quiet: Option<Quiet>,
    idle_restart: bool,
    recovery: Option<Recovery>,
    /// Rules B1 and B2; `None` in the draft's variant.
    unmask: Option<Unmask>,
    cwnd: u64,
    /// The window to go back to after recovery or *probe_rtt*.
    prior_cwnd: u64,
    pacing_rate: u64,
    hold_lag: Duration,
}

impl Bbr3 {
    /// A controller by the draft with rules B1 and B2, which knows nothing of its path.
    ///
    /// The same `seed` gives the same decisions.
    pub fn new(smss: u64, seed: u64, now: Instant) -> Self {
        Bbr3 { unmask: Some(Unmask::default()), ..Bbr3::draft(smss, seed, now) }
    }

    /// The same by the draft alone.
    pub fn draft(smss: u64, seed: u64, now: Instant) -> Self {
        let cwnd = initial_window(smss);
        Bbr3 {
            version: Version::Three,
            smss,
            random: Pcg32::seed_from_u64(seed),
            state: State::Startup,
            delivered: 0,
            rounds: Rounds::default(),
            latest: Latest::default(),
            max_bandwidth: MaxBandwidth::default(),
            round_rate: RoundRate::default(),
            short_term: ShortTerm::default(),
            inflight_longterm: None,
            aggregation: Aggregation::new(now),
            min_rtt: MinRtt::new(now),
            full_pipe: FullPipe::default(),
            fall: Fall::default(),
            round_loss: RoundLoss::default(),
            drain_began_round: 0,
            cycle: Cycle::new(now),
            quiet: None,
            idle_restart: false,
            recovery: None,
            unmask: None,
            cwnd,
            prior_cwnd: cwnd,
            pacing_rate: control::first_rate(cwnd, None),
            hold_lag: Duration::ZERO,
        }
    }

    /// The bandwidth to go by, in bytes per second; 0 before the first sample.
    fn bandwidth(&self) -> u64 {
        let max = self.max_bandwidth.get();
        self.short_term.bandwidth.map_or(max, |bound| max.min(bound))
    }

    fn enter(&mut self, next: State) {
        debug_assert!(self.state.leads_to(next), "{:?} to {next:?}", self.state);
        self.state = next;
    }

    fn start_round(&mut self) {
        self.rounds.restart(self.delivered);
    }

    /// Whether the bandwidth is taken from the means of rounds ([`RoundRate`]). In startup that would only be late.
    fn takes_means(&self) -> bool {
        self.unmask.is_some() && self.full_pipe.reached
    }

    /// Takes in what was delivered (5.5.6).
    fn update_max_bandwidth(&mut self, acked: &AckBatch) {
        if !self.takes_means() {
            self.max_bandwidth.update(&acked.sample);
            return;
        }
        self.round_rate.update(&acked.sample);
        if self.rounds.start {
            self.max_bandwidth.update(&self.round_rate.end(&acked.sample));
        }
    }

    /// Once per round, bounds the model after a round with losses (5.5.10.3).
    fn adapt_short_term(&mut self, acked: &AckBatch, now: Instant) {
        if !self.latest.round_start {
            return;
        }
        let (phase, min_rtt) = (self.send_phase(), self.min_rtt.get());
        let draining = matches!(self.state, State::Drain | State::Down);
        let verdict = self.unmask.as_mut().map(|unmask| unmask.end_round(phase, draining, min_rtt, now));
        let too_much = verdict.map_or(self.latest.lossy, |verdict| verdict.too_much);
        // In a trial the rate is low by intention.
        if too_much && !self.state.is_probing() && phase != SendPhase::Trial {
            self.short_term.cut(self.max_bandwidth.get(), self.cwnd, &self.latest);
        }
        self.check_startup_loss(acked, verdict);
        self.latest.lossy = false;
        self.round_loss = RoundLoss::default();
    }

    fn update_recovery(&mut self, acked: &AckBatch) {
        if self.recovery.is_some_and(|recovery| acked.sample.send_time > recovery.newest_loss) {
            self.recovery = None;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
        }
    }

    fn save_cwnd(&mut self) {
        let undisturbed = self.recovery.is_none() && self.state != State::ProbeRtt;
        self.prior_cwnd = if undisturbed { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    /// The loss in datagrams of a flight of so many bytes that is just not too much, and whether `lost` are too many.
    fn judge_flight(&self, flight: u64, lost_bytes: u64, lost_datagrams: u64, now: Instant) -> (f64, bool) {
        match &self.unmask {
            None => (LOSS_THRESHOLD, lost_bytes as f64 > LOSS_THRESHOLD * flight as f64),
            Some(unmask) => {
                let datagrams = flight as f64 / self.smss as f64;
                let allowed = unmask::allowed(datagrams, unmask.floor(now));
                (
                    (allowed / datagrams.max(1.0)).min(MOST_ALLOWED),
                    lost_datagrams >= unmask::LEAST_LOSSES && lost_datagrams as f64 > allowed,
                )
            }
        }
    }
}

impl Congestion for Bbr3 {
    fn on_sent(&mut self, sent: &Sent, now: Instant) {
        let phase = self.send_phase();
        if let Some(unmask) = &mut self.unmask {
            unmask.sent(sent.bytes, phase, now);
        }
        // Restarting from idle (5.4.1).
        if sent.in_flight == 0 && sent.app_limited {
            self.idle_restart = true;
            self.aggregation.restart(now);
            if self.state.is_probe_bw() {
                self.pacing_rate = self.bandwidth().max(1);
            } else if self.state == State::ProbeRtt {
                self.check_probe_rtt_done(now);
            }
        }
    }

    fn on_ack(&mut self, acked: &AckBatch, now: Instant) {
        // The order is the draft's (5.2.3).
        self.hold_lag = acked.hold_lag;
        self.delivered = acked.delivered;
        let ended = matches!(self.state, State::Down | State::Cruise).then_some(self.cycle.began);
        if let Some(unmask) = &mut self.unmask {
            unmask.set_probe_ended(ended);
            unmask.acked(acked, self.smss);
        }
        self.round_loss.delivered += acked.newly_acked;
        self.latest.update(acked);
        self.rounds.update(acked);
        if self.rounds.start {
            self.cycle.rounds_since_up += 1;
        }
        self.update_max_bandwidth(acked);
        self.adapt_short_term(acked, now);
        self.check_fall(acked, now);
        self.heed_queue(now);
        let bandwidth = self.bandwidth();
        self.aggregation.update(acked, bandwidth, self.cwnd, self.rounds.count, now);
        self.check_full_pipe(&self.growth_sample(&acked.sample));
        self.check_startup();
        self.check_drain(acked, now);
        if self.full_pipe.reached {
            self.update_cycle(acked, now);
        }
        let knew_rtt = self.min_rtt.get().is_some();
        let expired = self.min_rtt.update(acked.sample.rtt, now);
        if !knew_rtt && let Some(rtt) = self.min_rtt.get() {
            self.pacing_rate = control::first_rate(initial_window(self.smss), Some(rtt));
        }
        self.check_probe_rtt(acked, expired, now);
        self.latest.advance(&acked.sample);
        self.update_recovery(acked);
        self.update_pacing_rate();
        self.update_cwnd(acked);
    }

    fn on_lost(&mut self, lost: &LossBatch, now: Instant) {
        if let Some(unmask) = &mut self.unmask {
            unmask.lost(lost, self.smss);
        }
        self.latest.lost(lost.delivered);
        self.round_loss.lost += lost.bytes;
        self.round_loss.events += 1;
        self.check_too_high(lost, now);
        if lost.reported {
            return;
        }
        match &mut self.recovery {
            Some(recovery) => {
                recovery.newest_loss = now;
                self.give_up_lost(lost);
            }
            None => {
                self.save_cwnd();
                self.recovery = Some(Recovery { newest_loss: now, began_at_delivered: lost.delivered });
                self.begin_conserving(lost);
            }
        }
        if lost.persistent {
            self.cwnd = self.min_window();
        }
        self.bound_cwnd();
    }

    fn heeds_reports(&self) -> bool {
        self.unmask.is_some()
    }

    fn on_report(&mut self, report: &ReferenceReport, now: Instant) {
        let floor_before = self.unmask.as_ref().map_or(0.0, |unmask| unmask.floor(now));
        if let Some(unmask) = &mut self.unmask {
            unmask.report(report, now);
            // The probe's own flight is judged: what is lost from here on tells nothing of it.
            if !self.state.is_probing() && report.newest_sent_at >= self.cycle.began {
                self.cycle.judges = false;
            }
        }
        self.lift_cuts(floor_before, now);
    }

    fn on_mtu(&mut self, smss: u64) {
        self.smss = smss;
        self.cwnd = self.cwnd.max(self.min_window());
    }

    fn control(&self) -> Control {
        Control {
            cwnd: self.cwnd,
            pacing_rate: self.pacing_rate,
            send_quantum: self.send_quantum(),
            app_limited: self.state == State::ProbeRtt,
        }
    }

    fn send_phase(&self) -> SendPhase {
        match self.state {
            State::Startup => SendPhase::Startup,
            State::Refill | State::Up => SendPhase::Probing,
            State::Cruise if self.is_on_trial() => SendPhase::Trial,
            State::Drain | State::Down | State::Cruise | State::ProbeRtt => SendPhase::Steady,
        }
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            phase: match self.state {
                State::Startup => "startup",
                State::Drain => "drain",
                State::Down => "down",
                State::Cruise => "cruise",
                State::Refill => "refill",
                State::Up => "up",
                State::ProbeRtt => "probe_rtt",
            },
            bandwidth: Some(self.max_bandwidth.get()).filter(|rate| *rate > 0),
            min_rtt: self.min_rtt.get(),
        }
    }

    fn clone_box(&self) -> Box<dyn Congestion> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
