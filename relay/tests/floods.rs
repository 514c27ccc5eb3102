//! Clients with a good token that want more than is due: frames without end, streams opened and never used, flows that ask
//! for nothing. What the relay keeps of it is bounded, and it serves others, and in the end them too.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod bed;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use assert_cmd::cargo::CommandCargoExt as _;
use bed::{PATIENCE, connect, hello, open, origin, say_hello, write};
use tandem_core::transport::{Connection, Stream};
use tandem_proto::pairing::PairingLink;
use tandem_proto::wire::flow::ControlMessage;
use tempfile::TempDir;
use tokio::time::timeout;

/// A relay of its own process, so that what it keeps can be seen; killed when dropped.
struct Relay {
    child: Child,
    address: std::net::SocketAddr,
    link: PairingLink,
    _dir: TempDir,
}

impl Relay {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = || Command::cargo_bin("tandem-relay").unwrap();
        let mut init = program();
        init.args(["init", "--listen", "127.0.0.1:0", "--public", "127.0.0.1:4433", "--dir"]).arg(dir.path());
        let printed = String::from_utf8(init.output().unwrap().stdout).unwrap();
        let link = printed.lines().find(|line| line.starts_with("tandem://")).unwrap().parse().unwrap();
        let mut serve = program();
        serve.args(["serve", "--allow", "127.0.0.0/8", "--dir"]).arg(dir.path());
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("ready ").expect("the first line says ready").parse().unwrap();
        Self { child, address, link, _dir: dir }
    }

    async fn session(&self) -> (Connection, Stream) {
        let connection = connect(self.address, self.link.pins[0]).await;
        let (control, answer) = say_hello(&connection, hello(self.link.token.clone())).await;
        assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");
        (connection, control)
    }

    /// Bytes of memory it holds.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1_024
    }

    fn grown(&self, before: u64, what: &str) -> u64 {
        let grown = self.memory().saturating_sub(before);
        eprintln!("{what}: {:.1} MB more", grown as f64 / 1e6);
        grown
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn control_frames_without_end_are_read_and_forgotten() {
    let relay = Relay::start();
    let (connection, mut control) = relay.session().await;
    let before = relay.memory();
    // The largest frames that are allowed, of a type that nobody knows, 40 MB of them.
    let frame = [&[0x7f, 0xff, 0x10, 0x00][..], &[5; 4_096]].concat();
    let flood = async {
        for _ in 0..10_000 {
            control.send.write_all(&frame).await.unwrap();
        }
    };
    timeout(PATIENCE, flood).await.expect("the relay takes them");
    let (_listener, target) = origin().await;
    assert_eq!(open(&connection, &target).await.1, Ok(()));
    assert!(relay.grown(before, "40 MB of frames") < 24_000_000);
    write(&mut control, &ControlMessage::Unknown { frame_type: 0x7fff }).await;
}

#[tokio::test]
async fn streams_that_are_opened_and_never_used_cost_little_and_make_room() {
    let relay = Relay::start();
    let (greedy, _control) = relay.session().await;
    let before = relay.memory();
    // Half a request on each, until no more may be opened.
    let mut streams = Vec::new();
    while streams.len() < 5_000 {
        let Ok(Ok(mut stream)) = timeout(Duration::from_secs(1), greedy.open_stream()).await else { break };
        stream.send.write_all(&[1, 4]).await.unwrap();
        streams.push(stream);
    }
    assert!(streams.len() < 5_000, "a session may open any number of streams");
    let (other, _other_control) = relay.session().await;
    let (_listener, target) = origin().await;
    assert_eq!(open(&other, &target).await.1, Ok(()), "others are served meanwhile");
    assert!(relay.grown(before, &format!("{} idle streams", streams.len())) < 32_000_000);
    drop(streams);
    assert_eq!(open(&greedy, &target).await.1, Ok(()), "and the greedy one, once it lets go");
}
