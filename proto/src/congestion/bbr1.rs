//! BBR version 1: sends at the delivery rate it measures and keeps in flight what that rate needs.
//!
//! After draft-cardwell-iccrg-bbr-congestion-control-00 ("the draft"), sections 4.1 to 4.3. The model is `btl_bw`, the
//! largest delivery rate of the last ten rounds, and `rt_prop`, the least round-trip time of the last ten seconds. The
//! phases: *startup* doubles the rate each round until it stops growing; *drain* empties the queue this left; *probe_bw*
//! cycles through eight pacing gains, of which one looks for more bandwidth and the next gives back what that queued;
//! *probe_rtt* sends next to nothing for 200 ms every ten seconds, to see the round trip without a queue of our own.
//!
//! Loss changes no model. It only bounds the window for as long as losses go on (*recovery*): in the first round one byte
//! out for one byte arrived, afterwards growth as usual, less what was lost.
//!
//! Where we differ from the draft:
//! - The rate is 1 % below the model's, so that a queue of our own drains.
//! - The window never falls under four datagrams, not even for persistent congestion or in recovery.
//! - Recovery lasts until a packet sent after the *newest* loss is acknowledged. The draft leaves the end to TCP's recovery
//!   point, which lost retransmissions put off in the same way; ending it with the first loss instead would start packet
//!   conservation afresh each round, and steady random loss would shrink the flight without end.
//! - Before the pipe was full and without a queue, recovery does not conserve packets, and three rounds without growth do
//!   not count as a full pipe while losses hit a flight of fewer than 40 datagrams: eight do. At 16 % of random loss (40 % on both of two paths)
//!   startup would otherwise end by chance at a hundredth of the bandwidth, and 1.25 x (1 - p) hardly climbs from there.
//! - Thresholds in flight are the bandwidth-delay product and at least four datagrams, without quanta for offload.
//! - The far side may hold datagrams for a copy on another path; the window then covers that time as well.
//!
//! [`Bbr1::cws`] is the same with a window gain that is scaled to share with loss-based flows (BBR-CWS, [`window_scaling`]).

use std::time::{Duration, Instant};

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::filters::WindowedMax;
use super::rate_sample::{AckBatch, LossBatch};
use super::{Congestion, Control, Metrics, SendPhase, Sent, initial_window};
use window_scaling::WindowScaling;

mod window_scaling;

/// 2 / ln 2: the least gain that doubles the rate each round (section 4.1.1.2 of the draft's design part).
const STARTUP_GAIN: f64 = 2.885;
const DRAIN_GAIN: f64 = 1.0 / STARTUP_GAIN;
const PROBE_BW_CWND_GAIN: f64 = 2.0;
/// Pacing gains of the phases of one cycle (4.3.4.2).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Share of the model's rate that is left unused.
const PACING_MARGIN: f64 = 0.01;
const BANDWIDTH_WINDOW_ROUNDS: u64 = 10;
const RT_PROP_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Growth in a round below which the pipe may be full, and how many such rounds in a row say it is (4.3.2.2).
const FULL_PIPE_GROWTH: f64 = 1.25;
const FULL_PIPE_ROUNDS: u32 = 3;
/// With losses in a flight of so few datagrams, growth is a matter of luck, and more rounds are needed.
const FEW_DATAGRAMS: u64 = 40;
const DOUBTFUL_FULL_PIPE_ROUNDS: u32 = 8;
const MIN_WINDOW_DATAGRAMS: u64 = 4;
/// Round trip assumed for the first pacing rate; the window limits before it matters.
const ASSUMED_RTT: Duration = Duration::from_millis(1);

/// What the controller does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Looks for the bandwidth, doubling the rate each round.
    Startup,
    /// Lets the queue of startup drain.
    Drain,
    /// Cycles around the bandwidth; the index is into [`CYCLE`].
    ProbeBw(usize),
    /// Keeps four datagrams in flight to see the bare round trip.
    ProbeRtt,
}

/// How losses bound the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recovery {
    /// The newest loss; a packet sent later ends the recovery.
    newest_loss: Instant,
    /// Bytes delivered when it began: its first round ends once a packet sent after that is acknowledged.
    began_at_delivered: u64,
    /// Whether the first round is still on, in which only as much is sent as arrives.
    conserving: bool,
}

/// The quiet time of *probe_rtt*, once the flight is small enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quiet {
    until: Instant,
    /// Bytes delivered when it began; it lasts at least one round.
    began_at_delivered: u64,
    round_done: bool,
}

