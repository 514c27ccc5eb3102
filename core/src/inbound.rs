//! The doors through which applications reach the engine: a proxy for SOCKS5 and HTTP, and static forwards.
//!
//! An [`Inbound`] owns one listener and a task per connection. What a connection wants is found out by its service; the
//! flow comes from a [`Dial`] and the bytes are moved by the pump, or request by request by the HTTP proxy. Clients that
//! dawdle in their handshake cost a descriptor for [`HANDSHAKE_LIMIT`] at most, and when descriptors run out those that
//! wait for nothing go first (`waiting`).
//!
//! When it is stopped, an inbound takes no more connections, drops unfinished handshakes and idle connections, waits for
//! finishing flows and cuts the rest.

mod credentials;
mod forward;
mod http;
mod proxy;
mod socks5;
mod waiting;

use credentials::Check;
pub use credentials::Credentials;
pub use forward::{Forward, ForwardError};
#[cfg(feature = "fuzzing")]
pub use http::fuzzing as http_fuzzing;
#[cfg(feature = "fuzzing")]
pub use socks5::fuzzing as socks5_fuzzing;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tandem_proto::guesses::{Guesses, Verdict};
use tandem_proto::wire::flow::{OpenError, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::waiting::Waiting;
use crate::dial::{Dial, DialError, Flow};
use crate::pump::{FlowGauge, TcpLike};

/// How long a client may take to say what it wants, in all: its handshake, or the head of a request.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);
/// How long opening a flow may take before the client is told that the target does not answer. The relay gives up by
/// itself within this time; the bound here covers a relay that does not answer either.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// How long a stopping inbound waits for flows that are finishing.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// The pause after a failed accept when no client can be sent away.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a client that was turned away may go on sending before its connection is closed regardless.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// What an inbound does for those who connect to it.
#[derive(Debug, Clone)]
pub enum Service {
    /// SOCKS5 (CONNECT only) and HTTP; with credentials, clients must give them.
    Proxy(Option<Credentials>),
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
        if !local.ip().is_loopback() && !matches!(service, Service::Proxy(Some(_))) {
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
        let (waiting, guesses) = (Waiting::default(), Mutex::default());
        let shared = Arc::new(Shared { service: self.service, dial, flows, stop, waiting, guesses });
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = shared.stop.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((tcp, from)) => shared.waiting.enter(|number| {
                        connections.spawn(serve_connection(tcp, from.ip(), number, Arc::clone(&shared)))
                    }),
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
    waiting: Waiting,
    guesses: Mutex<Guesses>,
}

impl Shared {
    /// Makes room when descriptors have run out; any other failure concerns the one connection that it lost.
    async fn accept_failed(&self, error: &io::Error) {
        let sent_away = self.waiting.send_one_away();
        tracing::warn!(%error, sent_away, "accepting a local connection failed");
        if sent_away {
            tokio::task::yield_now().await;
        } else {
            sleep(ACCEPT_PAUSE).await;
        }
    }

    /// Whether a client at `from` has given the right user name and password.
    fn check(&self, wanted: &Credentials, from: IpAddr, user: &[u8], password: &[u8]) -> Verdict {
        let (right, mark) = (wanted.accept(user, password), wanted.mark(user, password));
        let verdict = self.guesses.lock().judge(from, right, mark, Instant::now().into_std());
        match verdict {
            Verdict::Right => {}
            Verdict::Wrong => tracing::debug!(%from, "wrong user name or password"),
            Verdict::Braked { first: false } => tracing::debug!(%from, "a password is not looked at"),
            Verdict::Braked { first: true } => {
                tracing::warn!(%from, "too many wrong passwords: from this address few are looked at for now");
            }
        }
        verdict
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

async fn serve_connection(tcp: TcpStream, from: IpAddr, number: u64, shared: Arc<Shared>) {
    // Small writes of an application should not wait for acknowledgements; a failure costs latency only.
    let _ = tcp.set_nodelay(true);
    let mut place = shared.waiting.place(number);
    match &shared.service {
        Service::Proxy(None) => proxy::serve(tcp, place, None, &shared).await,
        Service::Proxy(Some(wanted)) => {
            let check = |user: &[u8], password: &[u8]| shared.check(wanted, from, user, password);
            proxy::serve(tcp, place, Some(&check), &shared).await;
        }
        Service::Forward(target) => {
            place.leave();
            forward::serve(tcp, target, &shared).await;
        }
    }
}

/// Closes so that the last words arrive: bytes left unread would make the kernel reset the connection and drop them.
async fn farewell(mut tcp: TcpStream) {
    if tcp.shutdown().await.is_ok() {
        let mut rest = [0; 1024];
        let read_out = async { while tcp.read(&mut rest).await.is_ok_and(|length| length > 0) {} };
        let _ = timeout(FAREWELL_LIMIT, read_out).await;
    }
}

#[cfg(test)]
mod tests;
