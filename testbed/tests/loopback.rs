//! The whole product over real sockets: an application, SOCKS5 or HTTP, the engine, two emulated networks, a relay and a server.
//!
//! The networks are `tandem_netem` forwarders on loopback, the server an ordinary TCP listener. What is asserted is what
//! arrives, never how fast.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tandem_core::client::{Engine, EngineConfig};
use tandem_core::platform::{Bound, Interface, InterfaceKind, Scripted};
use tandem_core::transport::{PathSocket, UdpPathSocket};
use tandem_netem::{Direction, Forwarder, LinkConfig, Loss};
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::pairing::PairingLink;
use tandem_proto::stats::PathState;
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::identity::Identity;
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Relay, RelayConfig};
use tandem_relay::tokens::Authority;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Product {
    engine: Engine,
    networks: [Forwarder; 2],
    drain: CancellationToken,
    relay: JoinHandle<()>,
}

fn udp() -> Arc<dyn PathSocket> {
    UdpPathSocket::new(std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap()
}

/// A network of the client whose entrance is a forwarder.
fn network(index: u32, entrance: SocketAddr) -> (Interface, tandem_core::platform::Binder) {
    let interface = Interface {
        name: format!("emulated{index}"),
        index,
        kind: InterfaceKind::Other,
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        up: true,
        external: true,
    };
    (interface, Arc::new(move |_| Ok(Bound { socket: udp(), remote: entrance })))
}

async fn start(mode: Mode) -> Product {
    let socket = udp();
    let address = socket.local_addr().unwrap();
    let identity = Identity::generate().unwrap();
    let authority = Authority::generate().unwrap();
    let (token, _) = authority.issue("test", OffsetDateTime::now_utc(), Duration::from_secs(3600)).unwrap();
    let link = PairingLink {
        relays: vec![address.to_string().parse().unwrap()],
        pins: vec![identity.pin()],
        token,
        name: String::new(),
    };
    let config = RelayConfig::new(identity, authority.verifier());
    let rules = AccessRules::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let relay = Relay::bind(config, vec![socket], TcpEgress::new(rules, OwnAddresses::default())).unwrap();
    let drain = CancellationToken::new();
    let relay = tokio::spawn(relay.serve(drain.clone()));

    let line =
        |seed| LinkConfig { delay: Duration::from_millis(5), loss: Loss::Random(0.02), seed, ..LinkConfig::default() };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let networks = [
        Forwarder::spawn(listen, address, line(1), line(2)).unwrap(),
        Forwarder::spawn(listen, address, line(3), line(4)).unwrap(),
    ];
    let platform = Scripted::new(vec![network(1, networks[0].local_addr()), network(2, networks[1].local_addr())]);
    let config = EngineConfig { listen: Some(listen), mode, ..EngineConfig::new(link) };
    let engine = Engine::start(config, Arc::new(platform)).await.unwrap();
    Product { engine, networks, drain, relay }
}

/// A server that sends back what it gets, once it has all of it.
async fn mirror() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut got = Vec::new();
                if tcp.read_to_end(&mut got).await.is_ok() {
                    let _ = tcp.write_all(&got).await;
                }
            });
        }
    });
    address
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + place / 251) as u8).collect()
}

/// CONNECT by name, as curl does with `socks5h`; answers with the reply code and the connection.
async fn connect(proxy: SocketAddr, name: &str, port: u16) -> (u8, TcpStream) {
    let mut tcp = TcpStream::connect(proxy).await.unwrap();
    tcp.write_all(&[5, 1, 0]).await.unwrap();
    let request = [&[5, 1, 0, 3, name.len() as u8], name.as_bytes(), &port.to_be_bytes()[..]].concat();
    tcp.write_all(&request).await.unwrap();
    let mut replies = [0; 12];
    timeout(PATIENCE, tcp.read_exact(&mut replies)).await.unwrap().unwrap();
    (replies[3], tcp)
}

