//! Datagrams in two halves, for paths too narrow to carry them whole.
//!
//! QUIC knows one size for all paths, and shrinks it only after many losses. So when a path narrows, or a narrow one joins,
//! QUIC's datagrams keep their size, and travel on that path in two halves, each in a UDP datagram with a header of its own
//! and the same number. The receiver takes them for one arrival once both are there. Two halves of the largest QUIC
//! datagram pass every path (1,280 bytes of IP packet), so no datagram is ever too large.
//!
//! Halves are verified before they come here, and wait per path, so nobody on one path disturbs another.

use crate::keys::DirectionKeys;
use crate::wire::header::{HEADER_LEN, Header, HoldClass, Part};

/// Halves that wait for their other half, per path: as many datagrams may a half be overtaken by.
const SLOTS: u64 = 256;

/// How long the front half of a datagram is, in a batch of datagrams of `size` bytes each.
pub(super) fn front_len(size: usize) -> usize {
    size.div_ceil(2)
}

/// Appends datagram `number` to `out` as it travels on a narrow path: in two halves, or whole if it is no longer than one.
///
/// Both carry the same departure and hold class; the front half has `front` bytes.
pub(super) fn encode_halves(
    keys: &DirectionKeys,
    number: u64,
    (departure, hold): (u32, HoldClass),
    front: usize,
    body: &[u8],
    out: &mut Vec<u8>,
) {
    match body.split_at_checked(front) {
        Some((front, back)) if !back.is_empty() => {
            Header::encode_into(keys, number, departure, hold, Part::Front, front, out);
            Header::encode_into(keys, number, departure, hold, Part::Back, back, out);
        }
        _ => Header::encode_into(keys, number, departure, hold, Part::Whole, body, out),
    }
}

/// The halves that came on one path and wait for the others.
#[derive(Debug, Default)]
pub(super) struct Halves {
    /// By number modulo [`SLOTS`]; empty until the first half.
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    number: u64,
    /// Which half waits; `Whole` stands for none.
    part: Part,
    bytes: Vec<u8>,
}

impl Halves {
    /// Takes a half of datagram `number`. `true` if it was the second one: then `out` is the datagram.
    pub(super) fn join(&mut self, number: u64, part: Part, half: &[u8], out: &mut Vec<u8>) -> bool {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS as usize, Slot::default);
        }
        let slot = &mut self.slots[(number % SLOTS) as usize];
        let (front, back) = match (slot.part, part) {
            (Part::Front, Part::Back) if slot.number == number => (&slot.bytes[..], half),
            (Part::Back, Part::Front) if slot.number == number => (half, &slot.bytes[..]),
            _ => {
                // What waited there longer than many datagrams waits in vain; one that comes so late is no use either.
                if slot.part == Part::Whole || slot.number <= number {
                    (slot.number, slot.part) = (number, part);
                    slot.bytes.clear();
                    slot.bytes.extend_from_slice(half);
                }
                return false;
            }
        };
        out.clear();
        out.extend_from_slice(front);
        out.extend_from_slice(back);
        slot.part = Part::Whole;
        true
    }
}

/// What two halves add to a datagram, in bytes.
pub(super) const BOTH_HEADERS: usize = 2 * HEADER_LEN;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn halves_make_a_datagram_in_either_order_and_others_never_mix_in() {
        let (mut halves, mut out) = (Halves::default(), Vec::new());
        assert!(!halves.join(7, Part::Front, b"ab", &mut out));
        assert!(!halves.join(8, Part::Back, b"yz", &mut out));
        assert!(!halves.join(7, Part::Front, b"ab", &mut out), "the same half again completes nothing");
        assert!(halves.join(7, Part::Back, b"cd", &mut out));
        assert_eq!(out, b"abcd");
        assert!(halves.join(8, Part::Front, b"wx", &mut out));
        assert_eq!(out, b"wxyz");
        assert!(!halves.join(9, Part::Front, b"12", &mut out));
        assert!(!halves.join(9 + SLOTS, Part::Back, b"34", &mut out), "a later datagram takes the place");
        assert!(!halves.join(9, Part::Back, b"34", &mut out), "and the earlier one is lost");
        assert!(halves.join(9 + SLOTS, Part::Front, b"56", &mut out));
        assert_eq!(out, b"5634");
    }

    proptest! {
        #[test]
        fn any_numbers_and_parts_are_taken(halves_in in prop::collection::vec((any::<u64>(), any::<bool>()), 0..500)) {
            let (mut halves, mut out) = (Halves::default(), Vec::new());
            for (number, front) in halves_in {
                let part = if front { Part::Front } else { Part::Back };
                let _ = halves.join(number % 300, part, b"half", &mut out);
            }
            prop_assert!(halves.slots.len() <= SLOTS as usize);
        }
    }
}
