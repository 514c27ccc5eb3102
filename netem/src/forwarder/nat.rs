//! Which upstream socket stands for which client.
//!
//! A mapping is made by the first datagram of a client that leaves for upstream, is kept while the client sends, and is
//! forgotten after a time without (what comes from upstream does not refresh it). Its socket is connected, so that only the
//! upstream address itself can answer. A socket whose mapping was given up by force stays open unread for a while: what still
//! comes to its port vanishes, as behind a NAT, instead of being answered with ICMP, and no new mapping gets that port.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::Poll;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::UdpSocket;

/// The kernel's buffer of each socket, in bytes, each way: over 100 ms of a 100 Mbit/s link. The kernel may grant less.
const SOCKET_BUFFER: usize = 4 << 20;

/// The most mappings at a time, one file descriptor each; a test has a handful.
const MAX_MAPPINGS: usize = 512;

/// How long a socket is kept whose mapping was given up by force: longer than any datagram is under way to it.
const RETIRED_FOR: Duration = Duration::from_secs(60);

/// All mappings.
#[derive(Debug)]
pub(super) struct Nat {
    upstream: SocketAddr,
    mappings: BTreeMap<SocketAddr, Mapping>,
    retired: Vec<Retired>,
}

#[derive(Debug)]
struct Mapping {
    socket: UdpSocket,
    /// When the client last sent.
    used: Instant,
}

#[derive(Debug)]
struct Retired {
    /// Held so that its port stays taken.
    _socket: UdpSocket,
    since: Instant,
}

impl Nat {
    pub(super) fn new(upstream: SocketAddr) -> Self {
        Self { upstream, mappings: BTreeMap::new(), retired: Vec::new() }
    }

    /// The socket that stands for a client, made if there is none.
    pub(super) fn outgoing(&mut self, client: SocketAddr, now: Instant) -> io::Result<&UdpSocket> {
        let taken = self.mappings.len();
        let mapping = match self.mappings.entry(client) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(_) if taken >= MAX_MAPPINGS => {
                return Err(io::Error::other("too many clients"));
            }
            std::collections::btree_map::Entry::Vacant(entry) => {
                let socket = connected_socket(self.upstream)?;
                tracing::debug!(%client, port = ?socket.local_addr().map(|address| address.port()), "mapped");
                entry.insert(Mapping { socket, used: now })
            }
        };
        mapping.used = now;
        Ok(&mapping.socket)
    }

    /// The sockets and the clients they stand for.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (SocketAddr, &UdpSocket)> {
        self.mappings.iter().map(|(client, mapping)| (*client, &mapping.socket))
    }

    /// Waits until something can be read from one of the sockets; for ever while there are none.
    pub(super) async fn readable(&self) {
        poll_fn(|context| {
            let mut any = Poll::Pending;
            // Every socket is asked, so that each knows whom to wake.
            for mapping in self.mappings.values() {
                if mapping.socket.poll_recv_ready(context).is_ready() {
                    any = Poll::Ready(());
                }
            }
            any
        })
        .await;
    }

    /// Gives up all mappings by force.
    pub(super) fn forget_all(&mut self, now: Instant) {
        let forgotten = std::mem::take(&mut self.mappings).into_values();
        self.retired.extend(forgotten.map(|mapping| Retired { _socket: mapping.socket, since: now }));
    }

    /// Drops what has been idle or retired for long enough.
    pub(super) fn expire(&mut self, now: Instant, idle_expiry: Duration) {
        self.mappings.retain(|_, mapping| now.saturating_duration_since(mapping.used) < idle_expiry);
        self.retired.retain(|retired| now.saturating_duration_since(retired.since) < RETIRED_FOR);
    }

    /// When the next thing expires.
    pub(super) fn next_expiry(&self, idle_expiry: Duration) -> Option<Instant> {
        let idle = self.mappings.values().filter_map(|mapping| mapping.used.checked_add(idle_expiry));
        idle.chain(self.retired.iter().map(|retired| retired.since + RETIRED_FOR)).min()
    }
}

/// A socket for `listen` with large buffers. Must be called inside a tokio runtime.
pub(super) fn open_socket(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(listen)?;
    socket.set_nonblocking(true)?;
    let options = SockRef::from(&socket);
    // A smaller buffer works too, only less well.
    let _ = options.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = options.set_send_buffer_size(SOCKET_BUFFER);
    UdpSocket::from_std(socket)
}

fn connected_socket(upstream: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match upstream {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = open_socket(any)?;
    SockRef::from(&socket).connect(&upstream.into())?;
    Ok(socket)
}
