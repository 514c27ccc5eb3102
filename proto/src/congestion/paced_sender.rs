//! A model-based controller with everything it needs around it: measuring, pacing and the order of the two.
//!
//! The adapter to the QUIC library and the tests drive the same [`PacedSender`], with the events the library has.

use std::time::{Duration, Instant};

use super::pacer::{Pacer, Release};
use super::rate_sample::{ACK_ONLY_BELOW, HiddenLoss, LossBatch, Sampler};
use super::{Congestion, Control, Metrics, ReferenceReport, SendPhase, Sent};

/// One connection's sender under a model-based controller.
#[derive(Debug)]
pub struct PacedSender {
    controller: Box<dyn Congestion>,
    sampler: Sampler,
    pacer: Pacer,
    smss: u64,
    /// The round in which an ECN mark was last taken in; one reaction a round is enough.
    marked_round: Option<u64>,
    round: u64,
}

impl PacedSender {
    /// A sender that has sent nothing yet; `smss` is the largest UDP payload in bytes.
    pub fn new(controller: Box<dyn Congestion>, smss: u64, now: Instant) -> Self {
        PacedSender {
            controller,
            sampler: Sampler::new(now),
            pacer: Pacer::default(),
            smss,
            marked_round: None,
            round: 0,
        }
    }

    /// A transmit of `bytes` was built `now`; answers when it may leave.
    pub fn sent(&mut self, now: Instant, bytes: u64) -> Release {
        let in_flight = self.sampler.in_flight();
        self.controller.on_sent(&Sent { bytes, in_flight, app_limited: self.sampler.is_app_limited() }, now);
        let control = self.controller.control();
        // Acknowledgements are no load, and the other direction waits for them: the rate found for a trickle of data must
        // not throttle them.
        let release = if bytes < ACK_ONLY_BELOW {
            Release { at: now, departure: now }
        } else {
            self.pacer.release(now, bytes, control.pacing_rate, control.send_quantum)
        };
        self.sampler.on_sent(now, release.departure, bytes, control.cwnd, self.smss);
        release
    }

    /// A packet of `bytes`, built at `sent`, was acknowledged. `app_limited` tells whether there was nothing more to send.
    pub fn acked(&mut self, sent: Instant, bytes: u64, app_limited: bool) {
        self.sampler.on_ack(sent, bytes, app_limited);
    }

    /// The acknowledgements of one frame are all told; `in_flight` bytes remain.
    ///
    /// `hold_lag` is how long the far side may have held the packets, waiting for a copy on another path.
    pub fn end_acks(&mut self, now: Instant, in_flight: u64, hold_lag: Duration) {
        let control = self.controller.control();
        let Some(mut batch) = self.sampler.end_acks(now, in_flight, control.cwnd, self.smss) else { return };
        batch.hold_lag = hold_lag;
        self.round = batch.round;
        self.controller.on_ack(&batch, now);
        if self.controller.control().app_limited {
            self.sampler.mark_app_limited();
        }
    }

    /// `bytes` were lost, the newest of them built at `sent`; 0 bytes mean an ECN mark.
    pub fn lost(&mut self, now: Instant, sent: Instant, bytes: u64, persistent: bool) {
        if bytes == 0 && self.marked_round.replace(self.round) == Some(self.round) {
            return;
        }
        let batch: LossBatch = self.sampler.on_lost(now, sent, bytes, persistent, self.smss);
        self.controller.on_lost(&batch, now);
    }

    /// What the far side reported of the reference path, with the datagrams it says did not arrive there.
    ///
    /// Does nothing to a controller that goes by what the library tells alone.
    pub fn reported(&mut self, now: Instant, losses: &[HiddenLoss], report: Option<&ReferenceReport>) {
        if !self.controller.heeds_reports() {
            return;
        }
        if let Some(batch) = self.sampler.on_reported(now, losses, self.smss) {
            self.controller.on_lost(&batch, now);
        }
        if let Some(report) = report {
            self.controller.on_report(report, now);
        }
    }

    /// The largest UDP payload is now `smss` bytes.
    pub fn set_smss(&mut self, smss: u64) {
        self.smss = smss;
        self.controller.on_mtu(smss);
    }

    /// How sending is limited now.
    pub fn control(&self) -> Control {
        self.controller.control()
    }

    /// What the controller is about.
    pub fn send_phase(&self) -> SendPhase {
        self.controller.send_phase()
    }

    /// Whether the controller gives way to the queues of others, which reports tell it of.
    pub fn gives_way(&self) -> bool {
        self.controller.heeds_reports()
    }

    /// What to show of the controller.
    pub fn metrics(&self) -> Metrics {
        self.controller.metrics()
    }

    /// Packets that were acknowledged but never recorded; a few are normal.
    pub fn unmatched(&self) -> u64 {
        self.sampler.unmatched()
    }
}

impl Clone for PacedSender {
    fn clone(&self) -> Self {
        PacedSender {
            controller: self.controller.clone_box(),
            sampler: self.sampler.clone(),
            pacer: self.pacer.clone(),
            ..*self
        }
    }
}
