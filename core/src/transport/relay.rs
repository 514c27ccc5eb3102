//! The relay's endpoint: one QUIC endpoint over all listen sockets, one session per client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, ServerConfig, TokioRuntime, VarInt};
use tandem_proto::keys::Role;
use tokio::sync::{Semaphore, mpsc};

use super::bicast::BicastSocket;
use super::connection::Connection;
use super::paths::PathTable;
use super::socket::PathSocket;
use super::tls::{self, IdentityError};
use super::{seed_number, settings};

/// Sessions whose handshake is done but which nobody has accepted yet.
const BACKLOG: usize = 64;

/// Handshakes that may be under way at once; more are refused.
const MOST_HANDSHAKES: usize = 1_024;

/// A handshake that takes longer is given up.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Above so many, a client must first prove its address: it gets Retry only (RFC 9000, section 8.1.2).
const RETRY_ABOVE: usize = 64;

/// The relay's identity and settings.
#[derive(Clone)]
pub struct RelayEndpointConfig {
    /// Its self-signed certificate, DER.
    pub cert_der: Vec<u8>,
    /// The certificate's private key, PKCS #8 DER.
    pub key_pkcs8_der: Vec<u8>,
    /// Makes a run repeatable; `None` outside of tests.
    pub seed: Option<[u8; 32]>,
}

impl std::fmt::Debug for RelayEndpointConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayEndpointConfig").finish_non_exhaustive()
    }
}

/// Why an endpoint cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The certificate or key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The endpoint itself.
    #[error("the relay's endpoint cannot be set up")]
    Endpoint(#[source] std::io::Error),
}

/// Accepts sessions.
#[derive(Debug)]
pub struct RelayEndpoint {
    endpoint: Endpoint,
    accepted: tokio::sync::Mutex<mpsc::Receiver<Connection>>,
    closing: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl RelayEndpoint {
    /// Listens on `sockets`, all of which serve the same sessions.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(config: RelayEndpointConfig, sockets: Vec<Arc<dyn PathSocket>>) -> Result<Self, BindError> {
        let endpoint_config = settings::endpoint(config.seed, Some(&config.key_pkcs8_der));
        let crypto = tls::server_config(config.cert_der, config.key_pkcs8_der)?;
        let seed = seed_number(config.seed);
        let socket = BicastSocket::new(Role::Relay, sockets, seed);
        // Never used: each connection is accepted with a configuration of its own.
        let first = server_config(&crypto);
        let endpoint = Endpoint::new_with_abstract_socket(
            endpoint_config,
            Some(first),
            Arc::clone(&socket) as Arc<dyn quinn::AsyncUdpSocket>,
            Arc::new(TokioRuntime),
        )
        .map_err(BindError::Endpoint)?;
        let (ready, accepted) = mpsc::channel(BACKLOG);
        let task = tokio::spawn(accept_all(endpoint.clone(), socket, crypto, seed, ready));
        Ok(Self { endpoint, accepted: tokio::sync::Mutex::new(accepted), closing: Mutex::new(Some(task)) })
    }

    /// The next session whose handshake is done; `None` once the endpoint is closed.
    pub async fn accept(&self) -> Option<Connection> {
        self.accepted.lock().await.recv().await
    }

    /// Ends all sessions, telling each the code and the reason, and accepts no more.
    pub fn close(&self, code: u32, reason: &str) {
        self.endpoint.close(VarInt::from_u32(code), reason.as_bytes());
    }

    /// Waits until every session has ended.
    pub async fn wait_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

impl Drop for RelayEndpoint {
    fn drop(&mut self) {
        if let Some(task) = self.closing.lock().take() {
            task.abort();
        }
    }
}

async fn accept_all(
    endpoint: Endpoint,
    socket: Arc<BicastSocket>,
    crypto: Arc<QuicServerConfig>,
    seed: u64,
    ready: mpsc::Sender<Connection>,
) {
    let handshakes = Arc::new(Semaphore::new(MOST_HANDSHAKES));
    while let Some(incoming) = endpoint.accept().await {
        let unproved = !incoming.remote_address_validated() && incoming.may_retry();
        if unproved && handshakes.available_permits() <= MOST_HANDSHAKES - RETRY_ABOVE {
            // Costs nothing but one packet, and an address that was made up does not answer it.
            let _ = incoming.retry();
            continue;
        }
        let Ok(permit) = Arc::clone(&handshakes).try_acquire_owned() else {
            incoming.refuse();
            continue;
        };
        let (endpoint, socket, crypto, ready) =
            (endpoint.clone(), Arc::clone(&socket), Arc::clone(&crypto), ready.clone());
        tokio::spawn(async move {
            if let Some(connection) = handshake(incoming, endpoint, socket, &crypto, seed).await {
                // Nobody accepts any more: the endpoint is going away.
                let _ = ready.send(connection).await;
            }
            drop(permit);
        });
    }
}

async fn handshake(
    incoming: Incoming,
    endpoint: Endpoint,
    socket: Arc<BicastSocket>,
    crypto: &Arc<QuicServerConfig>,
    seed: u64,
) -> Option<Connection> {
    let session = socket.session_at(incoming.remote_address())?;
    if !session.claim() {
        // A handshake in the place of another: the session that is there has nothing to do with it.
        incoming.ignore();
        return None;
    }
    let mut config = server_config(crypto);
    config.transport_config(settings::transport(Role::Relay, &session.congestion, seed.wrapping_add(session.number)));
    let quic = match incoming.accept_with(Arc::new(config)) {
        Ok(connecting) => tokio::time::timeout(HANDSHAKE_TIMEOUT, connecting).await.unwrap_or_else(|_| {
            // Dropped, it is given up.
            Err(quinn::ConnectionError::TimedOut)
        }),
        Err(error) => Err(error),
    };
    match quic {
        Ok(quic) => Some(Connection::establish(quic, socket, session, Role::Relay, endpoint, PathTable::default())),
        Err(error) => {
            tracing::debug!(session = session.number, %error, "handshake failed");
            socket.remove_session(&session);
            None
        }
    }
}

fn server_config(crypto: &Arc<QuicServerConfig>) -> ServerConfig {
    let mut config = ServerConfig::with_crypto(Arc::clone(crypto) as Arc<dyn quinn::crypto::ServerConfig>);
    // All paths of a session are one peer to QUIC; the link below moves them.
    config.migration(false);
    config
}
