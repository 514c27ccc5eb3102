//! A client with two relays, in virtual time: which one it takes, and how it moves when one fills up, goes away or dies.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod bed;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use bed::{PATIENCE, download, link, open, origins, pattern, read_all, until};
use parking_lot::Mutex;
use tandem_core::client::{Engine, EngineConfig};
use tandem_core::dial::Dial;
use tandem_core::platform::{Binder, Bound, Interface, InterfaceKind, Scripted};
use tandem_core::pump::PumpEnd;
use tandem_netem::{Direction, LinkConfig, Loss};
use tandem_proto::pairing::{PairingLink, Pairings};
use tandem_proto::stats::{RelayState, SessionState, Snapshot};
use tandem_relay::identity::Identity;
use tandem_relay::serve::{Limits, Relay, RelayConfig};
use tandem_relay::tokens::{Authority, Revoked};
use tandem_testbed::virtual_time::{elapsed, run};
use tandem_testbed::{Line, VirtualNetwork, VirtualSocket};
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const ADDRESSES: [&str; 2] = ["203.0.113.1:4433", "203.0.113.9:4433"];
const NAMES: [&str; 2] = ["near", "far"];
const SECOND: Duration = Duration::from_secs(1);
const SEEDS: u64 = 20;

/// A relay of its own, with its own keys and servers.
struct Station {
    link: PairingLink,
    identity: String,
    authority: Authority,
    revoked: watch::Sender<Arc<Revoked>>,
    limits: Limits,
    drain: CancellationToken,
    socket: Arc<VirtualSocket>,
    serving: JoinHandle<()>,
}

impl Station {
    fn start(network: &VirtualNetwork, at: usize, limits: Limits) -> Self {
        let authority = Authority::generate().unwrap();
        let identity = Identity::generate().unwrap();
        let (token, _) = authority.issue("test", OffsetDateTime::now_utc(), Duration::from_secs(3600)).unwrap();
        let relays = vec![ADDRESSES[at].parse().unwrap()];
        let link = PairingLink { relays, pins: vec![identity.pin()], token, name: String::new() };
        let mut station = Self {
            link,
            identity: identity.to_pem().expose().to_owned(),
            authority,
            revoked: watch::Sender::new(Arc::default()),
            limits,
            drain: CancellationToken::new(),
            socket: network.socket(ADDRESSES[at].parse().unwrap()),
            serving: tokio::spawn(async {}),
        };
        station.serve(at);
        station
    }

    fn serve(&mut self, at: usize) {
        let identity = Identity::from_pem(&self.identity).unwrap();
        let config = RelayConfig {
            revoked: self.revoked.subscribe(),
            limits: self.limits,
            seed: Some([4 + at as u8; 32]),
            ..RelayConfig::new(identity, self.authority.verifier())
        };
        let endless: Arc<AtomicU64> = Arc::default();
        let relay = Relay::bind(config, vec![Arc::clone(&self.socket) as _], origins(endless)).unwrap();
        self.serving = tokio::spawn(relay.serve(self.drain.clone()));
    }

    /// Takes the client's token back.
    fn revoke(&self) {
        let claims = self.authority.verifier().verify(&self.link.token, OffsetDateTime::now_utc()).unwrap();
        self.revoked.send_replace(Arc::new(Revoked::from_iter([claims.id])));
    }

    /// Its process dies without a word.
    fn kill(&self) {
        self.socket.unplug();
        self.serving.abort();
    }
}

/// Two relays, and a client with two networks that lead to both.
struct Field {
    network: VirtualNetwork,
    stations: [Station; 2],
    platform: Scripted,
    lines: Arc<Mutex<Vec<Line>>>,
    down: Arc<AtomicBool>,
    seed: u8,
}

impl Field {
    /// `line` makes the lines' two directions, by relay and seed.
    fn new(seed: u64, limits: [Limits; 2], line: impl Fn(usize, u64) -> LinkConfig + Send + Sync + 'static) -> Self {
        let network = VirtualNetwork::new();
        let stations = [0, 1].map(|at| Station::start(&network, at, limits[at]));
        let (lines, down, line): (Arc<Mutex<Vec<Line>>>, Arc<AtomicBool>, _) =
            (Arc::default(), Arc::default(), Arc::new(line));
        let card = |index: u64| -> (Interface, Binder) {
            let own: SocketAddr = format!("10.0.{index}.2:1000").parse().unwrap();
            let interface = Interface {
                name: ["wifi0", "cell0"][index as usize].to_owned(),
                index: index as u32 + 1,
                kind: InterfaceKind::Other,
                addresses: vec![own.ip()],
                up: true,
                external: true,
            };
            let (network, lines, down, line) =
                (network.clone(), Arc::clone(&lines), Arc::clone(&down), Arc::clone(&line));
            let ports = AtomicU16::new(0);
            let bind = move |remote: SocketAddr| {
                let number = ports.fetch_add(1, Ordering::Relaxed);
                let local = SocketAddr::new(own.ip(), own.port() + number);
                let at = ADDRESSES.iter().position(|address| address.parse() == Ok(remote)).unwrap();
                let seeds = (seed << 32) + (index << 20) + 2 * u64::from(number);
                let laid = network.line(local, remote, line(at, seeds), line(at, seeds + 1)).unwrap();
                if down.load(Ordering::Relaxed) {
                    laid.cut(Direction::Up);
                    laid.cut(Direction::Down);
                }
                lines.lock().push(laid);
                Ok(Bound { socket: network.socket(local), remote })
            };
            (interface, Arc::new(bind))
        };
        let platform = Scripted::new(vec![card(0), card(1)]);
        Self { network, stations, platform, lines, down, seed: seed as u8 }
    }

