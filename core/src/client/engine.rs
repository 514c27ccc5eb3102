//! Starts, stops and describes everything that runs on the client.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tandem_proto::congestion::Algorithm;
use tandem_proto::measure::Kind;
use tandem_proto::mode::Mode;
use tandem_proto::networks::{SettingError, Settings};
use tandem_proto::pairing::{Pairing, PairingLink, Pairings};
use tandem_proto::stats::{PathState, PathStats, SessionState, Snapshot};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::accounts::{Accounts, StateError};
use super::addresses::Addresses;
use super::diagnose::{Findings, diagnose};
use super::dial::SessionDial;
use super::maker::Maker;
use super::measure::{Measurement, Measurer};
use super::networks::Networks;
use super::relays::Relays;
use super::session::{Phase, Session};
use super::{DEFAULT_LISTEN, default_state};
use crate::config::Config;
use crate::dial::Dial;
use crate::inbound::{Credentials, Forward, Inbound, Service};
use crate::platform::Platform;
use crate::pump::FlowGauge;
use crate::secrets::Keeper;

/// How often a snapshot is taken while someone listens.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(250);

/// What an engine is to do.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The relays and the right to use them; at least one.
    pub relays: Vec<Pairing>,
    /// The name of the relay that is taken before nearer ones.
    pub preferred: Option<String>,
    /// Keeps what the relays change of their links, for the next start.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// The file in which addresses at which relays were reached are kept; `None` to forget them at the end.
    pub addresses: Option<PathBuf>,
    /// Where the proxy listens; `None` for no proxy.
    pub listen: Option<SocketAddr>,
    /// What the proxy's clients must give.
    pub credentials: Option<Credentials>,
    /// Static forwards.
    pub forwards: Vec<Forward>,
    /// Names of the interfaces to use; empty for every way to the internet.
    pub interfaces: Vec<String>,
    /// What was said of networks, by name.
    pub networks: Vec<(String, Settings)>,
    /// Where what networks carry, and what is said of them by command, is kept; `None` to forget it.
    pub state: Option<PathBuf>,
    /// How the session uses its paths at first.
    pub mode: Mode,
    /// The congestion controller, of both directions.
    pub congestion: Algorithm,
    /// Whether networks on which the relay is silent are looked at by a plain HTTP request to its address, which a captive
    /// network answers.
    pub captive_check: bool,
    /// Makes everything that is drawn at random repeatable; for tests.
    pub seed: Option<[u8; 32]>,
}

impl EngineConfig {
    /// The defaults for one relay.
    pub fn new(link: PairingLink) -> Self {
        Self { relays: vec![Pairing { name: "relay".to_owned(), link }], ..Self::with_relays(&Pairings::default()) }
    }

    /// The defaults for these relays.
    pub fn with_relays(pairings: &Pairings) -> Self {
        Self {
            relays: pairings.list().to_vec(),
            preferred: pairings.preferred().map(str::to_owned),
            keeper: None,
            addresses: None,
            listen: Some(DEFAULT_LISTEN),
            credentials: None,
            forwards: Vec::new(),
            interfaces: Vec::new(),
            networks: Vec::new(),
            state: None,
            mode: Mode::default(),
            congestion: Algorithm::default(),
            captive_check: true,
            seed: None,
        }
    }

    /// What a configuration file says, for these relays; the defaults where it says nothing.
    pub fn from_file(pairings: &Pairings, file: Config) -> Self {
        Self {
            addresses: default_addresses(),
            listen: Some(file.listen.unwrap_or(DEFAULT_LISTEN)),
            credentials: file.credentials,
            forwards: file.forwards,
            interfaces: file.interfaces,
            networks: file.networks,
            state: default_state(),
            mode: file.mode.unwrap_or_default(),
            congestion: file.congestion.unwrap_or_default(),
            captive_check: file.captive_check.unwrap_or(true),
            ..Self::with_relays(pairings)
        }
    }
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no relay to go to.
    #[error("no relay is known: pair with one first")]
    NoRelay,
    /// An address cannot be listened on.
    #[error("cannot listen on {address}{}", hint(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's reason.
        #[source]
        source: std::io::Error,
    },
    /// What is kept of the networks cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
}

