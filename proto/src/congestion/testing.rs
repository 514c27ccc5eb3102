//! A sender over one link in virtual time, for tests of controllers.
//!
//! The link is a drop-tail queue behind random loss, with a fixed rate and delay. The sender behaves as the QUIC library
//! does: it sends while less than the window is in flight, keeps a built datagram until the gate lets it go, takes a packet
//! for lost once one sent three later is acknowledged, and probes after a silence. Every step checks what must always hold.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::PacedSender;
use super::rate_sample::RateSample;

/// Length of every datagram, in bytes.
pub(super) const SMSS: u64 = 1_200;

pub(super) use crate::testing::start as base;

/// Megabits per second as bytes per second.
pub(super) fn mbit(rate: f64) -> u64 {
    (rate * 125_000.0) as u64
}

/// A sample of a path of 10 Mbit/s and 20 ms, on which nothing was lost.
pub(super) fn sample(now: Instant) -> RateSample {
    RateSample {
        delivery_rate: Some(1_250_000),
        delivered: 12_000,
        prior_delivered: 0,
        lost: 0,
        tx_in_flight: 40 * SMSS,
        lost_in_flight: 0,
        rtt: Some(Duration::from_millis(20)),
        send_time: now,
        app_limited: false,
    }
}

/// What the link does; may be changed while it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Bytes per second.
    pub(super) rate: u64,
    /// Round trip without a queue.
    pub(super) rtt: Duration,
    /// Bytes the queue holds.
    pub(super) queue: u64,
    /// Instead of a queue, what comes faster than the rate is dropped, bar bursts of so many bytes.
    pub(super) policer: Option<u64>,
    /// Probability that a datagram is lost before the queue.
    pub(super) loss: f64,
    /// Acknowledgements wait until this time since the start.
    pub(super) acks_wait_until: Duration,
    /// Acknowledgements come only at multiples of this since the start, all at once; zero for each by itself.
    pub(super) acks_come_every: Duration,
}

