//! The header in front of every QUIC datagram of a session whose ends both speak it.
//!
//! Twelve bytes (`docs/PROTOCOL.md`, "Datagram header"):
//!
//! ```text
//! byte 0      0 0 0 1 p p h h      kind, which part of the datagram follows (Part), and who is to be held (HoldClass)
//! bytes 1-4   number               low 32 bits of the datagram's number, big endian
//! bytes 5-7   departure            sender's clock in units of 4 microseconds, modulo 2^24
//! bytes 8-11  tag                  first 32 bits of what follows' AES-GCM tag, with the fields above as the nonce
//! ```
//!
//! Copies of a whole datagram carry the same twelve bytes; on a path too narrow for it, it travels in two halves. The fixed bit of QUIC (RFC 9000, 17.2) is clear in byte 0, so the
//! header cannot be taken for a QUIC packet.

use crate::keys::DirectionKeys;

/// Bytes that the header adds to a datagram.
pub const HEADER_LEN: usize = 12;

/// Length of one unit of the departure time, in microseconds.
pub const TICK_MICROS: u64 = 4;

/// Modulus of the departure time, in ticks: about 67 s.
pub const TICK_MODULUS: u32 = 1 << 24;

const KIND: u8 = 0b0001_0000;
const KIND_MASK: u8 = 0b1111_0000;

/// Whom the receiver's in-order hold is for; set by the sender, decided by the newest number seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HoldClass {
    /// Nothing is held: the connection was not limited by its window lately.
    #[default]
    None,
    /// Hold against every path: controllers to which any loss is costly (CUBIC, NewReno).
    Full,
    /// Hold only against paths that lag little: rate-based controllers.
    Short,
}

/// How much of the QUIC datagram follows the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// The front half: [`Part::Back`] follows in a datagram of its own.
    Front,
    /// The rest.
    Back,
}

/// The fields of a datagram header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Low 32 bits of the number.
    pub number: u32,
    /// Departure in ticks, below [`TICK_MODULUS`].
    pub departure: u32,
    /// Whom to hold.
    pub hold: HoldClass,
    /// What follows.
    pub part: Part,
    /// The tag as sent.
    pub tag: [u8; 4],
}

/// Whether a UDP payload begins with a datagram header.
pub fn is_framed(payload: &[u8]) -> bool {
    payload.first().is_some_and(|first| first & KIND_MASK == KIND)
}

/// Whether a UDP payload looks like a QUIC packet: its fixed bit is set.
pub fn is_quic(payload: &[u8]) -> bool {
    payload.first().is_some_and(|first| first & 0x40 != 0)
}

impl Header {
    /// Reads the header of a framed datagram and returns it with what of the QUIC datagram is behind it; `None` if the payload is
    /// too short or carries no header.
    pub fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        if payload.len() <= HEADER_LEN || !is_framed(payload) {
            return None;
        }
        let (head, body) = payload.split_at(HEADER_LEN);
        let hold = match head[0] & 0b11 {
            0 => HoldClass::None,
            1 => HoldClass::Full,
            2 => HoldClass::Short,
            _ => return None,
        };
        let part = match (head[0] >> 2) & 0b11 {
            0 => Part::Whole,
            1 => Part::Front,
            2 => Part::Back,
            _ => return None,
        };
        Some((
            Self {
                number: u32::from_be_bytes([head[1], head[2], head[3], head[4]]),
                departure: u32::from_be_bytes([0, head[5], head[6], head[7]]),
                hold,
                part,
                tag: [head[8], head[9], head[10], head[11]],
            },
            body,
        ))
    }

    /// Whether the tag is the one that the holder of `keys` gives this header, full `number` and what follows.
    pub(crate) fn verify(&self, keys: &DirectionKeys, number: u64, body: &[u8], scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        scratch.extend_from_slice(body);
        keys.header_tag(nonce(self.first_byte(), self.departure, number), scratch) == self.tag
    }

    /// Appends the header of datagram `number` and `body`, which is that part of it, to `out`.
    pub(crate) fn encode_into(
        keys: &DirectionKeys,
        number: u64,
        departure: u32,
        hold: HoldClass,
        part: Part,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        let header = Self { number: number as u32, departure: departure % TICK_MODULUS, hold, part, tag: [0; 4] };
        out.push(header.first_byte());
        out.extend_from_slice(&header.number.to_be_bytes());
        out.extend_from_slice(&header.departure.to_be_bytes()[1..]);
        out.extend_from_slice(&header.tag);
        let start = out.len();
        out.extend_from_slice(body);
        let tag = keys.header_tag(nonce(header.first_byte(), header.departure, number), &mut out[start..]);
        out[start - tag.len()..start].copy_from_slice(&tag);
        out[start..].copy_from_slice(body);
    }

    fn first_byte(&self) -> u8 {
        let hold = match self.hold {
            HoldClass::None => 0,
            HoldClass::Full => 1,
            HoldClass::Short => 2,
        };
        let part = match self.part {
            Part::Whole => 0,
            Part::Front => 1,
            Part::Back => 2,
        };
        KIND | part << 2 | hold
    }
}

fn nonce(first_byte: u8, departure: u32, number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[0] = first_byte;
    nonce[1..4].copy_from_slice(&departure.to_be_bytes()[1..]);
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

/// The full number whose low 32 bits are `low` and that lies nearest to `expected`.
pub fn expand_number(low: u32, expected: u64) -> u64 {
    let distance = low.wrapping_sub(expected as u32) as i32;
    expected.checked_add_signed(distance.into()).unwrap_or(low.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::{Role, SessionKeys};

    fn keys() -> (SessionKeys, SessionKeys) {
        (SessionKeys::derive(&[1; 32], Role::Client), SessionKeys::derive(&[1; 32], Role::Relay))
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_and_verified(
            number: u64,
            departure in 0..TICK_MODULUS,
            part in prop::sample::select(vec![Part::Whole, Part::Front, Part::Back]),
            body in prop::collection::vec(any::<u8>(), 1..200),
        ) {
            let (client, relay) = keys();
            let mut wire = Vec::new();
            Header::encode_into(&client.send, number, departure, HoldClass::Short, part, &body, &mut wire);
            prop_assert_eq!(wire.len(), HEADER_LEN + body.len());
            prop_assert!(!is_quic(&wire));
            let (header, rest) = Header::decode(&wire).expect("just encoded");
            prop_assert_eq!(header.departure, departure);
            prop_assert_eq!((header.hold, header.part), (HoldClass::Short, part));
            prop_assert_eq!(rest, &body[..]);
            let mut scratch = Vec::new();
            prop_assert!(header.verify(&relay.recv, number, rest, &mut scratch));
            prop_assert!(!header.verify(&relay.recv, number ^ 1, rest, &mut scratch));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Header::decode(&bytes);
        }

        #[test]
        fn numbers_expand_to_the_nearest(expected in 0u64..1 << 40, off in -1_000_000i64..1_000_000) {
            if let Some(number) = expected.checked_add_signed(off) {
                prop_assert_eq!(expand_number(number as u32, expected), number);
            }
        }
    }
}
