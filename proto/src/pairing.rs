//! The pairing link: everything a client needs to reach and trust one relay, as one line of text or a QR code.
//!
//! ```text
//! tandem://relay.example.org:4433,192.0.2.7:4433/?v=1&pin=…&pin=…&token=v4.public.…&name=My%20phone
//! ```
//!
//! The addresses all lead to the same relay. One or two pins name its keys (SPKI SHA-256, base64url without padding), the
//! present one first. The token proves to the relay that the client may use it; so the link is a secret as a whole.
//! Parsing is strict: a link that another program mangled is refused with the part that is wrong, and no error repeats
//! the token. The text is specified in `docs/PROTOCOL.md`, "Pairing link".

mod pairings;
mod secret;

pub use pairings::{MAX_PAIRINGS, Pairing, Pairings, PairingsError};
pub use secret::Secret;

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::wire::flow::{MAX_TOKEN, Target, TargetError};

/// The version of links that this code reads and writes.
pub const LINK_VERSION: &str = "1";
/// The most relay addresses in a link.
pub const MAX_RELAYS: usize = 8;
/// The longest name of a pairing, in bytes.
pub const MAX_PAIRING_NAME: usize = 64;
/// The longest link, in bytes; what fits a QR code that a phone reads from a screen.
pub const MAX_LINK: usize = 2048;

const SCHEME: &str = "tandem://";
/// What a name's characters are written as themselves; all others are percent-encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How to reach and trust one relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairingLink {
    /// The relay's addresses, 1 to [`MAX_RELAYS`].
    pub relays: Vec<Target>,
    /// SPKI SHA-256 of the relay's keys: the present one, then the next one if it is known; 1 or 2.
    pub pins: Vec<[u8; 32]>,
    /// The access token: letters, digits, `-`, `_` and `.`, at most [`MAX_TOKEN`] bytes.
    pub token: Secret,
    /// What the relay's operator called this pairing, as a rule the device; at most [`MAX_PAIRING_NAME`] bytes without
    /// control characters, may be empty.
    pub name: String,
}

/// Why a text is not a pairing link; never shows the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Not a link at all.
    #[error("a pairing link begins with tandem:// and continues ADDRESSES/?v=1&pin=...&token=...")]
    Form,
    /// Longer than any link.
    #[error("the pairing link is {0} bytes long; at most {MAX_LINK} are allowed")]
    Length(usize),
    /// A version that this program does not know.
    #[error("version (v) of the pairing link is {0:?}; this program reads version {LINK_VERSION}: update it")]
    Version(String),
    /// An address of the relay is wrong.
    #[error("relay address of the pairing link is wrong")]
    Relay(#[source] TargetError),
    /// No address, or too many.
    #[error("the pairing link names {0} relay addresses; 1 to {MAX_RELAYS} are allowed")]
    RelayCount(usize),
    /// A pin is not a hash.
    #[error("pin of the pairing link is {0:?}; it must be 43 characters of base64url (SHA-256 of the relay's key)")]
    Pin(String),
    /// No pin, or too many.
    #[error("the pairing link holds {0} pins; 1 or 2 are allowed")]
    PinCount(usize),
    /// The token is missing or cannot be one.
    #[error(
        "token of the pairing link is missing, too long or holds a character other than letters, digits, '-', '_' and '.'"
    )]
    Token,
    /// The name cannot be one.
    #[error(
        "name of the pairing link is not percent-encoded UTF-8 of at most {MAX_PAIRING_NAME} bytes without control characters"
    )]
    Name,
    /// A part that may stand once stands twice.
    #[error("the pairing link has more than one {0}")]
    Repeated(&'static str),
    /// A part that links do not have.
    #[error("the pairing link has a part {0:?}; allowed: v, pin, token, name")]
    Unknown(String),
}

impl PairingLink {
    /// The link as text, token included: show it to the person who pairs and to nobody else. There is no `Display`, so
    /// that it cannot slip into a log.
    pub fn expose(&self) -> String {
        Spelled(self).to_string()
    }

    /// Takes over what the relay tells in a session: the key that it has `proved`, the one that it will use `next`, and a renewed
    /// token; `false` if all of that is known. A token that cannot stand in a link is ignored.
    pub fn learn(&mut self, proved: Option<[u8; 32]>, next: Option<[u8; 32]>, token: Option<Secret>) -> bool {
        let before = self.clone();
        if let Some(proved) = proved {
            self.pins = vec![proved];
            self.pins.extend(next.filter(|next| *next != proved));
        }
        if let Some(token) = token {
            let old = std::mem::replace(&mut self.token, token);
            if self.check().is_err() {
                self.token = old;
            }
        }
        *self != before
    }

