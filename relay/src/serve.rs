//! A relay at work: accepts connections, owns their sessions, drains at the end.
//!
//! Every session is a task of [`Relay::serve`], which returns when all of them are done. The demo and tests run a relay in their own
//! process through this module; the `tandem-relay` program is a thin layer of files and signals around it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tandem_core::transport::{BindError, PathSocket, RelayEndpoint, RelayEndpointConfig};
use tandem_proto::wire::flow::{CloseCode, FEATURE_MEASURE, RefusedReason};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::directory::Pin;
use crate::egress::Egress;
use crate::identity::Identity;
pub use crate::limits::Limits;
pub use crate::measure::Measuring;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::places::Places;
use crate::session::{self, Live};
use crate::tokens::{Renewer, Revoked, Verifier};

/// Connections beyond the sessions allowed that may be saying Hello at the same time; each lives 5 s at most.
const MAX_NEWCOMERS: usize = 1024;
/// How long the last packets may take to leave.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

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
    /// The measuring service; `None` to offer none.
    pub measuring: Option<Measuring>,
    /// Seeds the endpoint's randomness in tests; `None` in earnest.
    pub seed: Option<[u8; 32]>,
}

impl RelayConfig {
    /// A relay with the default limits that has no key to come, renews no tokens, has taken none back and measures nothing.
    pub fn new(identity: Identity, verifier: Verifier) -> Self {
        Self {
            identity,
            next_pin: watch::channel(None).1,
            verifier,
            renewer: None,
            revoked: watch::channel(Arc::default()).1,
            limits: Limits::default(),
            measuring: None,
            seed: None,
        }
    }
}

/// What sessions share.
pub(crate) struct Shared<E> {
    pub(crate) next_pin: watch::Receiver<Option<Pin>>,
    pub(crate) verifier: Verifier,
    pub(crate) renewer: Option<Arc<Renewer>>,
    pub(crate) revoked: watch::Receiver<Arc<Revoked>>,
    pub(crate) limits: Limits,
    pub(crate) places: Arc<Places<Arc<Live>>>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) measuring: Option<Arc<Measuring>>,
    pub(crate) egress: E,
}

impl<E> Shared<E> {
    /// The optional abilities of this relay.
    pub(crate) fn features(&self) -> u32 {
        if self.measuring.is_some() { FEATURE_MEASURE } else { 0 }
    }
}

/// A relay that is bound to its sockets.
pub struct Relay<E> {
    endpoint: Arc<RelayEndpoint>,
    shared: Arc<Shared<E>>,
}

impl<E: Egress> Relay<E> {
    /// Binds a relay to `sockets`, which all lead to it.
    ///
    /// # Errors
    /// When the endpoint cannot be made.
    pub fn bind(config: RelayConfig, sockets: Vec<Arc<dyn PathSocket>>, egress: E) -> Result<Self, BindError> {
        let RelayConfig { identity, next_pin, verifier, renewer, revoked, limits, measuring, seed } = config;
        let cert_der = identity.certificate_der().to_vec();
        let handshakes = limits.handshakes();
        let endpoint = RelayEndpointConfig { cert_der, key_pkcs8_der: identity.key_der(), handshakes, seed };
        let endpoint = Arc::new(RelayEndpoint::bind(endpoint, sockets)?);
        let places = Places::new(limits.sessions, limits.sessions_per_device, limits.device_rate());
        let memory = Arc::new(Memory::new(limits.memory_bytes()));
        let metrics = Arc::new(Metrics::new(limits.sessions));
        let measuring = measuring.map(Arc::new);
        let shared =
            Shared { next_pin, verifier, renewer, revoked, limits, places, memory, metrics, measuring, egress };
        Ok(Self { endpoint, shared: Arc::new(shared) })
    }

    /// Holds the memory that `in_use` tells, in bytes, to the limit: for a program that is nothing but this relay.
    pub fn bound_memory(&self, in_use: fn() -> u64) {
        self.shared.memory.bound(in_use);
    }

    /// What tells of the relay while it serves.
    pub fn monitor(&self) -> Monitor {
        let Shared { places, memory, metrics, .. } = &*self.shared;
        Monitor {
            endpoint: Arc::downgrade(&self.endpoint),
            places: Arc::clone(places),
            memory: Arc::clone(memory),
            metrics: Arc::clone(metrics),
        }
    }

    /// Serves clients until `drain` is cancelled and every session is done, which takes [`Limits::drain_seconds`] and a few
    /// more at most.
    ///
    /// # Cancel safety
    /// Dropping the future ends every session at once.
    pub async fn serve(self, drain: CancellationToken) {
        let measuring = self.shared.measuring.clone().map(|service| tokio::spawn(service.serve_tcp()));
        let _measuring = measuring.map(AbortOnDropHandle::new);
        let mut sessions = JoinSet::new();
        let mut draining = false;
        while !(draining && sessions.is_empty()) {
            tokio::select! {
                biased;
                () = drain.cancelled(), if !draining => {
                    draining = true;
                    tracing::info!(sessions = sessions.len(), "draining");
                    self.shared.metrics.set_draining(true);
                    self.endpoint.refuse_newcomers();
                }
                Some(_) = sessions.join_next() => {}
                connection = self.endpoint.accept() => {
                    let Some(connection) = connection else { break };
                    if draining {
                        connection.close(CloseCode::GoingAway.code(), "the relay is stopping");
                    } else if sessions.len() >= self.shared.limits.sessions as usize + MAX_NEWCOMERS {
                        self.shared.metrics.client_refused(Some(RefusedReason::Full));
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

/// Tells of a relay at work; see `docs/RELAY.md`.
#[derive(Clone)]
pub struct Monitor {
    endpoint: Weak<RelayEndpoint>,
    places: Arc<Places<Arc<Live>>>,
    memory: Arc<Memory>,
    metrics: Arc<Metrics>,
}

impl Monitor {
    /// All metrics, in Prometheus' text format.
    pub fn metrics(&self) -> String {
        if let Some(endpoint) = self.endpoint.upgrade() {
            self.metrics.set_handshakes(endpoint.handshakes());
        }
        self.places.for_each(|session| session.tell(&self.metrics));
        self.metrics.set_heap(self.memory.in_use());
        self.metrics.to_text()
    }
}
