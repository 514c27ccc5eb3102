//! The client's engine against a relay over emulated networks, in virtual time.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tandem_core::client::{Engine, EngineConfig};
use tandem_core::dial::{Dial, DialError};
use tandem_core::platform::{Binder, Bound, Interface, InterfaceKind, Scripted};
use tandem_core::pump::memory::{MemoryTcp, pair};
use tandem_core::pump::{PumpEnd, pump};
use tandem_netem::{Direction, LinkConfig, Loss, Reorder};
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::pairing::{PairingLink, Secret};
use tandem_proto::stats::{PathState, SessionState, Snapshot};
use tandem_proto::wire::flow::OpenError;
use tandem_relay::identity::Identity;
use tandem_relay::serve::{Limits, Relay, RelayConfig};
use tandem_relay::tokens::{Authority, Revoked};
use tandem_testbed::virtual_time::{elapsed, run};
use tandem_testbed::{Line, Origins, VirtualNetwork};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const RELAY: &str = "203.0.113.1:4433";
/// The relay's second address, with lines of its own.
const RELAY_TOO: &str = "203.0.113.2:4433";
/// A relay's sessions linger for a few seconds after their end, and with them its address is in use.
const ADDRESS_FREE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(30);

/// A relay and the two networks that lead to it.
struct Bed {
    network: VirtualNetwork,
    lines: [Line; 2],
    platform: Scripted,
    identity: String,
    authority: Authority,
    relay: JoinHandle<()>,
    drain: CancellationToken,
    revoked: watch::Sender<Arc<Revoked>>,
}

/// A link with this one-way delay.
fn link(delay_ms: u64, seed: u64) -> LinkConfig {
    LinkConfig { delay: Duration::from_millis(delay_ms), seed, ..LinkConfig::default() }
}

impl Bed {
    /// Two networks whose four directions are made by `link` from a seed each.
    fn new(link: impl Fn(u64) -> LinkConfig) -> Self {
        let network = VirtualNetwork::new();
        let lay = |index: u64| {
            let (up, down) = (link(2 * index + 1), link(2 * index + 2));
            network.line(address(index), RELAY.parse().unwrap(), up, down).unwrap()
        };
        let lines = [lay(0), lay(1)];
        let identity = Identity::generate().unwrap().to_pem().expose().to_owned();
        let authority = Authority::generate().unwrap();
        let revoked = watch::Sender::new(Arc::default());
        let drain = CancellationToken::new();
        let relay = start_relay(&network, &identity, &authority, revoked.subscribe(), drain.clone());
        let platform = Scripted::new(vec![card(&network, &lines[0], 0), card(&network, &lines[1], 1)]);
        Self { network, lines, platform, identity, authority, relay, drain, revoked }
    }

    /// The same relay after a crash: it knows its key, and no session. (It says goodbye, but nobody can hear it.)
    async fn crash_and_restart(&mut self) {
        self.each_direction(Line::cut);
        self.drain.cancel();
        (&mut self.relay).await.unwrap();
        sleep(ADDRESS_FREE).await;
        self.drain = CancellationToken::new();
        self.relay =
            start_relay(&self.network, &self.identity, &self.authority, self.revoked.subscribe(), self.drain.clone());
        self.each_direction(Line::restore);
    }

    fn each_direction(&self, act: fn(&Line, Direction)) {
        for line in &self.lines {
            act(line, Direction::Up);
            act(line, Direction::Down);
        }
    }

    fn config(&self) -> EngineConfig {
        let (token, _) = self.authority.issue("test", OffsetDateTime::now_utc(), Duration::from_secs(3600)).unwrap();
        let pin = Identity::from_pem(&self.identity).unwrap().pin();
        let relays = vec![RELAY.parse().unwrap()];
        let link = PairingLink { relays, pins: vec![pin], token, name: String::new() };
        EngineConfig { listen: None, seed: Some([3; 32]), ..EngineConfig::new(link) }
    }

    async fn engine(&self, config: EngineConfig) -> Engine {
        Engine::start(config, Arc::new(self.platform.clone())).await.unwrap()
    }
}

fn address(index: u64) -> SocketAddr {
    format!("10.0.{index}.2:1000").parse().unwrap()
}

/// A network card on one of the lines, named `wifi0` or `cell0`. Each socket has a port of its own.
fn card(network: &VirtualNetwork, line: &Line, index: u64) -> (Interface, Binder) {
    let first = address(index);
    let interface = Interface {
        name: ["wifi0", "cell0"][index as usize].to_owned(),
        index: index as u32 + 1,
        kind: InterfaceKind::Other,
        addresses: vec![first.ip()],
        up: true,
        external: true,
    };
    let (network, line, sockets) = (network.clone(), line.clone(), AtomicU16::new(0));
    let bind = move |remote| {
        let number = sockets.fetch_add(1, Ordering::Relaxed);
        let local = SocketAddr::new(first.ip(), first.port() + number);
        if remote == RELAY_TOO.parse().unwrap() {
            network.line(local, remote, link(10, 9), link(10, 10)).unwrap();
        } else if number > 0 {
            line.share(local, remote);
        }
        Ok(Bound { socket: network.socket(local), remote })
    };
    (interface, Arc::new(bind))
}

