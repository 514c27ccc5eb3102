//! Sessions over real loopback sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::dial::FlowSend;
use tandem_core::transport::{
    Client, ConnectConfig, ConnectError, Connection, PathSocket, PathSpec, RelayEndpoint, RelayEndpointConfig,
    UdpPathSocket, spki_pin,
};
use tandem_proto::admission::HandshakeRates;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::stats::PathState;

fn loopback_socket() -> Arc<dyn PathSocket> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
    UdpPathSocket::new(socket).expect("usable socket")
}

struct Relay {
    endpoint: Arc<RelayEndpoint>,
    addresses: Vec<SocketAddr>,
    pin: [u8; 32],
}

fn relay(listeners: usize) -> Relay {
    let identity = rcgen::generate_simple_self_signed(vec!["relay".to_owned()]).expect("an identity");
    let sockets: Vec<_> = (0..listeners).map(|_| loopback_socket()).collect();
    let addresses = sockets.iter().map(|socket| socket.local_addr().expect("bound")).collect();
    let cert_der = identity.cert.der().to_vec();
    let pin = spki_pin(&cert_der).expect("a certificate");
    let (key_pkcs8_der, handshakes) = (identity.signing_key.serialize_der(), HandshakeRates::default());
    let config = RelayEndpointConfig { cert_der, key_pkcs8_der, handshakes, seed: None };
    Relay { endpoint: Arc::new(RelayEndpoint::bind(config, sockets).expect("an endpoint")), addresses, pin }
}

fn config(relay: &Relay, mode: Mode) -> ConnectConfig {
    ConnectConfig { pins: vec![relay.pin], congestion: Algorithm::Cubic, mode, seed: None }
}

fn path(name: &str, remote: SocketAddr) -> PathSpec {
    PathSpec { interface: name.to_owned(), socket: loopback_socket(), remote }
}

/// Sends back what comes, stream by stream.
fn serve_echo(relay: &Relay) {
    let endpoint = Arc::clone(&relay.endpoint);
    tokio::spawn(async move {
        while let Some(connection) = endpoint.accept().await {
            tokio::spawn(echo(connection));
        }
    });
}

async fn echo(connection: Connection) {
    while let Ok(mut stream) = connection.accept_stream().await {
        tokio::spawn(async move {
            while let Ok(Some(chunk)) = stream.recv.read_chunk().await {
                if stream.send.write_all(&chunk).await.is_err() {
                    return;
                }
            }
            stream.send.finish();
            let _ = std::future::poll_fn(|cx| stream.send.poll_stopped(cx)).await;
        });
    }
}

async fn round_trip(connection: &Connection, bytes: usize) {
    let stream = connection.open_stream().await.expect("a stream");
    let (mut send, mut recv) = (stream.send, stream.recv);
    let data: Vec<u8> = (0..bytes).map(|index| (index * 31) as u8).collect();
    let expected = data.clone();
    let writer = tokio::spawn(async move {
        send.write_all(&data).await.expect("all is taken");
        send.finish();
        send
    });
    let mut got = Vec::new();
    while let Some(chunk) = recv.read_chunk().await.expect("an echo") {
        got.extend_from_slice(&chunk);
    }
    assert!(got == expected, "{} of {} bytes came back", got.len(), expected.len());
    drop(writer.await);
}

async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{what} did not come true within 10 s"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_over_two_paths_joins_both_and_copies_both_ways() {
    let relay = relay(2);
    serve_echo(&relay);
    let paths = vec![path("wifi", relay.addresses[0]), path("cell", relay.addresses[1])];
    let connection = Client::connect(config(&relay, Mode::Bicast(Sides::Both)), paths).await.expect("a session");
    wait_for("both paths are up", || {
        connection.stats().link.paths.iter().filter(|path| path.state == PathState::Up).count() == 2
    })
    .await;
    // A machine that is busy with other things loses datagrams even on loopback, and copies are held back for a while then.
    let mut bytes = 0;
    let copied = || {
        let stats = connection.stats().link;
        stats.up.copies > 1_000 && stats.down.copies > 1_000
    };
    while !copied() {
        assert!(bytes < 80_000_000, "few copies in so much data: {:?}", connection.stats().link);
        round_trip(&connection, 4_000_000).await;
        bytes += 4_000_000;
        // The relay tells of its copies four times a second.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    wait_for("the MTU of loopback is found", || {
        connection.stats().link.paths.iter().all(|path| path.mtu_bytes == 1_472)
    })
    .await;
    let stats = connection.stats();
    assert_eq!(stats.counters.forged, 0);
    assert_eq!(stats.link.up.flow_bytes, bytes);
}

