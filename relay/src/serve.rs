//! A relay at work: accepts connections, owns their sessions, drains at the end.
//!
//! Every session is a task of [`Relay::serve`], which returns when all of them are done. The demo and tests run a relay in their own
//! process through this module; the `tandem-relay` program is a thin layer of files and signals around it.

use std::sync::Arc;
use std::time::Duration;

use tandem_core::transport::{BindError, PathSocket, RelayEndpoint, RelayEndpointConfig, STREAMS};
use tandem_proto::wire::flow::{CloseCode, RefusedReason};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::directory::Pin;
use crate::egress::Egress;
use crate::identity::Identity;
use crate::session;
use crate::tokens::{Renewer, Revoked, Verifier};

/// Connections beyond the sessions allowed that may be saying Hello at the same time; each lives 5 s at most.
const MAX_NEWCOMERS: usize = 1024;
/// How long the last packets may take to leave.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// How much a relay takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at the same time; more are refused as "full".
    pub sessions: u32,
    /// Flows open in one session at the same time; more are answered [`tandem_proto::wire::flow::OpenError::Limit`].
    pub flows_per_session: u32,
    /// How long open flows may go on once the relay is told to stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { sessions: 1000, flows_per_session: STREAMS, drain: Duration::from_secs(10) }
    }
}

/// What a relay needs to know.
pub struct RelayConfig {
    /// The key that clients pin.
    pub identity: Identity,
    /// The pin of the key to come, which is announced to clients; [`crate::directory::Directory::watch_next_pin`] follows files.
    pub next_pin: watch::Receiver<Option<Pin>>,
    /// What verifies tokens.
    pub verifier: Verifier,
    /// What renews them; `None` where the secret key is not.
    pub renewer: Option<Arc<Renewer>>,
    /// The tokens taken back; changes act on live sessions. [`crate::tokens::watch_revoked`] follows a file.
    pub revoked: watch::Receiver<Arc<Revoked>>,
    /// How much the relay takes on.
    pub limits: Limits,
    /// Seeds the endpoint's randomness in tests; `None` in earnest.
    pub seed: Option<[u8; 32]>,
}

/// What sessions share.
pub(crate) struct Shared<E> {
    pub(crate) next_pin: watch::Receiver<Option<Pin>>,
    pub(crate) verifier: Verifier,
    pub(crate) renewer: Option<Arc<Renewer>>,
    pub(crate) revoked: watch::Receiver<Arc<Revoked>>,
    pub(crate) limits: Limits,
    pub(crate) places: Arc<Semaphore>,
    pub(crate) egress: E,
}

/// A relay that is bound to its sockets.
pub struct Relay<E> {
    endpoint: RelayEndpoint,
    shared: Arc<Shared<E>>,
}

impl<E: Egress> Relay<E> {
    /// Binds a relay to `sockets`, which all lead to it.
    ///
    /// # Errors
    /// When the endpoint cannot be made.
    pub fn bind(config: RelayConfig, sockets: Vec<Arc<dyn PathSocket>>, egress: E) -> Result<Self, BindError> {
        let RelayConfig { identity, next_pin, verifier, renewer, revoked, limits, seed } = config;
        let cert_der = identity.certificate_der().to_vec();
        let endpoint = RelayEndpointConfig { cert_der, key_pkcs8_der: identity.key_der(), seed };
        let endpoint = RelayEndpoint::bind(endpoint, sockets)?;
        let places = Arc::new(Semaphore::new(limits.sessions as usize));
        Ok(Self { endpoint, shared: Arc::new(Shared { next_pin, verifier, renewer, revoked, limits, places, egress }) })
    }

    /// Serves clients until `drain` is cancelled and every session is done, which takes [`Limits::drain`] and a few seconds
    /// at most.
    ///
    /// # Cancel safety
    /// Dropping the future ends every session at once.
    pub async fn serve(self, drain: CancellationToken) {
        let mut sessions = JoinSet::new();
        loop {
            if drain.is_cancelled() && sessions.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                () = drain.cancelled(), if !drain.is_cancelled() => {
                    tracing::info!(sessions = sessions.len(), "draining");
                }
                Some(_) = sessions.join_next() => {}
                connection = self.endpoint.accept() => {
                    let Some(connection) = connection else { break };
                    if drain.is_cancelled() {
                        connection.close(CloseCode::GoingAway.code(), "the relay is stopping");
                    } else if sessions.len() >= self.shared.limits.sessions as usize + MAX_NEWCOMERS {
                        connection.close(CloseCode::Refused(RefusedReason::Full).code(), "too many connections");
                    } else {
                        sessions.spawn(session::run(connection, Arc::clone(&self.shared), drain.clone()));
                    }
                }
            }
        }
        self.endpoint.close(CloseCode::GoingAway.code(), "the relay stopped");
        if timeout(CLOSE_TIMEOUT, self.endpoint.wait_idle()).await.is_err() {
            tracing::debug!("some connections did not confirm their end");
        }
    }
}