/// The controller; see the module's text.
#[derive(Debug, Clone)]
pub struct Bbr1 {
    smss: u64,
    random: Pcg32,
    phase: Phase,
    cycle_began: Instant,
    /// What scales the window; `None` in version 1 by its draft.
    scaling: Option<WindowScaling>,
    btl_bw: WindowedMax,
    rt_prop: Option<Duration>,
    rt_prop_at: Instant,
    quiet: Option<Quiet>,
    idle_restart: bool,
    filled_pipe: bool,
    full_bw: u64,
    full_bw_rounds: u32,
    recovery: Option<Recovery>,
    lost_since_ack: bool,
    /// The least round trip ever seen, and whether the last one was about as short.
    least_rtt: Option<Duration>,
    queueless: bool,
    cwnd: u64,
    /// The window to go back to after recovery or *probe_rtt*.
    prior_cwnd: u64,
    pacing_rate: u64,
    hold_lag: Duration,
}

impl Bbr1 {
    /// A controller that knows nothing of its path; the same `seed` gives the same decisions.
    pub fn new(smss: u64, seed: u64, now: Instant) -> Self {
        let cwnd = initial_window(smss);
        Bbr1 {
            smss,
            random: Pcg32::seed_from_u64(seed),
            phase: Phase::Startup,
            cycle_began: now,
            scaling: None,
            btl_bw: WindowedMax::new(BANDWIDTH_WINDOW_ROUNDS),
            rt_prop: None,
            rt_prop_at: now,
            quiet: None,
            idle_restart: false,
            filled_pipe: false,
            full_bw: 0,
            full_bw_rounds: 0,
            recovery: None,
            lost_since_ack: false,
            least_rtt: None,
            queueless: false,
            cwnd,
            prior_cwnd: cwnd,
            pacing_rate: (STARTUP_GAIN * cwnd as f64 / ASSUMED_RTT.as_secs_f64()) as u64,
            hold_lag: Duration::ZERO,
        }
    }

    /// The same with a scaled window: BBR-CWS.
    pub fn cws(smss: u64, seed: u64, now: Instant) -> Self {
        Bbr1 { scaling: Some(WindowScaling::new()), ..Bbr1::new(smss, seed, now) }
    }

