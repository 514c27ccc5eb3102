//! Measures the delivery rate: what was sent when, what of it arrived, and how fast.
//!
//! The [`Sampler`] keeps a record of every transmit and turns the acknowledgements of one frame into an [`AckBatch`]
//! and the losses found at one time into a [`LossBatch`], as draft-ietf-ccwg-bbr-06 describes in section 4.1 ("rate
//! sample"). On top it knows whether the application or the window limited what was measured, and counts rounds.
//!
//! The QUIC library names an acknowledged packet only by the time at which it was sent, and several transmits may share
//! that time. Records therefore stay in the order of sending, and bytes are taken from the oldest of the time in question.
//!
//! A record's `send_time` is when the transmit left the gate, which can be later than when it was built; else RTT samples
//! would contain the wait. Lengths are bytes.
//!
//! With copies on several paths the library sees only losses of every copy. What a report tells of the reference path comes
//! in by [`on_reported`](Sampler::on_reported) and counts as lost as well. A record's losses are the larger of both counts:
//! what every copy lost, the reference path lost too, so nothing counts twice, whoever tells first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Transmits below this length carry acknowledgements alone and do not count as in flight.
pub const ACK_ONLY_BELOW: u64 = 150;

/// So long without any acknowledgement, while something is in flight, is an outage.
const OUTAGE: Duration = Duration::from_secs(2);

/// Records kept whatever their age.
const KEEP: usize = 64;

/// Rounds that a record is kept: reports come up to one and a half round trips after sending, and more if some get lost.
const KEEP_ROUNDS: u64 = 3;

/// Records never more than this, whatever is in flight: two rounds of single datagrams at 200 Mbit/s and 300 ms.
const MOST: usize = 16_384;

/// What one acknowledgement frame told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckBatch {
    /// Bytes acknowledged for the first time.
    pub newly_acked: u64,
    /// Bytes in flight after this batch.
    pub in_flight: u64,
    /// Bytes delivered since the connection began.
    pub delivered: u64,
    /// What the newest acknowledged packet measured.
    pub sample: RateSample,
    /// Whether a round ended with this batch.
    pub round_start: bool,
    /// Rounds that have ended.
    pub round: u64,
    /// Whether the window limited sending in this round or the one before.
    pub cwnd_limited: bool,
    /// How long the far side may have held what it acknowledges, waiting for a copy on another path.
    pub hold_lag: Duration,
}

/// One measurement of the delivery rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes per second; `None` if the interval is too short to tell.
    pub delivery_rate: Option<u64>,
    /// Bytes delivered over the interval.
    pub delivered: u64,
    /// Bytes that had been delivered when the packet was sent.
    pub prior_delivered: u64,
    /// Bytes lost since the packet was sent.
    pub lost: u64,
    /// Bytes in flight once the packet was sent, itself included.
    pub tx_in_flight: u64,
    /// Datagrams known to be lost of the `tx_in_flight` bytes sent last up to this packet.
    pub lost_in_flight: u64,
    /// From leaving the gate to the acknowledgement; `None` if not above zero.
    pub rtt: Option<Duration>,
    /// When the packet left the gate.
    pub send_time: Instant,
    /// Whether the application, not the network, limited the rate.
    pub app_limited: bool,
}

/// Losses found at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossBatch {
    /// Bytes lost; for an ECN mark one datagram's.
    pub bytes: u64,
    /// Bytes in flight after this batch.
    pub in_flight: u64,
    /// Bytes delivered since the connection began.
    pub delivered: u64,
    /// Bytes lost since the newest lost packet was sent, this batch included.
    pub lost_since_sent: u64,
    /// Bytes in flight once the newest lost packet was sent.
    pub tx_in_flight: u64,
    /// Datagrams known to be lost of the `tx_in_flight` bytes sent last up to the newest lost packet, itself included.
    pub lost_in_flight: u64,
    /// When the newest lost packet left the gate.
    pub send_time: Instant,
    /// Whether the application limited the rate when the newest lost packet was sent.
    pub app_limited: bool,
    /// Whether nothing came through for long (RFC 9002, section 7.6).
    pub persistent: bool,
    /// Whether nothing was lost, but the network marked a packet (ECN).
    pub marked: bool,
    /// Whether this is news of the reference path; on another path a copy may have arrived.
    pub reported: bool,
}

