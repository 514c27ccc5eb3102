//! The controller that the QUIC library runs: hooks in, window out.
//!
//! [`Switchable`] runs whichever algorithm its handle asks for and changes to another when that changes, as the relay
//! learns the client's wish only after the handshake. The library's own controllers get its hooks as they are; a
//! model-based one gets them through a [`PacedSender`], and its release times go to the gate.
//!
//! What quinn-proto 0.11 does, and follows for us:
//! - It sends while `in_flight + next < window`, strictly. The window told is one byte more than the controller's, else
//!   a window of four datagrams lets three fly.
//! - Its round-trip estimate is updated after `on_end_acks` and never forgets its least value. Model-based controllers take
//!   round trips from their own records.
//! - `now` of an acknowledgement may lie before the packet's sending when the machine is busy: such samples count for
//!   nothing.
//! - Losses come one step after the acknowledgement that revealed them; zero lost bytes mean an ECN mark.
//! - `app_limited` is the state when the library last built something. It stays false while the gate keeps a datagram back,
//!   so it also tells whether the controller, and not the application, limits sending.
//! - It paces by its window and its smoothed round trip, besides our gate. After an outage that round trip is as long as the
//!   outage was, and it would send a packet in seconds: until it has fallen, the window told is larger, and our gate paces.
//! - While the window is full and there is data to send, it sends no acknowledgement either, until a timer that doubles lets
//!   it probe. When a path that carried both directions fails, both ends may wait for each other like this. So who owes an
//!   acknowledgement and has been silent for as long as one may be put off is told a window with room for one datagram more.
//! - A change of NAT binding clones the controller: the clone shares the handle and copies the model.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;
use tandem_proto::congestion::rate_sample::HiddenLoss;
use tandem_proto::congestion::{
    Algorithm, Bbr1, Bbr3, Congestion, PacedSender, SendPhase, SenderState, initial_window,
};
use tandem_proto::wire::header::HoldClass;
use tracing::debug;

use super::loss_based::LossBased;
use super::{CongestionHandle, HoldRule, Metrics};
use crate::transport::pacing;

/// A round trip of the library's above this and eight times the least one is an outage's.
const INFLATED: Duration = Duration::from_secs(1);

/// What the window is larger by then: lets the library's pacer send ten datagrams each 0.3 s after an outage of a minute.
const SLACK: u64 = 256 * 1024;

/// How long acknowledgements may be put off (`max_ack_delay`, RFC 9000, section 18.2).
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Makes the controllers of one connection.
pub(super) struct Factory {
    pub(super) handle: CongestionHandle,
    pub(super) seed: u64,
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Switchable::new(self.handle.clone(), self.seed, now, current_mtu))
    }
}

/// The congestion controller of one connection; see the module's text.
#[derive(Clone)]
struct Switchable {
    handle: CongestionHandle,
    algorithm: Algorithm,
    running: Running,
    seed: u64,
    mtu: u16,
    /// Reported losses on their way from the handle to the controller; empty in between.
    losses: Vec<HiddenLoss>,
    /// The library's smoothed round trip.
    library_rtt: Duration,
    /// What the library has in flight, as far as its hooks tell.
    in_flight: u64,
    /// When it last sent something that counts as in flight.
    sent_at: Instant,
}

#[derive(Clone)]
enum Running {
    /// The library's own, paced by the library.
    LossBased(LossBased),
    /// One of ours, paced by the gate.
    RateBased(Box<PacedSender>),
}

impl Switchable {
    fn new(handle: CongestionHandle, seed: u64, now: Instant, mtu: u16) -> Self {
        let algorithm = handle.algorithm();
        let running = start(algorithm, seed, now, mtu);
        let controller = Switchable {
            handle,
            algorithm,
            running,
            seed,
            mtu,
            losses: Vec::new(),
            library_rtt: Duration::ZERO,
            in_flight: 0,
            sent_at: now,
        };
        controller.announce();
        controller
    }

    /// Changes to the algorithm asked for, if that is another. It starts afresh: its model is not the old one's.
    fn follow_wish(&mut self, now: Instant) {
        let wish = self.handle.algorithm();
        if wish == self.algorithm {
            return;
        }
        debug!(from = %self.algorithm, to = %wish, "congestion controller changes");
        self.algorithm = wish;
        self.running = start(wish, self.seed, now, self.mtu);
        let mut signals = self.handle.0.signals.lock();
        signals.take_congestion();
        signals.take_reported(&mut self.losses);
        drop(signals);
        self.announce();
    }

    /// Tells gate, link and statistics what runs now.
    fn announce(&self) {
        let pacing = self.handle.pacing();
        pacing.open();
        pacing.set_hold(match &self.running {
            Running::LossBased(_) => HoldClass::Full,
            Running::RateBased(_) => HoldClass::Short,
        });
        self.publish_decisions();
    }

    /// Tells gate and statistics what the controller decided.
    fn publish_decisions(&self) {
        if let Running::RateBased(sender) = &self.running {
            self.handle.pacing().set_burst(sender.control().send_quantum, self.mtu.into());
        }
        self.handle.set_sender_state(match &self.running {
            Running::LossBased(controller) => {
                SenderState { phase: SendPhase::Steady, pacing_rate: controller.rate(), gives_way: false }
            }
            Running::RateBased(sender) => SenderState {
                phase: sender.send_phase(),
                pacing_rate: Some(sender.control().pacing_rate),
                gives_way: sender.gives_way(),
            },
        });
        let metrics = self.current_metrics();
        let before = std::mem::replace(&mut *self.handle.0.metrics.lock(), metrics);
        if before.phase != metrics.phase {
            debug!(algorithm = %metrics.algorithm, from = before.phase, to = metrics.phase, "congestion phase");
        }
    }

