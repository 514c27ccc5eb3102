//! An engine and a relay with servers in memory, joined by two emulated networks, in virtual time.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tandem_core::client::{Engine, EngineConfig};
use tandem_core::dial::{Dial, DialError};
use tandem_core::platform::{Binder, Bound, Interface, InterfaceKind, Scripted};
use tandem_core::pump::memory::{MemoryTcp, pair};
use tandem_core::pump::{PumpEnd, pump};
use tandem_netem::{Direction, LinkConfig};
use tandem_proto::pairing::PairingLink;
use tandem_proto::stats::{PathState, Snapshot};
use tandem_proto::wire::flow::OpenError;
use tandem_relay::identity::Identity;
use tandem_relay::serve::{Measuring, Relay, RelayConfig};
use tandem_relay::tokens::{Authority, Revoked};
use tandem_testbed::virtual_time::run;
use tandem_testbed::{Line, Origins, VirtualNetwork, VirtualSocket};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) const RELAY: &str = "203.0.113.1:4433";
/// The relay's second address, with lines of its own.
pub(crate) const RELAY_TOO: &str = "203.0.113.2:4433";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A relay and the two networks that lead to it.
pub(crate) struct Bed {
    pub(crate) network: VirtualNetwork,
    pub(crate) lines: [Line; 2],
    pub(crate) platform: Scripted,
    pub(crate) identity: String,
    pub(crate) authority: Authority,
    pub(crate) relay: JoinHandle<()>,
    pub(crate) drain: CancellationToken,
    pub(crate) revoked: watch::Sender<Arc<Revoked>>,
    pub(crate) sockets: Vec<Arc<VirtualSocket>>,
    /// Bytes that `endless:80` has written so far.
    pub(crate) endless_bytes: Arc<AtomicU64>,
    /// Connections of `door:80`, the newest last: the test is the server.
    pub(crate) doors: Doors,
}

type Doors = Arc<Mutex<Vec<MemoryTcp>>>;

/// A link with this one-way delay.
pub(crate) fn link(delay_ms: u64, seed: u64) -> LinkConfig {
    LinkConfig { delay: Duration::from_millis(delay_ms), seed, ..LinkConfig::default() }
}

impl Bed {
    /// Two networks whose four directions are made by `link` from a seed each.
    pub(crate) fn new(link: impl Fn(u64) -> LinkConfig) -> Self {
        let network = VirtualNetwork::new();
        let lay = |index: u64| {
            let (up, down) = (link(2 * index + 1), link(2 * index + 2));
            network.line(address(index), RELAY.parse().unwrap(), up, down).unwrap()
        };
        let lines = [lay(0), lay(1)];
        let platform = Scripted::new(vec![card(&network, &lines[0], 0), card(&network, &lines[1], 1)]);
        let mut bed = Self {
            sockets: relay_sockets(&network),
            network,
            lines,
            platform,
            identity: Identity::generate().unwrap().to_pem().expose().to_owned(),
            authority: Authority::generate().unwrap(),
            relay: tokio::spawn(async {}),
            drain: CancellationToken::new(),
            revoked: watch::Sender::new(Arc::default()),
            endless_bytes: Arc::default(),
            doors: Doors::default(),
        };
        bed.relay = bed.start_relay();
        bed
    }

    fn start_relay(&self) -> JoinHandle<()> {
        let identity = Identity::from_pem(&self.identity).unwrap();
        let config = RelayConfig {
            revoked: self.revoked.subscribe(),
            measuring: Some(Measuring::new(Vec::new()).unwrap()),
            seed: Some([4; 32]),
            ..RelayConfig::new(identity, self.authority.verifier())
        };
        let sockets = self.sockets.iter().map(|socket| Arc::clone(socket) as _).collect();
        let relay =
            Relay::bind(config, sockets, origins(Arc::clone(&self.endless_bytes)).with("door:80", door(&self.doors)))
                .unwrap();
        tokio::spawn(relay.serve(self.drain.clone()))
    }

    /// The relay's process dies without a word and another one with the same key takes its place.
    pub(crate) fn crash_and_restart_relay(&mut self) {
        for socket in &self.sockets {
            socket.unplug();
        }
        self.relay.abort();
        self.sockets = relay_sockets(&self.network);
        self.relay = self.start_relay();
    }

    pub(crate) fn each_direction(&self, act: fn(&Line, Direction)) {
        for line in &self.lines {
            act(line, Direction::Up);
            act(line, Direction::Down);
        }
    }

    pub(crate) fn config(&self) -> EngineConfig {
        let (token, _) = self.authority.issue("test", OffsetDateTime::now_utc(), Duration::from_secs(3600)).unwrap();
        let pin = Identity::from_pem(&self.identity).unwrap().pin();
        let relays = vec![RELAY.parse().unwrap()];
        let link = PairingLink { relays, pins: vec![pin], token, name: String::new() };
        EngineConfig { listen: None, seed: Some([3; 32]), ..EngineConfig::new(link) }
    }

