//! CUBIC by RFC 9438, with slow start by RFC 5681. Windows are in segments.

use std::time::{Duration, Instant};

/// Multiplicative decrease, and the cubic function's steepness in segments per second cubed (RFC 9438, sections 4.6 and 5.1).
const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// Growth per round trip that is as fair as Reno with this decrease (4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// RFC 6928.
const INITIAL_WINDOW: f64 = 10.0;

const LEAST_WINDOW: f64 = 2.0;

/// The window of one flow.
#[derive(Debug)]
pub(super) struct Cubic {
    cwnd: f64,
    ssthresh: f64,
    /// The window at the last loss, less after two losses without full recovery in between (4.7).
    w_max: f64,
    /// The window before the last loss.
    prior: f64,
    epoch: Option<Epoch>,
}

/// Growth since the last loss.
#[derive(Debug)]
struct Epoch {
    began: Instant,
    /// Seconds until the window is `w_max` again.
    k: f64,
    /// The window that Reno would have.
    reno: f64,
}

impl Cubic {
    pub(super) fn new() -> Self {
        Self { cwnd: INITIAL_WINDOW, ssthresh: f64::MAX, w_max: 0.0, prior: f64::MAX, epoch: None }
    }

    pub(super) fn cwnd(&self) -> f64 {
        self.cwnd
    }

    /// So many segments were acknowledged while the window limited.
    pub(super) fn on_acked(&mut self, segments: f64, srtt: Duration, now: Instant) {
        if self.cwnd < self.ssthresh {
            self.cwnd += segments;
            return;
        }
        let epoch = self.epoch.get_or_insert_with(|| {
            self.w_max = self.w_max.max(self.cwnd);
            let k = ((self.w_max - self.cwnd) / C).cbrt();
            Epoch { began: now, k, reno: self.cwnd }
        });
        let cubic = |time: f64| C * (time - epoch.k).powi(3) + self.w_max;
        let time = now.saturating_duration_since(epoch.began).as_secs_f64();
        let growth = if epoch.reno >= self.prior { 1.0 } else { ALPHA };
        epoch.reno += growth * segments / self.cwnd;
        if cubic(time) < epoch.reno {
            self.cwnd = self.cwnd.max(epoch.reno);
        } else {
            let target = cubic(time + srtt.as_secs_f64()).clamp(self.cwnd, 1.5 * self.cwnd);
            self.cwnd += (target - self.cwnd) / self.cwnd * segments;
        }
    }

    /// Something was lost, for the first time in a window.
    pub(super) fn on_loss(&mut self) {
        self.prior = self.cwnd;
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.ssthresh = (self.cwnd * BETA).max(LEAST_WINDOW);
        self.cwnd = self.ssthresh;
        self.epoch = None;
    }

    /// Nothing came back for a whole timeout (4.8).
    pub(super) fn on_timeout(&mut self) {
        self.on_loss();
        self.cwnd = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window over so many round trips without a loss.
    fn grow(cubic: &mut Cubic, round_trips: u32, rtt: Duration, from: Instant) -> Instant {
        (0..round_trips).fold(from, |now, _| {
            cubic.on_acked(cubic.cwnd(), rtt, now);
            now + rtt
        })
    }

    #[test]
    fn slow_start_doubles_and_a_loss_takes_three_tenths() {
        let mut cubic = Cubic::new();
        grow(&mut cubic, 4, Duration::from_millis(10), Instant::now());
        assert_eq!(cubic.cwnd(), 160.0);
        cubic.on_loss();
        assert_eq!(cubic.cwnd(), 112.0);
        cubic.on_timeout();
        assert_eq!(cubic.cwnd(), 1.0);
    }

    #[test]
    fn the_window_is_back_where_it_was_after_k_seconds() {
        let mut cubic = Cubic::new();
        cubic.cwnd = 1_000.0;
        cubic.on_loss();
        // K = cbrt(300 / 0.4) = 9.086 s; with a round trip of 200 ms Reno would be far behind.
        let rtt = Duration::from_millis(200);
        let now = grow(&mut cubic, 45, rtt, Instant::now());
        assert!((995.0..=1_000.0).contains(&cubic.cwnd()), "{}", cubic.cwnd());
        grow(&mut cubic, 25, rtt, now);
        assert!(cubic.cwnd() > 1_030.0, "{}", cubic.cwnd());
    }

    #[test]
    fn on_a_short_round_trip_it_grows_as_reno_with_its_decrease_would() {
        let mut cubic = Cubic::new();
        cubic.cwnd = 100.0;
        cubic.on_loss();
        grow(&mut cubic, 20, Duration::from_millis(5), Instant::now());
        assert!((cubic.cwnd() - (70.0 + 20.0 * ALPHA)).abs() < 0.5, "{}", cubic.cwnd());
    }

    #[test]
    fn two_losses_before_full_recovery_leave_room_for_others() {
        let mut cubic = Cubic::new();
        cubic.cwnd = 100.0;
        cubic.on_loss();
        cubic.on_loss();
        assert!((cubic.w_max - 70.0 * 0.85).abs() < 1e-9);
    }
}
