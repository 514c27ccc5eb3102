//! What the engine asks of the machine it runs on: which networks there are, when that changes, and a socket on one.
//!
//! [`System`] is the real machine; how a socket is tied to its interface is the business of one file per operating
//! system, and the fallback keeps every host building. [`Scripted`] plays networks by script, for tests and the demo.
//!
//! A platform states facts. Which interfaces carry paths is the engine's decision.

mod scripted;
mod system;

pub use scripted::{Binder, Scripted};
pub use system::System;

use std::any::Any;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use socket2::Socket;
use tokio::sync::watch;

use crate::transport::socket::PathSocket;

/// A machine's networks.
pub trait Platform: Send + Sync + 'static {
    /// Every interface that exists now, loopback included.
    ///
    /// # Errors
    /// When the operating system does not tell.
    fn interfaces(&self) -> io::Result<Vec<Interface>>;

    /// Starts to watch for changes of what [`Platform::interfaces`] says.
    ///
    /// # Errors
    /// When the operating system does not offer that; the caller then looks from time to time.
    fn watch(&self) -> io::Result<Changes>;

    /// Opens a UDP socket whose datagrams leave through `interface`; to be called within a tokio runtime.
    ///
    /// # Errors
    /// When the interface has no address of the remote's family, or the operating system refuses.
    fn bind(&self, interface: &Interface, remote: SocketAddr) -> io::Result<Bound>;

    /// Makes what a new socket of the caller's, UDP or TCP, sends to `remote` leave through `interface`, for looking at a
    /// network from below.
    ///
    /// # Errors
    /// As [`Platform::bind`], and `Unsupported` where networks are not those of the machine.
    fn tie(&self, _socket: &Socket, _interface: &Interface, _remote: SocketAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The system's name, for example `wlan0`.
    pub name: String,
    /// The system's number of it.
    pub index: u32,
    /// What kind of network it leads to.
    pub kind: InterfaceKind,
    /// Addresses that can send beyond the link (on loopback: all), in the system's order.
    pub addresses: Vec<IpAddr>,
    /// Switched on and connected.
    pub up: bool,
    /// Whether it looks like a way to the internet: not loopback, a tunnel or an internal bridge.
    pub external: bool,
}

impl Interface {
    /// The address a socket towards `remote` would use; `None` without one of its family.
    pub fn source(&self, remote: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv4() == remote.is_ipv4())
    }
}

/// What kind of network an interface leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InterfaceKind {
    /// Wireless LAN.
    Wifi,
    /// A mobile network.
    Cellular,
    /// A cable.
    Ethernet,
    /// Loopback, tunnels and whatever the system does not tell.
    Other,
}

impl fmt::Display for InterfaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InterfaceKind::Wifi => "wifi",
            InterfaceKind::Cellular => "cellular",
            InterfaceKind::Ethernet => "ethernet",
            InterfaceKind::Other => "other",
        })
    }
}

/// A socket on one interface.
#[derive(Debug)]
pub struct Bound {
    /// The socket.
    pub socket: Arc<dyn PathSocket>,
    /// Where its datagrams to the relay are to be addressed: what was asked for, unless the platform emulates a network
    /// and has them sent to its entrance.
    pub remote: SocketAddr,
}

/// Tells that a platform's interfaces have changed.
pub struct Changes {
    receiver: watch::Receiver<u64>,
    /// Keeps the system's watcher running.
    _source: Option<Box<dyn Any + Send>>,
}

impl Changes {
    fn new(receiver: watch::Receiver<u64>, source: Option<Box<dyn Any + Send>>) -> Self {
        Self { receiver, _source: source }
    }

    /// Resolves after the next change, several in a row counting as one; never, once the platform is gone.
    pub async fn changed(&mut self) {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
