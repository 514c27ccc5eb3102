//! Keeps a session to the relay: makes it, keeps its paths on the machine's networks, and makes it anew when it ends.
//!
//! What others may know of it is its [`Phase`]. A relay that says no to this client ends the trying; everything else is
//! tried again, at once when the networks change, else after a growing wait.

use std::error::Error;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::pin::pin;

use tandem_proto::wire::flow::{CloseCode, ControlMessage};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::engine::EngineConfig;
use super::handshake::{self, Accepted, SessionError};
use super::networks::{Networks, Way};
use crate::transport::{Client, ConnectConfig, Connection, PathId};

/// A session that lived this long was a success: the next try comes soon.
const SUCCESS: Duration = Duration::from_secs(10);

/// The relay is told of a stop by a datagram that must leave before the process does.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Where the session stands.
#[derive(Clone)]
pub(super) enum Phase {
    /// Being made; with what went wrong before.
    Connecting { problem: Option<String> },
    /// Accepted by the relay.
    Connected(Connected),
    /// Over for good: refused by the relay (with its words), or stopped.
    Ended { problem: Option<String> },
}

/// An accepted session.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) connection: Connection,
    pub(super) since: Instant,
}

/// What the session's task works with.
pub(super) struct Session {
    pub(super) config: EngineConfig,
    pub(super) networks: Networks,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) mode: watch::Receiver<tandem_proto::mode::Mode>,
    pub(super) stop: CancellationToken,
    /// The relay's addresses when they were last known.
    pub(super) remotes: Vec<SocketAddr>,
}

impl Session {
    /// Runs until stopped, or refused by the relay.
    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        let mut backoff = Backoff::new(self.jitter_seed());
        let mut attempt = 0;
        let mut problem = None;
        loop {
            self.phase.send_replace(Phase::Connecting { problem: problem.take() });
            let started = Instant::now();
            let error = tokio::select! {
                () = stop.cancelled() => break,
                established = self.establish(attempt) => match established {
                    Err(error) => {
                        attempt += 1;
                        error
                    }
                    Ok(established) => match self.live(established).await {
                        Some(error) => error,
                        None => break,
                    },
                },
            };
            let text = chain(&error);
            if error.is_final() {
                tracing::error!(problem = text, "no session: the relay refuses this client");
                self.phase.send_replace(Phase::Ended { problem: Some(text) });
                return;
            }
            if started.elapsed() >= SUCCESS {
                backoff.reset();
            }
            let wait = backoff.next();
            tracing::warn!(problem = text, again_in_ms = wait.as_millis() as u64, "no session");
            self.phase.send_replace(Phase::Connecting { problem: Some(text.clone()) });
            problem = Some(text);
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(wait) => {}
                () = self.networks.changed() => backoff.reset(),
            }
        }
        self.phase.send_replace(Phase::Ended { problem: None });
    }

    fn jitter_seed(&self) -> u64 {
        match self.config.seed {
            Some(seed) => u64::from_le_bytes(*seed.first_chunk().expect("a seed has 32 bytes")),
            None => rand::random(),
        }
    }

    async fn establish(&mut self, attempt: usize) -> Result<Established, SessionError> {
        match handshake::look_up(&self.config.link.relays).await {
            Ok(remotes) => self.remotes = remotes,
            // A resolver that fails now and then should not keep a known relay out of reach.
            Err(error) if self.remotes.is_empty() => return Err(error),
            Err(error) => tracing::debug!(error = &error as &dyn Error, "using the addresses known before"),
        }
        let mut ways = Vec::new();
        let mut paths = Vec::new();
        let mut problems = Vec::new();
        for way in self.networks.ways(&self.remotes, attempt)? {
            match self.networks.open(&way) {
                Ok(path) => {
                    ways.push(way);
                    paths.push(path);
                }
                Err(error) => problems.push(format!("{}: {error}", way.interface.name)),
            }
        }
        if paths.is_empty() {
            return Err(SessionError::NoNetwork(problems.join("; ")));
        }
        let config = ConnectConfig {
            pins: self.config.link.pins.clone(),
            congestion: self.config.congestion,
            mode: *self.mode.borrow_and_update(),
            seed: self.config.seed,
        };
        let connection = Client::connect(config, paths).await?;
        let accepted = handshake::say_hello(&connection, &self.config.link, self.config.congestion).await?;
        let paths = LivePaths::of(&connection, ways);
        Ok(Established { connection, accepted, paths })
    }

    /// Stays with an accepted session until it ends; `None` when it was stopped from here.
    async fn live(&mut self, established: Established) -> Option<SessionError> {
        let Established { connection, accepted, mut paths } = established;
        tracing::info!(paths = paths.0.len(), relay_version = accepted.welcome.relay, "session up");
        self.phase.send_replace(Phase::Connected(Connected { connection: connection.clone(), since: Instant::now() }));
        let mut notices = pin!(notices(accepted));
        loop {
            tokio::select! {
                () = self.stop.cancelled() => {
                    connection.close(CloseCode::Done.code(), "stopped");
                    sleep(LAST_WORDS).await;
                    return None;
                }
                closed = connection.closed() => return Some(handshake::closed_error(closed)),
                error = &mut notices => {
                    connection.close(CloseCode::Protocol.code(), "control stream lost");
                    return Some(error);
                }
                Ok(()) = self.mode.changed() => connection.set_mode(*self.mode.borrow_and_update()),
                () = self.networks.changed() => paths.follow(&self.networks, &self.remotes, &connection),
            }
        }
    }
}

