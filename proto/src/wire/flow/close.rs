//! The error codes with which a side closes the QUIC connection (`docs/PROTOCOL.md`, "Closing").

use super::RefusedReason;

/// Why a side closed the connection, as QUIC's application error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseCode {
    /// Nothing is wrong: the user or the operator ended the session.
    Done,
    /// The peer broke the protocol.
    Protocol,
    /// No acceptable control stream came in time.
    NoHello,
    /// The relay stops, and its time to drain is over.
    GoingAway,
    /// The relay refused the session, or ended it later for the same reason (a revoked token). Repeats what
    /// [`super::Refused`] said, in case that message was lost.
    Refused(RefusedReason),
}

/// Codes of [`CloseCode::Refused`] are this plus the reason's own number.
const REFUSED: u32 = 0x100;

impl CloseCode {
    /// The number on the wire.
    pub fn code(self) -> u32 {
        match self {
            CloseCode::Done => 0,
            CloseCode::Protocol => 1,
            CloseCode::NoHello => 2,
            CloseCode::GoingAway => 3,
            CloseCode::Refused(reason) => REFUSED + u32::from(reason.code()),
        }
    }

    /// The meaning of a number from the wire; `None` for one that this version does not know.
    pub fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(CloseCode::Done),
            1 => Some(CloseCode::Protocol),
            2 => Some(CloseCode::NoHello),
            3 => Some(CloseCode::GoingAway),
            _ => {
                let reason = u16::try_from(code.checked_sub(REFUSED)?).ok()?;
                Some(CloseCode::Refused(RefusedReason::from_code(reason)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_as_its_reason() {
        let refused = RefusedReason::ALL.map(CloseCode::Refused);
        let plain = [CloseCode::Done, CloseCode::Protocol, CloseCode::NoHello, CloseCode::GoingAway];
        for close in plain.into_iter().chain(refused) {
            assert_eq!(CloseCode::from_code(close.code()), Some(close));
        }
        assert_eq!(CloseCode::from_code(4), None);
        assert_eq!(CloseCode::from_code(u32::MAX), None);
    }
}