async fn exchange(proxy: SocketAddr, server: SocketAddr, length: usize) {
    let (reply, mut tcp) = connect(proxy, "localhost", server.port()).await;
    assert_eq!(reply, 0);
    let sent = pattern(length);
    let (mut reader, mut writer) = tcp.split();
    let mut got = Vec::new();
    let both = async {
        tokio::join!(
            async {
                writer.write_all(&sent).await.unwrap();
                writer.shutdown().await.unwrap();
            },
            async { reader.read_to_end(&mut got).await.unwrap() },
        )
    };
    timeout(PATIENCE, both).await.expect("all comes back");
    assert!(got == sent, "{} of {length} bytes came back", got.len());
}

async fn both_paths_up(engine: &Engine) {
    let mut snapshots = engine.handle().subscribe();
    let up = snapshots.wait_for(|now| now.paths.iter().filter(|path| path.state == PathState::Up).count() == 2);
    timeout(PATIENCE, up).await.expect("both paths come up").unwrap();
}

/// SOCKS-7, TCP-1, TCP-3: by name, with half-closed connections, every byte compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_of_all_sizes_come_back_whole_in_both_modes() {
    for mode in [Mode::Single, Mode::Bicast(Sides::Both)] {
        let product = start(mode).await;
        let (proxy, server) = (product.engine.proxy_address().unwrap(), mirror().await);
        let mut flows = JoinSet::new();
        for length in [0, 1, 1_000, 70_000, 1_500_000] {
            flows.spawn(exchange(proxy, server, length));
        }
        while let Some(done) = flows.join_next().await {
            done.unwrap();
        }
        assert_eq!(product.engine.handle().snapshot().flows_total, 5);
    }
}

/// MULTI-1, on real sockets: one of the networks goes silent in mid-flow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_dies_in_mid_flow_costs_nothing() {
    let product = start(Mode::Bicast(Sides::Both)).await;
    let (proxy, server) = (product.engine.proxy_address().unwrap(), mirror().await);
    both_paths_up(&product.engine).await;
    let flow = tokio::spawn(exchange(proxy, server, 3_000_000));
    sleep(Duration::from_millis(200)).await;
    product.networks[0].cut(Direction::Up);
    product.networks[0].cut(Direction::Down);
    flow.await.unwrap();
    exchange(proxy, server, 10_000).await;
}

/// SOCKS-6, through engine and relay.
#[tokio::test]
async fn a_target_that_refuses_or_is_forbidden_gets_its_reply_code() {
    let product = start(Mode::Single).await;
    let proxy = product.engine.proxy_address().unwrap();
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
    assert_eq!(connect(proxy, "localhost", nobody.port()).await.0, 5);
    assert_eq!(connect(proxy, "10.0.0.1", 80).await.0, 2);
    assert_eq!(connect(proxy, "no-such-name.invalid", 80).await.0, 4);
}

/// Reads a head of HTTP and not a byte more.
async fn head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, tcp.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn body(tcp: &mut TcpStream, head: &str) -> Vec<u8> {
    let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next()).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    timeout(PATIENCE, tcp.read_exact(&mut body)).await.unwrap().unwrap();
    body
}

async fn connect_by_http(proxy: SocketAddr, target: &str) -> (String, TcpStream) {
    let mut tcp = TcpStream::connect(proxy).await.unwrap();
    tcp.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    (head(&mut tcp).await, tcp)
}

/// A server of HTTP that answers every request with its body.
async fn echoing_website() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                // A connection that ends between requests ends this task.
                while tcp.readable().await.is_ok() && !matches!(tcp.peek(&mut [0]).await, Ok(0) | Err(_)) {
                    let asked = head(&mut tcp).await;
                    let got = body(&mut tcp, &asked).await;
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", got.len());
                    tcp.write_all(&[answer.as_bytes(), &got].concat()).await.unwrap();
                }
            });
        }
    });
    address
}

