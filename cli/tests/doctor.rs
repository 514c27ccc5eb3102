//! `tandem doctor` as a process on loopback: with a relay, without one, with another one, and without a pairing.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tandem_core::transport::{PathSocket, UdpPathSocket};
use tandem_proto::pairing::{PairingLink, Secret};
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::identity::Identity;
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Relay, RelayConfig};
use tandem_relay::tokens::Authority;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Starts a relay in this process and answers with a link to it whose token lives so long.
fn relay(token_life: Duration) -> PairingLink {
    let socket: Arc<dyn PathSocket> = UdpPathSocket::new(UdpSocket::bind(LOCALHOST).unwrap()).unwrap();
    let identity = Identity::generate().unwrap();
    let authority = Authority::generate().unwrap();
    let (token, _) = authority.issue("test", OffsetDateTime::now_utc(), token_life).unwrap();
    let relays = vec![socket.local_addr().unwrap().to_string().parse().unwrap()];
    let link = PairingLink { relays, pins: vec![identity.pin()], token, name: String::new() };
    let config = RelayConfig::new(identity, authority.verifier());
    let egress = TcpEgress::new(AccessRules::new(Vec::new()), OwnAddresses::default());
    let relay = Relay::bind(config, vec![socket], egress).unwrap();
    tokio::spawn(relay.serve(CancellationToken::new()));
    link
}

/// What the doctor says.
struct Said {
    success: bool,
    json: Value,
    everything: String,
}

impl Said {
    /// The finding of this kind.
    fn find(&self, kind: &str) -> &Value {
        let findings = self.json["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["finding"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {:#}", self.json))
    }

    fn verdict(&self, kind: &str) -> &str {
        self.find(kind)["verdict"].as_str().unwrap()
    }
}

fn doctor(link: Option<&PairingLink>, arguments: &[&str]) -> Said {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command
        .args(["--log", "trace", "doctor", "--json", "--interface", "lo"])
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path());
    if let Some(link) = link {
        command.env("TANDEM_LINK", link.expose());
    }
    let output = command.output().unwrap();
    let (out, log) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let json = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{log}"));
    Said { success: output.status.success(), json, everything: out + &log }
}

/// A whole examination of a way that works; the token is in no output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_runs_is_reached_and_measured() {
    let link = relay(Duration::from_secs(60 * 24 * 3600));
    let said = doctor(Some(&link), &["--listen", "127.0.0.1:0"]);
    assert!(said.success, "{:#}", said.json);
    let way = said.find("way");
    assert_eq!((&way["verdict"], &way["joined"], &way["interface"]), (&"ok".into(), &true.into(), &"lo".into()));
    assert!(way["rtt_ms"].as_f64().unwrap() > 0.0, "{way}");
    assert!(way["up_datagrams"].as_u64().unwrap() >= 50 && way["down_datagrams"].as_u64().unwrap() > 0, "{way}");
    assert_eq!(way["packet_bytes"], 1500);
    assert!(said.find("token")["relay"].as_str().unwrap().starts_with("tandem-relay "));
    assert_eq!((said.verdict("clock"), said.verdict("no_engine"), said.verdict("port_free")), ("ok", "ok", "ok"));
    assert!(!said.everything.contains(&link.token.expose()[12..]), "the token is shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_ends_soon_is_warned_of_and_a_taken_port_is_a_problem() {
    let link = relay(Duration::from_secs(3600));
    let listener = TcpListener::bind(LOCALHOST).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let said = doctor(Some(&link), &["--listen", &address]);
    assert!(!said.success);
    assert_eq!(said.verdict("token"), "warning");
    let taken = said.find("port_taken");
    assert_eq!((&taken["address"], &taken["pid"]), (&address.into(), &std::process::id().into()));
    assert!(taken["advice"].as_str().unwrap().contains("--listen"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_relay_at_the_address_is_told_from_none() {
    let mut link = relay(Duration::from_secs(3600));
    link.pins = vec![[1; 32]];
    let said = doctor(Some(&link), &["--listen", "127.0.0.1:0"]);
    assert!(!said.success);
    assert_eq!(said.verdict("way_wrong_pin"), "problem");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_does_not_know_the_token_is_told_from_none() {
    let mut link = relay(Duration::from_secs(3600));
    link.token = Secret::new("v4.public.c2VjcmV0LXRva2VuLWZvci10ZXN0cw".to_owned());
    let said = doctor(Some(&link), &["--listen", "127.0.0.1:0"]);
    assert!(!said.success);
    assert_eq!((said.verdict("way_answers"), said.verdict("refused")), ("ok", "problem"));
}

#[test]
fn a_relay_that_is_dead_is_told_from_a_network_that_is() {
    // Bound and let go of: nothing listens there.
    let port = UdpSocket::bind(LOCALHOST).unwrap().local_addr().unwrap().port();
    let link = PairingLink {
        relays: vec![format!("127.0.0.1:{port}").parse().unwrap()],
        pins: vec![[1; 32]],
        token: Secret::new("v4.public.abc".to_owned()),
        name: String::new(),
    };
    let said = doctor(Some(&link), &["--listen", "127.0.0.1:0"]);
    assert!(!said.success);
    let silent = said.find("way_silent");
    assert_eq!((&silent["verdict"], &silent["hint"]), (&"problem".into(), &"port_closed".into()));
}

#[test]
fn without_a_pairing_and_with_a_bad_configuration_it_says_so_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tandem.toml");
    std::fs::write(&file, "version = 1\nmood = \"good\"\n").unwrap();
    let said = doctor(None, &["--listen", "127.0.0.1:0", "--config", file.to_str().unwrap()]);
    assert!(!said.success);
    assert!(said.find("config_wrong")["problem"].as_str().unwrap().contains("mood"));
    assert!(said.find("no_pairing")["text"].as_str().unwrap().contains("tandem pair"));
    assert_eq!(said.verdict("network"), "ok");
}