impl Link {
    /// 100 Mbit/s, 10 ms, a queue of one bandwidth-delay product, no loss.
    pub(super) fn standard() -> Link {
        Link {
            rate: mbit(100.0),
            rtt: Duration::from_millis(10),
            queue: 125_000,
            policer: None,
            loss: 0.0,
            acks_wait_until: Duration::ZERO,
            acks_come_every: Duration::ZERO,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    number: u64,
    sent: Instant,
    /// When its acknowledgement arrives; `None` if the link lost it.
    acked_at: Option<Instant>,
}

/// One flow over one link.
pub(super) struct Flow {
    pub(super) sender: PacedSender,
    pub(super) link: Link,
    /// Bytes per second that the application offers; `None` for as much as goes.
    pub(super) offered: Option<u64>,
    /// Most datagrams of one transmit, as far as the quantum allows.
    pub(super) batch: u64,
    /// How late the timer of the gate is.
    pub(super) timer_late: Duration,
    pub(super) delivered: u64,
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// The longest that a datagram of the last run waited in the queue.
    pub(super) longest_wait: Duration,
    /// How long each datagram waited, if asked for.
    pub(super) waits: Option<Vec<Duration>>,
    start: Instant,
    now: Instant,
    backlog: f64,
    offered_until: Instant,
    gate: Instant,
    link_free_at: Instant,
    tokens: (f64, Instant),
    outstanding: VecDeque<Packet>,
    next_number: u64,
    largest_acked: Option<u64>,
    app_limited: bool,
    last_release: Option<Instant>,
    last_heard: Instant,
    random: Pcg32,
}

impl Flow {
    pub(super) fn new(make: impl FnOnce(Instant) -> PacedSender, link: Link, seed: u64) -> Flow {
        let start = base();
        Flow {
            sender: make(start),
            link,
            offered: None,
            batch: 1,
            timer_late: Duration::ZERO,
            delivered: 0,
            sent: 0,
            lost: 0,
            longest_wait: Duration::ZERO,
            waits: None,
            start,
            now: start,
            backlog: 0.0,
            offered_until: start,
            gate: start,
            link_free_at: start,
            tokens: (f64::MAX, start),
            outstanding: VecDeque::new(),
            next_number: 0,
            largest_acked: None,
            app_limited: false,
            last_release: None,
            last_heard: start,
            random: Pcg32::seed_from_u64(seed),
        }
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Runs for `time` and answers the rate of delivery meanwhile, in Mbit/s.
    pub(super) fn run(&mut self, time: Duration) -> f64 {
        self.run_observing(time, |_| {})
    }

    /// The same, and calls `observe` after every step.
    pub(super) fn run_observing(&mut self, time: Duration, mut observe: impl FnMut(&Flow)) -> f64 {
        let end = self.now + time;
        let before = self.delivered;
        self.longest_wait = Duration::ZERO;
        while self.now < end {
            self.step(end);
            self.check();
            observe(self);
        }
        (self.delivered - before) as f64 * 8e-6 / time.as_secs_f64()
    }

    /// Runs for `time` and answers the phases in the order in which they were entered, with the time of entry.
    pub(super) fn phases(&mut self, time: Duration) -> Vec<(&'static str, Duration)> {
        let mut seen: Vec<(&'static str, Duration)> = Vec::new();
        self.run_observing(time, |flow| {
            let phase = flow.sender.metrics().phase;
            if seen.last().is_none_or(|&(last, _)| last != phase) {
                seen.push((phase, flow.elapsed()));
            }
        });
        seen
    }

    /// What the controller takes for the path's bandwidth, in Mbit/s.
    pub(super) fn bandwidth(&self) -> f64 {
        self.sender.metrics().bandwidth.unwrap_or(0) as f64 * 8e-6
    }

    fn in_flight(&self) -> u64 {
        self.outstanding.len() as u64 * SMSS
    }

    fn step(&mut self, end: Instant) {
        self.offer();
        let ready = self.backlog >= SMSS as f64;
        // The library: `in_flight + next >= window` blocks, and the adapter's window is one more than the controller's.
        let window = self.in_flight() + SMSS <= self.sender.control().cwnd;
        if window && ready && self.now >= self.gate {
            self.send();
            return;
        }
        self.app_limited = window && !ready;
        let next_ack = self.outstanding.iter().find_map(|packet| packet.acked_at);
        let silence = self.last_heard + self.link.rtt * 3 + Duration::from_millis(200);
        let timeout = (!self.outstanding.is_empty() && next_ack.is_none()).then_some(silence);
        let next_send = window.then(|| if ready { self.gate } else { self.next_offer() });
        let next = [next_ack, timeout, next_send].into_iter().flatten().min().unwrap_or(end).clamp(self.now, end);
        self.now = next;
        if next_ack.is_some_and(|at| at <= next) {
            self.acknowledge();
        } else if timeout.is_some_and(|at| at <= next) {
            self.lose_all();
        }
    }

    fn offer(&mut self) {
        match self.offered {
            None => self.backlog = f64::MAX,
            Some(rate) => {
                if self.backlog == f64::MAX {
                    self.backlog = 0.0;
                }
                self.backlog += rate as f64 * (self.now - self.offered_until).as_secs_f64();
            }
        }
        self.offered_until = self.now;
    }

    fn next_offer(&self) -> Instant {
        let missing = SMSS as f64 - self.backlog;
        let rate = self.offered.map_or(f64::MAX, |rate| rate as f64).max(1.0);
        self.now + Duration::from_secs_f64(missing / rate) + Duration::from_nanos(1)
    }

    fn send(&mut self) {
        let control = self.sender.control();
        let room = (control.cwnd - self.in_flight()) / SMSS;
        let ready = (self.backlog / SMSS as f64) as u64;
        let count = self.batch.min(control.send_quantum / SMSS).min(room).min(ready).max(1);
        if self.backlog != f64::MAX {
            self.backlog -= (count * SMSS) as f64;
        }
        let release = self.sender.sent(self.now, count * SMSS);
        assert!(self.last_release.is_none_or(|last| last <= release.at), "release times never decrease");
        assert!(release.departure >= self.now);
        self.last_release = Some(release.at);
        self.gate = release.departure;
        if release.departure > self.now {
            self.gate += self.timer_late;
        }
        for _ in 0..count {
            let acked_at = self.through_the_link();
            self.outstanding.push_back(Packet { number: self.next_number, sent: self.now, acked_at });
            self.next_number += 1;
            self.sent += SMSS;
        }
    }

    /// When the acknowledgement of a datagram that leaves the gate comes back; `None` if the link loses it.
    fn through_the_link(&mut self) -> Option<Instant> {
        let random_loss = f64::from(self.random.next_u32()) < self.link.loss * 2f64.powi(32);
        let queued = self.link_free_at.saturating_duration_since(self.gate);
        if random_loss || queued.as_secs_f64() * self.link.rate as f64 > self.link.queue as f64 {
            return None;
        }
        if let Some(burst) = self.link.policer {
            let since = self.gate.saturating_duration_since(self.tokens.1).as_secs_f64();
            let tokens = (self.tokens.0 + since * self.link.rate as f64).min(burst as f64);
            let passes = tokens >= SMSS as f64;
            self.tokens = (if passes { tokens - SMSS as f64 } else { tokens }, self.gate.max(self.tokens.1));
            return passes.then_some(self.gate + self.link.rtt);
        }
        self.longest_wait = self.longest_wait.max(queued);
        if let Some(waits) = &mut self.waits {
            waits.push(queued);
        }
        let serialized = Duration::from_secs_f64(SMSS as f64 / self.link.rate as f64);
        self.link_free_at = self.link_free_at.max(self.gate) + serialized;
        let since_start = (self.link_free_at + self.link.rtt - self.start).max(self.link.acks_wait_until);
        let every = self.link.acks_come_every.as_nanos().max(1) as u64;
        Some(self.start + Duration::from_nanos((since_start.as_nanos() as u64).div_ceil(every) * every))
    }

    /// Everything whose acknowledgement has arrived comes in one frame; then what that shows to be lost.
    fn acknowledge(&mut self) {
        self.last_heard = self.now;
        let now = self.now;
        let (sender, app_limited) = (&mut self.sender, self.app_limited);
        let (delivered, largest) = (&mut self.delivered, &mut self.largest_acked);
        let mut past = false;
        self.outstanding.retain(|packet| {
            // Arrivals are in order: behind the first that is not yet there, none is.
            past |= packet.acked_at.is_some_and(|at| at > now);
            if past || packet.acked_at.is_none() {
                return true;
            }
            sender.acked(packet.sent, SMSS, app_limited);
            *delivered += SMSS;
            *largest = Some(packet.number);
            false
        });
        let lost = self
            .outstanding
            .iter()
            .take_while(|packet| self.largest_acked.is_some_and(|largest| packet.number + 3 <= largest))
            .count();
        let after_acks = self.in_flight();
        self.sender.end_acks(now, after_acks, Duration::ZERO);
        self.lose(lost);
    }

    fn lose_all(&mut self) {
        self.last_heard = self.now;
        self.lose(self.outstanding.len());
    }

    fn lose(&mut self, count: usize) {
        let Some(newest) = self.outstanding.drain(..count).next_back() else { return };
        self.lost += count as u64 * SMSS;
        self.sender.lost(self.now, newest.sent, count as u64 * SMSS, false);
    }

    fn check(&self) {
        let control = self.sender.control();
        assert!(control.cwnd >= 4 * SMSS, "window {} at {:?}", control.cwnd, self.elapsed());
        assert!(control.pacing_rate > 0);
        assert!(control.send_quantum >= SMSS && control.send_quantum <= 64_000);
    }
}
