//! The messages of a session's control stream (`docs/PROTOCOL.md`, "Control stream").
//!
//! The client says [`Hello`] once; the relay answers [`Welcome`] or [`Refused`], and may say [`GoingAway`] or [`Update`] later. Each
//! message is a frame: type (2 bytes), payload length (2 bytes), payload. So that both sides can grow apart, frames of
//! unknown types are skipped and bytes after the known fields of a payload are ignored.
//!
//! Versions: a Hello offers a range, and a Welcome names the one that the session speaks. The two version fields that a
//! Hello starts with, and a Refused as a whole, keep their layout for ever; so two sides without a common version still
//! understand why they part.

use std::fmt;

use super::DecodeError;
use super::bytes::{Reader, put_text};
use crate::congestion::Algorithm;
use crate::pairing::Secret;

/// The version of the flow protocol that this code speaks.
pub const VERSION: u16 = 1;
/// Bytes before a frame's payload: its type and its length.
pub const FRAME_HEAD: usize = 4;
/// The longest payload of a frame, in bytes; a longer one ends the session.
pub const MAX_FRAME: usize = 4096;
/// The longest token, in bytes.
pub const MAX_TOKEN: usize = 1024;
/// The longest text that names a program and its version, in bytes.
pub const MAX_VERSION_TEXT: usize = 64;
/// The longest explanation in a Refused or GoingAway, in bytes.
pub const MAX_REASON: usize = 512;
/// The longest name of a congestion controller, in bytes.
const MAX_CONGESTION: usize = 32;

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const REFUSED: u16 = 3;
const GOING_AWAY: u16 = 4;
const UPDATE: u16 = 5;

/// A range of protocol versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// The oldest.
    pub min: u16,
    /// The newest; at least `min`.
    pub max: u16,
}

impl VersionRange {
    /// What this code speaks.
    pub const OURS: VersionRange = VersionRange { min: VERSION, max: VERSION };

    /// The newest version in both ranges.
    pub fn common(self, other: VersionRange) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min && newest >= other.min).then_some(newest)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let min = reader.u16("oldest version")?;
        let max = reader.u16("newest version")?;
        if max < min {
            let allowed = "the oldest version or a newer one";
            return Err(DecodeError::Value { field: "newest version", found: max.into(), allowed });
        }
        Ok(VersionRange { min, max })
    }

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.min.to_be_bytes());
        out.extend_from_slice(&self.max.to_be_bytes());
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "version {}", self.min)
        } else {
            write!(f, "versions {} to {}", self.min, self.max)
        }
    }
}

/// The client's first message: who it is and what it wants.
#[derive(Debug, Clone, PartialEq)]
pub struct Hello {
    /// The protocol versions that the client speaks.
    pub versions: VersionRange,
    /// Optional abilities of the client, one bit each ([`super::FEATURE_MEASURE`]); unknown bits are ignored.
    pub features: u32,
    /// The congestion controller wished for the download; `None` leaves the choice to the relay, and so does a name that
    /// this version does not know.
    pub congestion: Option<Algorithm>,
    /// The access token, 1 to [`MAX_TOKEN`] bytes of printable ASCII.
    pub token: Secret,
    /// The client's program and version, for the relay's operator; at most [`MAX_VERSION_TEXT`] bytes.
    pub client: String,
}

/// The relay's acceptance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The version that the session speaks from here on.
    pub version: u16,
    /// Those of the client's abilities that the relay shares.
    pub features: u32,
    /// How many flows the session may have open at once; more are answered with [`super::OpenError::Limit`].
    pub max_flows: u32,
    /// When the token expires, in seconds since the Unix epoch.
    pub token_expires: u64,
    /// The congestion controller of the download; `None` for one that this version does not know.
    pub congestion: Option<Algorithm>,
    /// SPKI SHA-256 of the key that the relay will use next, if it announces one: to be pinned beside the present one.
    pub next_pin: Option<[u8; 32]>,
    /// The relay's program and version; at most [`MAX_VERSION_TEXT`] bytes.
    pub relay: String,
}

/// Why the relay does not serve a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusedReason {
    /// The token is not one that this relay's key signed.
    BadToken,
    /// The token has expired, by the relay's clock.
    Expired,
    /// The token is not valid yet, by the relay's clock.
    NotYetValid,
    /// The token was revoked.
    Revoked,
    /// The relay speaks none of the client's versions.
    Version,
    /// The relay serves as many sessions as it may.
    Full,
    /// Anything else, a reason of a later version included.
    Other,
}

/// The relay's refusal; the last message of a control stream. Its layout is the same in every version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The reason, for programs.
    pub reason: RefusedReason,
    /// The protocol versions that the relay speaks.
    pub versions: VersionRange,
    /// The relay's clock, in seconds since the Unix epoch: tells a client whose clock is wrong.
    pub relay_time: u64,
    /// The reason, for people; at most [`MAX_REASON`] bytes.
    pub text: String,
}