fn start_relay(
    network: &VirtualNetwork,
    identity: &str,
    authority: &Authority,
    revoked: watch::Receiver<Arc<Revoked>>,
    drain: CancellationToken,
) -> JoinHandle<()> {
    let config = RelayConfig {
        identity: Identity::from_pem(identity).unwrap(),
        next_pin: None,
        verifier: authority.verifier(),
        revoked,
        limits: Limits::default(),
        seed: Some([4; 32]),
    };
    let origins = Origins::new()
        .with("blob:80", |mut tcp| async move {
            // Asked for a number of bytes, sends them.
            let bytes = tcp.read_u32().await.unwrap();
            let _ = tcp.write_all(&vec![7; bytes as usize]).await;
        })
        .with("count:80", |mut tcp| async move {
            // Takes everything, then says how much that was.
            let mut got = Vec::new();
            if tcp.read_to_end(&mut got).await.is_ok() {
                let _ = tcp.write_u32(got.len() as u32).await;
            }
        })
        .failing("closed:80", OpenError::Refused);
    let sockets = [RELAY, RELAY_TOO].map(|address| network.socket(address.parse().unwrap()) as _).to_vec();
    let relay = Relay::bind(config, sockets, origins).unwrap();
    tokio::spawn(relay.serve(drain))
}

/// An application's connection through the engine.
async fn open(dial: &Arc<dyn Dial>, target: &str) -> Result<(MemoryTcp, JoinHandle<PumpEnd>), DialError> {
    let flow = dial.open_tcp(target.parse().unwrap()).await?;
    let (app, inbound) = pair(64 * 1024);
    let pumping = tokio::spawn(pump(flow, inbound));
    Ok((app, tokio::spawn(async { pumping.await.unwrap().end })))
}

async fn download(dial: &Arc<dyn Dial>, bytes: u32) -> usize {
    let (mut app, _) = open(dial, "blob:80").await.unwrap();
    app.write_u32(bytes).await.unwrap();
    let mut got = Vec::new();
    app.read_to_end(&mut got).await.unwrap();
    got.len()
}

async fn until(engine: &Engine, what: &str, condition: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    let mut snapshots = engine.handle().subscribe();
    let found = timeout(PATIENCE, snapshots.wait_for(condition)).await.map(|found| found.unwrap().clone());
    found.unwrap_or_else(|_| panic!("not so within {PATIENCE:?}: {what}; {:#?}", engine.handle().snapshot()))
}

fn paths_up(snapshot: &Snapshot) -> Vec<&str> {
    let up = snapshot.paths.iter().filter(|path| path.state == PathState::Up);
    up.map(|path| path.interface.as_str()).collect()
}

fn scenario<F: Future<Output = ()>>(link: impl Fn(u64) -> LinkConfig, test: impl FnOnce(Bed) -> F) {
    run(async { test(Bed::new(link)).await });
}

#[test]
fn a_session_comes_up_over_every_network_and_flows_travel_in_both_modes() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            // Asked for before there is a session: it waits.
            assert_eq!(download(&dial, 100_000).await, 100_000);
            let snapshot = until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
            assert_eq!(snapshot.state, SessionState::Connected);
            assert_eq!(paths_up(&snapshot), ["wifi0", "cell0"]);
            assert!(snapshot.down.flow_bytes >= 100_000 && snapshot.down.copies == 0, "{snapshot:#?}");

            engine.handle().set_mode(Mode::Bicast(Sides::Both));
            sleep(Duration::from_secs(1)).await;
            assert_eq!(download(&dial, 100_000).await, 100_000);
            let copied = |snapshot: &Snapshot| snapshot.down.copies >= 70 && snapshot.up.copies > 0;
            until(&engine, "datagrams are copied both ways", copied).await;
            engine.stop().await;
        },
    );
}

/// SOCKS-6 (the way of the relay's answer)
#[test]
fn the_relays_reason_reaches_whoever_dialled() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            let error = async |target| open(&dial, target).await.err().unwrap();
            assert_eq!(error("closed:80").await, DialError::Open(OpenError::Refused));
            assert_eq!(error("unknown:80").await, DialError::Open(OpenError::NameNotFound));
        },
    );
}

/// FLOWS-2
#[test]
fn a_thousand_flows_at_once_wait_for_their_turn_and_all_succeed() {
    scenario(
        |seed| link(30, seed),
        async |bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            assert_eq!(download(&dial, 1).await, 1);
            let mut flows = JoinSet::new();
            let start = Instant::now();
            for _ in 0..1000 {
                let dial = Arc::clone(&dial);
                flows.spawn(async move {
                    assert_eq!(download(&dial, 10_000).await, 10_000);
                    start.elapsed()
                });
            }
            let mut took = timeout(PATIENCE, flows.join_all()).await.unwrap();
            took.sort();
            assert!(took[989] < Duration::from_secs(5), "p99 {:?}", took[989]);
        },
    );
}

