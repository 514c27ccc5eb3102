//! TLS of a session: the relay's self-signed certificate is known by its key, never by its name.
//!
//! A pairing link pins the SHA-256 of the relay's SubjectPublicKeyInfo (RFC 7469, section 2.4); one or two pins, so that a
//! key can be rotated. The handshake's signature is verified as always: whoever has the certificate but not its key is
//! refused.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};

/// SHA-256 of a relay's SubjectPublicKeyInfo.
pub type SpkiPin = [u8; 32];

/// The protocol that both ends must speak (`docs/PROTOCOL.md`).
pub(super) const ALPN: &[u8] = b"tandem/1";

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The certificate cannot be read.
    #[error("the relay's certificate cannot be read")]
    Certificate(#[source] webpki::Error),
    /// The key cannot be used with the certificate.
    #[error("the relay's private key cannot be used")]
    Key(#[source] rustls::Error),
    /// No cipher suite serves QUIC.
    #[error("the TLS library offers no cipher suite for QUIC")]
    Suite,
}

/// The pin of a certificate.
///
/// # Errors
/// [`IdentityError::Certificate`] if it is no X.509 certificate.
pub fn spki_pin(certificate_der: &[u8]) -> Result<SpkiPin, IdentityError> {
    let der = CertificateDer::from(certificate_der);
    let certificate = webpki::EndEntityCert::try_from(&der).map_err(IdentityError::Certificate)?;
    Ok(pin_of(&certificate))
}

fn pin_of(certificate: &webpki::EndEntityCert<'_>) -> SpkiPin {
    let spki = certificate.subject_public_key_info();
    let digest = ring::digest::digest(&ring::digest::SHA256, spki.as_ref());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

pub(super) fn client_config(pins: Vec<SpkiPin>) -> Result<Arc<QuicClientConfig>, IdentityError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(PinnedKey { pins, algorithms: provider.signature_verification_algorithms });
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(IdentityError::Key)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Every session proves its token anew; there is nothing to gain from a ticket that names the client.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(QuicClientConfig::try_from(config).map_err(|_| IdentityError::Suite)?))
}

pub(super) fn server_config(cert_der: Vec<u8>, key_pkcs8_der: Vec<u8>) -> Result<Arc<QuicServerConfig>, IdentityError> {
    let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(IdentityError::Key)?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(cert_der)], PrivatePkcs8KeyDer::from(key_pkcs8_der).into())
        .map_err(IdentityError::Key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(QuicServerConfig::try_from(config).map_err(|_| IdentityError::Suite)?))
}

/// Accepts the one certificate whose key is pinned.
#[derive(Debug)]
struct PinnedKey {
    pins: Vec<SpkiPin>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = webpki::EndEntityCert::try_from(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        if self.pins.contains(&pin_of(&certificate)) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
