//! One way to the relay: can it be reached, does it take us, and how good is the way.

use std::net::SocketAddr;
use std::time::Duration;

use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::Mode;
use tandem_proto::pairing::PairingLink;
use tandem_proto::stats::{PathState, PathStats};
use tandem_proto::wire::flow::{CloseCode, RefusedReason};
use tokio::time::{Instant, interval, sleep, timeout};

use super::chain;
use super::knock::{self, Knock};
use super::mapping::Mapping;
use crate::client::handshake::{self, Accepted, SessionError};
use crate::platform::{Interface, Platform};
use crate::transport::{Client, ConnectConfig, ConnectError, Connection, PathSpec};

/// How long the relay may take to answer a handshake. QUIC has repeated it four times by then.
const ANSWER_LIMIT: Duration = Duration::from_secs(6);
/// The burst: so many datagrams, each so long after the one before, of so many bytes.
const BURST: u32 = 50;
const BURST_INTERVAL: Duration = Duration::from_millis(20);
const BURST_BYTES: u16 = 1000;
/// How long the last of the burst and its report may take beyond the round trip.
const SETTLE: Duration = Duration::from_millis(300);
/// How long the search for the largest size may go on after the burst.
const MTU_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked at.
const MTU_POLL: Duration = Duration::from_millis(50);
/// How long a close may take to leave.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// The type of control frame that has no meaning (`docs/PROTOCOL.md`, "Control stream").
const EMPTY_FRAME: u16 = 0x7fff;
/// UDP payload that fits a full Ethernet packet, over IPv6 the less.
const FULL_SIZE: u16 = 1_500 - 48;

/// A network, an address of the relay, and what lies between.
#[derive(Debug, Clone)]
pub struct Way {
    /// The network's name.
    pub interface: String,
    /// The relay's address.
    pub remote: SocketAddr,
    /// What came of trying.
    pub outcome: Outcome,
    /// How long the way stays open in silence; `None` if that was not examined.
    pub mapping: Option<Mapping>,
}

/// What came of trying to reach the relay by a way.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// No socket could be opened on the network.
    NoSocket(String),
    /// The machine knows no route to the address through the network.
    NoRoute(String),
    /// Nothing answered the handshake; this is what knocking told.
    Silent(Knock),
    /// Whoever answers has another key than the pinned one.
    WrongPin,
    /// Whoever answers does not speak this protocol, or no version of ours.
    WrongProtocol,
    /// The handshake, or what follows it, failed otherwise.
    Failed(String),
    /// The relay answered with the pinned key, and refused the client.
    Refused {
        /// Why.
        reason: RefusedReason,
        /// The relay's clock, in seconds since the Unix epoch, if it told.
        relay_time: Option<u64>,
        /// The refusal in words.
        text: String,
    },
    /// The relay took the client.
    Reached(Reached),
}

/// A way that works, and how well.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reached {
    /// When the token expires, in seconds since the Unix epoch.
    pub token_expires: u64,
    /// The relay's program and version.
    pub relay: String,
    /// Whether the relay took the network for a path of a session, which carries copies.
    pub joined: bool,
    /// Smoothed round trip, in milliseconds; `None` without a sample.
    pub rtt_ms: Option<f64>,
    /// The least round trip, in milliseconds.
    pub min_rtt_ms: Option<f64>,
    /// How much one-way delays vary, in milliseconds.
    pub jitter_ms: f64,
    /// Datagrams of the burst and its answers, up and down.
    pub datagrams: [u64; 2],
    /// Of these, lost, in percent, up and down.
    pub loss_percent: [f64; 2],
    /// Largest UDP payload that passed, in bytes.
    pub mtu_bytes: u16,
}

/// A session over one way.
pub(super) struct Trial {
    pub(super) connection: Connection,
    pub(super) accepted: Accepted,
}

/// Examines a way.
pub(super) async fn examine(
    link: &PairingLink,
    platform: &dyn Platform,
    interface: &Interface,
    remote: SocketAddr,
) -> Way {
    let outcome = match outcome(link, platform, interface, remote).await {
        Ok(reached) => Outcome::Reached(reached),
        Err(outcome) => outcome,
    };
    Way { interface: interface.name.clone(), remote, outcome, mapping: None }
}