/// What may help where an address cannot be listened on.
fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => " (another program does already; --listen names another address for the proxy)",
        ErrorKind::AddrNotAvailable => " (it is no address of this machine)",
        ErrorKind::PermissionDenied => " (ports below 1024 ask for privileges)",
        _ => "",
    }
}

/// A running client. Dropping it ends everything at once; [`Engine::stop`] ends it well.
pub struct Engine {
    handle: EngineHandle,
    inbounds: JoinSet<()>,
    session: JoinHandle<()>,
    diagnosis: Option<JoinHandle<()>>,
    accounts: Arc<Accounts>,
    _bookkeeping: AbortOnDropHandle<()>,
    stop_inbounds: CancellationToken,
    stop_session: CancellationToken,
    publisher: JoinHandle<()>,
}

/// Where addresses of relays are kept unless told otherwise: in the user's cache directory, if there is one.
pub fn default_addresses() -> Option<PathBuf> {
    Some(dirs::cache_dir()?.join("tandem").join("addresses.json"))
}

/// Asks and steers an engine; any number of clones.
#[derive(Clone)]
pub struct EngineHandle {
    shared: Arc<Shared>,
}

struct Shared {
    relays: Arc<Relays>,
    proxy: Option<SocketAddr>,
    congestion: Algorithm,
    phase: watch::Receiver<Phase>,
    mode: watch::Sender<Mode>,
    flows: Arc<FlowGauge>,
    snapshots: watch::Sender<Snapshot>,
    findings: watch::Receiver<Findings>,
    accounts: Arc<Accounts>,
    measurer: Arc<Measurer>,
    stop_requested: CancellationToken,
}

impl Engine {
    /// Starts the inbounds and begins to connect. The session comes up later: see [`EngineHandle::subscribe`].
    ///
    /// # Errors
    /// [`EngineError`] if a listener cannot be opened; nothing runs then.
    pub async fn start(config: EngineConfig, platform: Arc<dyn Platform>) -> Result<Self, EngineError> {
        if config.relays.is_empty() {
            return Err(EngineError::NoRelay);
        }
        let mut listeners = Vec::new();
        let mut proxy = None;
        if let Some(address) = config.listen {
            let inbound = bind(address, Service::Proxy(config.credentials.clone())).await?;
            proxy = Some(inbound.local_address());
            listeners.push(inbound);
        }
        for forward in &config.forwards {
            listeners.push(bind(forward.listen, Service::Forward(forward.target.clone())).await?);
        }

        let accounts = Accounts::open(config.networks.clone(), config.state.as_deref(), Arc::clone(&platform))?;
        let (findings_sender, findings) = watch::channel(Findings::new());
        let (phase_sender, phase) = watch::channel(Phase::Connecting { problem: None });
        let mode = watch::Sender::new(config.mode);
        let networks = Arc::new(Networks::new(platform, config.interfaces.clone(), Arc::clone(&accounts)));
        let bookkeeping = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&accounts).attend()));
        let config = Arc::new(config);
        let (seed, addresses) = (jitter_seed(config.seed), Arc::new(Addresses::load(config.addresses.clone())));
        let maker = |at: usize| {
            let (config, networks, addresses) = (Arc::clone(&config), Arc::clone(&networks), Arc::clone(&addresses));
            Arc::new(Maker::new(config, at, networks, addresses, mode.subscribe(), seed.wrapping_add(at as u64)))
        };
        let preferred = config.relays.iter().position(|relay| Some(&relay.name) == config.preferred.as_ref());
        let relays = Arc::new(Relays::new((0..config.relays.len()).map(maker).collect(), preferred));
        let measurer = Measurer::new(
            Arc::clone(&relays),
            Arc::clone(&networks),
            phase.clone(),
            mode.subscribe(),
            config.congestion,
        );
        let shared = Arc::new(Shared {
            relays: Arc::clone(&relays),
            proxy,
            congestion: config.congestion,
            phase: phase.clone(),
            mode: mode.clone(),
            flows: Arc::default(),
            snapshots: watch::Sender::default(),
            findings,
            accounts: Arc::clone(&accounts),
            measurer: Arc::new(measurer),
            stop_requested: CancellationToken::new(),
        });
        let (stop_inbounds, stop_session) = (CancellationToken::new(), CancellationToken::new());
        let diagnosis =
            config.captive_check.then(|| tokio::spawn(diagnose(Arc::clone(&relays), phase.clone(), findings_sender)));
        let session =
            Session { relays, networks, phase: phase_sender, mode: mode.subscribe(), stop: stop_session.clone() };
        let session = tokio::spawn(session.run());
        let dial: Arc<dyn Dial> = Arc::new(SessionDial { phase });
        let mut inbounds = JoinSet::new();
        for inbound in listeners {
            inbounds.spawn(inbound.serve(Arc::clone(&dial), Arc::clone(&shared.flows), stop_inbounds.clone()));
        }
        let handle = EngineHandle { shared };
        let publisher = tokio::spawn(publish(handle.clone()));
        Ok(Self {
            handle,
            inbounds,
            session,
            diagnosis,
            accounts,
            _bookkeeping: bookkeeping,
            stop_inbounds,
            stop_session,
            publisher,
        })
    }

    /// Where the proxy listens, for SOCKS5 and HTTP alike.
    pub fn proxy_address(&self) -> Option<SocketAddr> {
        self.handle.shared.proxy
    }

    /// Something to ask and steer the engine with.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Counts what a network carried, as if its sockets had.
    #[cfg(test)]
    pub(super) fn charge(&self, network: &str, bytes: u64) {
        self.accounts.charge(network, bytes);
    }

    /// Stops: no more connections, finishing flows are waited for, then the session is closed.
    pub async fn stop(mut self) {
        self.stop_inbounds.cancel();
        while self.inbounds.join_next().await.is_some() {}
        self.stop_session.cancel();
        // It fails only if the task panicked, and then there is nothing left to close.
        let _ = (&mut self.session).await;
        self.publisher.abort();
        self.handle.publish();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.session.abort();
        if let Some(diagnosis) = &self.diagnosis {
            diagnosis.abort();
        }
        self.publisher.abort();
        self.accounts.close();
    }
}

