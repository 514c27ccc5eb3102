//! Bicasting of plain TCP, which cannot do it itself: its packets travel over every network, and the far end of the links
//! hands on the first copy of each.
//!
//! That is what switches with group tables do for the baseline that bicasting is compared with. Copies are told by a number
//! of the router's own, not by what is in them: a retransmission is a packet of its own. The second copy is dropped, as a
//! receiver of two would answer each and the sender would have to tell.

use tandem_netem::Direction;
use tandem_proto::mode::{Copying, Mode, Sides};

use crate::namespaces::frame::Frame;

/// How many packets of one direction are told apart; far more than links hold.
const REMEMBERED: usize = 1 << 16;

/// What tells copies of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::namespaces) struct Mark {
    /// The network whose packet it is, whichever carries the copy.
    home: usize,
    number: u64,
}

/// What has become of copied packets, over both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyCounts {
    /// Packets that were copied, each counted once.
    pub copied: u64,
    /// Those of which a copy arrived.
    pub arrived: u64,
    /// Copies that came second, and were dropped.
    pub second: u64,
}

/// Whose packets are copied, and which have arrived.
#[derive(Debug, Default)]
pub(super) struct Copies {
    sides: Option<Sides>,
    up: Numbers,
    down: Numbers,
    counts: CopyCounts,
}

/// The packets of one direction.
#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    /// The last number that arrived of those which share a place; empty until the first is given.
    arrived: Vec<u64>,
}

impl Copies {
    /// Copies the packets of these sides from now on.
    pub(super) fn set_sides(&mut self, sides: Option<Sides>) {
        self.sides = sides;
    }

    pub(super) fn counts(&self) -> CopyCounts {
        self.counts
    }

    /// Marks a packet if its copies are to travel on the other networks too; returns whether they are.
    pub(super) fn mark(&mut self, direction: Direction, home: usize, frame: &mut Frame) -> bool {
        let mode = self.sides.map_or(Mode::Single, Mode::Bicast);
        let (copying, numbers) = match direction {
            Direction::Up => (mode.upload(), &mut self.up),
            Direction::Down => (mode.download(), &mut self.down),
        };
        if copying == Copying::Single {
            return false;
        }
        numbers.arrived.resize(REMEMBERED, 0);
        numbers.last += 1;
        frame.mark = Some(Mark { home, number: numbers.last });
        self.counts.copied += 1;
        true
    }

    /// The network whose packet this is, which has crossed the link of network `index`; `None` if a copy was there before.
    pub(super) fn arrive(&mut self, direction: Direction, index: usize, frame: &Frame) -> Option<usize> {
        let Some(Mark { home, number }) = frame.mark else { return Some(index) };
        let numbers = match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        };
        let place = &mut numbers.arrived[number as usize % REMEMBERED];
        if *place >= number {
            self.counts.second += 1;
            return None;
        }
        *place = number;
        self.counts.arrived += 1;
        Some(home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_packet_the_first_copy_goes_on_and_only_that() {
        let mut copies = Copies::default();
        let mut packet = Frame::with_packet(b"one");
        assert!(!copies.mark(Direction::Down, 1, &mut packet));
        assert_eq!(copies.arrive(Direction::Down, 1, &packet), Some(1));

        copies.set_sides(Some(Sides::Server));
        assert!(!copies.mark(Direction::Up, 1, &mut packet), "only the server's packets are copied");
        assert!(copies.mark(Direction::Down, 1, &mut packet));
        let copy = packet.clone();
        let mut next = Frame::with_packet(b"one");
        assert!(copies.mark(Direction::Down, 1, &mut next));
        // The copies come by the other network first, the second packet's before the first's.
        assert_eq!(copies.arrive(Direction::Down, 0, &next), Some(1));
        assert_eq!(copies.arrive(Direction::Down, 0, &copy), Some(1));
        assert_eq!(copies.arrive(Direction::Down, 1, &packet), None);
        assert_eq!(copies.counts(), CopyCounts { copied: 2, arrived: 2, second: 1 });
    }
}
