//! A relay's key and certificate that are the same in every run.
//!
//! Ed25519, because its signatures all have one length: with ECDSA the handshake's datagrams would differ by a byte or two
//! from run to run, and with them every time that follows.

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, PublicKeyData};
use ring::digest::{SHA256, digest};

/// PKCS #8 version 1 of an Ed25519 key up to its 32 secret bytes (RFC 8410 section 7).
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// What a relay proves itself with. Worthless as a secret: it is made from a seed that anyone can read.
#[derive(Clone)]
pub struct Identity {
    /// The self-signed certificate, DER.
    pub certificate: Vec<u8>,
    /// The private key, PKCS #8 DER.
    pub key: Vec<u8>,
    /// SHA-256 of the certificate's public key info, as clients pin it.
    pub pin: [u8; 32],
}

impl Identity {
    /// Makes the identity that belongs to a seed.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let key = [&PKCS8_HEAD[..], &seed].concat();
        let pair = KeyPair::from_pkcs8_der_and_sign_algo(&key.as_slice().into(), &PKCS_ED25519)
            .expect("any 32 bytes are an Ed25519 key");
        let certificate = CertificateParams::new(vec!["relay.test".to_owned()])
            .and_then(|parameters| parameters.self_signed(&pair))
            .expect("the name and the key are valid");
        let mut pin = [0; 32];
        pin.copy_from_slice(digest(&SHA256, &pair.subject_public_key_info()).as_ref());
        Self { certificate: certificate.der().to_vec(), key, pin }
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_identity_and_another_seed_another() {
        let (first, again, other) =
            (Identity::from_seed([1; 32]), Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
        assert_eq!(first.certificate, again.certificate);
        assert_eq!(first.pin, again.pin);
        assert_ne!(first.pin, other.pin);
    }
}
