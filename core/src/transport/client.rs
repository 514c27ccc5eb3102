//! The client's side of a session's beginning: the handshake goes out on every path, and the first answer wins.

use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionError, Endpoint, TokioRuntime};
use tandem_proto::congestion::Algorithm;
use tandem_proto::keys::Role;
use tandem_proto::mode::Mode;
use tandem_proto::path::PathAddress;

use super::bicast::BicastSocket;
use super::congestion::CongestionHandle;
use super::connection::{Connection, PathSpec};
use super::session::session_address;
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
        if paths.is_empty() {
            return Err(ConnectError::NoPaths);
        }
        let now = tokio::time::Instant::now().into_std();
        let seed = seed_number(config.seed);
        let sockets = paths.iter().map(|path| Arc::clone(&path.socket)).collect();
        let socket = BicastSocket::new(Role::Client, sockets, seed);
        let congestion = CongestionHandle::new(config.congestion, now);
        let session = socket.add_session(SESSION, config.mode, congestion.clone(), now);
        let mut adopted = Vec::new();
        {
            let mut link = session.link.lock();
            for (index, spec) in paths.into_iter().enumerate() {
                let address = PathAddress { socket: index, remote: spec.remote, local: None };
                if let Some(id) = link.add_path(address, now) {
                    adopted.push((id, spec, index));
                }
            }
        }
        let mut client = quinn::ClientConfig::new(tls::client_config(config.pins)?);
        client.transport_config(settings::transport(Role::Client, &congestion, seed));
        let endpoint = Endpoint::new_with_abstract_socket(
            settings::endpoint(config.seed, None),
            None,
            Arc::clone(&socket) as Arc<dyn quinn::AsyncUdpSocket>,
            Arc::new(TokioRuntime),
        )
        .map_err(ConnectError::Endpoint)?;
        // An address for a name: the relay is known by its key, and no name is sent in the clear.
        let address = session_address(SESSION);
        let connecting = endpoint
            .connect_with(client, address, &address.ip().to_string())
            .map_err(|error| ConnectError::Handshake(error.to_string()))?;
        let quic = tokio::time::timeout(HANDSHAKE_TIMEOUT, connecting)
            .await
            .map_err(|_| ConnectError::Timeout)?
            .map_err(explain)?;
        let connection = Connection::establish(quic, socket, session, Role::Client, endpoint);
        connection.adopt_paths(adopted);
        // A relay that does not speak our headers never lets a path join; the session works all the same.
        let _ = tokio::time::timeout(JOIN_TIMEOUT, connection.paths_joined(JOIN_PATIENCE)).await;
        Ok(connection)
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
