//! What the client asks of the relay's measuring service (`docs/PROTOCOL.md`, "Measuring").
//!
//! In the tunnel it is a flow of its own kind: bytes without meaning, either way, for a while; or a ticket, with which the
//! same may be had by plain TCP beside the tunnel. Tickets are handed out within sessions alone, so the service answers
//! nobody else.

use super::DecodeError;
use super::request::REQUEST_HEAD;

/// The bit of [`super::Hello::features`] and [`super::Welcome::features`] that stands for measuring: the relay sets it
/// while its service is on.
pub const FEATURE_MEASURE: u32 = 1;

/// The longest measurement, in seconds.
pub const MAX_MEASURE_SECONDS: u16 = 60;

/// Bytes of a ticket.
pub const TICKET_LEN: usize = 16;

/// Bytes of what follows the answer to [`Measure::Ticket`]: the port, then the ticket.
pub const GRANT_LEN: usize = 2 + TICKET_LEN;

/// Bytes with which a TCP connection to the service begins: the ticket, then the seconds.
pub const TCP_HEAD: usize = TICKET_LEN + 2;

/// How often the relay says how much of an upload has arrived, in milliseconds.
pub const UPLOAD_REPORT_MS: u64 = 250;

/// The kind of flow, beside TCP's.
pub(super) const KIND_MEASURE: u8 = 2;

const DOWNLOAD: u8 = 1;
const UPLOAD: u8 = 2;
const TICKET: u8 = 3;

/// What is asked of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Bytes from the relay, as fast as they go, for so many seconds, 1 to [`MAX_MEASURE_SECONDS`].
    Download {
        /// How long.
        seconds: u16,
    },
    /// Bytes to the relay, for at most so many seconds. Every [`UPLOAD_REPORT_MS`] it tells how many have come, as eight
    /// bytes.
    Upload {
        /// How long.
        seconds: u16,
    },
    /// A ticket for one TCP connection that brings bytes.
    Ticket,
}

/// A ticket, and where it is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The TCP port, at the relay's address.
    pub port: u16,
    /// The ticket.
    pub ticket: [u8; TICKET_LEN],
}

impl Measure {
    /// The request's bytes.
    pub fn encode(self) -> [u8; REQUEST_HEAD] {
        let (what, seconds) = match self {
            Measure::Download { seconds } => (DOWNLOAD, seconds),
            Measure::Upload { seconds } => (UPLOAD, seconds),
            Measure::Ticket => (TICKET, 0),
        };
        let [high, low] = seconds.to_be_bytes();
        [KIND_MEASURE, what, 0, high, low]
    }

    /// Reads a request whose kind has been read.
    pub(super) fn decode(head: [u8; REQUEST_HEAD]) -> Result<Self, DecodeError> {
        let [_, what, reserved, high, low] = head;
        let seconds = u16::from_be_bytes([high, low]);
        if reserved != 0 {
            return Err(DecodeError::Value { field: "reserved", found: reserved.into(), allowed: "0" });
        }
        match what {
            DOWNLOAD => Ok(Measure::Download { seconds: checked(seconds)? }),
            UPLOAD => Ok(Measure::Upload { seconds: checked(seconds)? }),
            TICKET if seconds == 0 => Ok(Measure::Ticket),
            TICKET => Err(DecodeError::Value { field: "seconds", found: seconds.into(), allowed: "0 for a ticket" }),
            other => {
                let allowed = "1 (download), 2 (upload), 3 (ticket)";
                Err(DecodeError::Value { field: "measurement", found: other.into(), allowed })
            }
        }
    }
}

impl Grant {
    /// What follows the answer.
    pub fn encode(&self) -> [u8; GRANT_LEN] {
        let mut bytes = [0; GRANT_LEN];
        bytes[..2].copy_from_slice(&self.port.to_be_bytes());
        bytes[2..].copy_from_slice(&self.ticket);
        bytes
    }

    /// Reads it.
    pub fn decode(bytes: &[u8; GRANT_LEN]) -> Self {
        let [high, low, ticket @ ..] = *bytes;
        Self { port: u16::from_be_bytes([high, low]), ticket }
    }

    /// The first bytes of the TCP connection that makes use of it for so many seconds.
    pub fn tcp_head(&self, seconds: u16) -> [u8; TCP_HEAD] {
        let mut bytes = [0; TCP_HEAD];
        bytes[..TICKET_LEN].copy_from_slice(&self.ticket);
        bytes[TICKET_LEN..].copy_from_slice(&seconds.to_be_bytes());
        bytes
    }
}

/// Reads the first bytes of a TCP connection: the ticket and the seconds.
///
/// # Errors
/// [`DecodeError`] for a length that is not allowed.
pub fn decode_tcp_head(bytes: &[u8; TCP_HEAD]) -> Result<([u8; TICKET_LEN], u16), DecodeError> {
    let [ticket @ .., high, low] = *bytes;
    Ok((ticket, checked(u16::from_be_bytes([high, low]))?))
}

fn checked(seconds: u16) -> Result<u16, DecodeError> {
    match seconds {
        1..=MAX_MEASURE_SECONDS => Ok(seconds),
        _ => Err(DecodeError::Value { field: "seconds", found: seconds.into(), allowed: "1 to 60" }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Request, decode_request};
    use super::*;

    #[test]
    fn every_request_reads_back() {
        for measure in [Measure::Download { seconds: 60 }, Measure::Upload { seconds: 1 }, Measure::Ticket] {
            let bytes = measure.encode();
            assert_eq!(decode_request(&bytes), Ok(Some((Request::Measure(measure), REQUEST_HEAD))));
            assert_eq!(decode_request(&bytes[..4]), Ok(None));
        }
    }

    #[test]
    fn a_wrong_request_is_refused_with_its_field() {
        let error = |bytes: [u8; REQUEST_HEAD]| decode_request(&bytes).unwrap_err().to_string();
        assert_eq!(error([2, 1, 0, 0, 0]), "seconds is 0; allowed: 1 to 60");
        assert_eq!(error([2, 2, 0, 0, 61]), "seconds is 61; allowed: 1 to 60");
        assert!(error([2, 3, 0, 0, 1]).contains("seconds is 1"));
        assert!(error([2, 4, 0, 0, 1]).contains("measurement is 4"));
        assert!(error([2, 1, 9, 0, 1]).contains("reserved is 9"));
    }

    proptest! {
        #[test]
        fn a_grant_and_its_use_read_back(port: u16, ticket: [u8; TICKET_LEN], seconds in 0..200u16) {
            let grant = Grant { port, ticket };
            prop_assert_eq!(Grant::decode(&grant.encode()), grant);
            let used = decode_tcp_head(&grant.tcp_head(seconds));
            if (1..=MAX_MEASURE_SECONDS).contains(&seconds) {
                prop_assert_eq!(used, Ok((ticket, seconds)));
            } else {
                prop_assert!(used.is_err());
            }
        }
    }
}
