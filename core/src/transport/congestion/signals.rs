//! What only the paths know and a congestion controller must be told.
//!
//! Copies and the far side's in-order hold hide from the QUIC library what happens on the single paths. Loss-based
//! controllers need one part of it back: a loss on the reference path counts if that path had a queue when the datagram
//! was sent (*rule Q*); fed every loss they would gain nothing from bicasting, fed none they would fill every queue.
//! Rate-based ones need to know how long datagrams are held, as that time looks like round trip to them.

use std::time::{Duration, Instant};

use tandem_proto::congestion::ReferenceReport;
use tandem_proto::congestion::rate_sample::HiddenLoss;
use tandem_proto::wire::header::HEADER_LEN;

/// The lag up to which datagrams of a rate-based controller are held, whatever the round trip.
const SHORT_LAG: Duration = Duration::from_millis(5);

/// Most losses that wait for the controller, which asks with every acknowledgement: 40 ms at 1 Gbit/s. More are dropped.
const MOST_WAITING: usize = 4_096;

/// A datagram that a report of the far side says did not arrive on the reference path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedLoss {
    /// The datagram's number, or that of the newest of them; grows with every datagram sent.
    pub number: u64,
    /// Length of the datagram, or of all those reported at once, in bytes of UDP payload.
    pub bytes: u64,
    /// When the (newest) datagram was sent.
    pub sent_at: Instant,
    /// Whether the path's queue was longer than its threshold when the datagram was sent.
    pub queue_exceeded: bool,
}

/// What the paths told since the controller last asked.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// The newest loss that counts by rule Q. One is enough: a loss-based controller reacts at most once to all that was
    /// sent before its reaction.
    congestion: Option<ReportedLoss>,
    /// Losses for a rate-based controller, which counts every one.
    waiting: Vec<HiddenLoss>,
    /// What was reported of the reference path since the controller last asked, in one.
    unread: Option<ReferenceReport>,
    /// The newest report of the reference path.
    reference: Option<ReferenceReport>,
    hold_lag: Duration,
    fastest_rtt: Duration,
}

impl Signals {
    pub(super) fn report(&mut self, loss: ReportedLoss) {
        if loss.queue_exceeded && self.congestion.is_none_or(|known| known.sent_at <= loss.sent_at) {
            self.congestion = Some(loss);
        }
        if self.waiting.len() < MOST_WAITING {
            let bytes = loss.bytes.saturating_sub(HEADER_LEN as u64);
            self.waiting.push(HiddenLoss { bytes, sent_at: loss.sent_at });
        }
    }

    pub(super) fn report_reference(&mut self, report: ReferenceReport) {
        self.reference = Some(report);
        let (judged, lost) = self.unread.map_or((0, 0), |unread| (unread.judged, unread.lost));
        self.unread = Some(ReferenceReport { judged: report.judged + judged, lost: report.lost + lost, ..report });
    }

    /// Takes what was reported since the last time: the losses go to `losses`, which is emptied first.
    pub(super) fn take_reported(&mut self, losses: &mut Vec<HiddenLoss>) -> Option<ReferenceReport> {
        losses.clear();
        std::mem::swap(losses, &mut self.waiting);
        self.unread.take()
    }

    pub(super) fn reference(&self) -> Option<ReferenceReport> {
        self.reference
    }

    pub(super) fn set_hold(&mut self, lag: Duration, fastest_rtt: Duration) {
        self.hold_lag = lag;
        self.fastest_rtt = fastest_rtt;
    }

    /// Takes the newest loss that counts as congestion by rule Q.
    pub(super) fn take_congestion(&mut self) -> Option<ReportedLoss> {
        self.congestion.take()
    }

    /// How long datagrams of a rate-based controller are held: the far side waits for short lags only. (And for a long one of the
    /// path that alone carries everything; but then the faster one carries little, and the round trips are that path's.)
    pub(super) fn short_hold_lag(&self) -> Duration {
        if self.hold_lag <= SHORT_LAG.max(self.fastest_rtt / 4) { self.hold_lag } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_loss_behind_a_queue_counts_and_only_once() {
        let now = tokio::time::Instant::now().into_std();
        let loss = |ms, queue_exceeded| ReportedLoss {
            number: ms,
            bytes: 1_200,
            sent_at: now + Duration::from_millis(ms),
            queue_exceeded,
        };
        let mut signals = Signals::default();
        for report in [loss(1, true), loss(3, true), loss(2, true), loss(9, false)] {
            signals.report(report);
        }
        assert_eq!(signals.take_congestion(), Some(loss(3, true)));
        assert_eq!(signals.take_congestion(), None);
    }

    #[test]
    fn every_loss_waits_for_a_rate_based_controller_and_reports_come_as_one() {
        let now = tokio::time::Instant::now().into_std();
        let report = |judged, lost, ms| ReferenceReport {
            judged,
            lost,
            newest_sent_at: now + Duration::from_millis(ms),
            queue: Duration::from_millis(ms),
            tolerated: Duration::from_millis(1),
            floor: 0.01,
            trial_wanted: false,
        };
        let mut signals = Signals::default();
        for number in 0..MOST_WAITING as u64 + 5 {
            signals.report(ReportedLoss { number, bytes: 1_200, sent_at: now, queue_exceeded: false });
        }
        signals.report_reference(report(10, 2, 1));
        signals.report_reference(report(20, 1, 2));
        let mut losses = vec![HiddenLoss { bytes: 7, sent_at: now }];
        assert_eq!(signals.take_reported(&mut losses), Some(report(30, 3, 2)));
        assert_eq!(losses.len(), MOST_WAITING);
        assert!(losses.iter().all(|loss| loss.bytes == 1_200 - HEADER_LEN as u64));
        assert_eq!(signals.take_reported(&mut losses), None);
        assert!(losses.is_empty());
    }

    #[test]
    fn a_long_lag_is_no_hold_for_rate_based_controllers() {
        let ms = Duration::from_millis;
        let mut signals = Signals::default();
        for (lag, rtt, expected) in [(5, 4, 5), (6, 4, 0), (10, 40, 10), (11, 40, 0)] {
            signals.set_hold(ms(lag), ms(rtt));
            assert_eq!(signals.short_hold_lag(), ms(expected));
        }
    }
}