    async fn engine(&self, stations: &[usize], preferred: Option<&str>) -> Engine {
        let mut pairings = Pairings::default();
        for at in stations {
            pairings.add(self.stations[*at].link.clone(), Some(NAMES[*at])).unwrap();
        }
        pairings.prefer(preferred).unwrap();
        let config = EngineConfig { listen: None, seed: Some([self.seed; 32]), ..EngineConfig::with_relays(&pairings) };
        Engine::start(config, Arc::new(self.platform.clone())).await.unwrap()
    }

    /// All networks go down, or come back.
    fn outage(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
        for line in &*self.lines.lock() {
            for direction in [Direction::Up, Direction::Down] {
                if down { line.cut(direction) } else { line.restore(direction) }
            }
        }
    }
}

fn field<F: Future<Output = ()>>(limits: [Limits; 2], delays_ms: [u64; 2], test: impl FnOnce(Field) -> F) {
    run(async { test(Field::new(1, limits, move |at, seed| link(delays_ms[at], seed))).await });
}

fn plenty() -> [Limits; 2] {
    [Limits::default(), Limits::default()]
}

fn full() -> Limits {
    Limits { sessions: 0, ..Limits::default() }
}

/// The relay in use.
fn used(snapshot: &Snapshot) -> Option<&str> {
    let is_used = |state| matches!(state, RelayState::Used | RelayState::Leaving);
    snapshot.relays.iter().find(|relay| is_used(relay.state)).map(|relay| relay.name.as_str())
}

fn on(name: &'static str) -> impl Fn(&Snapshot) -> bool {
    move |snapshot| snapshot.state == SessionState::Connected && used(snapshot) == Some(name)
}

fn relay<'a>(snapshot: &'a Snapshot, name: &str) -> &'a tandem_proto::stats::RelayStats {
    snapshot.relays.iter().find(|relay| relay.name == name).unwrap()
}

/// Waits for a flow that is answered, and for its whole answer.
async fn new_flow(dial: &Arc<dyn Dial>) -> Duration {
    let start = elapsed();
    timeout(PATIENCE, download(dial, 1000)).await.unwrap();
    elapsed() - start
}

#[test]
fn the_nearest_relay_is_taken_whatever_the_order() {
    for order in [[0, 1], [1, 0]] {
        field(plenty(), [10, 30], async |field| {
            let engine = field.engine(&order, None).await;
            let snapshot = until(&engine, "the near relay is used", on("near")).await;
            assert_eq!(snapshot.relay, ADDRESSES[0]);
            let round_trip = relay(&snapshot, "near").rtt_ms.unwrap();
            assert!((19.0..30.0).contains(&round_trip), "{round_trip} ms");
            sleep(SECOND).await;
            assert!(on("near")(&engine.handle().snapshot()));
            download(&engine.handle().dial(), 100_000).await;
        });
    }
}

#[test]
fn a_preferred_relay_is_taken_though_it_is_farther_away() {
    field(plenty(), [10, 30], async |field| {
        let engine = field.engine(&[0, 1], Some("far")).await;
        until(&engine, "the preferred relay is used", on("far")).await;
        assert!(elapsed() < SECOND, "{:?}", elapsed());
    });
}

#[test]
fn a_dead_relay_costs_no_time_at_the_start() {
    let mut took = Vec::new();
    for known in [&[0][..], &[0, 1], &[1, 0]] {
        field(plenty(), [10, 10], async |field| {
            field.stations[1].kill();
            let engine = field.engine(known, None).await;
            until(&engine, "the living relay is used", on("near")).await;
            took.push(elapsed());
        });
    }
    assert!(took.iter().all(|time| *time <= took[0] + Duration::from_millis(5)), "{took:?}");
}