async fn outcome(
    link: &PairingLink,
    platform: &dyn Platform,
    interface: &Interface,
    remote: SocketAddr,
) -> Result<Reached, Outcome> {
    if let Some(no_route) = knock::no_route(platform, interface, remote) {
        return Err(Outcome::NoRoute(no_route));
    }
    let bound = platform.bind(interface, remote).map_err(|error| Outcome::NoSocket(error.to_string()))?;
    let spec = PathSpec { interface: interface.name.clone(), socket: bound.socket, remote: bound.remote };
    match open(link, spec).await {
        Ok(mut trial) => {
            let reached = measure(&mut trial).await;
            trial.end().await;
            Ok(reached)
        }
        Err(Outcome::Silent(_)) => Err(Outcome::Silent(knock::knock(platform, interface, remote).await)),
        Err(other) => Err(other),
    }
}

/// Makes a session over one path; an outcome other than [`Outcome::Reached`] if that fails.
pub(super) async fn open(link: &PairingLink, path: PathSpec) -> Result<Trial, Outcome> {
    let congestion = Algorithm::default();
    let config = ConnectConfig { pins: link.pins.clone(), congestion, mode: Mode::Single, seed: None };
    let connection = match timeout(ANSWER_LIMIT, Client::connect(config, vec![path])).await {
        Ok(Ok(connection)) => connection,
        Err(_) | Ok(Err(ConnectError::Timeout)) => return Err(Outcome::Silent(Knock::default())),
        Ok(Err(ConnectError::WrongPin)) => return Err(Outcome::WrongPin),
        Ok(Err(ConnectError::WrongProtocol)) => return Err(Outcome::WrongProtocol),
        Ok(Err(error)) => return Err(Outcome::Failed(chain(&error))),
    };
    match handshake::say_hello(&connection, link, congestion).await {
        Ok(accepted) => Ok(Trial { connection, accepted }),
        Err(error) => {
            let text = chain(&error);
            Err(match error {
                SessionError::Refused(refused) => {
                    Outcome::Refused { reason: refused.reason, relay_time: Some(refused.relay_time), text }
                }
                SessionError::ClosedAsRefused(reason) => Outcome::Refused { reason, relay_time: None, text },
                _ => Outcome::Failed(text),
            })
        }
    }
}

impl Trial {
    /// Sends so many bytes that mean nothing; `false` once the session has ended.
    pub(super) async fn send_nothing(&mut self, bytes: u16) -> bool {
        let mut frame = [EMPTY_FRAME.to_be_bytes(), bytes.to_be_bytes()].concat();
        frame.resize(frame.len() + usize::from(bytes), 0);
        self.accepted.control_send.write_all(&frame).await.is_ok()
    }

    /// Ends the session well.
    pub(super) async fn end(self) {
        self.connection.close(CloseCode::Done.code(), "examined");
        sleep(LAST_WORDS).await;
    }

    fn path(&self) -> PathStats {
        self.connection.stats().link.paths.into_iter().next().unwrap_or_default()
    }
}

/// Sends a burst and sees what becomes of it, while the path probes for its MTU.
async fn measure(trial: &mut Trial) -> Reached {
    let mut ticks = interval(BURST_INTERVAL);
    for _ in 0..BURST {
        ticks.tick().await;
        if !trial.send_nothing(BURST_BYTES).await {
            break;
        }
    }
    let round_trip = Duration::from_secs_f64(trial.path().srtt_ms.unwrap_or(0.0) / 1e3);
    sleep(round_trip + SETTLE).await;
    let burst = trial.connection.stats().link;
    let deadline = Instant::now() + MTU_LIMIT;
    while trial.path().mtu_bytes < FULL_SIZE && trial.path().state == PathState::Up && Instant::now() < deadline {
        sleep(MTU_POLL).await;
    }
    let path = trial.path();
    let welcome = &trial.accepted.welcome;
    let lost = |direction: &tandem_proto::stats::PathDirection| direction.total_loss_percent;
    let counted = burst.paths.into_iter().next().unwrap_or_default();
    Reached {
        token_expires: welcome.token_expires,
        relay: welcome.relay.clone(),
        joined: counted.state == PathState::Up,
        rtt_ms: path.srtt_ms,
        min_rtt_ms: path.min_rtt_ms,
        jitter_ms: counted.jitter_ms,
        datagrams: [counted.up.datagrams, counted.down.datagrams],
        loss_percent: [lost(&counted.up), lost(&counted.down)],
        mtu_bytes: path.mtu_bytes,
    }
}