impl EngineHandle {
    /// Snapshots, about four a second.
    pub fn subscribe(&self) -> watch::Receiver<Snapshot> {
        self.publish();
        self.shared.snapshots.subscribe()
    }

    /// How everything stands now.
    pub fn snapshot(&self) -> Snapshot {
        let shared = &self.shared;
        let mut snapshot = Snapshot {
            relay: shared.relays.addresses(None),
            relays: shared.relays.stats(None, false),
            proxy: shared.proxy.map(|address| address.to_string()),
            mode: *shared.mode.borrow(),
            congestion: shared.congestion.name().to_owned(),
            flows_open: shared.flows.open(),
            flows_total: shared.flows.total(),
            networks: shared.accounts.stats(),
            ..Snapshot::default()
        };
        match &*shared.phase.borrow() {
            Phase::Connecting { problem } => {
                snapshot.state = SessionState::Connecting;
                snapshot.problem = with_findings(problem.clone(), &shared.findings.borrow());
            }
            Phase::Ended { problem } => {
                snapshot.state = SessionState::Stopped;
                snapshot.problem = problem.clone();
            }
            Phase::Connected(connected) => {
                snapshot.state = SessionState::Connected;
                snapshot.relay = shared.relays.addresses(Some(connected.relay));
                snapshot.relays = shared.relays.stats(Some(connected.relay), connected.leaving.is_some());
                snapshot.problem = connected.leaving.as_ref().map(|notice| going_away(notice));
                snapshot.uptime_s = connected.since.elapsed().as_secs_f64();
                let stats = connected.connection.stats();
                snapshot.srtt_ms = stats.srtt.as_secs_f64() * 1e3;
                snapshot.cwnd_bytes = stats.congestion.cwnd_bytes;
                snapshot.phase = stats.congestion.phase.to_owned();
                snapshot.pacing_mbps = stats.congestion.pacing_rate.map(|rate| rate as f64 * 8.0 / 1e6);
                snapshot.up = stats.link.up;
                snapshot.down = stats.link.down;
                snapshot.paths = one_per_network(stats.link.paths);
                tell(&mut snapshot.paths, &shared.findings.borrow());
                // With a relay that does not speak our headers no path ever comes up, and QUIC alone knows.
                let came_up = *connected.connection.path_changes().borrow() > 0;
                if came_up && snapshot.paths.iter().all(|path| path.state != PathState::Up) {
                    snapshot.state = SessionState::Connecting;
                    snapshot.problem = Some(nothing_answers(&snapshot.paths));
                }
            }
        }
        snapshot
    }