#[test]
fn a_full_relay_is_passed_over() {
    field([full(), Limits::default()], [10, 30], async |field| {
        let engine = field.engine(&[0, 1], None).await;
        let snapshot = until(&engine, "the other relay is used", on("far")).await;
        assert!(elapsed() < SECOND, "{:?}", elapsed());
        assert!(relay(&snapshot, "near").problem.as_ref().unwrap().contains("it is full"), "{snapshot:#?}");
        assert!(new_flow(&engine.handle().dial()).await < SECOND);
    });
}

#[test]
fn a_relay_that_refuses_this_client_is_out_and_the_others_are_used() {
    field(plenty(), [10, 30], async |field| {
        field.stations[0].revoke();
        let engine = field.engine(&[0, 1], None).await;
        let snapshot = until(&engine, "the other relay is used", on("far")).await;
        let near = relay(&snapshot, "near");
        assert_eq!(near.state, RelayState::Refused);
        assert!(near.problem.as_ref().unwrap().contains("revoked"), "{near:?}");
        field.stations[1].revoke();
        let ended = until(&engine, "it gives up", |snapshot| snapshot.state == SessionState::Stopped).await;
        let problem = ended.problem.unwrap();
        assert!(problem.contains("near: ") && problem.contains("far: ") && problem.contains("revoked"), "{problem}");
    });
}

#[test]
fn a_relay_that_goes_away_finishes_what_is_open_while_new_flows_go_by_another() {
    field(plenty(), [10, 30], async |mut field| {
        let engine = field.engine(&[0, 1], None).await;
        until(&engine, "the near relay is used", on("near")).await;
        let dial = engine.handle().dial();
        let (mut app, end) = open(&dial, "mirror:80").await.unwrap();
        app.write_all(b"before ").await.unwrap();
        sleep(SECOND).await;
        field.stations[0].drain.cancel();
        let drained = elapsed();
        // Asked for at once: it may meet the relay that opens nothing more.
        assert!(new_flow(&dial).await < SECOND);
        until(&engine, "the far relay is used", on("far")).await;
        assert!(elapsed() - drained < SECOND, "{:?}", elapsed() - drained);
        sleep(3 * SECOND).await;
        assert!(!field.stations[0].serving.is_finished(), "a flow is open");
        app.write_all(b"after").await.unwrap();
        app.shutdown().await.unwrap();
        assert_eq!(read_all(&mut app).await, b"before after");
        assert_eq!(timeout(PATIENCE, end).await.unwrap().unwrap(), PumpEnd::Finished);
        // The relay waits for nobody else.
        timeout(SECOND * 5, &mut field.stations[0].serving).await.unwrap().unwrap();
        assert!(on("far")(&engine.handle().snapshot()));
        assert!(new_flow(&dial).await < SECOND);
    });
}

#[test]
fn the_only_relay_says_that_it_goes_away_and_is_used_again_after_its_restart() {
    field(plenty(), [10, 30], async |mut field| {
        let engine = field.engine(&[0], None).await;
        until(&engine, "the relay is used", on("near")).await;
        let dial = engine.handle().dial();
        let (mut app, _) = open(&dial, "mirror:80").await.unwrap();
        app.write_all(b"x").await.unwrap();
        sleep(SECOND).await;
        field.stations[0].drain.cancel();
        let leaving = |snapshot: &Snapshot| relay(snapshot, "near").state == RelayState::Leaving;
        let snapshot = until(&engine, "it is told", leaving).await;
        assert!(snapshot.problem.unwrap().contains("the relay is going away"), "{:?}", snapshot.state);
        app.shutdown().await.unwrap();
        assert_eq!(read_all(&mut app).await, b"x");
        timeout(SECOND * 5, &mut field.stations[0].serving).await.unwrap().unwrap();
        field.stations[0].socket.unplug();
        field.stations[0].socket = field.network.socket(ADDRESSES[0].parse().unwrap());
        field.stations[0].drain = CancellationToken::new();
        field.stations[0].serve(0);
        until(&engine, "the relay is used again", on("near")).await;
        timeout(PATIENCE, download(&dial, 1000)).await.unwrap();
    });
}

#[test]
fn when_the_relay_dies_open_flows_end_and_new_ones_work_within_a_second() {
    field(plenty(), [10, 30], async |field| {
        let engine = field.engine(&[0, 1], None).await;
        until(&engine, "the near relay is used", on("near")).await;
        let dial = engine.handle().dial();
        let (mut app, end) = open(&dial, "mirror:80").await.unwrap();
        app.write_all(b"lost").await.unwrap();
        sleep(20 * SECOND).await;
        field.stations[0].kill();
        let killed = elapsed();
        assert!(new_flow(&dial).await < SECOND);
        until(&engine, "the far relay is used", on("far")).await;
        assert_eq!(timeout(PATIENCE, end).await.unwrap().unwrap(), PumpEnd::FlowLost);
        assert!(elapsed() - killed < 3 * SECOND, "{:?}", elapsed() - killed);
        // It is not left again when the other one comes back: the session lives.
        sleep(60 * SECOND).await;
        assert!(on("far")(&engine.handle().snapshot()));
    });
}