/// A datagram that did not arrive on the reference path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HiddenLoss {
    /// Its length without what was put in front of it.
    pub bytes: u64,
    /// When it left.
    pub sent_at: Instant,
}

/// One transmit, from its sending until it is acknowledged, lost or old.
#[derive(Debug, Clone)]
struct Record {
    /// The time the library knows the transmit by; not unique.
    sent: Instant,
    send_time: Instant,
    /// Bytes of data sent before this transmit.
    position: u64,
    bytes: u64,
    acked: u64,
    lost: u64,
    /// Bytes that a report said did not arrive on the reference path.
    reported: u64,
    delivered: u64,
    delivered_time: Instant,
    first_send_time: Instant,
    tx_in_flight: u64,
    lost_at_send: u64,
    app_limited: bool,
    round: u64,
}

impl Record {
    fn open(&self) -> u64 {
        self.bytes - self.acked - self.lost
    }

    /// Bytes that count as lost.
    fn counted(&self) -> u64 {
        self.lost.max(self.reported)
    }
}

/// Losses of one record.
#[derive(Debug, Clone, Copy)]
struct Lost {
    position: u64,
    datagrams: u64,
}

/// What the acknowledgements since the last end of a batch told.
#[derive(Debug, Clone, Default)]
struct Pending {
    newly_acked: u64,
    app_limited: bool,
    newest: Option<Record>,
}

/// Keeps the records and makes the samples of one connection.
#[derive(Debug, Clone)]
pub struct Sampler {
    records: VecDeque<Record>,
    /// In the order of sending, at most [`MOST`].
    losses: VecDeque<Lost>,
    pending: Pending,
    /// Bytes of data sent.
    position: u64,
    in_flight: u64,
    delivered: u64,
    delivered_time: Instant,
    first_send_time: Instant,
    lost: u64,
    min_rtt: Option<Duration>,
    /// When the last long silence ended.
    resumed_at: Option<Instant>,
    /// Samples are app-limited until more than this was delivered; `None` if they are not.
    app_limited_until: Option<u64>,
    cwnd_limited: [bool; 2],
    next_round_delivered: u64,
    round: u64,
    unmatched: u64,
}

impl Sampler {
    /// A sampler of a connection that has sent nothing yet.
    pub fn new(now: Instant) -> Self {
        Sampler {
            records: VecDeque::new(),
            losses: VecDeque::new(),
            pending: Pending::default(),
            position: 0,
            in_flight: 0,
            delivered: 0,
            delivered_time: now,
            first_send_time: now,
            lost: 0,
            min_rtt: None,
            resumed_at: None,
            app_limited_until: None,
            cwnd_limited: [false; 2],
            next_round_delivered: 0,
            round: 0,
            unmatched: 0,
        }
    }