    /// Changes how the session uses its paths, now and for sessions to come.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// Takes what a user says of a network, now and for times to come: it goes before the configuration.
    ///
    /// # Errors
    /// [`SettingError`]; nothing is changed then.
    pub fn set_network(&self, network: &str, setting: &str, value: &str) -> Result<(), SettingError> {
        self.shared.accounts.set(network, setting, value)
    }

    /// Forgets what was said of a network by [`Self::set_network`]; whether anything had been.
    pub fn reset_network(&self, network: &str) -> bool {
        self.shared.accounts.reset(network)
    }

    /// Opens flows over the session without an inbound.
    pub fn dial(&self) -> Arc<dyn Dial> {
        Arc::new(SessionDial { phase: self.shared.phase.clone() })
    }

    /// Begins to measure, beside whatever else the engine does; each transfer takes so many seconds, 1 to
    /// [`tandem_proto::wire::flow::MAX_MEASURE_SECONDS`]. To be called within a runtime.
    pub fn measure(&self, kind: Kind, seconds: u16) -> Measurement {
        self.shared.measurer.begin(kind, seconds)
    }

    /// Asks whoever runs the engine to stop it.
    pub fn request_stop(&self) {
        self.shared.stop_requested.cancel();
    }

    /// Resolves when [`EngineHandle::request_stop`] was called.
    pub async fn stop_requested(&self) {
        self.shared.stop_requested.cancelled().await;
    }

    fn publish(&self) {
        self.shared.snapshots.send_replace(self.snapshot());
    }
}

/// While several of the relay's addresses are tried on a network, the path that tells most: one that is up, else one that was.
fn one_per_network(paths: Vec<PathStats>) -> Vec<PathStats> {
    let rank = |path: &PathStats| match path.state {
        PathState::Up => 0,
        PathState::Down => 1,
        PathState::Joining => 2,
    };
    let mut shown: Vec<PathStats> = Vec::with_capacity(paths.len());
    for path in paths {
        match shown.iter_mut().find(|other| other.interface == path.interface) {
            Some(other) if rank(&path) < rank(other) => *other = path,
            Some(_) => {}
            None => shown.push(path),
        }
    }
    shown
}

/// Says why a path is not up, where that was found out.
fn tell(paths: &mut [PathStats], findings: &Findings) {
    for path in paths.iter_mut().filter(|path| path.state != PathState::Up) {
        if let Some(finding) = findings.get(&path.interface).filter(|finding| finding.tells_more_than_silence()) {
            path.problem = Some(finding.to_string());
        }
    }
}

/// The same where there is no session that could show paths.
fn with_findings(problem: Option<String>, findings: &Findings) -> Option<String> {
    let told = findings.iter().filter(|(_, finding)| finding.tells_more_than_silence());
    let told: Vec<_> = told.map(|(network, finding)| format!("{network}: {finding}")).collect();
    match (problem, told.is_empty()) {
        (problem, true) => problem,
        (None, false) => Some(told.join("; ")),
        (Some(problem), false) => Some(format!("{problem} ({})", told.join("; "))),
    }
}

fn going_away(notice: &str) -> String {
    // The relay's words go to a terminal.
    let notice: String = notice.chars().filter(|c| !c.is_control()).collect();
    format!("the relay is going away and opens no new connections (it says: {notice})")
}

fn jitter_seed(seed: Option<[u8; 32]>) -> u64 {
    match seed {
        Some(seed) => u64::from_le_bytes(*seed.first_chunk().expect("a seed has 32 bytes")),
        None => rand::random(),
    }
}

fn nothing_answers(paths: &[PathStats]) -> String {
    let tell = |path: &PathStats| format!("{}: {}", path.interface, path.problem.as_deref().unwrap_or("no answer yet"));
    let told: Vec<_> = paths.iter().map(tell).collect();
    format!("the relay is silent on every network ({})", told.join("; "))
}

async fn bind(address: SocketAddr, service: Service) -> Result<Inbound, EngineError> {
    Inbound::bind(address, service).await.map_err(|source| EngineError::Listen { address, source })
}

/// Takes snapshots while someone listens.
async fn publish(handle: EngineHandle) {
    let mut ticks = interval(SNAPSHOT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if handle.shared.snapshots.receiver_count() > 0 {
            handle.publish();
        }
    }
}
