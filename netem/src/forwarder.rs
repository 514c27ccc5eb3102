//! A rootless UDP forwarder: a NAT with an emulated line behind it, between real sockets.
//!
//! Clients send to [`Forwarder::local_addr`]. Each datagram travels over the *up* link, which all clients share, and
//! leaves from a socket of that client's own towards the upstream address; what comes back there travels over the *down*
//! link and leaves from the listening socket. As at a NAT, a client's upstream port stays the same while the client
//! sends, is forgotten after a time of silence, and can be changed at any moment ([`Forwarder::rebind`]).
//!
//! One task carries everything. It ends when the [`Forwarder`] is dropped; [`Forwarder::shutdown`] also waits for the end.
//!
//! What it does not do: ECN bits are not carried over. tokio's timer counts milliseconds, so that packets leave up to one
//! late, and in lumps; their times are computed by the [`Link`], not measured, so that the long-run rate is exact all the
//! same. Only where the machine keeps the task from running for longer than the queue lasts is capacity lost.

mod carry;
mod nat;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::bitrate::Bitrate;
use crate::config::{ConfigError, LinkConfig};
use crate::link::{Counters, Link, Packet};
use crate::loss::Loss;

/// How long a silent client keeps its upstream port unless told otherwise; RFC 4787 asks NATs for at least this.
const IDLE_EXPIRY: Duration = Duration::from_secs(120);

/// One of a forwarder's two links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the clients to the upstream address.
    Up,
    /// Back to the clients.
    Down,
}

/// A running forwarder. Dropping it ends it.
#[derive(Debug)]
pub struct Forwarder {
    local_addr: SocketAddr,
    shared: Arc<Shared>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

/// What has happened to a forwarder's datagrams so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwarderCounters {
    /// The link from the clients.
    pub up: Counters,
    /// The link to the clients.
    pub down: Counters,
    /// Datagrams that a link delivered and that could then not be sent: no socket for the client, or its buffer was full.
    pub unsent: u64,
}

/// Why a forwarder could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A link's configuration has a value that cannot be.
    #[error("the forwarder's {direction:?} link is configured wrongly")]
    Config {
        /// The link.
        direction: Direction,
        /// The field and its range.
        #[source]
        source: ConfigError,
    },
    /// The listening socket could not be opened.
    #[error("the forwarder cannot listen on {address}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The caller is outside a tokio runtime.
    #[error("a forwarder can only be started inside a tokio runtime")]
    NoRuntime,
}

impl Forwarder {
    /// Starts a forwarder between whoever sends to `listen` (port 0 picks a free one) and `upstream`.
    ///
    /// # Errors
    /// Refuses a wrong configuration, an address that cannot be listened on, and a call outside a tokio runtime.
    pub fn spawn(
        listen: SocketAddr,
        upstream: SocketAddr,
        up: LinkConfig,
        down: LinkConfig,
    ) -> Result<Self, SpawnError> {
        let runtime = Handle::try_current().map_err(|_| SpawnError::NoRuntime)?;
        let now = Instant::now().into_std();
        let link =
            |direction, config| Link::new(config, now).map_err(|source| SpawnError::Config { direction, source });
        let state = State {
            up: link(Direction::Up, up)?,
            down: link(Direction::Down, down)?,
            rebind: false,
            idle_expiry: IDLE_EXPIRY,
            unsent: 0,
        };
        let failed = |source| SpawnError::Listen { address: listen, source };
        let socket = nat::open_socket(listen).map_err(failed)?;
        let local_addr = socket.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() });
        let stop = CancellationToken::new();
        let task = runtime.spawn(carry::carry(socket, nat::Nat::new(upstream), shared.clone(), stop.clone()));
        tracing::debug!(%local_addr, %upstream, "forwarder started");
        Ok(Self { local_addr, shared, stop: stop.drop_guard(), task })
    }

    /// The address clients send to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// What has happened so far.
    pub fn counters(&self) -> ForwarderCounters {
        let state = self.shared.state.lock();
        ForwarderCounters { up: state.up.counters(), down: state.down.counters(), unsent: state.unsent }
    }

    /// Changes a link's rate at once, for what is queued too.
    ///
    /// # Errors
    /// Refuses a rate of zero.
    pub fn set_rate(&self, direction: Direction, rate: Option<Bitrate>) -> Result<(), ConfigError> {
        self.change(direction, |link, now| link.set_rate(now, rate))
    }

    /// Changes a link's delay for the packets that have not left its queue.
    ///
    /// # Errors
    /// Refuses a delay beyond ten minutes.
    pub fn set_delay(&self, direction: Direction, delay: Duration) -> Result<(), ConfigError> {
        self.change(direction, |link, now| link.set_delay(now, delay))
    }

    /// Changes which packets a link loses.
    ///
    /// # Errors
    /// Refuses a probability outside 0 to 1.
    pub fn set_loss(&self, direction: Direction, loss: Loss) -> Result<(), ConfigError> {
        self.change(direction, |link, now| link.set_loss(now, loss))
    }

    /// Turns a link into a black hole until [`restore`](Self::restore).
    ///
    /// What is past its queue still arrives, within the link's delay.
    pub fn cut(&self, direction: Direction) {
        self.change(direction, Link::cut);
    }

    /// Lets a cut link carry again.
    pub fn restore(&self, direction: Direction) {
        self.change(direction, Link::restore);
    }

    /// Forgets every client's upstream port, as a NAT that was restarted: the next datagram that leaves for upstream
    /// leaves from a new port, and what still comes to the old one is swallowed in silence.
    pub fn rebind(&self) {
        self.shared.state.lock().rebind = true;
        self.shared.changed.notify_one();
    }

    /// Sets how long a client that sends nothing keeps its upstream port; two minutes at first.
    pub fn set_idle_expiry(&self, idle_expiry: Duration) {
        self.shared.state.lock().idle_expiry = idle_expiry;
        self.shared.changed.notify_one();
    }

    /// Ends the forwarder and waits until its sockets are closed. What is on its links is lost.
    pub async fn shutdown(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "the forwarder's task ended abnormally");
        }
    }

    fn change<R>(&self, direction: Direction, change: impl FnOnce(&mut Link<Datagram>, std::time::Instant) -> R) -> R {
        let now = Instant::now().into_std();
        let mut state = self.shared.state.lock();
        let result = match direction {
            Direction::Up => change(&mut state.up, now),
            Direction::Down => change(&mut state.down, now),
        };
        drop(state);
        self.shared.changed.notify_one();
        result
    }
}

/// What the handle and the task share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Told after a change, so that the task looks at its times again.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    up: Link<Datagram>,
    down: Link<Datagram>,
    /// Whether the task shall forget all upstream ports before it next sends.
    rebind: bool,
    idle_expiry: Duration,
    unsent: u64,
}

/// A datagram on one of the links.
#[derive(Debug, Clone)]
struct Datagram {
    client: SocketAddr,
    payload: Bytes,
}

impl Packet for Datagram {
    fn payload_bytes(&self) -> usize {
        self.payload.len()
    }
}
