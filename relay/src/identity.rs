//! The relay's key pair and certificate: what clients pin.
//!
//! The certificate is self-signed and made anew from the key at every start: clients look at the key alone (SPKI SHA-256), so
//! nothing in the certificate needs to last, and there is no file of it that could fail to match the key.

use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use tandem_proto::pairing::Secret;

/// The name in the certificate; clients do not look at it.
const CERTIFICATE_NAME: &str = "tandem-relay";

/// A relay's key pair (ECDSA P-256 when generated here) and a certificate for it.
pub struct Identity {
    key: KeyPair,
    certificate_der: Vec<u8>,
}

/// Why a key pair cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The text is not a PKCS #8 private key in PEM of a kind that TLS can use.
    #[error("not a private key in PEM (PKCS #8; ECDSA P-256 or Ed25519)")]
    Form(#[source] rcgen::Error),
    /// The key could not be made, or the certificate not be signed.
    #[error("the key pair or its certificate could not be made")]
    Make(#[source] rcgen::Error),
}

impl Identity {
    /// A new key pair.
    ///
    /// # Errors
    /// [`IdentityError::Make`].
    pub fn generate() -> Result<Self, IdentityError> {
        Self::new(KeyPair::generate().map_err(IdentityError::Make)?)
    }

    /// Reads the key's PEM text.
    ///
    /// # Errors
    /// [`IdentityError`]; the text is not repeated.
    pub fn from_pem(text: &str) -> Result<Self, IdentityError> {
        Self::new(KeyPair::from_pem(text).map_err(IdentityError::Form)?)
    }

    fn new(key: KeyPair) -> Result<Self, IdentityError> {
        let params = CertificateParams::new([CERTIFICATE_NAME.to_owned()]).map_err(IdentityError::Make)?;
        let certificate_der = params.self_signed(&key).map_err(IdentityError::Make)?.der().to_vec();
        Ok(Self { key, certificate_der })
    }

    /// The key's PEM text, to be stored where nobody else reads it.
    pub fn to_pem(&self) -> Secret {
        Secret::new(self.key.serialize_pem())
    }

    /// SHA-256 of the key's SubjectPublicKeyInfo: what pairing links carry.
    pub fn pin(&self) -> [u8; 32] {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.key.subject_public_key_info());
        digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// The certificate, in DER.
    pub fn certificate_der(&self) -> &[u8] {
        &self.certificate_der
    }

    /// The private key, in DER (PKCS #8).
    pub fn key_der(&self) -> Vec<u8> {
        self.key.serialize_der()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_pin_across_restarts() {
        let identity = Identity::generate().unwrap();
        let again = Identity::from_pem(identity.to_pem().expose()).unwrap();
        assert_eq!(identity.pin(), again.pin());
        assert_ne!(identity.pin(), Identity::generate().unwrap().pin());
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_and_not_repeated() {
        let error = Identity::from_pem("my secret").map(drop).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("PKCS #8") && !shown.contains("my secret"), "{shown}");
    }
}
