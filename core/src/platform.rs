//! What the engine asks of the machine it runs on: which networks there are, when that changes, a socket on one, what a
//! name means there, how long the machine has slept, and what day it is.
//!
//! [`System`] is the real machine; how a socket is tied to its interface is the business of one file per operating
//! system, and the fallback keeps every host building. [`Scripted`] plays networks by script, for tests and the demo.
//!
//! A platform states facts. Which interfaces carry paths is the engine's decision.

mod scripted;
mod system;

pub use scripted::{Asker, Binder, Resolver, Scripted};
pub use system::System;
#[cfg(all(feature = "fuzzing", target_os = "linux"))]
pub use system::read_resolved_reply;
pub use tandem_proto::networks::InterfaceKind;

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use tandem_proto::networks::Date;
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

    /// Looks a name's addresses up: on an interface by the resolvers of its network, without one as the system does for
    /// every program. To be called within a tokio runtime; the caller limits the time.
    ///
    /// # Errors
    /// When the name has no address or no resolver answers; [`io::ErrorKind::Unsupported`] where the system cannot ask the
    /// resolvers of one network.
    fn resolve(&self, name: &str, interface: Option<&Interface>) -> Answer<Vec<IpAddr>>;

    /// Sends a request by TCP to `to` through `interface`, and answers with what comes back, to the first empty line or
    /// the end. To be called
    /// within a tokio runtime; the caller limits the time.
    ///
    /// # Errors
    /// The operating system's, among them that there is no way, or that the far side refuses.
    fn ask(&self, interface: &Interface, to: SocketAddr, request: String) -> Answer<Vec<u8>>;

    /// What this machine itself may do to answers that `remote` sends to `interface`, in words; `None` if nothing is known.
    fn obstacle(&self, interface: &Interface, remote: IpAddr) -> Option<String>;

    /// The day of the local calendar.
    fn today(&self) -> Date;

    /// For how long in all the machine has been suspended since it started; zero where the system does not tell.
    fn suspended(&self) -> Duration;
}

/// Something that takes a while to find out.
pub type Answer<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

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
    /// The address a socket towards `remote` would use; `None` without one of its family. IPv6 addresses of one's own site
    /// (RFC 4193) are for remotes of that kind only, if there is a choice (RFC 6724, section 5, rule 6).
    pub fn source(&self, remote: IpAddr) -> Option<IpAddr> {
        let of_family = || self.addresses.iter().copied().filter(|address| address.is_ipv4() == remote.is_ipv4());
        of_family().find(|address| is_of_site(*address) == is_of_site(remote)).or_else(|| of_family().next())
    }
}

fn is_of_site(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unique_local())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_of_the_remotes_family_and_reach() {
        let addresses = ["fd00::7", "2001:db8::7", "198.51.100.7"].map(|text| text.parse().unwrap()).to_vec();
        let interface = Interface {
            name: "wifi0".to_owned(),
            index: 1,
            kind: InterfaceKind::Wifi,
            addresses,
            up: true,
            external: true,
        };
        let source = |remote: &str| interface.source(remote.parse().unwrap()).unwrap().to_string();
        assert_eq!(source("192.0.2.1"), "198.51.100.7");
        assert_eq!(source("2001:db8:9::1"), "2001:db8::7");
        assert_eq!(source("fd00:9::1"), "fd00::7");
        let only_site = Interface { addresses: vec!["fd00::7".parse().unwrap()], ..interface.clone() };
        assert!(only_site.source("2001:db8:9::1".parse().unwrap()).is_some());
        assert!(only_site.source("192.0.2.1".parse().unwrap()).is_none());
    }
}
