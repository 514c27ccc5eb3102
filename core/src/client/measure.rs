//! Measures for the user, against the relay: how fast each network and all of them are, and how fair the tunnel is to TCP.
//!
//! Everything runs in sessions of its own, over the networks in question, beside the one that carries the user's flows;
//! what they carry counts for the networks' caps like everything else. [`tandem_proto::measure`] says what is measured and
//! how it is told, [`transfer`] moves the bytes.

mod transfer;

use std::sync::Arc;
use std::time::Duration;

use tandem_proto::congestion::Algorithm;
use tandem_proto::measure::{Event, FairnessReport, FairnessRow, Kind, Progress, SpeedReport, SpeedRow};
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::stats::PathState;
use tandem_proto::wire::flow::{CloseCode, FEATURE_MEASURE, MAX_MEASURE_SECONDS};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use self::transfer::{Tcp, Way};
use super::maker::{Established, Maker};
use super::networks::Networks;
use super::relays::Relays;
use super::session::{Phase, chain};
use crate::platform::Interface;
use crate::transport::Connection;

/// How long a session for measuring may take to come up.
const SESSION_LIMIT: Duration = Duration::from_secs(10);
/// What is told and not yet taken; progress beyond it is left out.
const MOST_EVENTS: usize = 16;

/// Measures for one engine, one thing at a time.
pub(super) struct Measurer {
    relays: Arc<Relays>,
    networks: Arc<Networks>,
    phase: watch::Receiver<Phase>,
    mode: watch::Receiver<Mode>,
    congestion: Algorithm,
    turn: Semaphore,
}

/// A running measurement. Dropped, it ends.
pub struct Measurement {
    events: mpsc::Receiver<Event>,
    _task: AbortOnDropHandle<()>,
}

impl Measurement {
    /// The next thing it tells; the last but `None` is a report or a failure.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Measurer {
    pub(super) fn new(
        relays: Arc<Relays>,
        networks: Arc<Networks>,
        phase: watch::Receiver<Phase>,
        mode: watch::Receiver<Mode>,
        congestion: Algorithm,
    ) -> Self {
        Self { relays, networks, phase, mode, congestion, turn: Semaphore::new(1) }
    }

    /// Begins; each transfer takes so many seconds.
    pub(super) fn begin(self: &Arc<Self>, kind: Kind, seconds: u16) -> Measurement {
        let (sender, events) = mpsc::channel(MOST_EVENTS);
        let measurer = Arc::clone(self);
        let task = tokio::spawn(async move {
            let done = match kind {
                _ if !(1..=MAX_MEASURE_SECONDS).contains(&seconds) => {
                    Err(format!("seconds is {seconds}; 1 to {MAX_MEASURE_SECONDS} are allowed"))
                }
                Kind::Speed => measurer.speed(seconds, &sender).await.map(Event::Speed),
                Kind::Fairness => measurer.fairness(seconds, &sender).await.map(Event::Fairness),
            };
            // If nobody listens any more, nobody wants it.
            let _ = sender.send(done.unwrap_or_else(Event::Failed)).await;
        });
        Measurement { events, _task: AbortOnDropHandle::new(task) }
    }

    async fn speed(&self, seconds: u16, sender: &mpsc::Sender<Event>) -> Result<SpeedReport, String> {
        let _turn = self.turn.try_acquire().map_err(|_| BUSY)?;
        let (maker, networks) = (self.relay()?, self.names());
        let mut cases: Vec<_> = networks.iter().map(|name| (vec![name.clone()], Mode::Single)).collect();
        if networks.len() > 1 {
            cases.push((networks, Mode::Bicast(Sides::Both)));
        }
        let mut steps = Steps::new(2 * cases.len(), seconds, sender);
        let mut rows = Vec::new();
        for (networks, mode) in cases {
            let name = if networks.len() > 1 { "all at once".to_owned() } else { networks.join(", ") };
            let mut row = SpeedRow { networks, mode, idle_rtt_ms: None, down: None, up: None, problem: None };
            let mut session = match self.session(&maker, row.networks.clone(), mode).await {
                Ok(session) => session,
                Err(problem) => {
                    steps.skip(2);
                    rows.push(SpeedRow { problem: Some(problem), ..row });
                    continue;
                }
            };
            let connection = session.established.connection.clone();
            row.idle_rtt_ms = Some(connection.stats().srtt.as_secs_f64() * 1e3);
            let step = steps.begin(format!("{name}: download"));
            let down = session.run(transfer::download(&connection, seconds, |mbps| step.show(mbps))).await;
            let step = steps.begin(format!("{name}: upload"));
            let up = session.run(transfer::upload(&connection, seconds, |mbps| step.show(mbps))).await;
            row.problem = down.as_ref().err().or(up.as_ref().err()).cloned();
            rows.push(SpeedRow { down: down.ok(), up: up.ok(), ..row });
        }
        let congestion = self.congestion.name().to_owned();
        Ok(SpeedReport { relay: maker.name().to_owned(), congestion, seconds, rows })
    }