/// HTTP-1, TCP-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_by_url_and_tunnels_come_back_whole_through_the_relay() {
    let product = start(Mode::Bicast(Sides::Both)).await;
    let proxy = product.engine.proxy_address().unwrap();
    let (one, other, server) = (echoing_website().await, echoing_website().await, mirror().await);
    let mut app = TcpStream::connect(proxy).await.unwrap();
    for (website, length) in [(one, 0), (one, 70_000), (other, 10), (one, 1_500_000)] {
        let sent = pattern(length);
        let request = format!("GET http://localhost:{}/ HTTP/1.1\r\nContent-Length: {length}\r\n\r\n", website.port());
        let (reader, mut writer) = app.into_split();
        let request = [request.as_bytes(), &sent].concat();
        let writing = tokio::spawn(async move {
            writer.write_all(&request).await.unwrap();
            writer
        });
        reader.readable().await.unwrap();
        app = reader.reunite(timeout(PATIENCE, writing).await.unwrap().unwrap()).unwrap();
        let answer = head(&mut app).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(body(&mut app, &answer).await == sent, "{length} bytes");
    }

    let (answer, mut tunnel) = connect_by_http(proxy, &format!("localhost:{}", server.port())).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    tunnel.write_all(&pattern(100_000)).await.unwrap();
    tunnel.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(PATIENCE, tunnel.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == pattern(100_000), "{} bytes came back", got.len());
}

/// SOCKS-6, for HTTP, through engine and relay.
#[tokio::test]
async fn failures_come_back_as_their_status_through_the_relay() {
    let product = start(Mode::Single).await;
    let proxy = product.engine.proxy_address().unwrap();
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
    for (target, status, error) in [
        (format!("localhost:{}", nobody.port()), 502, "connection_refused"),
        ("10.0.0.1:80".to_owned(), 403, "destination_ip_prohibited"),
        ("no-such-name.invalid:80".to_owned(), 502, "dns_error"),
    ] {
        let (answer, _) = connect_by_http(proxy, &target).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(&format!("Proxy-Status: Tandem; error={error}\r\n")), "{answer}");
    }
}

/// TCP-2, through engine and relay.
#[tokio::test]
async fn a_reset_of_the_origin_resets_the_client_through_the_relay() {
    let product = start(Mode::Single).await;
    let proxy = product.engine.proxy_address().unwrap();
    let origin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = origin.local_addr().unwrap().port();
    let (_, tunnel) = connect_by_http(proxy, &format!("localhost:{port}")).await;
    let (in_tunnel, _) = timeout(PATIENCE, origin.accept()).await.unwrap().unwrap();
    let mut by_url = TcpStream::connect(proxy).await.unwrap();
    by_url.write_all(format!("GET http://localhost:{port}/ HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let (mut asked, _) = timeout(PATIENCE, origin.accept()).await.unwrap().unwrap();
    head(&mut asked).await;
    asked.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of it").await.unwrap();
    head(&mut by_url).await;
    for (mut app, server) in [(tunnel, in_tunnel), (by_url, asked)] {
        socket2::SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
        drop(server);
        let error = timeout(PATIENCE, app.read_to_end(&mut Vec::new())).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

/// TCP-3: a stop of the client, then of the relay, drains what is finishing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_the_client_and_then_the_relay_drains_finishing_flows() {
    let product = start(Mode::Bicast(Sides::Both)).await;
    let proxy = product.engine.proxy_address().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (_, mut app) = connect(proxy, "localhost", listener.local_addr().unwrap().port()).await;
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    app.write_all(b"last words").await.unwrap();
    app.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(PATIENCE, server.read_to_end(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, b"last words");

    let stopping = tokio::spawn(product.engine.stop());
    let answer = pattern(500_000);
    let sent = answer.clone();
    tokio::spawn(async move { server.write_all(&sent).await.unwrap() });
    let mut got = Vec::new();
    timeout(PATIENCE, app.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == answer, "{} of {} bytes came", got.len(), answer.len());
    timeout(PATIENCE, stopping).await.expect("the client stops").unwrap();
    product.drain.cancel();
    timeout(PATIENCE, product.relay).await.expect("the relay stops").unwrap();
}
