//! Doors for the fuzzers to what applications and origins say in HTTP.

use std::net::SocketAddr;

use super::body::Body;
use super::fields::{HeadEnd, Limits};
use super::request::{self, Asked, Wish};
use super::response;
use crate::inbound::Check;
use crate::inbound::credentials::example_check;

/// What becomes of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its head is not whole.
    Partial,
    /// It is answered by the proxy itself or refused.
    Refused,
    /// It opens a tunnel to this target.
    Tunnel(String),
    /// This head goes on, and so many of the bytes behind the one that came are its body; `None` if they are no body.
    GoesOn(Vec<u8>, Option<usize>),
}

/// A request, with a password set or not, whose body comes in pieces.
pub fn request(bytes: &[u8], piece: usize, password: bool) -> Fate {
    let Some(end) = head(bytes, request::LIMITS, piece) else { return Fate::Partial };
    let local = SocketAddr::from(([127, 0, 0, 1], 1_080));
    match request::read_request(&bytes[..end], password.then_some(&example_check as Check<'_>), local) {
        Err(_) => Fate::Refused,
        Ok(read) => match read.wish {
            Wish::Answer(_) => Fate::Refused,
            Wish::Tunnel(target) => Fate::Tunnel(target.to_string()),
            Wish::Forward { head, .. } => Fate::GoesOn(head, measure(read.body, &bytes[end..], piece)),
        },
    }
}

/// A response to a plain request, whose body comes in pieces.
pub fn response(bytes: &[u8], piece: usize, upgrade: bool) -> Fate {
    let Some(end) = head(bytes, response::LIMITS, piece) else { return Fate::Partial };
    let asked = Asked { head_only: false, upgrade, expects_continue: false, old_client: false };
    match response::read_response(&bytes[..end], asked, true) {
        Err(_) => Fate::Refused,
        Ok(read) => Fate::GoesOn(read.head, measure(read.body, &bytes[end..], piece)),
    }
}

/// The length of a head that comes in pieces; `None` if it is not whole, or too large.
fn head(bytes: &[u8], limits: Limits, piece: usize) -> Option<usize> {
    let mut end = HeadEnd::new(limits);
    let mut seen = 0;
    while seen < bytes.len() {
        seen = seen.saturating_add(piece.max(1)).min(bytes.len());
        if let Some(found) = end.find(&bytes[..seen]).ok()? {
            return Some(found);
        }
    }
    None
}

fn measure(mut body: Body, bytes: &[u8], piece: usize) -> Option<usize> {
    let mut total = 0;
    for part in bytes.chunks(piece.max(1)) {
        let taken = body.measure(part, None).ok()?;
        total += taken;
        if taken < part.len() {
            break;
        }
    }
    Some(total)
}