    async fn fairness(&self, seconds: u16, sender: &mpsc::Sender<Event>) -> Result<FairnessReport, String> {
        let _turn = self.turn.try_acquire().map_err(|_| BUSY)?;
        let (maker, mode, networks) = (self.relay()?, *self.mode.borrow(), self.networks.chosen());
        let names = networks.iter().map(|network| network.name.clone()).collect();
        let mut session = self.session(&maker, names, mode).await?;
        let connection = session.established.connection.clone();
        let mut steps = Steps::new(networks.len() + 1, seconds, sender);
        let mut rows = Vec::new();
        for network in &networks {
            let step = steps.begin(format!("{}: TCP alone", network.name));
            let alone = async {
                let way = self.way(&connection, network)?;
                let tcp = Tcp::connect(&connection, way, seconds).await?;
                tcp.download(|mbps| step.show(mbps)).await
            };
            let alone = session.run(alone).await;
            rows.push(FairnessRow {
                network: network.name.clone(),
                problem: alone.as_ref().err().cloned(),
                tcp_alone_mbps: alone.ok(),
                tcp_beside_mbps: None,
                tunnel_mbps: None,
            });
        }
        let step = steps.begin("TCP beside the tunnel".to_owned());
        let beside = async {
            let mut competitors = JoinSet::new();
            for (at, network) in networks.iter().enumerate().filter(|(at, _)| rows[*at].problem.is_none()) {
                let tcp = Tcp::connect(&connection, self.way(&connection, network)?, seconds).await?;
                competitors.spawn(async move { (at, tcp.download(|_| ()).await) });
            }
            let tunnel = transfer::shares(&connection, seconds, |mbps| step.show(mbps)).await?;
            while let Some(done) = competitors.join_next().await {
                let Ok((at, done)) = done else { continue };
                rows[at].problem = done.as_ref().err().cloned();
                rows[at].tcp_beside_mbps = done.ok();
            }
            Ok(tunnel)
        };
        let (tunnel_mbps, shares) = session.run(beside).await?;
        for row in &mut rows {
            row.tunnel_mbps = shares.iter().find(|(network, _)| *network == row.network).map(|(_, mbps)| *mbps);
        }
        let (relay, congestion) = (maker.name().to_owned(), self.congestion.name().to_owned());
        Ok(FairnessReport { relay, mode, congestion, seconds, tunnel_mbps, rows })
    }

    /// The relay in use.
    fn relay(&self) -> Result<Arc<Maker>, String> {
        match &*self.phase.borrow() {
            Phase::Connected(connected) => Ok(Arc::clone(self.relays.maker(connected.relay))),
            Phase::Connecting { problem } | Phase::Ended { problem } => {
                let why = problem.as_deref().map(|problem| format!(": {problem}")).unwrap_or_default();
                Err(format!("there is no connection to a relay{why}"))
            }
        }
    }

    fn names(&self) -> Vec<String> {
        self.networks.chosen().into_iter().map(|network| network.name).collect()
    }

    /// A session with the relay over these networks.
    async fn session(&self, maker: &Maker, names: Vec<String>, mode: Mode) -> Result<Session, String> {
        let networks = Arc::new(self.networks.only(names));
        let maker = Arc::new(maker.beside(networks, watch::channel(mode).1));
        let session = async {
            let mut reached = maker.reach().await?;
            reached.join(&maker).await;
            maker.greet(reached).await
        };
        let established = match timeout(SESSION_LIMIT, session).await {
            Ok(done) => done.map_err(|error| chain(&error))?,
            Err(_) => return Err("the relay does not answer".to_owned()),
        };
        if established.features & FEATURE_MEASURE == 0 {
            return Err(
                "the relay offers no measuring: its owner has switched it off, or it is of an older version".to_owned()
            );
        }
        Ok(Session { maker, established })
    }

    /// How TCP gets to where the session has the relay on this network.
    fn way(&self, connection: &Connection, network: &Interface) -> Result<Way, String> {
        let paths = connection.stats().link.paths;
        let path = paths.iter().find(|path| path.interface == network.name && path.state == PathState::Up);
        let remote =
            path.and_then(|path| path.remote.parse().ok()).ok_or("the relay is not reached on this network")?;
        let (platform, accounts) = (Arc::clone(self.networks.platform()), Arc::clone(self.networks.accounts()));
        Ok(Way { platform, accounts, interface: network.clone(), relay: remote })
    }
}

const BUSY: &str = "a measurement is running already";

/// A session that nothing else uses.
struct Session {
    maker: Arc<Maker>,
    established: Established,
}

impl Session {
    /// Does something with the session, while its paths are looked after.
    async fn run<T>(&mut self, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let Established { connection, ways, notices, .. } = &mut self.established;
        tokio::select! {
            biased;
            never = ways.keep(&self.maker, connection) => match never {},
            closed = connection.closed() => Err(format!("the session ended: {closed}")),
            ended = notices => Err(ended.map_or_else(|_| "the session ended".to_owned(), |error| chain(&error))),
            done = work => done,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.established.connection.close(CloseCode::Done.code(), "measured");
    }
}

/// Tells how far a measurement is.
struct Steps<'s> {
    number: u32,
    of: u32,
    seconds: u16,
    sender: &'s mpsc::Sender<Event>,
}

struct Step<'s> {
    progress: Progress,
    begun: tokio::time::Instant,
    sender: &'s mpsc::Sender<Event>,
}

impl<'s> Steps<'s> {
    fn new(of: usize, seconds: u16, sender: &'s mpsc::Sender<Event>) -> Self {
        Self { number: 0, of: u32::try_from(of).unwrap_or(u32::MAX), seconds, sender }
    }

    fn begin(&mut self, step: String) -> Step<'s> {
        self.number += 1;
        let left_s = f64::from(self.of + 1 - self.number) * f64::from(self.seconds);
        let progress = Progress { step, number: self.number, of: self.of, mbps: None, left_s };
        let step = Step { progress, begun: tokio::time::Instant::now(), sender: self.sender };
        step.show(None);
        step
    }

    fn skip(&mut self, steps: u32) {
        self.number += steps;
    }
}

impl Step<'_> {
    fn show(&self, mbps: Option<f64>) {
        let left_s = (self.progress.left_s - self.begun.elapsed().as_secs_f64()).max(0.0);
        // Whoever does not keep up misses some.
        let _ = self.sender.try_send(Event::Progress(Progress { mbps, left_s, ..self.progress.clone() }));
    }
}