/// The relay is about to stop: it opens no more flows, and ends the session when those open are done or its patience is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoingAway {
    /// Why, for people; at most [`MAX_REASON`] bytes.
    pub text: String,
}

/// What the relay has to add to its Welcome, for the client to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// A renewed token in place of the one that the client showed, at most [`MAX_TOKEN`] bytes; `None` if that stays.
    pub token: Option<Secret>,
    /// When the newest token expires, in seconds since the Unix epoch.
    pub token_expires: u64,
    /// See [`Welcome::next_pin`].
    pub next_pin: Option<[u8; 32]>,
}

/// A message of the control stream.
#[derive(Debug, Clone, PartialEq)]
pub enum ControlMessage {
    /// Client to relay, first.
    Hello(Hello),
    /// A Hello of a client with which we share no version; the rest of it is unknown to us.
    ForeignHello(VersionRange),
    /// Relay to client.
    Welcome(Welcome),
    /// Relay to client, instead of Welcome.
    Refused(Refused),
    /// Relay to client, at any time after Welcome.
    GoingAway(GoingAway),
    /// Relay to client, at any time after Welcome.
    Update(Update),
    /// A frame of a type that this version does not know, to be ignored.
    Unknown {
        /// The frame's type.
        frame_type: u16,
    },
}

/// The whole length of a frame, in bytes, from its head: lets a reader take exactly one frame off the stream.
///
/// # Errors
/// [`DecodeError`] for a payload longer than [`MAX_FRAME`].
pub fn frame_length(head: &[u8; FRAME_HEAD]) -> Result<usize, DecodeError> {
    let length = u16::from_be_bytes([head[2], head[3]]);
    if usize::from(length) > MAX_FRAME {
        return Err(DecodeError::Value { field: "frame length", found: length.into(), allowed: "0 to 4096" });
    }
    Ok(FRAME_HEAD + usize::from(length))
}

impl ControlMessage {
    /// Reads a message off the front of `bytes`; answers with it and its length, or `None` while it is not whole.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes break the protocol; the session is to be closed.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some(head) = bytes.first_chunk::<FRAME_HEAD>() else {
            return Ok(None);
        };
        let length = frame_length(head)?;
        let Some(frame) = bytes.get(..length) else {
            return Ok(None);
        };
        let mut reader = Reader::new(&frame[FRAME_HEAD..]);
        let message = match u16::from_be_bytes([head[0], head[1]]) {
            HELLO => {
                let versions = VersionRange::read(&mut reader)?;
                match versions.common(VersionRange::OURS) {
                    Some(_) => ControlMessage::Hello(Hello::read(versions, &mut reader)?),
                    None => ControlMessage::ForeignHello(versions),
                }
            }
            WELCOME => ControlMessage::Welcome(Welcome::read(&mut reader)?),
            REFUSED => ControlMessage::Refused(Refused::read(&mut reader)?),
            GOING_AWAY => ControlMessage::GoingAway(GoingAway { text: reader.text(MAX_REASON, "reason")?.to_owned() }),
            UPDATE => ControlMessage::Update(Update::read(&mut reader)?),
            frame_type => ControlMessage::Unknown { frame_type },
        };
        Ok(Some((message, length)))
    }

    /// Appends the message as a frame. Texts longer than their limit are cut. A message that only comes from decoding
    /// ([`ControlMessage::ForeignHello`], [`ControlMessage::Unknown`]) becomes a frame that says as much as it knows.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&[0; FRAME_HEAD]);
        let frame_type = match self {
            ControlMessage::Hello(hello) => {
                hello.put(out);
                HELLO
            }
            ControlMessage::ForeignHello(versions) => {
                versions.put(out);
                HELLO
            }
            ControlMessage::Welcome(welcome) => {
                welcome.put(out);
                WELCOME
            }
            ControlMessage::Refused(refused) => {
                refused.put(out);
                REFUSED
            }
            ControlMessage::GoingAway(going_away) => {
                put_text(out, &going_away.text, MAX_REASON);
                GOING_AWAY
            }
            ControlMessage::Update(update) => {
                update.put(out);
                UPDATE
            }
            ControlMessage::Unknown { frame_type } => *frame_type,
        };
        let length =
            u16::try_from(out.len() - at - FRAME_HEAD).expect("the fields' limits add up to less than 65,536 bytes");
        out[at..at + 2].copy_from_slice(&frame_type.to_be_bytes());
        out[at + 2..at + FRAME_HEAD].copy_from_slice(&length.to_be_bytes());
    }
}

