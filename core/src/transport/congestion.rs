//! Where congestion control meets the QUIC library and the paths.
//!
//! The library runs one controller per connection and asks it through hooks. [`CongestionHandle`] is what everybody else
//! has of that controller: it names the algorithm wanted (which may change while the connection lives), carries what only
//! the paths know to the controller, and what the controller decided to the poller and to statistics. Its
//! [`PacingHandle`] is read by the gate in front of the sockets.
//!
//! Algorithms themselves are in `tandem_proto::congestion`, or the library's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quinn::congestion::ControllerFactory;
use tandem_proto::congestion::rate_sample::ACK_ONLY_BELOW;
use tandem_proto::congestion::{Algorithm, ReferenceReport, SendPhase, SenderState};
use tandem_proto::wire::header::HoldClass;

use super::pacing::PacingHandle;

mod adapter;
mod loss_based;
mod signals;

pub use signals::ReportedLoss;
use signals::Signals;

/// One connection's congestion control as the rest of the transport sees it; clones share it.
#[derive(Debug, Clone)]
pub struct CongestionHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Index into [`Algorithm::ALL`].
    wish: AtomicU8,
    pacing: PacingHandle,
    hold_rule: AtomicU8,
    signals: Mutex<Signals>,
    /// Number of a [`SendPhase`].
    phase: AtomicU8,
    /// Bytes per second; 0 if unknown.
    pacing_rate: AtomicU64,
    gives_way: AtomicBool,
    metrics: Mutex<Metrics>,
    /// Whether something that is to be acknowledged may have come since the library last sent.
    owes_acknowledgement: AtomicBool,
}

/// What is made of the far side's in-order hold. Everything but `On` is for comparisons on the testbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum HoldRule {
    /// Nothing is held: a copy that comes late is a loss to QUIC.
    Off,
    /// Held, but the controller learns nothing of the losses that copies repaired: it fills every queue.
    WithoutSignals,
    /// Held, and the controller learns by its rule of what was hidden.
    #[default]
    On,
}

/// What the controller last decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// The algorithm that runs; lags behind the one asked for until the controller is next used.
    pub algorithm: Algorithm,
    /// Congestion window, in bytes.
    pub cwnd_bytes: u64,
    /// Pacing rate in bytes per second; `None` where the QUIC library paces by the window.
    pub pacing_rate: Option<u64>,
    /// The algorithm's phase in one word, such as `startup`.
    pub phase: &'static str,
}

impl CongestionHandle {
    /// A handle for one connection that starts with `algorithm`; `now` is the time of its making.
    pub fn new(algorithm: Algorithm, now: Instant) -> Self {
        CongestionHandle(Arc::new(Shared {
            wish: AtomicU8::new(index(algorithm)),
            pacing: PacingHandle::new(now),
            hold_rule: AtomicU8::new(HoldRule::On as u8),
            signals: Mutex::default(),
            phase: AtomicU8::new(SendPhase::Startup as u8),
            pacing_rate: AtomicU64::new(0),
            gives_way: AtomicBool::new(false),
            metrics: Mutex::new(Metrics { algorithm, cwnd_bytes: 0, pacing_rate: None, phase: "startup" }),
            owes_acknowledgement: AtomicBool::new(false),
        }))
    }

    /// What the poller in front of the sockets reads.
    pub fn pacing(&self) -> &PacingHandle {
        &self.0.pacing
    }

    /// Asks for another algorithm; the connection takes it up with the next datagram it sends or acknowledgement it gets.
    pub fn set_algorithm(&self, algorithm: Algorithm) {
        self.0.wish.store(index(algorithm), Relaxed);
    }

    /// The algorithm asked for.
    pub fn algorithm(&self) -> Algorithm {
        Algorithm::ALL[usize::from(self.0.wish.load(Relaxed))]
    }

    /// Tells the controller of a loss on the reference path that the far side's hold hides from the QUIC library.
    ///
    /// To be called only while the far side holds in order: otherwise the library sees these losses itself.
    pub fn report_loss(&self, loss: ReportedLoss) {
        self.0.signals.lock().report(loss);
    }

    /// Tells the controller what a report said of the reference path; its losses were told by [`Self::report_loss`].
    pub fn report_reference(&self, report: ReferenceReport) {
        self.0.signals.lock().report_reference(report);
    }

    /// What the newest report said of the reference path; `None` before the first.
    pub fn reference(&self) -> Option<ReferenceReport> {
        self.0.signals.lock().reference()
    }

    /// How the controller sends now, for the link.
    pub fn sender_state(&self) -> SenderState {
        let phase = SendPhase::ALL.get(usize::from(self.0.phase.load(Relaxed))).copied().unwrap_or_default();
        let pacing_rate = Some(self.0.pacing_rate.load(Relaxed)).filter(|rate| *rate > 0);
        SenderState { phase, pacing_rate, gives_way: self.0.gives_way.load(Relaxed) }
    }

    /// Publishes how the controller sends now.
    pub(super) fn set_sender_state(&self, state: SenderState) {
        self.0.phase.store(state.phase as u8, Relaxed);
        self.0.pacing_rate.store(state.pacing_rate.unwrap_or(0), Relaxed);
        self.0.gives_way.store(state.gives_way, Relaxed);
    }

    /// Tells the controller how long the far side's hold may delay datagrams, and the smoothed round trip of the fastest
    /// path; a lag of zero means nothing is held.
    pub fn set_hold(&self, lag: Duration, fastest_rtt: Duration) {
        self.0.signals.lock().set_hold(lag, fastest_rtt);
    }

    /// Changes what is made of the hold, for comparisons on the testbed.
    pub fn set_hold_rule(&self, rule: HoldRule) {
        self.0.hold_rule.store(rule as u8, Relaxed);
    }

    /// What is made of the hold.
    pub fn hold_rule(&self) -> HoldRule {
        match self.0.hold_rule.load(Relaxed) {
            rule if rule == HoldRule::Off as u8 => HoldRule::Off,
            rule if rule == HoldRule::WithoutSignals as u8 => HoldRule::WithoutSignals,
            _ => HoldRule::On,
        }
    }

    /// Notes that the library is handed a datagram of so many bytes.
    pub(super) fn note_arrived(&self, bytes: usize) {
        if bytes as u64 >= ACK_ONLY_BELOW {
            self.0.owes_acknowledgement.store(true, Relaxed);
        }
    }

    /// Whom the far side shall hold in what is sent now.
    pub fn hold_class(&self, now: Instant) -> HoldClass {
        match self.hold_rule() {
            HoldRule::Off => HoldClass::None,
            HoldRule::WithoutSignals | HoldRule::On => self.0.pacing.hold_class(now),
        }
    }

    /// What makes this connection's controller, for its transport settings and for no other connection's.
    ///
    /// The same `seed` gives the same decisions.
    pub fn factory(&self, seed: u64) -> Arc<dyn ControllerFactory + Send + Sync> {
        Arc::new(adapter::Factory { handle: self.clone(), seed })
    }

    /// What the controller last decided.
    pub fn metrics(&self) -> Metrics {
        *self.0.metrics.lock()
    }
}

fn index(algorithm: Algorithm) -> u8 {
    Algorithm::ALL.iter().position(|one| *one == algorithm).expect("ALL lists every algorithm") as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_asked_for_is_shared_by_all_clones() {
        let handle = CongestionHandle::new(Algorithm::Cubic, tokio::time::Instant::now().into_std());
        for algorithm in Algorithm::ALL {
            handle.clone().set_algorithm(algorithm);
            assert_eq!(handle.algorithm(), algorithm);
        }
    }
}