    fn current_metrics(&self) -> Metrics {
        match &self.running {
            Running::LossBased(controller) => controller.metrics(),
            Running::RateBased(sender) => {
                let control = sender.control();
                Metrics {
                    algorithm: self.algorithm,
                    cwnd_bytes: control.cwnd,
                    pacing_rate: Some(control.pacing_rate),
                    phase: sender.metrics().phase,
                }
            }
        }
    }

    /// By how much the window must be larger for the library's pacer not to bind, as its round trip is an outage's.
    fn slack(&self, min_rtt: Option<Duration>) -> u64 {
        let inflated = min_rtt.is_some_and(|min_rtt| self.library_rtt > INFLATED.max(8 * min_rtt));
        if inflated { SLACK } else { 0 }
    }

    /// The window that lets an acknowledgement out, where one is owed and `window` would keep it back for long.
    fn for_an_acknowledgement(&self, window: u64) -> u64 {
        let room = self.in_flight + u64::from(self.mtu) + 1;
        let owed = window < room && self.handle.0.owes_acknowledgement.load(Relaxed);
        let silent = || tokio::time::Instant::now().into_std().saturating_duration_since(self.sent_at) >= MAX_ACK_DELAY;
        if owed && silent() { room } else { window }
    }

    /// What of an acknowledgement does not need the library's estimator.
    fn packet_acked(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: Duration) {
        self.library_rtt = rtt;
        if !app_limited {
            self.handle.pacing().limited(now, rtt);
        }
        if let Running::RateBased(sender) = &mut self.running {
            sender.acked(sent, bytes, app_limited);
        }
    }
}

/// A fresh controller of the kind.
fn start(algorithm: Algorithm, seed: u64, now: Instant, mtu: u16) -> Running {
    let smss = u64::from(mtu);
    let controller: Box<dyn Congestion> = match algorithm {
        Algorithm::Cubic => return Running::LossBased(LossBased::cubic(now, mtu)),
        Algorithm::NewReno => return Running::LossBased(LossBased::new_reno(now, mtu)),
        Algorithm::Bbr1 => Box::new(Bbr1::new(smss, seed, now)),
        Algorithm::BbrCws => Box::new(Bbr1::cws(smss, seed, now)),
        Algorithm::Bbr2 => Box::new(Bbr3::version_2(smss, seed, now)),
        Algorithm::Bbr3 => Box::new(Bbr3::new(smss, seed, now)),
        Algorithm::Bbr3Draft => Box::new(Bbr3::draft(smss, seed, now)),
    };
    Running::RateBased(Box::new(PacedSender::new(controller, smss, now)))
}

impl Controller for Switchable {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.follow_wish(now);
        self.in_flight += bytes;
        self.sent_at = now;
        self.handle.0.owes_acknowledgement.store(false, Relaxed);
        match &mut self.running {
            Running::LossBased(controller) => controller.inner.on_sent(now, bytes, last_packet_number),
            Running::RateBased(sender) => self.handle.pacing().set_release(sender.sent(now, bytes).at),
        }
        pacing::publish(self.handle.pacing());
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.follow_wish(now);
        if let Running::LossBased(controller) = &mut self.running {
            controller.inner.on_ack(now, sent, bytes, app_limited, rtt);
            controller.smoothed_rtt = Some(rtt.get());
        }
        self.packet_acked(now, sent, bytes, app_limited, rtt.get());
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        self.follow_wish(now);
        self.in_flight = in_flight;
        let (congestion, report, hold_lag) = {
            let mut signals = self.handle.0.signals.lock();
            (signals.take_congestion(), signals.take_reported(&mut self.losses), signals.short_hold_lag())
        };
        let (congestion, report, hold_lag) = match self.handle.hold_rule() {
            // What the library sees itself counts once.
            HoldRule::Off => (None, report, Duration::ZERO),
            HoldRule::WithoutSignals => {
                self.losses.clear();
                (None, None, hold_lag)
            }
            HoldRule::On => (congestion, report, hold_lag),
        };
        match &mut self.running {
            Running::LossBased(controller) => {
                controller.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
                if let Some(loss) = congestion {
                    controller.reference_path_lost(loss, now);
                }
            }
            Running::RateBased(sender) => {
                sender.end_acks(now, in_flight, hold_lag);
                sender.reported(now, &self.losses, report.as_ref());
            }
        }
        self.publish_decisions();
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.follow_wish(now);
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        match &mut self.running {
            Running::LossBased(controller) => {
                controller.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
            }
            Running::RateBased(sender) => sender.lost(now, sent, lost_bytes, is_persistent_congestion),
        }
        self.publish_decisions();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        match &mut self.running {
            Running::LossBased(controller) => controller.inner.on_mtu_update(new_mtu),
            Running::RateBased(sender) => sender.set_smss(new_mtu.into()),
        }
        self.publish_decisions();
    }

    fn window(&self) -> u64 {
        let window = match &self.running {
            Running::LossBased(controller) => controller.inner.window(),
            Running::RateBased(sender) => sender.control().cwnd + 1 + self.slack(sender.metrics().min_rtt),
        };
        self.for_an_acknowledgement(window)
    }

    fn metrics(&self) -> ControllerMetrics {
        match &self.running {
            Running::LossBased(controller) => controller.inner.metrics(),
            Running::RateBased(sender) => {
                let control = sender.control();
                let mut metrics = ControllerMetrics::default();
                metrics.congestion_window = control.cwnd;
                // The library's unit is bits per second.
                metrics.pacing_rate = Some(control.pacing_rate.saturating_mul(8));
                metrics
            }
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        initial_window(self.mtu.into())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests;