    /// Bytes in flight, as near as the hooks allow: exact after each [`end_acks`](Self::end_acks).
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Whether samples are limited by the application for now.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until.is_some()
    }

    /// Packets acknowledged for which there was no record.
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }

    /// Records a transmit of `bytes` built at `sent` that leaves the gate at `send_time`.
    pub fn on_sent(&mut self, sent: Instant, send_time: Instant, bytes: u64, cwnd: u64, smss: u64) {
        if self.in_flight == 0 {
            self.first_send_time = send_time;
            self.delivered_time = send_time;
        }
        let tx_in_flight = self.in_flight + bytes;
        if bytes >= ACK_ONLY_BELOW {
            self.in_flight = tx_in_flight;
        }
        if self.in_flight + smss >= cwnd {
            self.cwnd_limited[0] = true;
        }
        self.forget_old();
        self.records.push_back(Record {
            sent,
            send_time,
            position: self.position,
            bytes,
            acked: 0,
            lost: 0,
            reported: 0,
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            first_send_time: self.first_send_time,
            tx_in_flight,
            lost_at_send: self.lost,
            app_limited: self.app_limited_until.is_some(),
            round: self.round,
        });
        if bytes >= ACK_ONLY_BELOW {
            self.position += bytes;
        }
    }

    /// Takes in that `bytes` of what was sent at `sent` have arrived.
    pub fn on_ack(&mut self, sent: Instant, bytes: u64, app_limited: bool) {
        if self.pending.newly_acked == 0 {
            self.pending.app_limited = app_limited;
        }
        self.pending.newly_acked += bytes;
        let mut rest = bytes;
        let mut index = self.records.partition_point(|record| record.sent < sent);
        let mut found = None;
        while let Some(record) = self.records.get_mut(index).filter(|record| record.sent == sent) {
            let taken = rest.min(record.open());
            if taken > 0 {
                record.acked += taken;
                rest -= taken;
                found = Some(index);
            }
            if rest == 0 {
                break;
            }
            index += 1;
        }
        // Probes of the library's own (path MTU) have no record: the newest older one stands in for the sample.
        if rest > 0 {
            self.unmatched += 1;
        }
        let sampled = found.or_else(|| self.records.partition_point(|record| record.sent <= sent).checked_sub(1));
        if let Some(record) = sampled.and_then(|index| self.records.get(index))
            && self.pending.newest.as_ref().is_none_or(|newest| newest.send_time <= record.send_time)
        {
            self.pending.newest = Some(record.clone());
        }
    }

    /// Ends the acknowledgements of one frame; `None` if nothing was measured.
    ///
    /// `in_flight` is the library's own count after the frame.
    pub fn end_acks(&mut self, now: Instant, in_flight: u64, cwnd: u64, smss: u64) -> Option<AckBatch> {
        self.in_flight = in_flight;
        let pending = std::mem::take(&mut self.pending);
        if pending.newly_acked == 0 {
            return None;
        }
        self.delivered += pending.newly_acked;
        if now.saturating_duration_since(self.delivered_time) >= OUTAGE {
            self.resumed_at = Some(now);
        }
        self.delivered_time = now;
        if self.app_limited_until.is_some_and(|until| self.delivered > until) {
            self.app_limited_until = None;
        }
        let newest = pending.newest?;
        let sample = self.sample(&newest, now, smss);
        self.first_send_time = newest.send_time;
        if pending.app_limited && in_flight + smss < cwnd {
            self.mark_app_limited();
        }
        let round_start = sample.prior_delivered >= self.next_round_delivered;
        let cwnd_limited = self.cwnd_limited[0] || self.cwnd_limited[1];
        if round_start {
            self.next_round_delivered = self.delivered;
            self.round += 1;
            self.cwnd_limited = [false, self.cwnd_limited[0]];
        }
        self.forget_old();
        Some(AckBatch {
            newly_acked: pending.newly_acked,
            in_flight,
            delivered: self.delivered,
            sample,
            round_start,
            round: self.round,
            cwnd_limited,
            hold_lag: Duration::ZERO,
        })
    }

    /// Takes in that `bytes`, the newest of them sent at `sent`, are lost; 0 bytes mean an ECN mark.
    pub fn on_lost(&mut self, now: Instant, sent: Instant, bytes: u64, persistent: bool, smss: u64) -> LossBatch {
        let marked = bytes == 0;
        self.in_flight = self.in_flight.saturating_sub(bytes);
        let end = self.records.partition_point(|record| record.sent <= sent);
        let mut rest = bytes;
        let mut counted = if marked { smss } else { 0 };
        for index in (0..end).rev() {
            if rest == 0 {
                break;
            }
            let record = &mut self.records[index];
            let taken = rest.min(record.open());
            let before = record.counted();
            record.lost += taken;
            rest -= taken;
            let more = record.counted() - before;
            let position = record.position;
            counted += more;
            self.note_lost(position, more, smss);
        }
        if marked && let Some(position) = end.checked_sub(1).map(|index| self.records[index].position) {
            self.note_lost(position, smss, smss);
        }
        self.lost += counted + rest;
        let batch = self.loss_batch(end.checked_sub(1), counted + rest, now, smss);
        self.forget_old();
        LossBatch { persistent, marked, ..batch }
    }

    /// Takes in what a report says did not arrive on the reference path; `None` if all of it is known or too old.
    ///
    /// Nothing leaves the flight: the library knows best whether another copy arrived.
    pub fn on_reported(&mut self, now: Instant, losses: &[HiddenLoss], smss: u64) -> Option<LossBatch> {
        let (mut counted, mut newest) = (0, None);
        for loss in losses {
            let end = self.records.partition_point(|record| record.send_time <= loss.sent_at);
            // The gate's timer may have been late, so a record's time is a bound: the newest with room is it.
            let room = |record: &Record| record.bytes >= ACK_ONLY_BELOW && record.reported < record.bytes;
            let Some(index) = (end.saturating_sub(KEEP)..end).rev().find(|&index| room(&self.records[index])) else {
                continue;
            };
            let record = &mut self.records[index];
            let before = record.counted();
            record.reported = (record.reported + loss.bytes).min(record.bytes);
            let (more, position) = (record.counted() - before, record.position);
            self.note_lost(position, more, smss);
            if more > 0 {
                counted += more;
                newest = newest.max(Some(index));
            }
        }
        self.lost += counted;
        newest.map(|newest| LossBatch { reported: true, ..self.loss_batch(Some(newest), counted, now, smss) })
    }

    fn loss_batch(&self, newest: Option<usize>, bytes: u64, now: Instant, smss: u64) -> LossBatch {
        let newest = newest.and_then(|index| self.records.get(index));
        LossBatch {
            bytes,
            in_flight: self.in_flight,
            delivered: self.delivered,
            lost_since_sent: newest.map_or(bytes, |record| self.lost - record.lost_at_send),
            tx_in_flight: newest.map_or(self.in_flight + bytes, |record| record.tx_in_flight),
            lost_in_flight: newest.map_or(bytes.div_ceil(smss), |record| self.lost_in_flight(record, smss)),
            send_time: newest.map_or(now, |record| record.send_time),
            app_limited: newest.is_some_and(|record| record.app_limited),
            persistent: false,
            marked: false,
            reported: false,
        }
    }

    fn note_lost(&mut self, position: u64, bytes: u64, smss: u64) {
        let datagrams = bytes.div_ceil(smss);
        if datagrams == 0 {
            return;
        }
        // Nearly in the order of sending as they come.
        let at = self.losses.iter().rposition(|lost| lost.position <= position).map_or(0, |index| index + 1);
        self.losses.insert(at, Lost { position, datagrams });
        if self.losses.len() > MOST {
            self.losses.pop_front();
        }
    }

    fn lost_in_flight(&self, newest: &Record, smss: u64) -> u64 {
        let oldest = (newest.position + newest.bytes).saturating_sub(newest.tx_in_flight.max(smss));
        self.losses
            .iter()
            .rev()
            .skip_while(|lost| lost.position > newest.position)
            .take_while(|lost| lost.position >= oldest)
            .map(|lost| lost.datagrams)
            .sum()
    }

    /// Declares everything now in flight limited by the application.
    pub fn mark_app_limited(&mut self) {
        self.app_limited_until = Some((self.delivered + self.in_flight).max(1));
    }

    fn sample(&mut self, newest: &Record, now: Instant, smss: u64) -> RateSample {
        let rtt = now.checked_duration_since(newest.send_time).filter(|rtt| !rtt.is_zero());
        self.min_rtt = [self.min_rtt, rtt].into_iter().flatten().min();
        let send_elapsed = newest.send_time.saturating_duration_since(newest.first_send_time);
        let ack_elapsed = now.saturating_duration_since(newest.delivered_time);
        let interval = send_elapsed.max(ack_elapsed);
        let delivered = self.delivered - newest.delivered;
        // Shorter than the least round trip: the acknowledgements came compressed (section 4.1.2.3).
        let told = !interval.is_zero() && self.min_rtt.is_none_or(|min_rtt| interval >= min_rtt);
        RateSample {
            delivery_rate: told.then(|| (delivered as f64 / interval.as_secs_f64()).round() as u64),
            delivered,
            prior_delivered: newest.delivered,
            lost: self.lost - newest.lost_at_send,
            tx_in_flight: newest.tx_in_flight,
            lost_in_flight: self.lost_in_flight(newest, smss),
            rtt,
            send_time: newest.send_time,
            // What spans an outage tells its length, not the path's rate.
            app_limited: newest.app_limited || self.resumed_at.is_some_and(|at| newest.delivered_time < at),
        }
    }

    /// Drops records older than a few rounds, with their losses; the newest few stay as stand-ins for samples.
    fn forget_old(&mut self) {
        while self.records.len() > KEEP
            && self.records.front().is_some_and(|record| {
                record.bytes < ACK_ONLY_BELOW || record.round + KEEP_ROUNDS < self.round || self.records.len() >= MOST
            })
        {
            self.records.pop_front();
        }
        let oldest = self.records.front().map_or(self.position, |record| record.position);
        while self.losses.front().is_some_and(|lost| lost.position < oldest) {
            self.losses.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
