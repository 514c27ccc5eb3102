//! Someone on the wire who sends what they like: garbage, replays, forgeries.
//!
//! The attacker sees every datagram of one direction of a line and sends at a steady rate, in turn: random bytes
//! (half of them the length of a datagram just seen), an exact replay, and a datagram just seen with some bytes changed,
//! most often near its end or its beginning, where numbers, tags and headers are.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tokio::time::Instant;

/// How many datagrams the attacker remembers.
const MEMORY: usize = 256;

/// The longest datagram of random bytes, when no length is copied.
const LONGEST_GARBAGE: usize = 1_500;

/// How an attacker behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hostility {
    /// Time between two datagrams of the attacker; 120 µs is about 100 Mbit/s of full ones.
    pub interval: Duration,
    /// Where the attacker listens.
    pub vantage: Vantage,
    /// Where the attacker's chance comes from.
    pub seed: u64,
}

/// Where on a line an attacker listens. What the attacker sends always arrives at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vantage {
    /// Where datagrams enter: replays and forgeries overtake what they were made from.
    Entrance,
    /// Where datagrams leave: replays and forgeries come after what they were made from.
    Exit,
}

#[derive(Debug)]
pub(super) struct Attacker {
    pub(super) vantage: Vantage,
    interval: Duration,
    chance: Pcg64,
    seen: VecDeque<Bytes>,
    next: Instant,
    sent: u64,
}

impl Attacker {
    pub(super) fn new(hostility: Hostility, now: Instant) -> Self {
        // No interval would be an endless number at one instant.
        let interval = hostility.interval.max(Duration::from_micros(1));
        let chance = Pcg64::seed_from_u64(hostility.seed);
        Self { vantage: hostility.vantage, interval, chance, seen: VecDeque::new(), next: now, sent: 0 }
    }

    /// Remembers a datagram.
    pub(super) fn see(&mut self, contents: &Bytes) {
        if self.seen.len() == MEMORY {
            self.seen.pop_front();
        }
        self.seen.push_back(contents.clone());
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.next
    }

    /// The next datagram, if it is time for one.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Bytes> {
        if self.next > now {
            return None;
        }
        self.next += self.interval;
        let contents = match self.sent % 3 {
            0 => self.garbage(),
            1 => self.remembered().unwrap_or_else(|| self.garbage()),
            _ => self.changed(),
        };
        self.sent += 1;
        Some(contents)
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    fn garbage(&mut self) -> Bytes {
        let length = match self.remembered() {
            Some(seen) if self.chance.random_bool(0.5) => seen.len(),
            _ => self.chance.random_range(1..=LONGEST_GARBAGE),
        };
        let mut contents = BytesMut::zeroed(length);
        self.chance.fill(&mut contents[..]);
        contents.freeze()
    }

    fn remembered(&mut self) -> Option<Bytes> {
        if self.seen.is_empty() {
            return None;
        }
        let index = self.chance.random_range(0..self.seen.len());
        self.seen.get(index).cloned()
    }

    fn changed(&mut self) -> Bytes {
        let Some(original) = self.remembered().filter(|original| !original.is_empty()) else {
            return self.garbage();
        };
        let mut contents = BytesMut::from(&original[..]);
        let edge = contents.len().min(24);
        for _ in 0..self.chance.random_range(1..=4) {
            let place = match self.chance.random_range(0..3) {
                0 => self.chance.random_range(0..edge),
                1 => contents.len() - 1 - self.chance.random_range(0..edge),
                _ => self.chance.random_range(0..contents.len()),
            };
            contents[place] ^= self.chance.random_range(1..=u8::MAX);
        }
        contents.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attacker(seed: u64) -> Attacker {
        let hostility = Hostility { interval: Duration::from_micros(100), vantage: Vantage::Exit, seed };
        Attacker::new(hostility, Instant::now())
    }

    #[test]
    fn an_attacker_keeps_the_rate_and_repeats_it_from_the_seed() {
        let run = |seed| {
            let mut attacker = attacker(seed);
            attacker.see(&Bytes::from_static(b"a datagram that was seen"));
            let end = attacker.poll_timeout() + Duration::from_millis(1);
            std::iter::from_fn(|| attacker.poll(end)).collect::<Vec<_>>()
        };
        assert_eq!(run(1).len(), 11);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn replays_are_exact_and_forgeries_are_not() {
        let mut attacker = attacker(3);
        let seen = Bytes::from_static(b"a datagram that was seen");
        attacker.see(&seen);
        let late = attacker.poll_timeout() + Duration::from_secs(1);
        for _ in 0..100 {
            let garbage = attacker.poll(late).unwrap();
            let replay = attacker.poll(late).unwrap();
            let forgery = attacker.poll(late).unwrap();
            assert!(!garbage.is_empty());
            assert_eq!(replay, seen);
            assert_eq!(forgery.len(), seen.len());
        }
    }

    #[test]
    fn an_attacker_who_has_seen_nothing_sends_garbage() {
        let mut attacker = attacker(4);
        let late = attacker.poll_timeout() + Duration::from_secs(1);
        assert!((0..30).all(|_| attacker.poll(late).is_some()));
    }
}
