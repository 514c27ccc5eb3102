//! The client's side of a session's beginning: the handshake goes out on every path, and the first answer wins.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionError, Endpoint, TokioRuntime};
use tandem_proto::congestion::Algorithm;
use tandem_proto::keys::Role;
use tandem_proto::link::PathSigns;
use tandem_proto::mode::Mode;
use tandem_proto::path::order::PathOrder;
use tokio::time::{Instant, timeout_at};

use super::bicast::BicastSocket;
use super::congestion::CongestionHandle;
use super::connection::Connection;
use super::paths::{PathId, PathSpec, PathTable};
use super::session::{Session, session_address};
use super::tls::{self, IdentityError, SpkiPin};
use super::{seed_number, settings};

/// A handshake that takes longer has failed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a new session waits for its paths before it is used: what is sent before they have joined is easily lost.
const JOIN_TIMEOUT: Duration = Duration::from_millis(500);

/// For how long the first paths that joined wait for the others.
const JOIN_PATIENCE: Duration = Duration::from_millis(250);

/// QUIC knows the relay by this session's number.
const SESSION: u64 = 0;

/// The alerts with which a client refuses a certificate: `bad_certificate` to `access_denied` (RFC 8446, section 6.2).
const CERTIFICATE_ALERTS: std::ops::RangeInclusive<u8> = 42..=49;

