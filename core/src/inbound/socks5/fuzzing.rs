//! A door for the fuzzers to the codec.

use super::codec::{Event, Handshake};
use crate::inbound::Check;
use crate::inbound::credentials::example_check;

/// A client's bytes in pieces of at most `piece`, with a password set or not: how many are the handshake's, how it answers,
/// and the target in the end.
pub fn handshake(mut bytes: &[u8], piece: usize, password: bool) -> (usize, Vec<String>) {
    let mut handshake = Handshake::new(password.then_some(&example_check as Check<'_>));
    let mut events = Vec::new();
    let mut used = 0;
    while !bytes.is_empty() {
        let space = handshake.space();
        assert!(!space.is_empty(), "a handshake that goes on wants bytes");
        let length = space.len().min(piece.max(1)).min(bytes.len());
        space[..length].copy_from_slice(&bytes[..length]);
        bytes = &bytes[length..];
        used += length;
        if let Some(event) = handshake.handle_read(length) {
            events.push(format!("{event:?}"));
            if !matches!(event, Event::Send(_)) {
                break;
            }
        }
    }
    (used, events)
}
