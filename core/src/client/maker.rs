//! Makes sessions: looks the relay up, opens a path on every network, connects and says Hello.

use std::error::Error;
use std::net::SocketAddr;

use parking_lot::Mutex;
use tandem_proto::mode::Mode;
use tandem_proto::wire::flow::ControlMessage;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::engine::EngineConfig;
use super::handshake::{self, Accepted, SessionError};
use super::networks::{Networks, Way};
use crate::transport::{Client, ConnectConfig, Connection, PathId};

/// What it takes to make a session.
pub(super) struct Maker {
    pub(super) config: EngineConfig,
    pub(super) networks: Networks,
    pub(super) mode: watch::Receiver<Mode>,
    /// The relay's addresses when they were last known.
    remotes: Mutex<Vec<SocketAddr>>,
}

/// A session that the relay has accepted.
pub(super) struct Established {
    pub(super) connection: Connection,
    pub(super) paths: LivePaths,
    /// The attempt that it came of, which tells where among the relay's addresses it started.
    pub(super) attempt: usize,
    /// Ends when the relay's side of the control stream does.
    pub(super) notices: AbortOnDropHandle<SessionError>,
}

impl Maker {
    pub(super) fn new(config: EngineConfig, networks: Networks, mode: watch::Receiver<Mode>) -> Self {
        Self { config, networks, mode, remotes: Mutex::default() }
    }

    /// Makes a session. A later attempt starts at a later of the relay's addresses.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up.
    pub(super) async fn establish(&self, attempt: usize) -> Result<Established, SessionError> {
        let remotes = self.look_up().await?;
        let mut ways = Vec::new();
        let mut paths = Vec::new();
        let mut problems = Vec::new();
        for way in self.networks.ways(&remotes, attempt)? {
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
        let EngineConfig { link, congestion, seed, .. } = &self.config;
        let mode = *self.mode.borrow();
        let config = ConnectConfig { pins: link.pins.clone(), congestion: *congestion, mode, seed: *seed };
        let connection = Client::connect(config, paths).await?;
        let accepted = handshake::say_hello(&connection, link, *congestion).await?;
        tracing::info!(relay_version = accepted.welcome.relay, "session up");
        let paths = LivePaths::of(&connection, ways);
        let notices = AbortOnDropHandle::new(tokio::spawn(read_notices(accepted)));
        Ok(Established { connection, paths, attempt, notices })
    }

    /// Makes the paths of a live session those that the networks ask for.
    pub(super) fn follow(&self, session: &mut Established) {
        let remotes = self.remotes.lock().clone();
        session.paths.follow(&self.networks, &remotes, &session.connection);
    }

    async fn look_up(&self) -> Result<Vec<SocketAddr>, SessionError> {
        match handshake::look_up(&self.config.link.relays).await {
            Ok(remotes) => {
                self.remotes.lock().clone_from(&remotes);
                Ok(remotes)
            }
            Err(error) => {
                // A resolver that fails now and then should not keep a known relay out of reach.
                let known = self.remotes.lock().clone();
                if known.is_empty() {
                    return Err(error);
                }
                tracing::debug!(error = &error as &dyn Error, "using the addresses known before");
                Ok(known)
            }
        }
    }
}

/// Reads what the relay has to say until it says no more.
async fn read_notices(mut accepted: Accepted) -> SessionError {
    loop {
        match accepted.control.next().await {
            Ok(ControlMessage::GoingAway(notice)) => tracing::info!(reason = notice.text, "the relay is going away"),
            Ok(ControlMessage::Refused(refused)) => return SessionError::Refused(refused),
            Ok(_) => return SessionError::Unexpected,
            Err(error) => return error,
        }
    }
}

/// The paths of a live session and the ways they were opened for.
pub(super) struct LivePaths {
    paths: Vec<(PathId, Way)>,
    /// The relay's addresses that the session began at: the relay was heard there, perhaps nowhere else.
    began_at: Vec<SocketAddr>,
}

impl LivePaths {
    /// The paths with which a session began; the transport may have taken fewer than it was given.
    fn of(connection: &Connection, ways: Vec<Way>) -> Self {
        let live = connection.stats().link.paths;
        let began_at = ways.iter().map(|way| way.remote).collect();
        let numbered = |way: Way| {
            let path = live.iter().find(|path| path.interface == way.interface.name)?;
            Some((PathId(path.id), way))
        };
        Self { paths: ways.into_iter().filter_map(numbered).collect(), began_at }
    }

    /// Makes the paths those that the networks ask for.
    fn follow(&mut self, networks: &Networks, remotes: &[SocketAddr], connection: &Connection) {
        let remotes = [&self.began_at, remotes].concat();
        // With no network at all the old paths stay: one of them may come back as it was.
        let Ok(wanted) = networks.ways(&remotes, 0) else {
            return;
        };
        let same_network = |way: &Way, wanted: &Way| way.interface.name == wanted.interface.name;
        for way in &wanted {
            // A way that exists stays as it is, whichever of the relay's addresses it leads to.
            if self.paths.iter().any(|(_, live)| live.is_same(&Way { remote: live.remote, ..way.clone() })) {
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
                    self.paths.push((id, way.clone()));
                }
                Err(error) => tracing::debug!(interface = way.interface.name, %error, "no socket on this network"),
            }
        }
        self.drop_where(connection, |live| !wanted.iter().any(|way| same_network(live, way)));
    }

    fn drop_where(&mut self, connection: &Connection, gone: impl Fn(&Way) -> bool) {
        self.paths.retain(|(id, way)| {
            let gone = gone(way);
            if gone {
                tracing::info!(%id, interface = way.interface.name, "path removed");
                connection.remove_path(*id);
            }
            !gone
        });
    }
}