/// TCP-3
#[test]
fn two_thousand_short_flows_in_a_row_lose_nothing_on_a_bad_link() {
    let bad = |seed| LinkConfig {
        loss: Loss::Random(0.05),
        reorder: Reorder { share: 0.05, least: Duration::from_millis(1), most: Duration::from_millis(5) },
        ..link(5, seed)
    };
    scenario(bad, async |bed| {
        let engine = bed.engine(bed.config()).await;
        let dial = engine.handle().dial();
        for round in 0..2000u32 {
            let bytes = 1 + round * 37 % 20_000;
            let (mut app, end) = open(&dial, "count:80").await.unwrap();
            app.write_all(&vec![1; bytes as usize]).await.unwrap();
            app.shutdown().await.unwrap();
            assert_eq!(timeout(PATIENCE, app.read_u32()).await.unwrap().unwrap(), bytes, "round {round}");
            drop(app);
            assert_eq!(timeout(PATIENCE, end).await.unwrap().unwrap(), PumpEnd::Finished, "round {round}");
        }
    });
}

#[test]
fn networks_that_come_and_go_change_the_paths_and_no_flow() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let (wifi, cell) = (card(&bed.network, &bed.lines[0], 0), card(&bed.network, &bed.lines[1], 1));
            bed.platform.set(vec![wifi.clone(), cell.clone()]);
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
            let (mut app, _) = open(&dial, "count:80").await.unwrap();
            app.write_all(b"before ").await.unwrap();

            bed.platform.set(vec![cell.clone()]);
            until(&engine, "wifi0's path is gone", |snapshot| paths_up(snapshot) == ["cell0"]).await;
            app.write_all(b"between ").await.unwrap();

            bed.platform.set(vec![wifi, cell]);
            until(&engine, "wifi0's path is back", |snapshot| paths_up(snapshot).len() == 2).await;
            app.write_all(b"after").await.unwrap();
            app.shutdown().await.unwrap();
            assert_eq!(timeout(PATIENCE, app.read_u32()).await.unwrap().unwrap(), 20);
            assert_eq!(engine.handle().snapshot().state, SessionState::Connected);
        },
    );
}

#[test]
fn a_relay_that_crashed_and_came_back_is_used_again_within_seconds() {
    scenario(
        |seed| link(10, seed),
        async |mut bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            assert_eq!(download(&dial, 1000).await, 1000);
            bed.crash_and_restart().await;
            let back = elapsed();
            assert_eq!(timeout(PATIENCE, download(&dial, 1000)).await.unwrap(), 1000);
            assert!(elapsed() - back < Duration::from_secs(8), "{:?}", elapsed() - back);
        },
    );
}

#[test]
fn a_relay_out_of_reach_at_one_address_is_reached_at_another_within_seconds() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let mut config = bed.config();
            config.link.relays.push(RELAY_TOO.parse().unwrap());
            let engine = bed.engine(config).await;
            let dial = engine.handle().dial();
            assert_eq!(download(&dial, 1000).await, 1000);
            bed.each_direction(Line::cut);
            let cut = elapsed();
            let moved = |snapshot: &Snapshot| {
                !snapshot.paths.is_empty() && snapshot.paths.iter().all(|path| path.remote == RELAY_TOO)
            };
            until(&engine, "it has moved to the other address", moved).await;
            assert!(elapsed() - cut < Duration::from_secs(8), "{:?}", elapsed() - cut);
            assert_eq!(timeout(PATIENCE, download(&dial, 1000)).await.unwrap(), 1000);
        },
    );
}

#[test]
fn an_outage_of_every_network_ends_no_session_and_no_flow() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
            let (mut app, _) = open(&dial, "count:80").await.unwrap();
            app.write_all(b"before ").await.unwrap();
            bed.each_direction(Line::cut);
            sleep(Duration::from_secs(20)).await;
            bed.each_direction(Line::restore);
            app.write_all(b"after").await.unwrap();
            app.shutdown().await.unwrap();
            assert_eq!(timeout(PATIENCE, app.read_u32()).await.unwrap().unwrap(), 12);
        },
    );
}

#[test]
fn a_client_that_the_relay_does_not_know_is_told_so_and_tries_no_more() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let mut config = bed.config();
            let (foreign, _) = Authority::generate()
                .unwrap()
                .issue("foreign", OffsetDateTime::now_utc(), Duration::from_secs(3600))
                .unwrap();
            config.link.token = Secret::new(foreign.expose().to_owned());
            let engine = bed.engine(config).await;
            let stopped = until(&engine, "it gives up", |snapshot| snapshot.state == SessionState::Stopped).await;
            assert!(stopped.problem.unwrap().contains("pair again with a new link"));
            let dial = engine.handle().dial();
            assert_eq!(open(&dial, "blob:80").await.err(), Some(DialError::NotConnected));
        },
    );
}

#[test]
fn a_wrong_key_is_no_relay() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let mut config = bed.config();
            config.link.pins = vec![[1; 32]];
            let engine = bed.engine(config).await;
            let trying = until(&engine, "it says what is wrong", |snapshot| snapshot.problem.is_some()).await;
            assert_eq!(trying.state, SessionState::Connecting);
            assert!(trying.problem.unwrap().contains("key is not the one in the pairing link"));
        },
    );
}
