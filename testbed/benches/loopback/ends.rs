//! Tandem's two ends, put together as the shipped programs do.
//!
//! Loopback is one network; the client's two are played by two of its addresses, with a socket on each.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::SockRef;
use tandem_core::client::{Engine, EngineConfig};
use tandem_core::inbound::Forward;
use tandem_core::platform::{Binder, Interface, Platform, Scripted, System};
use tandem_core::transport::{PathSocket, UdpPathSocket};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::pairing::PairingLink;
use tandem_proto::stats::{PathState, Snapshot};
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::identity::Identity;
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Relay, RelayConfig};
use tandem_relay::tokens::Authority;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::Variant;
use crate::child::answer;

const PATHS: u8 = 2;
const DAY: Duration = Duration::from_secs(86_400);

/// A relay that reaches loopback. Ready with the pairing link and the target.
pub(crate) async fn relay(target: &str) -> Result<()> {
    let socket: Arc<dyn PathSocket> = UdpPathSocket::new(udp_socket().context("a socket")?)?;
    let address = socket.local_addr()?;
    let (identity, authority) = (Identity::generate()?, Authority::generate()?);
    let (token, _) = authority.issue("bench", OffsetDateTime::now_utc(), DAY)?;
    let relays = vec![address.to_string().parse().context("the relay's address")?];
    let link = PairingLink { relays, pins: vec![identity.pin()], token, name: String::new() };
    let config = RelayConfig::new(identity, authority.verifier());
    let rules = AccessRules::new(vec!["127.0.0.0/8".parse().context("loopback")?]);
    let relay = Relay::bind(config, vec![socket], TcpEgress::new(rules, OwnAddresses::default()))?;
    tokio::spawn(relay.serve(CancellationToken::new()));
    answer(format!("{} {target}", link.expose()), String::new).await
}

/// A client with a forward to the target. Ready with the forward's address.
pub(crate) async fn client(variant: Variant, congestion: Algorithm, peer: &str) -> Result<()> {
    let (link, target) = peer.split_once(' ').context("the relay says its link and target")?;
    // A free port: the forward is not told which one it got.
    let listen = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr())?;
    let mut config = EngineConfig::new(link.parse().context("the pairing link")?);
    config.listen = None;
    config.forwards = vec![Forward { listen, target: target.parse().context("the target")? }];
    config.congestion = congestion;
    config.mode = if variant == Variant::Bicast { Mode::Bicast(Sides::Both) } else { Mode::Single };
    let all = System.interfaces()?;
    let is_loopback = |interface: &&Interface| interface.addresses.contains(&Ipv4Addr::LOCALHOST.into());
    let loopback = all.iter().find(is_loopback).context("this machine has no loopback")?;
    let networks = (1..=PATHS).map(|number| network(loopback, number)).collect();
    let engine = Engine::start(config, Arc::new(Scripted::new(networks))).await?;
    let mut snapshots = engine.handle().subscribe();
    let all_up = |snapshot: &Snapshot| {
        snapshot.paths.iter().filter(|path| path.state == PathState::Up).count() == usize::from(PATHS)
    };
    let up = tokio::time::timeout(Duration::from_secs(10), snapshots.wait_for(all_up)).await;
    up.context("the paths did not come up")?.context("the engine ended")?;
    drop(snapshots);
    let handle = engine.handle();
    answer(listen.to_string(), move || describe(&handle.snapshot())).await
}

/// How the download used the networks: what a figure for bicasting is worth depends on it.
fn describe(snapshot: &Snapshot) -> String {
    let down = &snapshot.down;
    let copied = down.copies as f64 * 100.0 / down.datagrams.max(1) as f64;
    let mut text = format!("{copied:.0} % copied, {:.2} % lost", down.effective_loss_percent);
    for path in &snapshot.paths {
        text.push_str(&format!(", {:.2} % on {}", path.down.total_loss_percent, path.interface));
    }
    text
}

/// One of loopback's addresses as a network.
fn network(loopback: &Interface, number: u8) -> (Interface, Binder) {
    let addresses = vec![IpAddr::V4(Ipv4Addr::new(127, 0, 0, number))];
    let interface =
        Interface { name: format!("loopback{number}"), addresses, up: true, external: true, ..loopback.clone() };
    let real = Interface { name: loopback.name.clone(), ..interface.clone() };
    (interface, Arc::new(move |remote| System.bind(&real, remote)))
}

/// A socket as the relay listens on, with the same buffers; they are the client's as well.
pub(crate) fn udp_socket() -> std::io::Result<UdpSocket> {
    const BUFFER_BYTES: usize = 4 << 20;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    SockRef::from(&socket).set_recv_buffer_size(BUFFER_BYTES)?;
    SockRef::from(&socket).set_send_buffer_size(BUFFER_BYTES)?;
    Ok(socket)
}