impl Hello {
    fn read(versions: VersionRange, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let features = reader.u32("features")?;
        let congestion = read_congestion(reader)?;
        let token = reader.text(MAX_TOKEN, "token")?;
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(DecodeError::Text { field: "token", allowed: "1 or more printable ASCII characters" });
        }
        let client = reader.text(MAX_VERSION_TEXT, "client version")?.to_owned();
        Ok(Hello { versions, features, congestion, token: Secret::new(token.to_owned()), client })
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.versions.put(out);
        out.extend_from_slice(&self.features.to_be_bytes());
        put_congestion(self.congestion, out);
        put_text(out, self.token.expose(), MAX_TOKEN);
        put_text(out, &self.client, MAX_VERSION_TEXT);
    }
}

impl Welcome {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = reader.u16("version")?;
        if version < VersionRange::OURS.min || version > VersionRange::OURS.max {
            return Err(DecodeError::Value {
                field: "version",
                found: version.into(),
                allowed: "one that the Hello offered",
            });
        }
        Ok(Welcome {
            version,
            features: reader.u32("features")?,
            max_flows: reader.u32("flow limit")?,
            token_expires: reader.u64("token expiry")?,
            congestion: read_congestion(reader)?,
            next_pin: read_next_pin(reader)?,
            relay: reader.text(MAX_VERSION_TEXT, "relay version")?.to_owned(),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.features.to_be_bytes());
        out.extend_from_slice(&self.max_flows.to_be_bytes());
        out.extend_from_slice(&self.token_expires.to_be_bytes());
        put_congestion(self.congestion, out);
        put_next_pin(self.next_pin, out);
        put_text(out, &self.relay, MAX_VERSION_TEXT);
    }
}

impl Update {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let token = reader.text(MAX_TOKEN, "token")?;
        if !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(DecodeError::Text { field: "token", allowed: "printable ASCII characters" });
        }
        Ok(Update {
            token: (!token.is_empty()).then(|| Secret::new(token.to_owned())),
            token_expires: reader.u64("token expiry")?,
            next_pin: read_next_pin(reader)?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, self.token.as_ref().map_or("", Secret::expose), MAX_TOKEN);
        out.extend_from_slice(&self.token_expires.to_be_bytes());
        put_next_pin(self.next_pin, out);
    }
}

impl RefusedReason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [RefusedReason; 7] = [
        RefusedReason::BadToken,
        RefusedReason::Expired,
        RefusedReason::NotYetValid,
        RefusedReason::Revoked,
        RefusedReason::Version,
        RefusedReason::Full,
        RefusedReason::Other,
    ];

    /// The reason's number on the wire.
    pub(super) fn code(self) -> u16 {
        match self {
            RefusedReason::BadToken => 1,
            RefusedReason::Expired => 2,
            RefusedReason::NotYetValid => 3,
            RefusedReason::Revoked => 4,
            RefusedReason::Version => 5,
            RefusedReason::Full => 6,
            RefusedReason::Other => 0,
        }
    }

    pub(super) fn from_code(code: u16) -> Self {
        RefusedReason::ALL.into_iter().find(|reason| reason.code() == code).unwrap_or(RefusedReason::Other)
    }
}

impl Refused {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Refused {
            reason: RefusedReason::from_code(reader.u16("reason")?),
            versions: VersionRange::read(reader)?,
            relay_time: reader.u64("relay time")?,
            text: reader.text(MAX_REASON, "reason text")?.to_owned(),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.reason.code().to_be_bytes());
        self.versions.put(out);
        out.extend_from_slice(&self.relay_time.to_be_bytes());
        put_text(out, &self.text, MAX_REASON);
    }
}

fn read_congestion(reader: &mut Reader<'_>) -> Result<Option<Algorithm>, DecodeError> {
    Ok(reader.text(MAX_CONGESTION, "congestion controller")?.parse().ok())
}

fn read_next_pin(reader: &mut Reader<'_>) -> Result<Option<[u8; 32]>, DecodeError> {
    let field = "number of next pins";
    match reader.u8(field)? {
        0 => Ok(None),
        1 => Ok(Some(reader.array("next pin")?)),
        found => Err(DecodeError::Value { field, found: found.into(), allowed: "0 or 1" }),
    }
}

fn put_next_pin(pin: Option<[u8; 32]>, out: &mut Vec<u8>) {
    out.push(u8::from(pin.is_some()));
    out.extend_from_slice(pin.as_ref().map_or(&[], |pin| &pin[..]));
}

fn put_congestion(congestion: Option<Algorithm>, out: &mut Vec<u8>) {
    put_text(out, congestion.map_or("", Algorithm::name), MAX_CONGESTION);
}

#[cfg(test)]
mod tests;
