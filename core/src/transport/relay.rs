//! The relay's endpoint: one QUIC endpoint over all listen sockets, one session per client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, ServerConfig, TokioRuntime, VarInt};
use tandem_proto::admission::{Admission, HandshakeRates, Verdict};
use tandem_proto::keys::Role;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::bicast::BicastSocket;
use super::connection::Connection;
use super::paths::PathTable;
use super::session::Session;
use super::socket::PathSocket;
use super::tls::{self, IdentityError};
use super::{seed_number, settings};

/// Sessions whose handshake is done but which nobody has accepted yet.
const BACKLOG: usize = 64;

/// Handshakes that may be under way at once; more get no answer.
const MOST_HANDSHAKES: usize = 1_024;

/// First datagrams of handshakes that QUIC keeps until this module has looked at them.
const MOST_INCOMING: usize = 256;

/// A handshake that takes longer is given up.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The relay's identity and settings.
#[derive(Clone)]
pub struct RelayEndpointConfig {
    /// Its self-signed certificate, DER.
    pub cert_der: Vec<u8>,
    /// The certificate's private key, PKCS #8 DER.
    pub key_pkcs8_der: Vec<u8>,
    /// How many handshakes it begins.
    pub handshakes: HandshakeRates,
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

/// What became of those who asked for a session so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// Handshakes that were done.
    pub completed: u64,
    /// Handshakes that were begun and not done: no answer in time, or not the protocol.
    pub failed: u64,
    /// Newcomers that were asked to prove their address.
    pub retried: u64,
    /// Newcomers that got no answer, as a limit was reached.
    pub dropped: u64,
    /// Newcomers that were refused, as the relay is stopping.
    pub refused: u64,
}

/// Accepts sessions.
#[derive(Debug)]
pub struct RelayEndpoint {
    endpoint: Endpoint,
    door: Arc<Door>,
    accepted: tokio::sync::Mutex<mpsc::Receiver<Connection>>,
    closing: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// What newcomers meet.
struct Door {
    socket: Arc<BicastSocket>,
    crypto: Arc<QuicServerConfig>,
    admission: Mutex<Admission>,
    under_way: Arc<Semaphore>,
    shut: AtomicBool,
    counts: Mutex<HandshakeCounts>,
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
        // For newcomers: each connection is accepted with a configuration of its own.
        let first = server_config(&crypto);
        let endpoint = Endpoint::new_with_abstract_socket(
            endpoint_config,
            Some(first),
            Arc::clone(&socket) as Arc<dyn quinn::AsyncUdpSocket>,
            Arc::new(TokioRuntime),
        )
        .map_err(BindError::Endpoint)?;
        let (ready, accepted) = mpsc::channel(BACKLOG);
        let now = tokio::time::Instant::now().into_std();
        let door = Arc::new(Door {
            socket,
            crypto,
            admission: Mutex::new(Admission::new(config.handshakes, now)),
            under_way: Arc::new(Semaphore::new(MOST_HANDSHAKES)),
            shut: AtomicBool::new(false),
            counts: Mutex::default(),
        });
        let task = tokio::spawn(accept_all(endpoint.clone(), Arc::clone(&door), ready));
        Ok(Self { endpoint, door, accepted: tokio::sync::Mutex::new(accepted), closing: Mutex::new(Some(task)) })
    }

    /// The next session whose handshake is done; `None` once the endpoint is closed.
    pub async fn accept(&self) -> Option<Connection> {
        self.accepted.lock().await.recv().await
    }

    /// Refuses newcomers from now on, at once, so that they look elsewhere; sessions go on.
    pub fn refuse_newcomers(&self) {
        self.door.shut.store(true, Relaxed);
    }

