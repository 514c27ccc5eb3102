//! What the sending end of a TCP flow knows, and the map that tells it what arrived; without I/O.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::cubic::Cubic;

/// Bytes of an acknowledgement's map, its first bit the newest transmission that arrived.
pub(super) const MAP: usize = 64;

/// The same while it is kept.
pub(super) type Map = [u64; MAP / 8];

/// So many later transmissions must have arrived before one is lost.
const REORDERING: u64 = 3;

const LEAST_TIMEOUT: Duration = Duration::from_millis(200);
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// Notes the arrival of a number in a map whose first bit is the newest.
pub(super) fn note(map: &mut Map, newest: &mut Option<u64>, number: u64) {
    let shift = number.saturating_sub(newest.unwrap_or(0));
    for _ in 0..shift.min(8 * MAP as u64) {
        let mut carry = 0;
        for word in map.iter_mut() {
            (*word, carry) = ((*word << 1) | carry, *word >> 63);
        }
    }
    let top = newest.map_or(number, |newest| newest.max(number));
    *newest = Some(top);
    let bit = (top - number) as usize;
    if let Some(word) = map.get_mut(bit / 64) {
        *word |= 1 << (bit % 64);
    }
}

/// A map as it travels.
pub(super) fn bytes(map: &Map) -> [u8; MAP] {
    let mut bytes = [0; MAP];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(map) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// One transmission under way.
#[derive(Debug)]
struct Sent {
    at: Instant,
    /// Arrived, or known to be lost.
    settled: bool,
}

/// What the sending end knows.
#[derive(Debug)]
pub(super) struct Sender {
    window: Cubic,
    /// Transmissions from number `first` on.
    sent: VecDeque<Sent>,
    first: u64,
    /// Those of them that are neither known to have arrived nor to be lost.
    under_way: u64,
    newest_acked: Option<u64>,
    /// A loss before this number is part of a reduction that was made.
    recovery_until: u64,
    srtt: Option<Duration>,
    variation: Duration,
    heard_at: Instant,
    backoff: u32,
}

impl Sender {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            window: Cubic::new(),
            sent: VecDeque::new(),
            first: 0,
            under_way: 0,
            newest_acked: None,
            recovery_until: 0,
            srtt: None,
            variation: Duration::ZERO,
            heard_at: now,
            backoff: 0,
        }
    }

    fn next_number(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// The number of the segment to send now, if the window lets one go.
    pub(super) fn next_segment(&mut self, now: Instant) -> Option<u64> {
        if self.under_way as f64 + 1.0 > self.window.cwnd() {
            return None;
        }
        if self.under_way == 0 {
            self.heard_at = now;
        }
        let number = self.next_number();
        self.sent.push_back(Sent { at: now, settled: false });
        self.under_way += 1;
        Some(number)
    }

    /// Takes in which transmissions up to `newest` arrived.
    pub(super) fn on_ack(&mut self, newest: u64, map: &[u8], now: Instant) {
        if newest >= self.next_number() {
            return;
        }
        self.heard_at = now;
        self.backoff = 0;
        let known = self.newest_acked;
        self.newest_acked = known.max(Some(newest));
        let arrived = |number: u64| {
            let bit = newest.checked_sub(number).map(|bit| bit as usize);
            bit.is_some_and(|bit| map.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0))
        };
        let (mut acked, mut lost) = (0u32, false);
        for (number, sent) in (self.first..).zip(&mut self.sent).take_while(|(number, _)| *number <= newest) {
            if sent.settled {
                continue;
            }
            if arrived(number) {
                sent.settled = true;
                acked += 1;
            } else if number + REORDERING <= newest {
                sent.settled = true;
                self.under_way -= 1;
                lost |= number >= self.recovery_until;
            }
        }
        self.under_way -= u64::from(acked);
        if known.is_none_or(|known| known < newest)
            && let Some(index) = newest.checked_sub(self.first)
            && let Some(at) = self.sent.get(index as usize).map(|sent| sent.at)
        {
            self.measured(now - at);
        }
        while self.sent.front().is_some_and(|sent| sent.settled) {
            self.sent.pop_front();
            self.first += 1;
        }
        if lost {
            self.window.on_loss();
            self.recovery_until = self.next_number();
        } else if newest >= self.recovery_until
            && let Some(srtt) = self.srtt
        {
            self.window.on_acked(f64::from(acked), srtt, now);
        }
    }

    /// RFC 6298, section 2.
    fn measured(&mut self, rtt: Duration) {
        let srtt = *self.srtt.get_or_insert_with(|| {
            self.variation = rtt / 2;
            rtt
        });
        self.variation = (3 * self.variation + srtt.abs_diff(rtt)) / 4;
        self.srtt = Some((7 * srtt + rtt) / 8);
    }

    pub(super) fn timeout_at(&self) -> Instant {
        let timeout = self.srtt.map_or(FIRST_TIMEOUT, |srtt| srtt + (4 * self.variation).max(LEAST_TIMEOUT));
        self.heard_at + timeout * 2u32.pow(self.backoff.min(6))
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.heard_at = now;
        self.backoff += 1;
        self.first = self.next_number();
        self.sent.clear();
        self.under_way = 0;
        self.recovery_until = self.first;
        self.window.on_timeout();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map in which these of the last transmissions are missing, counted from the newest.
    fn map_without(missing: &[usize]) -> [u8; MAP] {
        let mut map = [0xff; MAP];
        missing.iter().for_each(|bit| map[bit / 8] &= !(1 << (bit % 8)));
        map
    }

    #[test]
    fn three_later_arrivals_tell_of_a_loss_and_a_window_reacts_once() {
        let start = Instant::now();
        let later = start + Duration::from_millis(10);
        let mut sender = Sender::new(start);
        assert_eq!((0..20).filter_map(|_| sender.next_segment(start)).count(), 10);
        sender.on_ack(2, &map_without(&[2]), later);
        assert_eq!(sender.window.cwnd(), 12.0, "the first may yet arrive");
        sender.on_ack(5, &map_without(&[2, 5]), later);
        assert_eq!(
            (sender.window.cwnd(), sender.under_way),
            (12.0 * 0.7, 5),
            "the first is lost, the fourth may arrive"
        );
        sender.on_ack(9, &map_without(&[6, 9]), later);
        assert_eq!((sender.window.cwnd(), sender.under_way), (12.0 * 0.7, 0), "the same window");
    }

    #[test]
    fn a_map_tells_what_arrived_in_whatever_order() {
        let (mut map, mut newest) = ([0; MAP / 8], None);
        for number in [0, 1, 3, 70, 2] {
            note(&mut map, &mut newest, number);
        }
        assert_eq!(newest, Some(70));
        assert_eq!((map[0], map[1]), (1, 0b111_1000));
    }

    #[test]
    fn a_silence_ends_what_was_under_way() {
        let start = Instant::now();
        let mut sender = Sender::new(start);
        while sender.next_segment(start).is_some() {}
        assert_eq!(sender.timeout_at(), start + FIRST_TIMEOUT);
        sender.on_timeout(start + FIRST_TIMEOUT);
        assert_eq!(sender.next_segment(start + FIRST_TIMEOUT), Some(10));
        assert_eq!(sender.next_segment(start + FIRST_TIMEOUT), None);
        assert_eq!(sender.timeout_at(), start + 3 * FIRST_TIMEOUT);
    }
}
