//! Makes sessions with one relay: looks it up, opens paths on every network, connects and says Hello.
//!
//! In two steps, so that several relays can be asked at once and one be taken: [`Maker::reach`] goes as far as the handshake and
//! the paths, and [`Maker::greet`] shows the token. Between tries the relay rests, longer each time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tandem_proto::mode::Mode;
use tandem_proto::pairing::{PairingLink, Secret};
use tandem_proto::stats::PathState;
use tandem_proto::wire::flow::{CloseCode, ControlMessage};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::addresses::Addresses;
use super::backoff::Backoff;
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
/// How long the next attempt waits at most when the relay was not heard at all: trying again costs nobody much, and a network
/// that begins to work should be used within seconds.
const SILENT_WAIT: Duration = Duration::from_secs(4);

/// What it takes to make a session with one relay.
pub(super) struct Maker {
    pub(super) networks: Arc<Networks>,
    pub(super) names: Names,
    config: Arc<EngineConfig>,
    /// Which of the configuration's relays.
    relay: usize,
    /// The link as the relay has last changed it.
    link: Mutex<PairingLink>,
    mode: watch::Receiver<Mode>,
    /// By network, the relay's address that was last reached there.
    reached: Mutex<BTreeMap<String, SocketAddr>>,
    /// Counts the attempts that failed.
    attempt: AtomicUsize,
    rest: Mutex<Rest>,
    token_expires: Mutex<Option<u64>>,
}

/// The waits between attempts.
struct Rest {
    backoff: Backoff,
    until: Option<Instant>,
}

/// A connection that nobody uses yet. Dropped, it is closed.
pub(super) struct Reached {
    connection: Option<Connection>,
    ways: Option<Ways>,
}

/// A session that the relay has accepted.
pub(super) struct Established {
    pub(super) connection: Connection,
    pub(super) ways: Ways,
    /// Ends when the relay's side of the control stream does.
    pub(super) notices: AbortOnDropHandle<SessionError>,
    /// Why the relay goes away, once it has said so.
    pub(super) going_away: watch::Receiver<Option<String>>,
    /// The optional abilities that both ends have.
    pub(super) features: u32,
}

impl Reached {
    /// The round trip of the handshake.
    pub(super) fn round_trip(&self) -> Duration {
        self.connection.as_ref().map(Connection::round_trip).unwrap_or_default()
    }

    /// Waits a moment for the paths.
    pub(super) async fn join(&mut self, maker: &Maker) {
        if let (Some(connection), Some(ways)) = (&self.connection, &mut self.ways) {
            ways.join(maker, connection).await;
        }
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.close(CloseCode::Done.code(), "not needed");
        }
    }
}

impl Maker {
    /// To be called within a runtime; `seed` decides the jitter of its waits.
    pub(super) fn new(
        config: Arc<EngineConfig>,
        relay: usize,
        networks: Arc<Networks>,
        addresses: Arc<Addresses>,
        mode: watch::Receiver<Mode>,
        seed: u64,
    ) -> Self {
        let link = config.relays[relay].link.clone();
        Self {
            names: Names::new(link.relays.clone(), Arc::clone(networks.platform()), addresses),
            networks,
            relay,
            link: Mutex::new(link),
            config,
            mode,
            reached: Mutex::default(),
            attempt: AtomicUsize::new(0),
            rest: Mutex::new(Rest { backoff: Backoff::new(seed), until: None }),
            token_expires: Mutex::default(),
        }
    }

    /// Makes sessions of the same kind over other networks, in another mode, beside this one's.
    pub(super) fn beside(&self, networks: Arc<Networks>, mode: watch::Receiver<Mode>) -> Self {
        let link = self.link.lock().clone();
        Self {
            names: self.names.beside(&link),
            networks,
            relay: self.relay,
            link: Mutex::new(link),
            config: Arc::clone(&self.config),
            mode,
            reached: Mutex::new(self.reached.lock().clone()),
            attempt: AtomicUsize::new(0),
            rest: Mutex::new(Rest { backoff: Backoff::new(0), until: None }),
            token_expires: Mutex::default(),
        }
    }

    /// What its user calls the relay.
    pub(super) fn name(&self) -> &str {
        &self.config.relays[self.relay].name
    }

