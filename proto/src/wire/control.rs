//! Control datagrams: what the path layers of the two ends tell each other beside QUIC.
//!
//! ```text
//! byte 0       0 0 1 0 0 0 0 0     kind
//! bytes 1-8    session id
//! bytes 9-16   counter             starts at 0, grows by one with every control datagram of a direction; the nonce
//! then         message             sealed with AES-128-GCM, the seventeen bytes above authenticated
//! last 16      AEAD tag
//! ```
//!
//! A [`Message`] is the path it travels on, three clock fields that give both ends round-trip times, and [`Frame`]s.
//! Nothing is retransmitted: later messages supersede lost ones. Decoding bounds everything it allocates, and a message
//! with a frame that is unknown, cut short or out of range is refused whole (`docs/PROTOCOL.md`, "Control datagrams").

mod reports;

pub use reports::{MAX_MAP_LEN, PathReport, PathSent, SentReport};

use bytes::{Buf, BufMut, TryGetError};
use smallvec::SmallVec;

use crate::keys::{DirectionKeys, SEAL_LEN, SessionId};
use crate::mode::Copying;
use crate::path::order::{PathOrder, PathRole};

/// Bytes in front of the sealed message.
pub const HEAD_LEN: usize = 17;

/// Most frames of one control datagram.
pub const MOST_FRAMES: u64 = 16;

/// Most paths of one session.
pub const MAX_PATHS: usize = 8;

/// Bytes of a challenge and its answer.
pub const CHALLENGE_LEN: usize = 8;

/// The frames of a message. A report is alone in its message, and comes so often that it must not allocate.
pub type Frames = SmallVec<[Frame; 1]>;

/// The paths of one report; more than four are allowed and rare.
pub type PathReports = SmallVec<[PathReport; 4]>;

/// The orders of one wish: what the paths that are not simply for use are for.
pub type PathOrders = SmallVec<[(PathId, PathOrder); 2]>;

/// A rate that is none.
pub const UNLIMITED: u32 = u32::MAX;

const KIND: u8 = 0b0010_0000;

/// The number that a client gave a path, 0 to [`MAX_PATHS`] - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

impl std::fmt::Display for PathId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "path {}", self.0)
    }
}

/// One control datagram's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The path it is sent on.
    pub path: PathId,
    /// The sender's clock in microseconds, modulo 2^32.
    pub clock: u32,
    /// The newest clock heard from the other side on this path, and for how many microseconds it has been held;
    /// `None` before any.
    pub echo: Option<(u32, u32)>,
    /// What it says.
    pub frames: Frames,
}

/// One thing that a control datagram says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a report in a box would be allocated")]
pub enum Frame {
    /// Fills the datagram up to its end.
    Padding(u16),
    /// Asks for any control datagram on this path.
    Ping,
    /// Client: this address is to carry the session.
    Join,
    /// Relay: prove that you receive what is sent to this address.
    Challenge([u8; CHALLENGE_LEN]),
    /// Client: the proof.
    Answer([u8; CHALLENGE_LEN]),
    /// Relay: the address carries the session.
    Joined,
    /// Client: the path is gone.
    Leave(PathId),
    /// Client: how the relay is to send; the largest sequence counts.
    Wish {
        /// Grows with every change.
        sequence: u32,
        /// How the relay's datagrams use the paths.
        download: Copying,
        /// What paths are for; one that is not named is for use.
        orders: PathOrders,
    },
    /// Receiver of data: what arrived, on every path.
    Report(PathReports),
    /// Sender of data: what was sent, so that the other side can show it.
    Sent(SentReport),
    /// The whole datagram is a probe of this many bytes of UDP payload.
    MtuProbe(u16),
    /// A probe of this many bytes arrived.
    MtuAck(u16),
}