    /// Takes over the token and the pins of a link of the same relay; `false` if it is another relay's.
    pub fn renew(&mut self, from: &PairingLink) -> bool {
        let same = self.is_same_relay(from);
        if same {
            self.token = from.token.clone();
            self.pins.clone_from(&from.pins);
        }
        same
    }

    /// Whether two links lead to one relay: they have a key in common.
    pub fn is_same_relay(&self, other: &PairingLink) -> bool {
        self.pins.iter().any(|pin| other.pins.contains(pin))
    }

    /// Checks what [`PairingLink::from_str`] checks, for a link that was put together in code.
    ///
    /// # Errors
    /// [`LinkError`] with the part that is wrong.
    pub fn check(&self) -> Result<(), LinkError> {
        let text = self.expose();
        text.parse::<PairingLink>().map(drop)
    }
}

/// Writes a link out; private, because it shows the token.
struct Spelled<'a>(&'a PairingLink);

impl fmt::Display for Spelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        for (index, relay) in self.0.relays.iter().enumerate() {
            write!(f, "{}{relay}", if index == 0 { "" } else { "," })?;
        }
        write!(f, "/?v={LINK_VERSION}")?;
        for pin in &self.0.pins {
            write!(f, "&pin={}", URL_SAFE_NO_PAD.encode(pin))?;
        }
        write!(f, "&token={}", self.0.token.expose())?;
        if !self.0.name.is_empty() {
            write!(f, "&name={}", utf8_percent_encode(&self.0.name, ENCODED))?;
        }
        Ok(())
    }
}

impl FromStr for PairingLink {
    type Err = LinkError;

    /// Reads a link; white space around it is ignored, as copying often adds it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.len() > MAX_LINK {
            return Err(LinkError::Length(text.len()));
        }
        let rest = text.strip_prefix(SCHEME).ok_or(LinkError::Form)?;
        let (relays, query) = rest.split_once("/?").ok_or(LinkError::Form)?;
        let parts = Parts::split(query)?;
        match parts.version {
            Some(LINK_VERSION) => {}
            other => return Err(LinkError::Version(other.unwrap_or_default().to_owned())),
        }

        let count = relays.split(',').filter(|relay| !relay.is_empty()).count();
        if !(1..=MAX_RELAYS).contains(&count) {
            return Err(LinkError::RelayCount(count));
        }
        let relays = relays.split(',').map(str::parse).collect::<Result<_, _>>().map_err(LinkError::Relay)?;
        if !(1..=2).contains(&parts.pins.len()) {
            return Err(LinkError::PinCount(parts.pins.len()));
        }
        let pins = parts.pins.into_iter().map(parse_pin).collect::<Result<_, _>>()?;
        let token = parts.token.filter(|token| is_token(token)).ok_or(LinkError::Token)?;
        let name = parse_name(parts.name.unwrap_or_default())?;
        Ok(PairingLink { relays, pins, token: Secret::new(token.to_owned()), name })
    }
}

/// A link's query, split but not yet checked.
#[derive(Default)]
struct Parts<'a> {
    version: Option<&'a str>,
    pins: Vec<&'a str>,
    token: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn split(query: &'a str) -> Result<Self, LinkError> {
        let mut parts = Parts::default();
        for part in query.split('&') {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let once = |slot: &mut Option<&'a str>, key| match slot.replace(value) {
                Some(_) => Err(LinkError::Repeated(key)),
                None => Ok(()),
            };
            match key {
                "v" => once(&mut parts.version, "v")?,
                "pin" => parts.pins.push(value),
                "token" => once(&mut parts.token, "token")?,
                "name" => once(&mut parts.name, "name")?,
                // A mangled link may have the token anywhere; its characters are shown for short keys alone.
                _ if key.len() <= 16 => return Err(LinkError::Unknown(key.to_owned())),
                _ => return Err(LinkError::Unknown("...".to_owned())),
            }
        }
        Ok(parts)
    }
}

fn parse_pin(text: &str) -> Result<[u8; 32], LinkError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| LinkError::Pin(text.chars().take(64).collect()))
}

fn is_token(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=MAX_TOKEN).contains(&text.len()) && text.bytes().all(allowed)
}

fn parse_name(text: &str) -> Result<String, LinkError> {
    // The printer writes these characters and no others; a raw one means that the link was retyped or cut.
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)) {
        return Err(LinkError::Name);
    }
    let name = percent_decode_str(text).decode_utf8().map_err(|_| LinkError::Name)?;
    if name.len() > MAX_PAIRING_NAME || name.chars().any(char::is_control) {
        return Err(LinkError::Name);
    }
    Ok(name.into_owned())
}

#[cfg(test)]
mod tests;
