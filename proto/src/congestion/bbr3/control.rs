//! What the model means for sending: pacing rate, burst and window (5.6).

use std::time::Duration;

use super::{Bbr3, State};
use crate::congestion::initial_window;
use crate::congestion::rate_sample::AckBatch;

const STARTUP_GAIN: f64 = 2.77;
const DRAIN_GAIN: f64 = 0.5;
const UP_GAIN: f64 = 1.25;
/// Pacing gain of a trial of the noise floor (rule B2), and of one before anything is confirmed.
const TRIAL_GAIN: f64 = 0.75;
const FIRST_TRIAL_GAIN: f64 = 0.25;

const CWND_GAIN: f64 = 2.0;

/// Share of the rate that is left unused, so that queues drain (2.5).
const PACING_MARGIN: f64 = 0.01;

const MIN_WINDOW_DATAGRAMS: u64 = 4;

/// The largest burst, in bytes (5.6.3).
const MOST_BURST: u64 = 64_000;

/// Round trip assumed for the first pacing rate; the window limits before it matters.
const ASSUMED_RTT: Duration = Duration::from_millis(1);

/// The pacing rate before the bandwidth is known (5.6.2).
pub(super) fn first_rate(cwnd: u64, rtt: Option<Duration>) -> u64 {
    let rtt = rtt.unwrap_or(ASSUMED_RTT).max(Duration::from_micros(100));
    (STARTUP_GAIN * cwnd as f64 / rtt.as_secs_f64()) as u64
}

impl Bbr3 {
    fn pacing_gain(&self) -> f64 {
        match self.state {
            State::Startup => STARTUP_GAIN,
            State::Drain => DRAIN_GAIN,
            State::Down => self.version.down_gain(),
            State::Cruise if self.is_on_trial() => {
                if self.is_first_trial() {
                    FIRST_TRIAL_GAIN
                } else {
                    TRIAL_GAIN
                }
            }
            State::Cruise | State::Refill | State::ProbeRtt => 1.0,
            State::Up => UP_GAIN,
        }
    }

    pub(super) fn min_window(&self) -> u64 {
        MIN_WINDOW_DATAGRAMS * self.smss
    }

    /// So many bandwidth-delay products, in bytes; of the initial window while the round trip is unknown.
    pub(super) fn bdp(&self, gain: f64, bandwidth: u64) -> u64 {
        match self.min_rtt.get() {
            Some(min_rtt) => (gain * bandwidth as f64 * min_rtt.as_secs_f64()) as u64,
            None => (gain * initial_window(self.smss) as f64) as u64,
        }
    }

    /// The flight that so many bandwidth-delay products take in practice.
    pub(super) fn flight(&self, gain: f64, bandwidth: u64) -> u64 {
        self.quantized(self.bdp(gain, bandwidth))
    }

    fn quantized(&self, flight: u64) -> u64 {
        let flight = flight.max(self.send_quantum()).max(self.min_window());
        if self.state == State::Up { flight + 2 * self.smss } else { flight }
    }

    pub(super) fn send_quantum(&self) -> u64 {
        let least = self.version.least_burst(self.pacing_rate) * self.smss;
        (self.pacing_rate / 1_000).clamp(least, MOST_BURST.max(least))
    }

    pub(super) fn update_pacing_rate(&mut self) {
        let rate = (self.pacing_gain() * self.bandwidth() as f64 * (1.0 - PACING_MARGIN)) as u64;
        if rate > 0 && (self.full_pipe.reached || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    pub(super) fn update_cwnd(&mut self, acked: &AckBatch) {
        let gain = if self.state == State::Up { self.version.up_cwnd_gain() } else { CWND_GAIN };
        // What the far side holds back for a copy on another path is in flight as well.
        let held = (self.bandwidth() as f64 * self.hold_lag.as_secs_f64()) as u64;
        let extra = self.aggregation.extra() + held;
        let most = self.quantized(self.bdp(gain, self.bandwidth()) + extra);
        if self.is_conserving(acked) {
            self.cwnd = self.cwnd.max(acked.in_flight + acked.newly_acked);
        } else if self.full_pipe.reached {
            self.cwnd = (self.cwnd + acked.newly_acked).min(most);
        } else if self.cwnd < most || acked.delivered < initial_window(self.smss) {
            self.cwnd += acked.newly_acked;
        }
        self.cwnd = self.cwnd.max(self.min_window());
        self.bound_cwnd();
    }

    /// Keeps the window within what the model allows (5.6.4).
    pub(super) fn bound_cwnd(&mut self) {
        let long_term = match self.state {
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::Cruise | State::ProbeRtt => self.headroom_cap(),
            State::Startup | State::Drain => None,
        };
        let probe_rtt = (self.state == State::ProbeRtt).then(|| self.probe_rtt_cwnd());
        let bound = [long_term, probe_rtt, self.short_term.inflight].into_iter().flatten().min();
        if let Some(bound) = bound {
            self.cwnd = self.cwnd.min(bound.max(self.min_window()));
        }
    }
}