    /// What became of those who asked for a session.
    pub fn handshakes(&self) -> HandshakeCounts {
        *self.door.counts.lock()
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

async fn accept_all(endpoint: Endpoint, door: Arc<Door>, ready: mpsc::Sender<Connection>) {
    while let Some(incoming) = endpoint.accept().await {
        let Some((session, permit)) = door.let_in(&incoming) else {
            door.turn_away(incoming);
            continue;
        };
        let (endpoint, door, ready) = (endpoint.clone(), Arc::clone(&door), ready.clone());
        tokio::spawn(async move {
            if let Some(connection) = door.shake_hands(incoming, endpoint, session).await {
                // Nobody accepts any more: the endpoint is going away.
                let _ = ready.send(connection).await;
            }
            drop(permit);
        });
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("shut", &self.shut).field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Door {
    /// Takes up a newcomer's handshake, if it may have one now.
    fn let_in(&self, incoming: &Incoming) -> Option<(Arc<Session>, OwnedSemaphorePermit)> {
        if self.shut.load(Relaxed) {
            return None;
        }
        let session = self.socket.session_at(incoming.remote_address())?;
        let from = session.link.lock().addresses().next()?.remote.ip();
        let now = tokio::time::Instant::now().into_std();
        let permit = Arc::clone(&self.under_way).try_acquire_owned().ok()?;
        let under_way = MOST_HANDSHAKES - self.under_way.available_permits() - 1;
        let verdict = self.admission.lock().judge(from, is_proved(incoming), under_way, now);
        // A handshake in the place of another is none: the session that is there has nothing to do with it.
        (verdict == Verdict::Accept && self.socket.claim(&session)).then_some((session, permit))
    }

    /// Answers a newcomer that gets no handshake now, and forgets it.
    fn turn_away(&self, incoming: Incoming) {
        let session = self.socket.session_at(incoming.remote_address());
        let is_stranger = session.as_ref().is_none_or(|session| !session.is_claimed());
        if self.shut.load(Relaxed) {
            self.counts.lock().refused += 1;
            incoming.refuse();
        } else if is_stranger && !is_proved(&incoming) {
            self.counts.lock().retried += 1;
            // Costs nothing but one packet, and an address that was made up does not answer it.
            let _ = incoming.retry();
        } else {
            self.counts.lock().dropped += 1;
            incoming.ignore();
        }
        if let Some(session) = session.filter(|_| is_stranger) {
            self.socket.remove_session(&session);
        }
    }

    async fn shake_hands(&self, incoming: Incoming, endpoint: Endpoint, session: Arc<Session>) -> Option<Connection> {
        let mut config = server_config(&self.crypto);
        config.transport_config(settings::transport(Role::Relay, &session.congestion, session.seed));
        let quic = match incoming.accept_with(Arc::new(config)) {
            Ok(connecting) => tokio::time::timeout(HANDSHAKE_TIMEOUT, connecting).await.unwrap_or_else(|_| {
                // Dropped, it is given up.
                Err(quinn::ConnectionError::TimedOut)
            }),
            Err(error) => Err(error),
        };
        match quic {
            Ok(quic) => {
                self.counts.lock().completed += 1;
                let socket = Arc::clone(&self.socket);
                Some(Connection::establish(quic, socket, session, Role::Relay, endpoint, PathTable::default()))
            }
            Err(error) => {
                tracing::debug!(session = session.number, %error, "handshake failed");
                self.counts.lock().failed += 1;
                self.socket.remove_session(&session);
                None
            }
        }
    }
}

/// Whether a newcomer's address is proved, or there is nothing more that it could do to prove it.
fn is_proved(incoming: &Incoming) -> bool {
    incoming.remote_address_validated() || !incoming.may_retry()
}

fn server_config(crypto: &Arc<QuicServerConfig>) -> ServerConfig {
    let mut config = ServerConfig::with_crypto(Arc::clone(crypto) as Arc<dyn quinn::crypto::ServerConfig>);
    // All paths of a session are one peer to QUIC; the link below moves them.
    config.migration(false).max_incoming(MOST_INCOMING);
    config
}