    pub(crate) async fn engine(&self, config: EngineConfig) -> Engine {
        Engine::start(config, Arc::new(self.platform.clone())).await.unwrap()
    }
}

pub(crate) fn address(index: u64) -> SocketAddr {
    format!("10.0.{index}.2:1000").parse().unwrap()
}

/// A network card on one of the lines, named `wifi0` or `cell0`. Each socket has a port of its own.
pub(crate) fn card(network: &VirtualNetwork, line: &Line, index: u64) -> (Interface, Binder) {
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

fn relay_sockets(network: &VirtualNetwork) -> Vec<Arc<VirtualSocket>> {
    [RELAY, RELAY_TOO].map(|address| network.socket(address.parse().unwrap())).to_vec()
}

/// Hands every connection to the test.
fn door(doors: &Doors) -> impl Fn(MemoryTcp) -> std::future::Ready<()> + Send + Sync + 'static + use<> {
    let doors = Arc::clone(doors);
    move |tcp| {
        doors.lock().push(tcp);
        std::future::ready(())
    }
}

/// `endless_bytes` counts what `endless:80` could write.
pub(crate) fn origins(endless_bytes: Arc<AtomicU64>) -> Origins {
    Origins::new()
        .with("blob:80", |mut tcp| async move {
            // Asked for a number of bytes, sends them.
            let bytes = tcp.read_u32().await.unwrap();
            let _ = tcp.write_all(&pattern(bytes as usize)).await;
        })
        .with("mirror:80", |mut tcp| async move {
            // Takes everything, then sends it back.
            let mut got = Vec::new();
            if tcp.read_to_end(&mut got).await.is_ok() {
                let _ = tcp.write_all(&got).await;
            }
        })
        .with("endless:80", move |mut tcp| {
            let written = Arc::clone(&endless_bytes);
            async move {
                while let Ok(bytes) = tcp.write(&[7; 16 * 1024]).await {
                    written.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            }
        })
        .failing("closed:80", OpenError::Refused)
}

/// Bytes each of which depends on its place.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + place / 251) as u8).collect()
}

/// An application's connection through the engine, and how its flow ends.
pub(crate) async fn open(dial: &Arc<dyn Dial>, target: &str) -> Result<(MemoryTcp, JoinHandle<PumpEnd>), DialError> {
    let flow = dial.open_tcp(target.parse().unwrap()).await?;
    let (app, inbound) = pair(64 * 1024);
    let pumping = tokio::spawn(pump(flow, inbound));
    Ok((app, tokio::spawn(async { pumping.await.unwrap().end })))
}

/// Fetches so many bytes and checks each.
pub(crate) async fn download(dial: &Arc<dyn Dial>, bytes: u32) {
    let (mut app, _) = open(dial, "blob:80").await.unwrap();
    app.write_u32(bytes).await.unwrap();
    let got = read_all(&mut app).await;
    assert!(got == pattern(bytes as usize), "{} bytes came, of {bytes} wanted", got.len());
}

/// Everything up to the clean end; something must come all the while.
pub(crate) async fn read_all(app: &mut MemoryTcp) -> Vec<u8> {
    let mut got = Vec::new();
    while timeout(PATIENCE, app.read_buf(&mut got)).await.expect("the flow hangs").unwrap() > 0 {}
    got
}

/// Sends bytes to `mirror:80`, ends its half and checks what comes back, to the clean end.
pub(crate) async fn mirror(dial: &Arc<dyn Dial>, bytes: &[u8]) {
    let (mut app, end) = open(dial, "mirror:80").await.unwrap();
    app.write_all(bytes).await.unwrap();
    app.shutdown().await.unwrap();
    let got = read_all(&mut app).await;
    assert!(got == bytes, "{} of {} bytes came back", got.len(), bytes.len());
    drop(app);
    assert_eq!(timeout(PATIENCE, end).await.unwrap().unwrap(), PumpEnd::Finished);
}

pub(crate) async fn until(engine: &Engine, what: &str, condition: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    let mut snapshots = engine.handle().subscribe();
    let found = timeout(PATIENCE, snapshots.wait_for(condition)).await.map(|found| found.unwrap().clone());
    found.unwrap_or_else(|_| panic!("not so within {PATIENCE:?}: {what}; {:#?}", engine.handle().snapshot()))
}

pub(crate) fn paths_up(snapshot: &Snapshot) -> Vec<&str> {
    let up = snapshot.paths.iter().filter(|path| path.state == PathState::Up);
    up.map(|path| path.interface.as_str()).collect()
}

pub(crate) fn scenario<F: Future<Output = ()>>(link: impl Fn(u64) -> LinkConfig, test: impl FnOnce(Bed) -> F) {
    run(async { test(Bed::new(link)).await });
}
