//! Ends of different versions, over real QUIC on loopback: they work together, or say which side is to be updated.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tandem_core::client::{Engine, EngineConfig};
use tandem_core::platform::System;
use tandem_core::transport::{
    Client, ConnectConfig, Connection, PathSocket, PathSpec, RelayEndpoint, RelayEndpointConfig, Stream, UdpPathSocket,
};
use tandem_proto::admission::HandshakeRates;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::Mode;
use tandem_proto::pairing::{PairingLink, Secret};
use tandem_proto::stats::{SessionState, Snapshot};
use tandem_proto::wire::flow::{
    ControlMessage, FRAME_HEAD, Hello, Refused, RefusedReason, VersionRange, Welcome, encode_answer, frame_length,
};
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Relay, RelayConfig};
use tandem_relay::tokens::Authority;
use tandem_testbed::Identity;
use time::OffsetDateTime;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The type of a frame that no version knows yet.
const UNKNOWN: u16 = 0x6abc;

fn udp() -> Arc<dyn PathSocket> {
    UdpPathSocket::new(std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap()
}

fn link(address: SocketAddr, pin: [u8; 32], token: Secret) -> PairingLink {
    PairingLink { relays: vec![address.to_string().parse().unwrap()], pins: vec![pin], token, name: String::new() }
}

/// A relay of this version, and a link to it.
fn our_relay() -> PairingLink {
    let socket = udp();
    let address = socket.local_addr().unwrap();
    let identity = tandem_relay::identity::Identity::generate().unwrap();
    let authority = Authority::generate().unwrap();
    let (token, _) = authority.issue("test", OffsetDateTime::now_utc(), Duration::from_secs(3600)).unwrap();
    let link = link(address, identity.pin(), token);
    let config = RelayConfig::new(identity, authority.verifier());
    let egress = TcpEgress::new(AccessRules::new(Vec::new()), OwnAddresses::default());
    let relay = Relay::bind(config, vec![socket], egress).unwrap();
    tokio::spawn(relay.serve(CancellationToken::new()));
    link
}

/// A relay of another version that is made of this one's transport and these words.
struct OtherRelay {
    endpoint: RelayEndpoint,
    link: PairingLink,
}

fn other_relay() -> OtherRelay {
    let socket = udp();
    let address = socket.local_addr().unwrap();
    let identity = Identity::from_seed([7; 32]);
    let link = link(address, identity.pin, Secret::new("v4.public.token".to_owned()));
    let (cert_der, key_pkcs8_der) = (identity.certificate, identity.key);
    let config = RelayEndpointConfig { cert_der, key_pkcs8_der, handshakes: HandshakeRates::default(), seed: None };
    OtherRelay { endpoint: RelayEndpoint::bind(config, vec![socket]).unwrap(), link }
}

async fn our_client(link: PairingLink) -> Engine {
    let config = EngineConfig {
        listen: None,
        interfaces: vec!["lo".to_owned()],
        captive_check: false,
        ..EngineConfig::new(link)
    };
    Engine::start(config, Arc::new(System)).await.unwrap()
}

async fn until(engine: &Engine, condition: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    let mut snapshots = engine.handle().subscribe();
    let found = timeout(PATIENCE, snapshots.wait_for(condition)).await.map(|found| found.unwrap().clone());
    found.unwrap_or_else(|_| panic!("not so in time: {:#?}", engine.handle().snapshot()))
}

async fn connect(link: &PairingLink) -> Connection {
    let config =
        ConnectConfig { pins: link.pins.clone(), congestion: Algorithm::Cubic, mode: Mode::Single, seed: None };
    let remote = link.relays[0].to_string().parse().unwrap();
    let path = PathSpec { interface: "lo".to_owned(), socket: udp(), remote };
    timeout(PATIENCE, Client::connect(config, vec![path])).await.unwrap().unwrap()
}

fn frame(frame_type: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap();
    [&frame_type.to_be_bytes()[..], &length.to_be_bytes(), payload].concat()
}

fn encoded(message: &ControlMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// The same with bytes that a later version adds.
fn lengthened(message: &ControlMessage) -> Vec<u8> {
    let bytes = encoded(message);
    let payload = [&bytes[FRAME_HEAD..], b"fields of a later version"].concat();
    frame(u16::from_be_bytes([bytes[0], bytes[1]]), &payload)
}

async fn read(stream: &mut Stream) -> ControlMessage {
    let whole = async {
        let mut head = [0; FRAME_HEAD];
        stream.recv.read_exact(&mut head).await.unwrap();
        let mut frame = head.to_vec();
        frame.resize(frame_length(&head).unwrap(), 0);
        stream.recv.read_exact(&mut frame[FRAME_HEAD..]).await.unwrap();
        ControlMessage::decode(&frame).unwrap().unwrap().0
    };
    timeout(PATIENCE, whole).await.unwrap()
}

fn hello(versions: VersionRange, token: Secret) -> ControlMessage {
    let client = "tandem of another version".to_owned();
    ControlMessage::Hello(Hello { versions, features: u32::MAX, congestion: None, token, client })
}

fn welcome() -> Welcome {
    let relay = "tandem-relay of another version".to_owned();
    let congestion = Some(Algorithm::Bbr3);
    Welcome { version: 1, features: u32::MAX, max_flows: 8, token_expires: 1, congestion, next_pin: None, relay }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_client_that_still_speaks_this_version_is_served_whatever_it_adds() {
    let link = our_relay();
    let connection = connect(&link).await;
    let mut control = connection.open_stream().await.unwrap();
    let hello = hello(VersionRange { min: 1, max: 9 }, link.token.clone());
    for bytes in [frame(UNKNOWN, b"before the Hello"), lengthened(&hello), frame(UNKNOWN, &[7; 4096])] {
        control.send.write_all(&bytes).await.unwrap();
    }
    let answer = read(&mut control).await;
    let ControlMessage::Welcome(welcome) = answer else { panic!("{answer:?}") };
    assert_eq!(
        (welcome.version, welcome.features),
        (1, 0),
        "the newest common version, and no feature that it has not"
    );
    control.send.write_all(&frame(UNKNOWN, b"after the Welcome")).await.unwrap();
    let still = timeout(Duration::from_millis(300), connection.closed()).await;
    assert!(still.is_err(), "{still:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_speaks_only_a_later_version_is_told_to_have_the_relay_updated() {
    let link = our_relay();
    let connection = connect(&link).await;
    let mut control = connection.open_stream().await.unwrap();
    // Of a Hello of another version only the first two fields are known.
    control.send.write_all(&frame(1, &[0, 2, 0, 2, 0xff, 0xff, 0xff])).await.unwrap();
    let answer = read(&mut control).await;
    let ControlMessage::Refused(refused) = answer else { panic!("{answer:?}") };
    assert_eq!((refused.reason, refused.versions), (RefusedReason::Version, VersionRange::OURS));
    assert_eq!(refused.text, "this relay speaks version 1 of the protocol, the client version 2: update the relay");
    let closed = timeout(PATIENCE, connection.closed()).await.unwrap();
    assert_eq!(closed.code, Some(256 + 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_speaks_only_a_later_version_ends_the_trying_with_a_clear_word() {
    let relay = other_relay();
    let engine = our_client(relay.link.clone()).await;
    let serving = tokio::spawn(async move {
        while let Some(connection) = relay.endpoint.accept().await {
            let mut control = connection.accept_stream().await.unwrap();
            assert!(matches!(read(&mut control).await, ControlMessage::Hello(_)));
            let (reason, versions) = (RefusedReason::Version, VersionRange { min: 2, max: 3 });
            let refused = ControlMessage::Refused(Refused { reason, versions, relay_time: 0, text: String::new() });
            control.send.write_all(&lengthened(&refused)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            connection.close(256 + 5, "version");
        }
    });
    let stopped = until(&engine, |snapshot| snapshot.state == SessionState::Stopped).await;
    let problem = stopped.problem.unwrap();
    let expected = "it speaks another version of the protocol; update the older side (it speaks versions 2 to 3, this client \
                    version 1)";
    assert!(problem.contains(expected), "{problem}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_relay_that_still_speaks_this_version_is_used_whatever_it_adds() {
    let relay = other_relay();
    let engine = our_client(relay.link.clone()).await;
    let serving = tokio::spawn(async move {
        let connection = relay.endpoint.accept().await.unwrap();
        let mut control = connection.accept_stream().await.unwrap();
        assert!(matches!(read(&mut control).await, ControlMessage::Hello(_)));
        for bytes in [
            frame(UNKNOWN, b"before the Welcome"),
            lengthened(&ControlMessage::Welcome(welcome())),
            frame(UNKNOWN, &[7; 4096]),
        ] {
            control.send.write_all(&bytes).await.unwrap();
        }
        // A flow, answered and echoed after all that.
        let mut flow = connection.accept_stream().await.unwrap();
        let mut request = [0; 5 + 7];
        flow.recv.read_exact(&mut request).await.unwrap();
        flow.send.write_all(&[encode_answer(Ok(()))]).await.unwrap();
        let _ = connection.closed().await;
    });
    until(&engine, |snapshot| snapshot.state == SessionState::Connected).await;
    let dial = engine.handle().dial();
    let opened = timeout(PATIENCE, dial.open_tcp("example:80".parse().unwrap())).await.unwrap();
    assert!(opened.is_ok(), "{:?}", opened.err());
    assert_eq!(engine.handle().snapshot().state, SessionState::Connected);
    engine.stop().await;
    timeout(PATIENCE, serving).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_welcomes_in_a_version_that_was_not_offered_is_not_used() {
    let relay = other_relay();
    let engine = our_client(relay.link.clone()).await;
    tokio::spawn(async move {
        while let Some(connection) = relay.endpoint.accept().await {
            tokio::spawn(async move {
                let mut control = connection.accept_stream().await.unwrap();
                read(&mut control).await;
                let welcome = ControlMessage::Welcome(Welcome { version: 2, ..welcome() });
                control.send.write_all(&encoded(&welcome)).await.unwrap();
                let _ = connection.closed().await;
            });
        }
    });
    let trying = until(&engine, |snapshot| snapshot.problem.is_some()).await;
    assert_eq!(trying.state, SessionState::Connecting);
    let problem = trying.problem.unwrap();
    assert!(problem.contains("version is 2; allowed: one that the Hello offered"), "{problem}");
}

/// A server of the protocol `tandem/2`, and a link to it.
fn server_of_another_alpn() -> (quinn::Endpoint, PairingLink) {
    let identity = Identity::from_seed([7; 32]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(identity.certificate)],
            PrivateKeyDer::try_from(identity.key).unwrap(),
        )
        .unwrap();
    tls.alpn_protocols = vec![b"tandem/2".to_vec()];
    let config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
    let endpoint = quinn::Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let link = link(endpoint.local_addr().unwrap(), identity.pin, Secret::new("v4.public.token".to_owned()));
    (endpoint, link)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_of_another_protocol_is_told_as_such() {
    let (endpoint, link) = server_of_another_alpn();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(async move { incoming.await.map(drop) });
        }
    });
    let engine = our_client(link).await;
    let trying = until(&engine, |snapshot| snapshot.problem.is_some()).await;
    let problem = trying.problem.unwrap();
    assert!(
        problem.contains("the server does not speak tandem/1: it is another service, or another version"),
        "{problem}"
    );
}

/// Takes every certificate.
#[derive(Debug)]
struct Gullible;

impl rustls::client::danger::ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_protocol_is_turned_away_in_the_handshake() {
    let link = our_relay();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"tandem/2".to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let relay: SocketAddr = link.relays[0].to_string().parse().unwrap();
    let connecting = endpoint.connect_with(config, relay, "relay").unwrap();
    let error = timeout(PATIENCE, connecting).await.unwrap().unwrap_err();
    // no_application_protocol (RFC 7301, section 3.2), as QUIC carries alerts.
    let quinn::ConnectionError::ConnectionClosed(close) = &error else { panic!("{error:?}") };
    assert_eq!(u64::from(close.error_code), 0x100 + 120);
}
