//! Relay: who may use the measuring service by plain TCP.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::wire::flow::TICKET_LEN;

/// Tickets that wait for their use; beyond these the oldest is forgotten.
pub const MOST_TICKETS: usize = 256;

/// How long a ticket may be used.
pub const TICKET_LIFE: Duration = Duration::from_secs(60);

/// The tickets that were handed out, each good for one connection.
#[derive(Debug, Default)]
pub struct Tickets {
    /// In the order of their end.
    waiting: VecDeque<([u8; TICKET_LEN], Instant)>,
}

impl Tickets {
    /// Takes up a ticket that was drawn at random, until [`TICKET_LIFE`] after `now`.
    pub fn issue(&mut self, ticket: [u8; TICKET_LEN], now: Instant) {
        self.forget(now);
        if self.waiting.len() >= MOST_TICKETS {
            self.waiting.pop_front();
        }
        self.waiting.push_back((ticket, now + TICKET_LIFE));
    }

    /// Uses a ticket up; whether it was good.
    pub fn redeem(&mut self, ticket: &[u8; TICKET_LEN], now: Instant) -> bool {
        self.forget(now);
        // Tickets are drawn at random and used once, so how long the search takes tells nothing of use.
        match self.waiting.iter().position(|(waiting, _)| waiting == ticket) {
            Some(at) => self.waiting.remove(at).is_some(),
            None => false,
        }
    }

    fn forget(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|(_, end)| *end <= now) {
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    #[test]
    fn a_ticket_is_good_once_and_for_a_minute() {
        let (mut tickets, now) = (Tickets::default(), start());
        tickets.issue([1; 16], now);
        tickets.issue([2; 16], now);
        assert!(!tickets.redeem(&[3; 16], now));
        assert!(tickets.redeem(&[1; 16], now) && !tickets.redeem(&[1; 16], now));
        assert!(!tickets.redeem(&[2; 16], now + TICKET_LIFE));
    }

    #[test]
    fn there_are_never_more_than_a_few() {
        let (mut tickets, now) = (Tickets::default(), start());
        for number in 0..=MOST_TICKETS {
            let mut ticket = [0; 16];
            ticket[..8].copy_from_slice(&(number as u64).to_be_bytes());
            tickets.issue(ticket, now);
        }
        assert_eq!(tickets.waiting.len(), MOST_TICKETS);
        assert!(!tickets.redeem(&[0; 16], now), "the oldest is forgotten");
    }
}