    /// The relay's addresses as paired.
    pub(super) fn addresses(&self) -> String {
        self.config.relays[self.relay].link.relays.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// When the token expires, in seconds since the Unix epoch, as the relay has told.
    pub(super) fn token_expires(&self) -> Option<u64> {
        *self.token_expires.lock()
    }

    /// Connects to the relay, over whatever networks there are. A later attempt starts at a later of the relay's addresses.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up.
    pub(super) async fn reach(&self) -> Result<Reached, SessionError> {
        self.look_up();
        let EngineConfig { congestion, seed, .. } = *self.config;
        let (pins, mode) = (self.link.lock().pins.clone(), *self.mode.borrow());
        let config = ConnectConfig { pins, congestion, mode, seed };
        let mut ways = Ways::new(self.attempt.load(Ordering::Relaxed));
        let mut connecting = Client::begin(config);
        self.find_ways(&mut ways, &mut connecting).await?;
        let connection = self.connect(&mut ways, &mut connecting).await?;
        Ok(Reached { connection: Some(connection), ways: Some(ways) })
    }

    /// Shows the token, and has a session if the relay takes it.
    ///
    /// # Cancel safety
    /// Dropping the future gives the connection up.
    pub(super) async fn greet(self: &Arc<Self>, mut reached: Reached) -> Result<Established, SessionError> {
        let (Some(connection), Some(mut ways)) = (reached.connection.clone(), reached.ways.take()) else {
            return Err(SessionError::ControlEnded);
        };
        let link = self.link.lock().clone();
        let hello = handshake::say_hello(&connection, &link, self.config.congestion);
        let accepted = tokio::select! {
            biased;
            accepted = hello => accepted?,
            never = ways.keep(self, &connection) => match never {},
        };
        tracing::info!(relay_version = accepted.welcome.relay, "session up");
        let proved = connection.peer_pin();
        self.learn(proved, accepted.welcome.next_pin, None, accepted.welcome.token_expires);
        let features = accepted.welcome.features;
        let (sender, going_away) = watch::channel(None);
        let notices = read_notices(accepted, Arc::clone(self), proved, sender);
        let notices = AbortOnDropHandle::new(tokio::spawn(notices));
        // Kept from here on.
        reached.connection = None;
        Ok(Established { connection, ways, notices, going_away, features })
    }

    /// Waits until the relay may be asked again.
    pub(super) async fn rested(&self) {
        let until = self.rest.lock().until;
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }

    /// Notes that an attempt failed, or that a session ended; answers with how long the relay rests now.
    pub(super) fn failed(&self, error: &SessionError) -> Duration {
        self.attempt.fetch_add(1, Ordering::Relaxed);
        self.ended(error)
    }

    /// The same after a session, whose addresses were right.
    pub(super) fn ended(&self, error: &SessionError) -> Duration {
        let mut rest = self.rest.lock();
        let mut pause = rest.backoff.next();
        if matches!(error, SessionError::Connect(ConnectError::Timeout)) {
            pause = pause.min(SILENT_WAIT);
        }
        rest.until = Some(Instant::now() + pause);
        pause
    }

    /// Lets the next attempt begin at another address, after a pause.
    pub(super) fn rest_for(&self, pause: Duration) {
        self.attempt.fetch_add(1, Ordering::Relaxed);
        self.rest.lock().until = Some(Instant::now() + pause);
    }

    /// A session lived for long: the next waits are short again.
    pub(super) fn succeeded(&self) {
        self.rest.lock().backoff.reset();
    }

    /// The world has changed: the relay may be asked at once.
    pub(super) fn hurry(&self) {
        let mut rest = self.rest.lock();
        rest.backoff.reset();
        rest.until = None;
    }

    /// Looks the relay's names up anew, on the networks that there are.
    pub(super) fn look_up(&self) {
        self.names.refresh(&self.networks.chosen());
    }

    /// Takes over what the relay tells of its keys and of the token, and has it kept.
    fn learn(&self, proved: Option<[u8; 32]>, next: Option<[u8; 32]>, token: Option<Secret>, expires: u64) {
        *self.token_expires.lock() = Some(expires);
        let renewed = token.is_some();
        let link = {
            let mut link = self.link.lock();
            if !link.learn(proved, next, token) {
                return;
            }
            link.clone()
        };
        tracing::info!(relay = self.name(), renewed, next_key = link.pins.len() > 1, "the relay changed the pairing");
        let Some(keeper) = self.config.keeper.clone() else { return };
        // A keychain may take its time.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = keeper.keep(&link) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "the changed pairing is not kept: after the token's expiry this client needs a new link"
                );
            }
        });
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
                self.names.reached(remote);
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
async fn read_notices(
    mut accepted: Accepted,
    maker: Arc<Maker>,
    proved: Option<[u8; 32]>,
    going_away: watch::Sender<Option<String>>,
) -> SessionError {
    loop {
        match accepted.control.next().await {
            Ok(ControlMessage::GoingAway(notice)) => {
                tracing::info!(relay = maker.name(), reason = notice.text, "the relay is going away");
                going_away.send_replace(Some(notice.text));
            }
            Ok(ControlMessage::Update(update)) => {
                maker.learn(proved, update.next_pin, update.token, update.token_expires);
            }
            Ok(ControlMessage::Refused(refused)) => return SessionError::Refused(refused),
            Ok(_) => return SessionError::Unexpected,
            Err(error) => return error,
        }
    }
}