/// A session that was just accepted.
struct Established {
    connection: Connection,
    accepted: Accepted,
    paths: LivePaths,
}

/// Reads what the relay has to say until it says no more.
async fn notices(mut accepted: Accepted) -> SessionError {
    loop {
        match accepted.control.next().await {
            Ok(ControlMessage::GoingAway(notice)) => {
                tracing::info!(reason = notice.text, "the relay is going away");
            }
            Ok(ControlMessage::Refused(refused)) => return SessionError::Refused(refused),
            Ok(_) => return SessionError::Unexpected,
            Err(error) => return error,
        }
    }
}

/// The paths of a live session and the ways they were opened for.
struct LivePaths(Vec<(PathId, Way)>);

impl LivePaths {
    /// The paths with which a session began; the transport may have taken fewer than it was given.
    fn of(connection: &Connection, ways: Vec<Way>) -> Self {
        let live = connection.stats().link.paths;
        let numbered = |way: Way| {
            let path = live.iter().find(|path| path.interface == way.interface.name)?;
            Some((PathId(path.id), way))
        };
        Self(ways.into_iter().filter_map(numbered).collect())
    }

    /// Makes the paths those that the networks ask for.
    fn follow(&mut self, networks: &Networks, remotes: &[SocketAddr], connection: &Connection) {
        // With no network at all the old paths stay: one of them may come back as it was.
        let Ok(wanted) = networks.ways(remotes, 0) else {
            return;
        };
        let same_network = |way: &Way, wanted: &Way| way.interface.name == wanted.interface.name;
        for way in &wanted {
            // A way that exists stays as it is, whichever of the relay's addresses it leads to.
            if self.0.iter().any(|(_, live)| live.is_same(&Way { remote: live.remote, ..way.clone() })) {
                continue;
            }
            match networks.open(way) {
                Ok(path) => {
                    let Some(id) = connection.add_path(path) else {
                        tracing::debug!(interface = way.interface.name, "no more paths fit into the session");
                        continue;
                    };
                    tracing::info!(%id, interface = way.interface.name, "path added");
                    self.drop_where(connection, |live| same_network(live, way));
                    self.0.push((id, way.clone()));
                }
                Err(error) => tracing::debug!(interface = way.interface.name, %error, "no socket on this network"),
            }
        }
        self.drop_where(connection, |live| !wanted.iter().any(|way| same_network(live, way)));
    }

    fn drop_where(&mut self, connection: &Connection, gone: impl Fn(&Way) -> bool) {
        self.0.retain(|(id, way)| {
            let gone = gone(way);
            if gone {
                tracing::info!(%id, interface = way.interface.name, "path removed");
                connection.remove_path(*id);
            }
            !gone
        });
    }
}

/// An error with its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