/// A control datagram that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// It ends inside a field.
    #[error("the control datagram ends inside a field")]
    CutShort,
    /// It has a frame of an unknown type.
    #[error("frame type {0} is unknown: 0 to 11 are defined")]
    UnknownFrame(u8),
    /// A field has a value outside its range.
    #[error("{field} is {found}, allowed is at most {most}")]
    OutOfRange {
        /// Which field.
        field: &'static str,
        /// What was found.
        found: u64,
        /// The largest value allowed.
        most: u64,
    },
}

impl From<TryGetError> for ControlError {
    fn from(_: TryGetError) -> Self {
        Self::CutShort
    }
}

/// Whether a UDP payload is a control datagram by its first byte and length.
pub fn is_control(payload: &[u8]) -> bool {
    payload.len() >= HEAD_LEN + SEAL_LEN && payload[0] == KIND
}

/// The session that a control datagram names; `None` if the payload is none.
pub fn session_of(payload: &[u8]) -> Option<SessionId> {
    is_control(payload).then(|| SessionId(payload[1..9].try_into().expect("eight bytes")))
}

/// Writes and seals `message` as control datagram `counter`, in place of what `out` held.
pub(crate) fn seal(keys: &DirectionKeys, session: SessionId, counter: u64, message: &Message, out: &mut Vec<u8>) {
    seal_with(keys, session, counter, |out| message.encode(out), out);
}

/// The same with whatever `put` appends as the plain message.
pub(crate) fn seal_with(
    keys: &DirectionKeys,
    session: SessionId,
    counter: u64,
    put: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    out.clear();
    out.put_u8(KIND);
    out.put_slice(&session.0);
    out.put_u64(counter);
    put(out);
    keys.seal_control(counter, out, HEAD_LEN);
}

/// Opens a control datagram in place: its counter and message.
///
/// Returns `None` if it was not sealed by the other end of this session, and an error if it was but says something that
/// this end does not understand.
pub(crate) fn open(keys: &DirectionKeys, payload: &mut [u8]) -> Option<(u64, Result<Message, ControlError>)> {
    if !is_control(payload) {
        return None;
    }
    let (head, body) = payload.split_at_mut(HEAD_LEN);
    let counter = u64::from_be_bytes(head[9..17].try_into().expect("eight bytes"));
    let plain = keys.open_control(counter, head, body)?;
    Some((counter, Message::decode(plain)))
}

impl Message {
    /// Bytes around the frames of a message: head, path, clocks and seal.
    pub(crate) const OVERHEAD: usize = HEAD_LEN + 13 + SEAL_LEN;

    /// Appends the plain message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.path.0);
        out.put_u32(self.clock);
        let (echo, held) = self.echo.unwrap_or((0, u32::MAX));
        out.put_u32(echo);
        out.put_u32(held);
        for frame in &self.frames {
            frame.encode(out);
        }
    }

    /// Reads a plain message.
    ///
    /// # Errors
    /// See [`ControlError`]; nothing of a faulty message is used.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, ControlError> {
        let path = path_id(bytes.try_get_u8()?)?;
        let clock = bytes.try_get_u32()?;
        let (echo, held) = (bytes.try_get_u32()?, bytes.try_get_u32()?);
        let mut frames = Frames::new();
        let mut count = 0;
        while !bytes.is_empty() {
            count += 1;
            if count > MOST_FRAMES {
                return Err(out_of_range("number of frames", count, MOST_FRAMES));
            }
            frames.push(Frame::decode(&mut bytes)?);
        }
        Ok(Self { path, clock, echo: (held != u32::MAX).then_some((echo, held)), frames })
    }
}