#[tokio::test]
async fn a_session_over_one_path_carries_every_byte_with_every_controller() {
    let relay = relay(1);
    serve_echo(&relay);
    for congestion in Algorithm::ALL {
        let config = ConnectConfig { congestion, ..config(&relay, Mode::Single) };
        let connection = Client::connect(config, vec![path("wifi", relay.addresses[0])]).await.expect("a session");
        round_trip(&connection, 2_000_000).await;
        connection.close(0, "done");
    }
}

#[tokio::test]
async fn a_key_that_is_not_pinned_is_refused() {
    let relay = relay(1);
    let config = ConnectConfig { pins: vec![[0; 32]], ..config(&relay, Mode::Single) };
    let refused = Client::connect(config, vec![path("wifi", relay.addresses[0])]).await;
    assert!(matches!(refused, Err(ConnectError::WrongPin)), "{refused:?}");
}

#[tokio::test]
async fn the_close_code_and_reason_reach_the_other_end() {
    let relay = relay(1);
    let connection =
        Client::connect(config(&relay, Mode::Single), vec![path("wifi", relay.addresses[0])]).await.expect("a session");
    let accepted = relay.endpoint.accept().await.expect("the session");
    accepted.close(7, "enough");
    let closed = connection.closed().await;
    assert_eq!((closed.code, closed.reason.as_str()), (Some(7), "enough"));
}

/// Whoever can send from a client's address must not be able to end its session.
#[tokio::test]
async fn an_initial_from_a_live_paths_address_does_not_touch_the_session() {
    let relay = relay(1);
    serve_echo(&relay);
    let spec = path("wifi", relay.addresses[0]);
    let socket = Arc::clone(&spec.socket);
    let connection = Client::connect(config(&relay, Mode::Single), vec![spec]).await.expect("a session");
    round_trip(&connection, 10_000).await;
    for number in 0..20u8 {
        let mut forged = vec![number; 1_200];
        forged[..7].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8, number]);
        let transmit = quinn::udp::Transmit {
            destination: relay.addresses[0],
            ecn: None,
            contents: &forged,
            segment_size: None,
            src_ip: None,
        };
        socket.try_send(&transmit).expect("sent");
    }
    round_trip(&connection, 100_000).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    round_trip(&connection, 100_000).await;
}

#[tokio::test]
async fn a_stream_that_is_dropped_unfinished_is_reset() {
    let relay = relay(1);
    let connection =
        Client::connect(config(&relay, Mode::Single), vec![path("wifi", relay.addresses[0])]).await.expect("a session");
    let accepted = relay.endpoint.accept().await.expect("the session");
    let mut stream = connection.open_stream().await.expect("a stream");
    stream.send.write_all(b"half of it").await.expect("sent");
    let mut other = accepted.accept_stream().await.expect("the stream");
    assert_eq!(other.recv.read_chunk().await.expect("a chunk").as_deref(), Some(&b"half of it"[..]));
    drop(stream.send);
    assert_eq!(other.recv.read_chunk().await, Err(tandem_core::dial::FlowEnd::Reset));
}

#[tokio::test]
async fn a_path_can_be_added_and_removed_in_a_live_session() {
    let relay = relay(2);
    serve_echo(&relay);
    let connection = Client::connect(config(&relay, Mode::Bicast(Sides::Both)), vec![path("wifi", relay.addresses[0])])
        .await
        .expect("a session");
    let wifi = tandem_core::transport::PathId(0);
    let cell = connection.add_path(path("cell", relay.addresses[1])).expect("room for a path");
    wait_for("the new path is up", || {
        connection.stats().link.paths.iter().any(|path| path.id == cell.0 && path.state == PathState::Up)
    })
    .await;
    connection.remove_path(wifi);
    round_trip(&connection, 500_000).await;
    assert_eq!(connection.stats().link.paths.len(), 1);
}