/// PATH-5
#[test]
fn an_outage_of_every_network_moves_nobody_and_ends_no_flow() {
    for seconds in [1, 3, 10, 20] {
        field(plenty(), [10, 12], async |field| {
            let engine = field.engine(&[0, 1], None).await;
            until(&engine, "the near relay is used", on("near")).await;
            let dial = engine.handle().dial();
            let (mut app, _) = open(&dial, "mirror:80").await.unwrap();
            app.write_all(b"before ").await.unwrap();
            sleep(SECOND).await;
            field.outage(true);
            app.write_all(b"meanwhile ").await.unwrap();
            sleep(SECOND * seconds).await;
            field.outage(false);
            let back = elapsed();
            app.write_all(b"after").await.unwrap();
            app.shutdown().await.unwrap();
            assert_eq!(read_all(&mut app).await, b"before meanwhile after");
            assert!(elapsed() - back < 3 * SECOND, "{:?}", elapsed() - back);
            sleep(2 * SECOND).await;
            let snapshot = engine.handle().snapshot();
            assert!(on("near")(&snapshot), "after {seconds} s: {snapshot:#?}");
        });
    }
}

/// What happens to the relay in use.
#[derive(Debug, Clone, Copy)]
enum Blow {
    KilledIdle,
    KilledBusy,
    Drained,
    /// It is the nearest, and full when the client starts.
    Full,
}

/// How long a new flow takes after a blow, for every seed: links of 10 to 40 ms one way that lose 1 %.
#[test]
fn over_many_seeds_a_new_flow_works_within_a_second_after_whatever_befalls_the_relay() {
    for blow in [Blow::KilledIdle, Blow::KilledBusy, Blow::Drained, Blow::Full] {
        let mut took = Vec::new();
        for seed in 1..=SEEDS {
            run(async {
                let delay_ms = move |at: usize| match blow {
                    Blow::Full => 10 + seed + 10 * at as u64,
                    _ => 10 + (seed * 7 + 13 * at as u64) % 31,
                };
                let lossy = move |at, line| LinkConfig { loss: Loss::Random(0.01), ..link(delay_ms(at), line) };
                let limits = if let Blow::Full = blow { [full(), Limits::default()] } else { plenty() };
                let field = Field::new(seed, limits, lossy);
                if let Blow::Full = blow {
                    let engine = field.engine(&[0, 1], None).await;
                    took.push(new_flow(&engine.handle().dial()).await);
                    assert!(on("far")(&engine.handle().snapshot()));
                    return;
                }
                let engine = field.engine(&[0, 1], None).await;
                let connected = |snapshot: &Snapshot| snapshot.state == SessionState::Connected;
                let snapshot = until(&engine, "a relay is used", connected).await;
                let at = NAMES.iter().position(|name| used(&snapshot) == Some(name)).unwrap();
                let dial = engine.handle().dial();
                download(&dial, 1000).await;
                sleep(Duration::from_millis(2000 + 137 * seed)).await;
                if let Blow::KilledBusy = blow {
                    let (mut app, _) = open(&dial, "blob:80").await.unwrap();
                    app.write_u32(3_000_000).await.unwrap();
                    tokio::spawn(async move { read_some(&mut app).await });
                    sleep(Duration::from_millis(300)).await;
                }
                match blow {
                    Blow::KilledIdle | Blow::KilledBusy => field.stations[at].kill(),
                    Blow::Drained => field.stations[at].drain.cancel(),
                    Blow::Full => unreachable!("it is full from the start"),
                }
                took.push(new_flow(&dial).await);
            });
        }
        took.sort();
        let ms = |part: usize| took[part].as_millis();
        println!(
            "{blow:?}: a new flow took {} to {} ms, half of them under {}",
            ms(0),
            ms(took.len() - 1),
            ms(took.len() / 2)
        );
        assert!(took.iter().all(|time| *time < SECOND), "{blow:?}: {took:?}");
    }
}

/// Reads until the flow ends, however.
async fn read_some(app: &mut tandem_core::pump::memory::MemoryTcp) {
    use tokio::io::AsyncReadExt;
    let mut got = vec![0; 64 * 1024];
    let mut place = 0;
    while let Ok(read @ 1..) = app.read(&mut got).await {
        assert!(got[..read] == pattern(place + read)[place..], "the download is damaged at {place}");
        place += read;
    }
}
