//! The doors through which applications reach the engine: a SOCKS5 proxy and static forwards.
//!
//! An [`Inbound`] owns one listener and a task per connection. What a connection wants is found out by its service; the
//! flow comes from a [`Dial`] and the bytes are moved by the pump. Clients that dawdle in their handshake cost a
//! descriptor for [`HANDSHAKE_LIMIT`] at most, and when descriptors run out the oldest of them go first.
//!
//! When it is stopped, an inbound takes no more connections, drops unfinished handshakes, waits for finishing flows and
//! cuts the rest.

mod forward;
mod socks5;

pub use forward::{Forward, ForwardError};
pub use socks5::Credentials;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tandem_proto::wire::flow::{OpenError, Target};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::dial::{Dial, DialError, Flow};
use crate::pump::{FlowGauge, TcpLike};

/// How long a client may take to say what it wants, in all.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);
/// How long opening a flow may take before the client is told that the target does not answer. The relay gives up by
/// itself within this time; the bound here covers a relay that does not answer either.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// How long a stopping inbound waits for flows that are finishing.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// The pause after a failed accept when no dawdling client can be sent away.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What an inbound does for those who connect to it.
#[derive(Debug, Clone)]
pub enum Service {
    /// SOCKS5, CONNECT only; with credentials, clients must give them.
    Socks5(Option<Credentials>),
    /// Everything goes to one target.
    Forward(Target),
}

/// A listener and what it is for.
#[derive(Debug)]
pub struct Inbound {
    listener: TcpListener,
    local: SocketAddr,
    service: Service,
}

impl Inbound {
    /// Starts to listen.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn bind(listen: SocketAddr, service: Service) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let local = listener.local_addr()?;
        if !local.ip().is_loopback() && !matches!(service, Service::Socks5(Some(_))) {
            tracing::warn!(%local, "anyone who can reach this address can use the proxy: it is not loopback and asks for no password");
        }
        Ok(Self { listener, local, service })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Serves until `stop` is cancelled and the flows have drained.
    pub async fn serve(self, dial: Arc<dyn Dial>, flows: Arc<FlowGauge>, stop: CancellationToken) {
        let shared =
            Arc::new(Shared { service: self.service, dial, flows, stop, handshakes: Mutex::new(BTreeMap::new()) });
        let mut connections = JoinSet::new();
        let mut number = 0u64;
        loop {
            tokio::select! {
                () = shared.stop.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((tcp, _)) => {
                        number += 1;
                        // The entry is there before the task can run and remove it.
                        let mut handshakes = shared.handshakes.lock();
                        let task = connections.spawn(serve_connection(tcp, number, Arc::clone(&shared)));
                        handshakes.insert(number, task);
                    }
                    Err(error) => shared.accept_failed(&error).await,
                },
            }
        }
        drop(self.listener);
        let cut = shared.flows.drain(DRAIN_LIMIT).await;
        if cut > 0 {
            tracing::info!(flows = cut, "stopping cuts flows that are still open");
        }
        connections.shutdown().await;
    }
}

/// What the connections of one inbound share.
struct Shared {
    service: Service,
    dial: Arc<dyn Dial>,
    flows: Arc<FlowGauge>,
    stop: CancellationToken,
    /// The tasks of connections that have not said what they want, by age.
    handshakes: Mutex<BTreeMap<u64, AbortHandle>>,
}

impl Shared {
    /// Makes room when descriptors have run out; any other failure concerns the one connection that it lost.
    async fn accept_failed(&self, error: &io::Error) {
        let oldest = self.handshakes.lock().pop_first();
        tracing::warn!(%error, sent_away = oldest.is_some(), "accepting a local connection failed");
        match oldest {
            Some((_, task)) => {
                task.abort();
                tokio::task::yield_now().await;
            }
            None => sleep(ACCEPT_PAUSE).await,
        }
    }

    /// Opens a flow for a client, unless the client goes away or the engine stops before.
    async fn open(&self, tcp: &TcpStream, target: &Target) -> Option<Result<Flow, DialError>> {
        let opened = tokio::select! {
            () = self.stop.cancelled() => None,
            () = tcp.peer_reset() => None,
            opened = timeout(OPEN_LIMIT, self.dial.open_tcp(target.clone())) => {
                Some(opened.unwrap_or(Err(DialError::Open(OpenError::TimedOut))))
            }
        };
        match &opened {
            None => tracing::debug!(%target, "flow abandoned while it was being opened"),
            Some(Ok(_)) => tracing::debug!(%target, "flow open"),
            Some(Err(error)) => tracing::debug!(%target, %error, "flow not opened"),
        }
        opened
    }
}

async fn serve_connection(tcp: TcpStream, number: u64, shared: Arc<Shared>) {
    // Small writes of an application should not wait for acknowledgements; a failure costs latency only.
    let _ = tcp.set_nodelay(true);
    match &shared.service {
        Service::Socks5(credentials) => socks5::serve(tcp, number, credentials.as_ref(), &shared).await,
        Service::Forward(target) => {
            shared.handshakes.lock().remove(&number);
            forward::serve(tcp, target, &shared).await;
        }
    }
    shared.handshakes.lock().remove(&number);
}

#[cfg(test)]
mod tests;
