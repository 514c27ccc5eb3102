//! One direction of a link, as a state machine.
//!
//! A packet is offered with [`Link::enqueue`] and passes these stages:
//! 1. the entrance: dropped in an outage, if larger than the MTU, or by chance (loss before the queue);
//! 2. the queue: drop-tail by bytes, emptied at the rate, one packet at a time. How long a packet takes is computed to
//!    the fraction of a nanosecond, so that the long-run rate is exact however late the caller looks;
//! 3. the way: dropped in an outage or by chance (loss behind the queue), else delayed, perhaps held back or doubled;
//! 4. [`Link::poll`] hands it out when its time has come, [`Link::poll_timeout`] tells when to look next.
//!
//! Everything happens in model time: a caller that comes late finds the packets as they would have arrived. Time passed
//! in must not run backwards; an earlier time counts as the latest one seen. Packets are moved, never copied, except for a
//! duplicate's clone; nothing allocates once the queues have grown to their size.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::bitrate::Bitrate;
use crate::chance::Chances;
use crate::config::{ConfigError, IP_UDP_HEADERS, LinkConfig, validate_mtu, validate_rate};
use crate::delay::{JitterProcess, Order};
use crate::loss::{Loss, LossPlace, LossProcess};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// What travels over a link.
pub trait Packet: Clone {
    /// The length of the UDP payload in bytes.
    fn payload_bytes(&self) -> usize;
}

impl Packet for Bytes {
    fn payload_bytes(&self) -> usize {
        self.len()
    }
}

impl Packet for Vec<u8> {
    fn payload_bytes(&self) -> usize {
        self.len()
    }
}

/// What has happened to packets so far.
///
/// `offered + duplicated = delivered + lost + queue_dropped + outage_dropped + mtu_dropped + inside`, where `inside` is
/// [`Link::inside`]. A packet that several reasons would drop counts for the first in the order outage, MTU, loss, queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets passed to [`Link::enqueue`].
    pub offered: u64,
    /// The bytes of UDP payload in `offered`.
    pub offered_bytes: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub queue_dropped: u64,
    /// Packets dropped while the link was cut or in an outage.
    pub outage_dropped: u64,
    /// Packets dropped because they were larger than the MTU.
    pub mtu_dropped: u64,
    /// Copies made by duplication.
    pub duplicated: u64,
    /// Packets handed out by [`Link::poll`], copies included.
    pub delivered: u64,
    /// The bytes of UDP payload in `delivered`.
    pub delivered_bytes: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Link<T> {
    config: LinkConfig,
    made: Instant,
    /// The latest time seen.
    now: Instant,
    cut: bool,
    chances: Chances,
    loss: LossProcess,
    jitter: JitterProcess,
    /// Packets behind the one being sent, and their bytes with overhead.
    waiting: VecDeque<T>,
    waiting_bytes: u64,
    sending: Option<Sending<T>>,
    /// What the last packet's time was rounded down by, in bits times 10^-9 s; below the rate in bit/s.
    remainder: u128,
    /// Packets under way, sorted by the time they are due, equal times in the order of departure.
    under_way: VecDeque<UnderWay<T>>,
    /// The latest due time among packets that keep order.
    last_due: Instant,
    counters: Counters,
}

#[derive(Debug)]
struct Sending<T> {
    packet: T,
    done: Instant,
}

#[derive(Debug)]
struct UnderWay<T> {
    packet: T,
    due: Instant,
}

