//! `tandem run` as a process, a relay behind a lossy network, and an application at the proxy.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tandem_core::transport::{PathSocket, UdpPathSocket};
use tandem_netem::{Forwarder, LinkConfig, Loss};
use tandem_proto::pairing::PairingLink;
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::identity::Identity;
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Relay, RelayConfig};
use tandem_relay::tokens::Authority;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A relay in this process and the lossy network in front of it.
struct Far {
    link: String,
    _network: Forwarder,
}

fn far() -> Far {
    let socket: Arc<dyn PathSocket> = UdpPathSocket::new(std::net::UdpSocket::bind(LOCALHOST).unwrap()).unwrap();
    let loss = |seed| LinkConfig { loss: Loss::Random(0.02), seed, ..LinkConfig::default() };
    let network = Forwarder::spawn(LOCALHOST, socket.local_addr().unwrap(), loss(1), loss(2)).unwrap();
    let identity = Identity::generate().unwrap();
    let authority = Authority::generate().unwrap();
    let (token, _) = authority.issue("test", OffsetDateTime::now_utc(), Duration::from_secs(3600)).unwrap();
    let relays = vec![network.local_addr().to_string().parse().unwrap()];
    let link = PairingLink { relays, pins: vec![identity.pin()], token, name: String::new() };
    let config = RelayConfig::new(identity, authority.verifier());
    let rules = AccessRules::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let relay = Relay::bind(config, vec![socket], TcpEgress::new(rules, OwnAddresses::default())).unwrap();
    tokio::spawn(relay.serve(CancellationToken::new()));
    Far { link: link.expose(), _network: network }
}

/// A running client; killed when dropped.
struct Client {
    child: Child,
    proxy: SocketAddr,
    _home: TempDir,
}

impl Client {
    fn start(link: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tandem"))
            .args(["run", "--listen", "127.0.0.1:0", "--interface", "lo"])
            .env_clear()
            .env("HOME", home.path())
            .env("XDG_RUNTIME_DIR", home.path())
            .env("TANDEM_LINK", link)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        // Someone must read on, or the client's later lines would find a closed pipe.
        std::thread::spawn(move || output.lines().for_each(drop));
        let proxy = line.trim().strip_prefix("SOCKS5 proxy on ").expect("the first line names the proxy");
        Self { proxy: proxy.parse().unwrap(), child, _home: home }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// TCP-3 and TCP-1: an application that has sent all it has to say still gets the answer, though the client is told to
/// stop; then the client ends by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_drains_what_is_under_way_and_then_ends_the_client() {
    let far = far();
    let mut client = Client::start(&far.link);
    let origin = TcpListener::bind(LOCALHOST).await.unwrap();
    let mut app = TcpStream::connect(client.proxy).await.unwrap();
    let port = origin.local_addr().unwrap().port().to_be_bytes();
    app.write_all(&[&b"\x05\x01\x00\x05\x01\x00\x03\x09localhost"[..], &port].concat()).await.unwrap();
    let mut replies = [0; 12];
    timeout(PATIENCE, app.read_exact(&mut replies)).await.unwrap().unwrap();
    assert_eq!(replies[..4], [5, 0, 5, 0]);
    app.write_all(b"last words").await.unwrap();
    app.shutdown().await.unwrap();
    let (mut server, _) = timeout(PATIENCE, origin.accept()).await.unwrap().unwrap();
    let mut got = Vec::new();
    timeout(PATIENCE, server.read_to_end(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, b"last words");

    assert!(Command::new("kill").arg(client.child.id().to_string()).status().unwrap().success());
    let answer: Vec<u8> = (0..500_000).map(|place| (place * 7 + place / 251) as u8).collect();
    let sent = answer.clone();
    tokio::spawn(async move { server.write_all(&sent).await.unwrap() });
    let mut got = Vec::new();
    timeout(PATIENCE, app.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == answer, "{} of {} bytes came", got.len(), answer.len());
    let ended = async {
        loop {
            if let Some(status) = client.child.try_wait().unwrap() {
                return status;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(PATIENCE, ended).await.expect("the client ends").success());
}