    fn pacing_gain(&self) -> f64 {
        match self.phase {
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => DRAIN_GAIN,
            Phase::ProbeBw(index) => CYCLE[index],
            Phase::ProbeRtt => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f64 {
        match self.phase {
            Phase::Startup | Phase::Drain => STARTUP_GAIN,
            Phase::ProbeBw(_) => self.scaling.as_ref().map_or(PROBE_BW_CWND_GAIN, WindowScaling::gain),
            Phase::ProbeRtt => 1.0,
        }
    }

    fn min_window(&self) -> u64 {
        MIN_WINDOW_DATAGRAMS * self.smss
    }

    fn bandwidth(&self) -> u64 {
        self.btl_bw.get().unwrap_or(0)
    }

    /// `gain` bandwidth-delay products in bytes; the initial window while the round trip is unknown.
    fn bdp(&self, gain: f64) -> u64 {
        match (self.rt_prop, self.btl_bw.get()) {
            (Some(rt_prop), Some(bandwidth)) => (gain * bandwidth as f64 * rt_prop.as_secs_f64()) as u64,
            _ => (gain * initial_window(self.smss) as f64) as u64,
        }
    }

    /// The flight that `gain` asks for, as a threshold to compare with.
    fn flight(&self, gain: f64) -> u64 {
        self.bdp(gain).max(self.min_window())
    }

    /// One burst: small at low rates, a millisecond's worth at high ones (4.2.3).
    fn send_quantum(&self) -> u64 {
        // 24 Mbit/s and 1.2 Mbit/s.
        match self.pacing_rate {
            3_000_000.. => (self.pacing_rate / 1_000).clamp(2 * self.smss, 64_000),
            150_000.. => 2 * self.smss,
            _ => self.smss,
        }
    }

    // The model (4.1) and the phases (4.3), in the order of the draft's 3.5.1.

    fn update_bandwidth(&mut self, acked: &AckBatch) {
        // Without a sample that counts the window does not move on either: what was known before the application fell
        // quiet is known after.
        if let Some(rate) = acked.sample.delivery_rate
            && rate > 0
            && (rate >= self.bandwidth() || !acked.sample.app_limited)
        {
            self.btl_bw.insert(acked.round, rate);
        }
    }

    fn update_cycle(&mut self, acked: &AckBatch, now: Instant) {
        let Phase::ProbeBw(index) = self.phase else { return };
        let full_length = now.saturating_duration_since(self.cycle_began) > self.rt_prop.unwrap_or_default();
        let prior_in_flight = acked.in_flight + acked.newly_acked;
        let over = match CYCLE[index] {
            gain if gain > 1.0 => {
                let filled = prior_in_flight >= self.flight(gain) || prior_in_flight + self.smss >= self.cwnd;
                full_length && (self.lost_since_ack || filled)
            }
            gain if gain < 1.0 => full_length || prior_in_flight <= self.flight(1.0),
            _ => full_length,
        };
        if over {
            let next = (index + 1) % CYCLE.len();
            self.phase = Phase::ProbeBw(next);
            self.cycle_began = now;
            if let (0, Some(scaling), Some(rt_prop)) = (next, &mut self.scaling, self.rt_prop) {
                scaling.end_cycle(rt_prop);
            }
        }
    }

    fn check_full_pipe(&mut self, acked: &AckBatch) {
        if self.filled_pipe || !acked.round_start || acked.sample.app_limited {
            return;
        }
        if self.bandwidth() as f64 >= self.full_bw as f64 * FULL_PIPE_GROWTH {
            self.full_bw = self.bandwidth();
            self.full_bw_rounds = 0;
            return;
        }
        self.full_bw_rounds += 1;
        let doubtful = self.recovery.is_some() && acked.in_flight < FEW_DATAGRAMS * self.smss && self.queueless;
        let enough = if doubtful { DOUBTFUL_FULL_PIPE_ROUNDS } else { FULL_PIPE_ROUNDS };
        self.filled_pipe = self.full_bw_rounds >= enough;
    }

    fn check_drain(&mut self, acked: &AckBatch, now: Instant) {
        if self.phase == Phase::Startup && self.filled_pipe {
            self.phase = Phase::Drain;
        }
        if self.phase == Phase::Drain && acked.in_flight <= self.flight(1.0) {
            self.enter_probe_bw(now);
        }
    }

    /// Starts a cycle anywhere but in the phase that gives back what was queued (4.3.4.3).
    fn enter_probe_bw(&mut self, now: Instant) {
        let start = (self.random.next_u32() % 7) as usize;
        self.phase = Phase::ProbeBw(if start == 0 { 0 } else { start + 1 });
        self.cycle_began = now;
    }

    /// Takes in the round trip; answers whether the old value had expired (4.1.2.3).
    fn update_rt_prop(&mut self, acked: &AckBatch, now: Instant) -> bool {
        let expired = now.saturating_duration_since(self.rt_prop_at) > RT_PROP_WINDOW;
        if let Some(rtt) = acked.sample.rtt {
            if let Some(scaling) = &mut self.scaling {
                scaling.on_rtt(rtt, matches!(self.phase, Phase::ProbeBw(_)), now);
            }
            let least = self.least_rtt.map_or(rtt, |least| least.min(rtt));
            self.queueless = rtt < least * 5 / 4;
            self.least_rtt = Some(least);
        }
        if let Some(rtt) = acked.sample.rtt
            && (expired || self.rt_prop.is_none_or(|rt_prop| rtt <= rt_prop))
        {
            self.rt_prop = Some(rtt);
            self.rt_prop_at = now;
        }
        expired
    }

    fn check_probe_rtt(&mut self, acked: &AckBatch, expired: bool, now: Instant) {
        if self.phase != Phase::ProbeRtt && expired && !self.idle_restart {
            self.save_cwnd();
            self.phase = Phase::ProbeRtt;
            self.quiet = None;
        }
        if self.phase == Phase::ProbeRtt {
            let small_flight = acked.in_flight <= self.min_window();
            match &mut self.quiet {
                None if small_flight => {
                    self.quiet = Some(Quiet {
                        until: now + PROBE_RTT_DURATION,
                        began_at_delivered: acked.delivered,
                        round_done: false,
                    });
                }
                None => {}
                Some(quiet) => {
                    quiet.round_done |= acked.sample.prior_delivered >= quiet.began_at_delivered;
                    if quiet.round_done && now > quiet.until {
                        self.leave_probe_rtt(now);
                    }
                }
            }
        }
        self.idle_restart = false;
    }

    fn leave_probe_rtt(&mut self, now: Instant) {
        self.rt_prop_at = now;
        self.quiet = None;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        if self.filled_pipe {
            self.enter_probe_bw(now);
        } else {
            self.phase = Phase::Startup;
        }
    }

    // Control (4.2) and recovery (4.2.4.4).

    fn save_cwnd(&mut self) {
        let undisturbed = self.recovery.is_none() && self.phase != Phase::ProbeRtt;
        self.prior_cwnd = if undisturbed { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    fn update_recovery(&mut self, acked: &AckBatch) {
        let Some(recovery) = &mut self.recovery else { return };
        if acked.sample.send_time > recovery.newest_loss {
            self.recovery = None;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
        } else if acked.sample.prior_delivered >= recovery.began_at_delivered {
            recovery.conserving = false;
        }
    }

    fn update_pacing_rate(&mut self) {
        let Some(bandwidth) = self.btl_bw.get() else { return };
        let rate = ((self.pacing_gain() * (1.0 - PACING_MARGIN) * bandwidth as f64) as u64).max(1);
        if self.filled_pipe || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn update_cwnd(&mut self, acked: &AckBatch) {
        let held = (self.bandwidth() as f64 * self.hold_lag.as_secs_f64()) as u64;
        let target = self.bdp(self.cwnd_gain()) + 3 * self.send_quantum() + held;
        if self.recovery.is_some_and(|recovery| recovery.conserving) {
            self.cwnd = self.cwnd.max(acked.in_flight + acked.newly_acked);
        } else if self.filled_pipe {
            self.cwnd = (self.cwnd + acked.newly_acked).min(target);
        } else if self.cwnd < target || acked.delivered < initial_window(self.smss) {
            self.cwnd += acked.newly_acked;
        }
        self.cwnd = self.cwnd.max(self.min_window());
        if self.phase == Phase::ProbeRtt {
            self.cwnd = self.min_window();
        }
    }
}

impl Congestion for Bbr1 {
    fn on_sent(&mut self, sent: &Sent, _now: Instant) {
        // Restarting from idle (4.3.4.4): the bandwidth is known, so no burst above it; and the round trip that expired
        // meanwhile is no reason to probe for it.
        if sent.in_flight == 0 && sent.app_limited {
            self.idle_restart = true;
            if matches!(self.phase, Phase::ProbeBw(_)) {
                self.pacing_rate = self.bandwidth().max(1);
            }
        }
    }

    fn on_ack(&mut self, acked: &AckBatch, now: Instant) {
        self.hold_lag = acked.hold_lag;
        self.update_bandwidth(acked);
        self.update_cycle(acked, now);
        self.check_full_pipe(acked);
        self.check_drain(acked, now);
        let expired = self.update_rt_prop(acked, now);
        self.check_probe_rtt(acked, expired, now);
        self.update_recovery(acked);
        self.update_pacing_rate();
        self.update_cwnd(acked);
        self.lost_since_ack = false;
    }

    fn on_lost(&mut self, lost: &LossBatch, now: Instant) {
        self.lost_since_ack = true;
        if let Some(scaling) = &mut self.scaling {
            scaling.on_lost();
        }
        if lost.persistent {
            self.save_cwnd();
            self.recovery = None;
            self.cwnd = self.min_window();
            return;
        }
        match &mut self.recovery {
            Some(recovery) => {
                recovery.newest_loss = now;
                self.cwnd = self.cwnd.saturating_sub(lost.bytes);
            }
            None => {
                self.save_cwnd();
                let conserving = self.filled_pipe || !self.queueless;
                self.recovery = Some(Recovery { newest_loss: now, began_at_delivered: lost.delivered, conserving });
                self.cwnd = match conserving {
                    true => lost.in_flight + self.smss,
                    false => self.cwnd.saturating_sub(lost.bytes),
                };
            }
        }
        self.cwnd = self.cwnd.max(self.min_window());
        if self.phase == Phase::ProbeRtt {
            self.cwnd = self.min_window();
        }
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
            app_limited: self.phase == Phase::ProbeRtt,
        }
    }

    fn send_phase(&self) -> SendPhase {
        match self.phase {
            Phase::Startup => SendPhase::Startup,
            Phase::ProbeBw(index) if CYCLE[index] > 1.0 => SendPhase::Probing,
            Phase::Drain | Phase::ProbeBw(_) | Phase::ProbeRtt => SendPhase::Steady,
        }
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            phase: match self.phase {
                Phase::Startup => "startup",
                Phase::Drain => "drain",
                Phase::ProbeBw(_) => "probe_bw",
                Phase::ProbeRtt => "probe_rtt",
            },
            bandwidth: self.btl_bw.get(),
            min_rtt: self.rt_prop,
        }
    }

    fn clone_box(&self) -> Box<dyn Congestion> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