impl<T: Packet> Link<T> {
    /// Makes an empty link; its schedule of outages begins now.
    ///
    /// # Errors
    /// Refuses a configuration with a value out of its range.
    pub fn new(config: LinkConfig, now: Instant) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            chances: Chances::from_seed(config.seed),
            config,
            made: now,
            now,
            cut: false,
            loss: LossProcess::default(),
            jitter: JitterProcess::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sending: None,
            remainder: 0,
            under_way: VecDeque::new(),
            last_due: now,
            counters: Counters::default(),
        })
    }

    /// Offers a packet to the link. What becomes of it is seen in [`poll`](Self::poll) and [`counters`](Self::counters).
    pub fn enqueue(&mut self, now: Instant, packet: T) {
        self.advance(now);
        let payload = packet.payload_bytes() as u64;
        self.counters.offered += 1;
        self.counters.offered_bytes += payload;
        // Drawn first, so that the n-th packet offered has the same luck whatever else the link does.
        let unlucky = self.config.loss_place == LossPlace::BeforeQueue
            && self.loss.loses_next(self.config.loss, &mut self.chances.loss);
        if self.is_dark(self.now) {
            self.counters.outage_dropped += 1;
        } else if self.config.mtu.is_some_and(|mtu| payload + u64::from(IP_UDP_HEADERS) > u64::from(mtu)) {
            self.counters.mtu_dropped += 1;
        } else if unlucky {
            self.counters.lost += 1;
        } else if self.config.rate.is_none() {
            self.depart(self.now, packet);
        } else if self.sending.is_none() {
            self.remainder = 0;
            self.send(self.now, packet);
        } else {
            let bytes = self.bytes_on_wire(&packet);
            if self.waiting_bytes + bytes > self.config.queue_bytes {
                self.counters.queue_dropped += 1;
            } else {
                self.waiting_bytes += bytes;
                self.waiting.push_back(packet);
            }
        }
    }

    /// Hands out the next packet that has arrived by now, in order of arrival.
    pub fn poll(&mut self, now: Instant) -> Option<T> {
        self.advance(now);
        if self.under_way.front()?.due > self.now {
            return None;
        }
        let packet = self.under_way.pop_front()?.packet;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.payload_bytes() as u64;
        Some(packet)
    }

    /// When [`poll`](Self::poll) should be asked next; `None` while the link is empty.
    ///
    /// No packet arrives before; sometimes none arrives then either, and the next time is known after a `poll`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.under_way.front().map(|first| first.due);
        let done = self.sending.as_ref().map(|sending| sending.done);
        match (due, done) {
            // Nothing now being sent can overtake what is under way.
            (Some(due), _) if !self.may_overtake() => Some(due),
            (Some(due), Some(done)) => Some(due.min(done)),
            (due, done) => due.or(done),
        }
    }

    /// How long a packet offered now would wait until it begins to be sent.
    pub fn queue_delay(&mut self, now: Instant) -> Duration {
        self.advance(now);
        let Some((sending, rate)) = self.sending.as_ref().zip(self.config.rate) else {
            return Duration::ZERO;
        };
        let work = u128::from(self.waiting_bytes) * 8 * NANOS_PER_SECOND;
        sending.done.saturating_duration_since(self.now) + nanoseconds(work / rate_of(rate))
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Packets that have entered and not yet left, copies included.
    pub fn inside(&self) -> usize {
        self.waiting.len() + usize::from(self.sending.is_some()) + self.under_way.len()
    }

    /// The configuration as it is now, with all changes made since.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the rate. What is queued leaves at the new one, the rest of the packet being sent too.
    ///
    /// # Errors
    /// Refuses a rate of zero and changes nothing.
    pub fn set_rate(&mut self, now: Instant, rate: Option<Bitrate>) -> Result<(), ConfigError> {
        validate_rate(rate)?;
        self.advance(now);
        let before = std::mem::replace(&mut self.config.rate, rate);
        match (rate, before) {
            (Some(rate), Some(before)) => {
                if let Some(sending) = &mut self.sending {
                    let left = sending.done.saturating_duration_since(self.now).as_nanos();
                    let work = left * rate_of(before) + self.remainder;
                    sending.done = self.now + nanoseconds(work / rate_of(rate));
                    self.remainder = work % rate_of(rate);
                }
            }
            _ => {
                // Without a rate nothing queues: all that waited departs now. (Before there was one nothing waited.)
                if let Some(sending) = self.sending.take() {
                    self.depart(self.now, sending.packet);
                }
                while let Some(packet) = self.waiting.pop_front() {
                    self.depart(self.now, packet);
                }
                self.waiting_bytes = 0;
            }
        }
        Ok(())
    }

    /// Changes the delay of packets that have not left the queue.
    ///
    /// # Errors
    /// Refuses a delay beyond ten minutes and changes nothing.
    pub fn set_delay(&mut self, now: Instant, delay: Duration) -> Result<(), ConfigError> {
        ConfigError::check_time("delay", delay)?;
        self.advance(now);
        self.config.delay = delay;
        Ok(())
    }

    /// Changes the largest packet that passes. What has entered goes on.
    ///
    /// # Errors
    /// Refuses an MTU that no IP network has and changes nothing.
    pub fn set_mtu(&mut self, now: Instant, mtu: Option<u32>) -> Result<(), ConfigError> {
        validate_mtu(mtu)?;
        self.advance(now);
        self.config.mtu = mtu;
        Ok(())
    }

    /// Changes which packets are lost.
    ///
    /// # Errors
    /// Refuses a probability outside 0 to 1 and changes nothing.
    pub fn set_loss(&mut self, now: Instant, loss: Loss) -> Result<(), ConfigError> {
        loss.validate()?;
        self.advance(now);
        self.config.loss = loss;
        Ok(())
    }

    /// Changes everything but the seed, the overhead and the time from which outages count: the chances go on where they
    /// were. What is queued or under way stays, even if the new queue is shorter.
    ///
    /// # Errors
    /// Refuses a configuration with a value out of its range and changes nothing.
    pub fn set_config(&mut self, now: Instant, config: LinkConfig) -> Result<(), ConfigError> {
        config.validate()?;
        self.set_rate(now, config.rate)?;
        let LinkConfig { seed, overhead_bytes, .. } = self.config;
        self.config = LinkConfig { seed, overhead_bytes, ..config };
        Ok(())
    }

    /// Cuts the link until [`restore`](Self::restore): what is offered or leaves the queue is dropped in silence.
    pub fn cut(&mut self, now: Instant) {
        self.advance(now);
        self.cut = true;
    }

    /// Ends a [`cut`](Self::cut). Scheduled outages stay as they are.
    pub fn restore(&mut self, now: Instant) {
        self.advance(now);
        self.cut = false;
    }

    /// Brings the queue to the time given.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(Sending { packet, done }) = self.sending.take_if(|sending| sending.done <= self.now) {
            self.depart(done, packet);
            if let Some(next) = self.waiting.pop_front() {
                self.waiting_bytes -= self.bytes_on_wire(&next);
                self.send(done, next);
            }
        }
    }

    /// Begins to send a packet at `start`.
    fn send(&mut self, start: Instant, packet: T) {
        // Only a link with a rate sends; if the rate were gone the packet would take no time.
        let rate = self.config.rate.map_or(u128::MAX, rate_of);
        let work = u128::from(self.bytes_on_wire(&packet)) * 8 * NANOS_PER_SECOND + self.remainder;
        self.remainder = work % rate;
        let done = start + nanoseconds(work / rate);
        self.sending = Some(Sending { packet, done });
    }

    /// Sends a packet on its way at `at`, the moment its last bit left the queue.
    fn depart(&mut self, at: Instant, packet: T) {
        let unlucky = self.config.loss_place == LossPlace::AfterQueue
            && self.loss.loses_next(self.config.loss, &mut self.chances.loss);
        let LinkConfig { delay, jitter, .. } = self.config;
        let delay = self.jitter.delay_at(at, delay, jitter, &mut self.chances.jitter);
        let extra = self.config.reorder.next_extra(&mut self.chances.reorder);
        let twice = self.chances.duplicate.happens(self.config.duplicate_share);
        if self.is_dark(at) {
            self.counters.outage_dropped += 1;
            return;
        }
        if unlucky {
            self.counters.lost += 1;
            return;
        }
        let mut due = at + delay;
        if jitter.order == Order::Kept {
            due = due.max(self.last_due);
            // A packet held back keeps its place for nobody: those behind it pass.
            self.last_due = due;
        }
        due += extra.unwrap_or_default();
        // Packets mostly come in order, so that this is mostly the end.
        let place = self.under_way.partition_point(|other| other.due <= due);
        if twice {
            self.counters.duplicated += 1;
            let packet = packet.clone();
            self.under_way.insert(place, UnderWay { packet, due });
        }
        self.under_way.insert(place, UnderWay { packet, due });
    }

    fn bytes_on_wire(&self, packet: &T) -> u64 {
        packet.payload_bytes() as u64 + u64::from(self.config.overhead_bytes)
    }

    fn is_dark(&self, at: Instant) -> bool {
        self.cut || self.config.outages.covers(at.saturating_duration_since(self.made))
    }

    fn may_overtake(&self) -> bool {
        self.config.jitter.order == Order::Free || self.config.reorder.share > 0.0
    }
}

/// A rate as a divisor; validation keeps it above zero.
fn rate_of(rate: Bitrate) -> u128 {
    u128::from(rate.bits_per_second().max(1))
}

fn nanoseconds(count: u128) -> Duration {
    // The longest packet at 1 bit/s takes under 10^15 ns, a full queue of 2^64 bytes at 1 bit/s is not a time anyone waits.
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
