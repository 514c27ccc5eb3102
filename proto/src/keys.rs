//! Keys of a session, below QUIC: what proves that a datagram header or a control datagram belongs to it.
//!
//! Both ends derive the same keys from a secret that TLS exports (RFC 5705, label [`EXPORTER_LABEL`]); nobody else knows
//! it. Each direction has two AES-128-GCM keys: one makes the short tags of datagram headers (`docs/PROTOCOL.md`,
//! "Datagram header"), the other seals control datagrams. A nonce is never used twice with one key: headers take
//! theirs from the datagram's number, control datagrams from their counter.

use std::fmt;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;

/// The label under which the session's secret is exported from TLS.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-tandem-1-paths";

/// Length of the exported secret, in bytes.
pub const SECRET_LEN: usize = 32;

/// Length of a full AEAD tag, in bytes.
pub const SEAL_LEN: usize = 16;

/// Which end of a session this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The user's device.
    Client,
    /// The server-side proxy.
    Relay,
}

/// Names a session to the relay in control datagrams; derived from the secret, so it reveals nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 8]);

/// The keys of one session as one end uses them.
pub struct SessionKeys {
    /// Names the session.
    pub id: SessionId,
    /// For what this end sends.
    pub(crate) send: DirectionKeys,
    /// For what this end receives.
    pub(crate) recv: DirectionKeys,
}

/// The keys of one direction.
pub(crate) struct DirectionKeys {
    header: LessSafeKey,
    control: LessSafeKey,
}

impl SessionKeys {
    /// Derives the keys of `role` from the secret exported under [`EXPORTER_LABEL`].
    pub fn derive(secret: &[u8; SECRET_LEN], role: Role) -> Self {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tandem/1").extract(secret);
        let mut id = [0; 8];
        expand(&prk, b"session id", &mut id);
        let client = DirectionKeys::derive(&prk, b"client header", b"client control");
        let relay = DirectionKeys::derive(&prk, b"relay header", b"relay control");
        let (send, recv) = match role {
            Role::Client => (client, relay),
            Role::Relay => (relay, client),
        };
        Self { id: SessionId(id), send, recv }
    }
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").field("id", &self.id).finish_non_exhaustive()
    }
}

impl DirectionKeys {
    fn derive(prk: &hkdf::Prk, header: &[u8], control: &[u8]) -> Self {
        Self { header: aes_key(prk, header), control: aes_key(prk, control) }
    }

    /// The four-byte tag of the QUIC datagram in `scratch`, which is garbage afterwards: AES-128-GCM's tag of it as plaintext,
    /// with the whole header as the nonce, cut to 32 bits.
    ///
    /// The ciphertext is thrown away. As associated data the datagram would cost three times as much, since libraries hash
    /// that block by block.
    pub(crate) fn header_tag(&self, nonce: [u8; 12], scratch: &mut [u8]) -> [u8; 4] {
        let tag = self
            .header
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), scratch)
            .expect("a datagram is far below the length limit of AES-GCM");
        let full = tag.as_ref();
        [full[0], full[1], full[2], full[3]]
    }

    /// Seals `buffer[from..]` and appends the tag; `buffer[..from]` is authenticated with it.
    pub(crate) fn seal_control(&self, counter: u64, buffer: &mut Vec<u8>, from: usize) {
        let (head, body) = buffer.split_at_mut(from);
        let tag = self
            .control
            .seal_in_place_separate_tag(counter_nonce(counter), Aad::from(&*head), body)
            .expect("a control datagram is far below the length limit of AES-GCM");
        buffer.extend_from_slice(tag.as_ref());
    }

    /// Opens what [`Self::seal_control`] sealed; `None` if it was not sealed with this key, head and counter.
    pub(crate) fn open_control<'a>(&self, counter: u64, head: &[u8], body: &'a mut [u8]) -> Option<&'a [u8]> {
        self.control.open_in_place(counter_nonce(counter), Aad::from(head), body).ok().map(|plain| &*plain)
    }
}

fn counter_nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn aes_key(prk: &hkdf::Prk, label: &[u8]) -> LessSafeKey {
    let mut key = [0; 16];
    expand(prk, label, &mut key);
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("AES-128 keys have 16 bytes"))
}

fn expand(prk: &hkdf::Prk, label: &[u8], out: &mut [u8]) {
    struct Len(usize);
    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    prk.expand(&[label], Len(out.len()))
        .and_then(|okm| okm.fill(out))
        .expect("a few bytes are within the limits of HKDF");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_derive_keys_that_fit() {
        let secret = [7; SECRET_LEN];
        let client = SessionKeys::derive(&secret, Role::Client);
        let relay = SessionKeys::derive(&secret, Role::Relay);
        assert_eq!(client.id, relay.id);
        let tag = |keys: &DirectionKeys| keys.header_tag([1; 12], &mut b"data".to_owned());
        assert_eq!(tag(&client.send), tag(&relay.recv));
        assert_ne!(tag(&client.send), tag(&relay.send));

        let mut sealed = b"head".to_vec();
        sealed.extend_from_slice(b"body");
        client.send.seal_control(3, &mut sealed, 4);
        let mut body = sealed.split_off(4);
        assert_eq!(relay.recv.open_control(3, b"head", &mut body), Some(&b"body"[..]));
    }

    #[test]
    fn a_changed_byte_head_or_counter_is_refused() {
        let secret = [7; SECRET_LEN];
        let client = SessionKeys::derive(&secret, Role::Client);
        let relay = SessionKeys::derive(&secret, Role::Relay);
        let mut sealed = b"headbody".to_vec();
        client.send.seal_control(3, &mut sealed, 4);
        for (counter, head, flip) in [(4, b"head", 0), (3, b"Head", 0), (3, b"head", 1)] {
            let mut body = sealed[4..].to_vec();
            body[0] ^= flip;
            assert_eq!(relay.recv.open_control(counter, head, &mut body), None);
        }
    }
}
