//! Makes sessions: looks the relay up, opens paths on every network, connects and says Hello.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use parking_lot::Mutex;
use tandem_proto::mode::Mode;
use tandem_proto::stats::PathState;
use tandem_proto::wire::flow::ControlMessage;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::engine::EngineConfig;
use super::handshake::{self, Accepted, SessionError};
use super::names::Names;
use super::networks::Networks;
use super::ways::{Ways, wait};
use crate::platform::Interface;
use crate::transport::{Client, ConnectConfig, ConnectError, Connecting, Connection, PathId};

/// An attempt to connect that has heard nothing for so long is given up for a new one, whose first datagrams follow each
/// other sooner than those of an old one: QUIC doubles its wait each time.
const FIRST_ANSWER: Duration = Duration::from_secs(3);
/// But one in so many attempts waits as long as QUIC does, for a relay very far away.
const PATIENT_ATTEMPTS: usize = 4;

/// What it takes to make a session.
pub(super) struct Maker {
    pub(super) config: EngineConfig,
    pub(super) networks: Networks,
    pub(super) names: Names,
    pub(super) mode: watch::Receiver<Mode>,
    /// By network, the relay's address that was last reached there.
    reached: Mutex<BTreeMap<String, SocketAddr>>,
}

/// A session that the relay has accepted.
pub(super) struct Established {
    pub(super) connection: Connection,
    pub(super) ways: Ways,
    /// Ends when the relay's side of the control stream does.
    pub(super) notices: AbortOnDropHandle<SessionError>,
}

impl Maker {
    pub(super) fn new(config: EngineConfig, networks: Networks, names: Names, mode: watch::Receiver<Mode>) -> Self {
        Self { config, networks, names, mode, reached: Mutex::default() }
    }

    /// Makes a session. A later attempt starts at a later of the relay's addresses.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up.
    pub(super) async fn establish(&self, attempt: usize) -> Result<Established, SessionError> {
        self.look_up();
        let EngineConfig { link, congestion, seed, .. } = &self.config;
        let mode = *self.mode.borrow();
        let config = ConnectConfig { pins: link.pins.clone(), congestion: *congestion, mode, seed: *seed };
        let mut ways = Ways::new(attempt);
        let mut connecting = Client::begin(config);
        self.find_ways(&mut ways, &mut connecting).await?;
        let connection = self.connect(&mut ways, &mut connecting).await?;
        ways.join(self, &connection).await;
        let hello = handshake::say_hello(&connection, link, *congestion);
        let accepted = tokio::select! {
            biased;
            accepted = hello => accepted?,
            never = ways.keep(self, &connection) => match never {},
        };
        tracing::info!(relay_version = accepted.welcome.relay, "session up");
        let notices = AbortOnDropHandle::new(tokio::spawn(read_notices(accepted)));
        Ok(Established { connection, ways, notices })
    }

    /// Looks the relay's names up anew, on the networks that there are.
    pub(super) fn look_up(&self) {
        self.names.refresh(&self.networks.chosen());
    }

    /// The networks to use, each with the relay's addresses in the order in which they are to be tried: those at which this
    /// session has been `heard`, the one last reached from there, and the others.
    pub(super) fn wanted(&self, attempt: usize, heard: &[SocketAddr]) -> Vec<(Interface, Vec<SocketAddr>)> {
        let reached = self.reached.lock();
        let with_addresses = |interface: Interface| {
            let mut others = self.names.addresses(&interface);
            others.retain(|address| interface.source(address.ip()).is_some());
            if let Some(at) = reached.get(&interface.name).and_then(|last| others.iter().position(|a| a == last)) {
                others[..=at].rotate_right(1);
            }
            let first = attempt % others.len().max(1);
            others.rotate_left(first);
            // Several networks may have heard it at the same address.
            let mut addresses: Vec<SocketAddr> = Vec::with_capacity(heard.len() + others.len());
            for address in heard.iter().copied().chain(others) {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            (interface, addresses)
        };
        self.networks.chosen().into_iter().map(with_addresses).collect()
    }

    /// Notes where the relay is reached.
    pub(super) fn remember<'a>(&self, paths: impl Iterator<Item = (PathId, &'a str, SocketAddr, PathState)>) {
        let mut reached = self.reached.lock();
        for (_, network, remote, state) in paths {
            if state == PathState::Up && reached.get(network) != Some(&remote) {
                reached.insert(network.to_owned(), remote);
            }
        }
    }

    /// Waits for the first addresses, and opens paths to them.
    async fn find_ways(&self, ways: &mut Ways, connecting: &mut Connecting) -> Result<(), SessionError> {
        let mut names = self.names.subscribe();
        loop {
            names.mark_unchanged();
            ways.look(self);
            ways.advance(self, connecting);
            if !ways.is_empty() {
                return Ok(());
            }
            let chosen = self.networks.chosen();
            let known = chosen.iter().any(|network| !self.names.addresses(network).is_empty());
            match self.names.failure() {
                Some(failure) if !known && !chosen.is_empty() => return Err(failure),
                Some(_) => return Err(ways.nothing(self)),
                None if chosen.is_empty() => return Err(ways.nothing(self)),
                None => {
                    // The sender lives as long as this.
                    let _ = names.changed().await;
                }
            }
        }
    }

    /// Connects over whatever networks and addresses there are and come up meanwhile.
    async fn connect(&self, ways: &mut Ways, connecting: &mut Connecting) -> Result<Connection, SessionError> {
        let give_up = Instant::now() + FIRST_ANSWER;
        let patient = ways.attempt % PATIENT_ATTEMPTS == PATIENT_ATTEMPTS - 1;
        let mut names = self.names.subscribe();
        let mut machine = self.networks.subscribe();
        machine.mark_unchanged();
        loop {
            ways.look(self);
            let next = ways.advance(self, connecting);
            let given_up = !patient && !ways.is_heard();
            let news = async {
                tokio::select! {
                    biased;
                    _ = names.changed() => {}
                    _ = machine.changed() => {}
                }
            };
            tokio::select! {
                biased;
                connection = connecting.established() => return Ok(connection?),
                () = wait(next, news) => {}
                () = sleep_until(give_up), if given_up => {
                    ways.advance(self, connecting);
                    if !ways.is_heard() {
                        return Err(ConnectError::Timeout.into());
                    }
                }
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
