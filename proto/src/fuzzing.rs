//! What a far side that has the session's keys can make, for the fuzzers: datagrams that pass every check of seals and
//! tags, whatever they say.

use crate::keys::{Role, SECRET_LEN, SessionKeys};
use crate::wire::control;
use crate::wire::header::{Header, HoldClass, Part};

/// One end of a session that keeps to no rule.
#[derive(Debug)]
pub struct FarSide {
    keys: SessionKeys,
}

impl FarSide {
    /// The end of `role` in the session with this secret.
    pub fn new(secret: &[u8; SECRET_LEN], role: Role) -> Self {
        Self { keys: SessionKeys::derive(secret, role) }
    }

    /// A sealed control datagram with any plain message.
    pub fn control(&self, counter: u64, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        control::seal_with(&self.keys.send, self.keys.id, counter, |out| out.extend_from_slice(plain), &mut out);
        out
    }

    /// A framed datagram with any fields; `departure` in ticks.
    pub fn framed(&self, number: u64, departure: u32, hold: HoldClass, part: Part, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Header::encode_into(&self.keys.send, number, departure, hold, part, body, &mut out);
        out
    }
}