/// The alert of a peer that speaks none of our protocols: `no_application_protocol` (RFC 7301, section 3.2).
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// What a client needs to know for a session.
#[derive(Debug, Clone)]
pub struct ConnectConfig {
    /// The relay's key: one or two pins.
    pub pins: Vec<SpkiPin>,
    /// The controller of the upload.
    pub congestion: Algorithm,
    /// How datagrams use the paths.
    pub mode: Mode,
    /// Makes a run repeatable; `None` outside of tests.
    pub seed: Option<[u8; 32]>,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no path to try.
    #[error("there is no network to reach the relay by")]
    NoPaths,
    /// Nothing that the relay sent arrived.
    #[error("the relay does not answer: is it running, and is UDP to its port open?")]
    Timeout,
    /// The relay's key is not the pinned one.
    #[error("the relay's key is not the one in the pairing link: pair again if the relay was set up anew")]
    WrongPin,
    /// The other end is no Tandem relay, or of another version.
    #[error("the server does not speak tandem/1: it is another service, or another version")]
    WrongProtocol,
    /// The handshake failed otherwise.
    #[error("the handshake with the relay failed: {0}")]
    Handshake(String),
    /// The local TLS or QUIC set-up failed.
    #[error("the connection cannot be set up")]
    Identity(#[from] IdentityError),
    /// The local endpoint could not be made.
    #[error("the connection's endpoint cannot be set up")]
    Endpoint(#[source] std::io::Error),
}

/// Makes sessions.
#[derive(Debug)]
pub struct Client;

impl Client {
    /// Connects to a relay over all `paths` at once; the first that works carries the handshake.
    ///
    /// # Errors
    /// See [`ConnectError`].
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up.
    pub async fn connect(config: ConnectConfig, paths: Vec<PathSpec>) -> Result<Connection, ConnectError> {
        let mut connecting = Client::begin(config);
        for path in paths {
            connecting.add_path(path);
        }
        let connection = connecting.established().await?;
        // A relay that does not speak our headers never lets a path join; the session works all the same.
        let _ = tokio::time::timeout(JOIN_TIMEOUT, connection.paths_joined(JOIN_PATIENCE)).await;
        Ok(connection)
    }

    /// A handshake to come. It begins once it has paths and is waited for.
    pub fn begin(config: ConnectConfig) -> Connecting {
        let now = Instant::now().into_std();
        let seed = seed_number(config.seed);
        let socket = BicastSocket::new(Role::Client, Vec::new(), seed);
        let congestion = CongestionHandle::new(config.congestion, now);
        let session = socket.add_session(SESSION, config.mode, congestion, now);
        Connecting { config, seed, socket, session, table: PathTable::default(), handshake: None }
    }
}

/// A handshake. Paths may be added and removed while it lasts; a new one carries what QUIC sends next. Dropping it gives the
/// attempt up.
pub struct Connecting {
    config: ConnectConfig,
    seed: u64,
    socket: Arc<BicastSocket>,
    session: Arc<Session>,
    table: PathTable,
    handshake: Option<Handshake>,
}

struct Handshake {
    quic: quinn::Connecting,
    endpoint: Endpoint,
    deadline: Instant,
}

impl Connecting {
    /// Adds a way to reach the relay; `None` if the session has the most paths already.
    pub fn add_path(&mut self, spec: PathSpec) -> Option<PathId> {
        self.table.add(spec, &self.socket, &self.session)
    }

    /// Removes one.
    pub fn remove_path(&mut self, id: PathId) {
        self.table.remove(id, &self.socket, &self.session);
    }

    /// Says what a path is for and how fast it may go, once the session lives; the handshake takes every path.
    pub fn set_order(&mut self, id: PathId, order: PathOrder) {
        let now = Instant::now().into_std();
        let mut link = self.session.link.lock();
        link.set_order(id, order, now);
        self.socket.after(&self.session, &mut link, now);
    }

    /// What every path has shown of itself.
    pub fn signs(&self) -> Vec<PathSigns> {
        self.session.link.lock().signs().collect()
    }

    /// Begins the handshake if it has not begun, and waits for it; its paths begin to join then.
    ///
    /// # Errors
    /// See [`ConnectError`].
    ///
    /// # Cancel safety
    /// May be dropped and called again, until it has resolved.
    pub async fn established(&mut self) -> Result<Connection, ConnectError> {
        let handshake = match self.handshake.take() {
            Some(handshake) => handshake,
            None => self.shake_hands()?,
        };
        let handshake = self.handshake.insert(handshake);
        let quic = timeout_at(handshake.deadline, &mut handshake.quic).await.map_err(|_| ConnectError::Timeout)?;
        let endpoint = handshake.endpoint.clone();
        let (socket, session) = (Arc::clone(&self.socket), Arc::clone(&self.session));
        let table = std::mem::take(&mut self.table);
        let quic = quic.map_err(explain)?;
        Ok(Connection::establish(quic, socket, session, Role::Client, endpoint, table))
    }

    fn shake_hands(&self) -> Result<Handshake, ConnectError> {
        if self.table.is_empty() {
            return Err(ConnectError::NoPaths);
        }
        let mut client = quinn::ClientConfig::new(tls::client_config(self.config.pins.clone())?);
        client.transport_config(settings::transport(Role::Client, &self.session.congestion, self.seed));
        let endpoint = Endpoint::new_with_abstract_socket(
            settings::endpoint(self.config.seed, None),
            None,
            Arc::clone(&self.socket) as Arc<dyn quinn::AsyncUdpSocket>,
            Arc::new(TokioRuntime),
        )
        .map_err(ConnectError::Endpoint)?;
        // An address for a name: the relay is known by its key, and no name is sent in the clear.
        let address = session_address(SESSION);
        let quic = endpoint
            .connect_with(client, address, &address.ip().to_string())
            .map_err(|error| ConnectError::Handshake(error.to_string()))?;
        Ok(Handshake { quic, endpoint, deadline: Instant::now() + HANDSHAKE_TIMEOUT })
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting").field("paths", &self.table).finish_non_exhaustive()
    }
}

fn explain(error: ConnectionError) -> ConnectError {
    // QUIC carries TLS alerts as 0x100 + alert (RFC 9001, section 4.8).
    let alert = |code: u64| u8::try_from(code.wrapping_sub(0x100)).ok();
    let code = match &error {
        ConnectionError::TransportError(error) => Some(u64::from(error.code)),
        ConnectionError::ConnectionClosed(close) => Some(u64::from(close.error_code)),
        _ => None,
    };
    match (&error, code.and_then(alert)) {
        (ConnectionError::TimedOut, _) => ConnectError::Timeout,
        (ConnectionError::TransportError(_), Some(alert)) if CERTIFICATE_ALERTS.contains(&alert) => {
            ConnectError::WrongPin
        }
        (_, Some(NO_APPLICATION_PROTOCOL)) => ConnectError::WrongProtocol,
        (ConnectionError::VersionMismatch, _) => ConnectError::WrongProtocol,
        _ => ConnectError::Handshake(error.to_string()),
    }
}
