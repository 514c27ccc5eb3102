//! The program at work: started, used, told to stop.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod bed;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use assert_cmd::cargo::CommandCargoExt as _;
use bed::{PATIENCE, accept, closed, connect, hello, open, origin, say_hello};
use tandem_core::dial::FlowSend as _;
use tandem_core::transport::ConnectError;
use tandem_proto::pairing::PairingLink;
use tandem_proto::wire::flow::{CloseCode, ControlMessage, OpenError, RefusedReason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// The program, serving; killed when dropped.
struct Serving {
    child: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Serving {
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::cargo_bin("tandem-relay").unwrap();
        command.arg("serve").arg("--dir").arg(dir).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("ready ").expect("the first line says ready").parse().unwrap();
        Serving { child, output, address }
    }

    /// Where it tells metrics and health.
    fn admin(&mut self) -> SocketAddr {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().strip_prefix("admin ").expect("the second line says admin").parse().unwrap()
    }

    fn signal(&self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
    }

    async fn exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the relay does not stop");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(arguments: &[&str], dir: &Path) -> String {
    let output = Command::cargo_bin("tandem-relay").unwrap().args(arguments).arg("--dir").arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn init(dir: &Path) -> PairingLink {
    init_with(dir, &[])
}

fn init_with(dir: &Path, arguments: &[&str]) -> PairingLink {
    let mut all = vec!["init", "--listen", "127.0.0.1:0", "--public", "127.0.0.1:4433"];
    all.extend_from_slice(arguments);
    let printed = run(&all, dir);
    printed.lines().find(|line| line.starts_with("tandem://")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_paired_client_is_served_until_its_token_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let link = init(dir.path());
    let mut serving = Serving::start(dir.path(), &["--allow", "127.0.0.0/8"]);
    let connection = connect(serving.address, link.pins[0]).await;
    let (_control, answer) = say_hello(&connection, hello(link.token.clone())).await;
    assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");
    let (_listener, address) = origin().await;
    assert_eq!(open(&connection, &address).await.1, Ok(()));

    run(&["token", "revoke", "--name", "first"], dir.path());
    let revoked = Instant::now();
    assert_eq!(closed(&connection).await, Some(CloseCode::Refused(RefusedReason::Revoked)));
    assert!(revoked.elapsed() < Duration::from_secs(20), "{:?}", revoked.elapsed());
    let connection = connect(serving.address, link.pins[0]).await;
    let (_control, answer) = say_hello(&connection, hello(link.token)).await;
    assert!(matches!(answer, ControlMessage::Refused(ref refused) if refused.reason == RefusedReason::Revoked));

    serving.signal();
    assert!(serving.exit().await.success());
}

#[tokio::test]
async fn the_first_signal_drains_and_the_second_ends() {
    let dir = tempfile::tempdir().unwrap();
    let link = init(dir.path());
    let mut serving = Serving::start(dir.path(), &["--allow", "127.0.0.0/8"]);
    let connection = connect(serving.address, link.pins[0]).await;
    let (mut control, _) = say_hello(&connection, hello(link.token)).await;
    let (listener, address) = origin().await;
    let (_stream, _) = open(&connection, &address).await;
    let _tcp = accept(&listener).await;

    serving.signal();
    assert!(matches!(bed::read(&mut control).await, ControlMessage::GoingAway(_)));
    assert!(serving.child.try_wait().unwrap().is_none(), "an open flow holds the relay");
    serving.signal();
    let status = timeout(Duration::from_secs(9), serving.exit()).await.expect("the second signal ends at once");
    assert!(status.success());
}

/// TCP-3 (a stop drains finished flows)
#[tokio::test]
async fn a_signal_lets_what_is_under_way_arrive_and_then_ends_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let link = init(dir.path());
    let mut serving = Serving::start(dir.path(), &["--allow", "127.0.0.0/8"]);
    let connection = connect(serving.address, link.pins[0]).await;
    let (mut control, _) = say_hello(&connection, hello(link.token)).await;
    let (listener, address) = origin().await;
    let (mut stream, _) = open(&connection, &address).await;
    let mut tcp = accept(&listener).await;

    serving.signal();
    assert!(matches!(bed::read(&mut control).await, ControlMessage::GoingAway(_)));
    stream.send.finish();
    let data = vec![7; 3 << 20];
    let sent = tokio::spawn(async move { tcp.write_all(&data).await.unwrap() });
    assert_eq!(bed::read_to_end(&mut stream).await.len(), 3 << 20);
    sent.await.unwrap();
    assert_eq!(closed(&connection).await, Some(CloseCode::GoingAway));
    assert!(serving.exit().await.success());
}

/// SEC-1
#[tokio::test]
async fn by_default_the_machine_itself_is_out_of_reach() {
    let dir = tempfile::tempdir().unwrap();
    let link = init(dir.path());
    let serving = Serving::start(dir.path(), &[]);
    let connection = connect(serving.address, link.pins[0]).await;
    let (_control, _) = say_hello(&connection, hello(link.token)).await;
    let (_listener, address) = origin().await;
    assert_eq!(open(&connection, &address).await.1, Err(OpenError::Forbidden));
}

/// SEC-4 (the relay's half)
#[tokio::test]
async fn the_relay_listens_on_its_configured_port_and_on_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    init(dir.path());
    let serving = Serving::start(dir.path(), &[]);
    let port = serving.address.port();
    let listening = bound_sockets(serving.child.id());
    // TCP for measuring, unless another program has that port.
    let allowed = BTreeSet::from([format!("udp {port}"), format!("tcp {port}")]);
    assert!(listening.is_subset(&allowed) && listening.contains(&format!("udp {port}")), "{listening:?}");
    drop(serving);

    let settings = dir.path().join("relay.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    assert!(text.contains("measure = true"));
    std::fs::write(&settings, text.replace("measure = true", "measure = false")).unwrap();
    let serving = Serving::start(dir.path(), &[]);
    let expected = format!("udp {}", serving.address.port());
    assert_eq!(bound_sockets(serving.child.id()), BTreeSet::from([expected]));
}

/// Status and body of a request.
async fn get(admin: SocketAddr, path: &str) -> (u16, String) {
    let request = async {
        let mut tcp = TcpStream::connect(admin).await.unwrap();
        let text = format!("GET {path} HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n");
        tcp.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = timeout(PATIENCE, request).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// SEC-4 (the relay's half)
#[tokio::test]
async fn metrics_and_health_are_told_where_they_are_configured_and_tell_when_the_relay_stops() {
    let dir = tempfile::tempdir().unwrap();
    let link = init_with(dir.path(), &["--admin", "127.0.0.1:0"]);
    let mut serving = Serving::start(dir.path(), &["--allow", "127.0.0.0/8"]);
    let admin = serving.admin();
    let (clients, told) = (serving.address.port(), format!("tcp {}", admin.port()));
    let mut others = bound_sockets(serving.child.id());
    assert!(others.remove(&told) && others.remove(&format!("udp {clients}")), "{others:?}");
    others.remove(&format!("tcp {clients}"));
    assert_eq!(others, BTreeSet::new());
    assert_eq!(get(admin, "/healthz").await.0, 200);
    assert_eq!(get(admin, "/readyz").await.0, 200);
    assert_eq!(get(admin, "/").await.0, 404);

    let connection = connect(serving.address, link.pins[0]).await;
    let (mut control, _) = say_hello(&connection, hello(link.token)).await;
    let (listener, address) = origin().await;
    let (_stream, _) = open(&connection, &address).await;
    let _tcp = accept(&listener).await;
    let (status, metrics) = get(admin, "/metrics").await;
    assert_eq!(status, 200);
    for line in ["tandem_relay_sessions 1", "tandem_relay_flows_opened_total{outcome=\"connected\"} 1"] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line} in\n{metrics}");
    }
    assert!(metrics.contains("\nprocess_resident_memory_bytes "), "{metrics}");

    serving.signal();
    assert!(matches!(bed::read(&mut control).await, ControlMessage::GoingAway(_)));
    assert_eq!(get(admin, "/readyz").await.0, 503);
    assert_eq!(get(admin, "/healthz").await.0, 200);
    serving.signal();
    assert!(serving.exit().await.success());
}

#[tokio::test]
async fn a_relay_that_stops_refuses_newcomers_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let link = init(dir.path());
    let serving = Serving::start(dir.path(), &["--allow", "127.0.0.0/8"]);
    let connection = connect(serving.address, link.pins[0]).await;
    let (mut control, _) = say_hello(&connection, hello(link.token)).await;
    let (_listener, address) = origin().await;
    let (_stream, _) = open(&connection, &address).await;
    serving.signal();
    assert!(matches!(bed::read(&mut control).await, ControlMessage::GoingAway(_)));
    // The session may hear of it a moment before the door is shut.
    let refused = async {
        loop {
            if let Err(refused) = bed::try_connect(serving.address, link.pins[0]).await {
                break refused;
            }
        }
    };
    let refused = timeout(PATIENCE, refused).await.expect("newcomers are refused");
    assert!(matches!(refused, ConnectError::Handshake(_)), "an answer, rather than silence: {refused:?}");
}

/// PATH-11
#[tokio::test]
async fn a_relay_on_the_wildcard_answers_from_the_address_that_was_asked() {
    for wildcard in ["0.0.0.0:0", "[::]:0"] {
        let dir = tempfile::tempdir().unwrap();
        let printed = run(&["init", "--listen", wildcard, "--public", "127.0.0.1:4433"], dir.path());
        let link: PairingLink = printed.lines().find(|line| line.starts_with("tandem://")).unwrap().parse().unwrap();
        let serving = Serving::start(dir.path(), &[]);
        let asked = SocketAddr::from(([127, 0, 0, 3], serving.address.port()));
        let connection = connect(asked, link.pins[0]).await;
        let (_control, answer) = say_hello(&connection, hello(link.token)).await;
        assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");

        // What QUIC says without a connection comes from there too: here, that it does not know a version.
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut initial = [0; 1200];
        initial[..7].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1]);
        socket.send_to(&initial, asked).await.unwrap();
        let (_, from) = timeout(PATIENCE, socket.recv_from(&mut [0; 2048])).await.expect("an answer comes").unwrap();
        assert_eq!(from, asked, "{wildcard}");
        // And that it does not know a session: QUIC's stateless reset.
        socket.send_to(&[0x41; 100], asked).await.unwrap();
        let (_, from) = timeout(PATIENCE, socket.recv_from(&mut [0; 2048])).await.expect("an answer comes").unwrap();
        assert_eq!(from, asked, "{wildcard}");
    }
}

/// The protocols and ports of a process's bound or listening sockets.
fn bound_sockets(process: u32) -> BTreeSet<String> {
    let inodes: BTreeSet<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut bound = BTreeSet::new();
    for (table, protocol) in [("udp", "udp"), ("udp6", "udp"), ("tcp", "tcp"), ("tcp6", "tcp")] {
        // A machine without IPv6 has no table of it.
        let text = std::fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if inodes.contains(fields[9]) {
                let port = u16::from_str_radix(fields[1].rsplit(':').next().unwrap(), 16).unwrap();
                bound.insert(format!("{protocol} {port}"));
            }
        }
    }
    bound
}