impl Frame {
    /// Bytes of the frame on the wire.
    pub(crate) fn encoded_len(&self) -> usize {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes.len()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Padding(len) => {
                out.put_u8(0);
                out.put_bytes(0, usize::from(*len).saturating_sub(1));
            }
            Frame::Ping => out.put_u8(1),
            Frame::Join => out.put_u8(2),
            Frame::Challenge(proof) => {
                out.put_u8(3);
                out.put_slice(proof);
            }
            Frame::Answer(proof) => {
                out.put_u8(4);
                out.put_slice(proof);
            }
            Frame::Joined => out.put_u8(5),
            Frame::Leave(path) => {
                out.put_u8(6);
                out.put_u8(path.0);
            }
            Frame::Wish { sequence, download, orders } => {
                out.put_u8(7);
                out.put_u32(*sequence);
                out.put_u8(u8::from(*download == Copying::Bicast));
                out.put_u8(orders.len() as u8);
                for (path, order) in orders {
                    out.put_u8(path.0);
                    out.put_u8(order.role as u8);
                    out.put_u32(order.rate.unwrap_or(UNLIMITED));
                }
            }
            Frame::Report(paths) => {
                out.put_u8(8);
                out.put_u8(paths.len() as u8);
                for path in paths {
                    path.encode(out);
                }
            }
            Frame::Sent(sent) => {
                out.put_u8(9);
                sent.encode(out);
            }
            Frame::MtuProbe(size) => {
                out.put_u8(10);
                out.put_u16(*size);
            }
            Frame::MtuAck(size) => {
                out.put_u8(11);
                out.put_u16(*size);
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, ControlError> {
        Ok(match bytes.try_get_u8()? {
            0 => {
                let len = bytes.len() + 1;
                bytes.advance(bytes.len());
                Frame::Padding(u16::try_from(len).map_err(|_| out_of_range("padding", len as u64, u16::MAX.into()))?)
            }
            1 => Frame::Ping,
            2 => Frame::Join,
            3 => Frame::Challenge(proof(bytes)?),
            4 => Frame::Answer(proof(bytes)?),
            5 => Frame::Joined,
            6 => Frame::Leave(path_id(bytes.try_get_u8()?)?),
            7 => Frame::Wish {
                sequence: bytes.try_get_u32()?,
                download: match bytes.try_get_u8()? {
                    0 => Copying::Single,
                    1 => Copying::Bicast,
                    other => return Err(out_of_range("wished copying", other.into(), 1)),
                },
                orders: {
                    let count = count(bytes.try_get_u8()?)?;
                    (0..count).map(|_| order(bytes)).collect::<Result<_, _>>()?
                },
            },
            8 => {
                let count = count(bytes.try_get_u8()?)?;
                Frame::Report((0..count).map(|_| PathReport::decode(bytes)).collect::<Result<_, _>>()?)
            }
            9 => Frame::Sent(SentReport::decode(bytes)?),
            10 => Frame::MtuProbe(bytes.try_get_u16()?),
            11 => Frame::MtuAck(bytes.try_get_u16()?),
            other => return Err(ControlError::UnknownFrame(other)),
        })
    }
}

fn proof(bytes: &mut &[u8]) -> Result<[u8; CHALLENGE_LEN], ControlError> {
    let mut proof = [0; CHALLENGE_LEN];
    bytes.try_copy_to_slice(&mut proof)?;
    Ok(proof)
}

fn order(bytes: &mut &[u8]) -> Result<(PathId, PathOrder), ControlError> {
    let path = path_id(bytes.try_get_u8()?)?;
    let role = match bytes.try_get_u8()? {
        0 => PathRole::Use,
        1 => PathRole::Backup,
        2 => PathRole::Gone,
        other => return Err(out_of_range("role of a path", other.into(), 2)),
    };
    let rate = Some(bytes.try_get_u32()?).filter(|rate| *rate != UNLIMITED);
    Ok((path, PathOrder { role, rate }))
}

fn path_id(value: u8) -> Result<PathId, ControlError> {
    if usize::from(value) < MAX_PATHS {
        Ok(PathId(value))
    } else {
        Err(out_of_range("path", value.into(), MAX_PATHS as u64 - 1))
    }
}

fn count(value: u8) -> Result<u8, ControlError> {
    if usize::from(value) <= MAX_PATHS {
        Ok(value)
    } else {
        Err(out_of_range("number of paths", value.into(), MAX_PATHS as u64))
    }
}

fn out_of_range(field: &'static str, found: u64, most: u64) -> ControlError {
    ControlError::OutOfRange { field, found, most }
}

#[cfg(test)]
mod tests;
