//! Where nothing answers: is there a route, is the port closed, is there anything at all.
//!
//! A connected UDP socket hears of what the network says about its datagrams: that the port is closed, or that a firewall
//! refuses them. TCP to the same machine tells a network without UDP from one without anything; a refusal is as good an
//! answer as a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::{sleep, timeout};

use crate::platform::{Interface, Platform};

/// Datagrams that are sent, and the time between them.
const UDP_TRIES: u32 = 3;
const UDP_INTERVAL: Duration = Duration::from_millis(300);
/// How long TCP may take to be answered.
const TCP_LIMIT: Duration = Duration::from_millis(2500);
/// The port that is open in most firewalls.
const HTTPS: u16 = 443;

/// What knocking told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Knock {
    /// The relay's machine says that nothing listens on the port.
    pub port_closed: bool,
    /// Something on the way says that it lets nothing through.
    pub filtered: bool,
    /// The relay's machine answers TCP.
    pub tcp_answers: bool,
}

/// Why there is no route to `remote` through `interface`; `None` where there is one, or the platform cannot tell.
pub(super) fn no_route(platform: &dyn Platform, interface: &Interface, remote: SocketAddr) -> Option<String> {
    match connected(platform, interface, remote) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable) => {
            Some(error.to_string())
        }
        _ => None,
    }
}

/// Knocks.
pub(super) async fn knock(platform: &dyn Platform, interface: &Interface, remote: SocketAddr) -> Knock {
    let ((port_closed, filtered), own, https) = tokio::join!(
        udp(platform, interface, remote),
        tcp(platform, interface, remote),
        tcp(platform, interface, SocketAddr::new(remote.ip(), HTTPS)),
    );
    Knock { port_closed, filtered, tcp_answers: own || https }
}

/// A UDP socket that is connected; nothing has been sent yet.
fn connected(platform: &dyn Platform, interface: &Interface, remote: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    platform.tie(&socket, interface, remote)?;
    socket.connect(&remote.into())?;
    Ok(socket)
}

/// Whether the port is closed, and whether something on the way refuses.
async fn udp(platform: &dyn Platform, interface: &Interface, remote: SocketAddr) -> (bool, bool) {
    let socket = connected(platform, interface, remote).and_then(|socket| {
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket.into())
    });
    let Ok(socket) = socket else { return (false, false) };
    let told = async {
        for _ in 0..UDP_TRIES {
            // One byte is no datagram of ours: a relay drops it.
            let sent = socket.send(&[0]).await.map(drop);
            let received = timeout(UDP_INTERVAL, socket.recv(&mut [0])).await;
            match sent.and(received.map_or(Ok(()), |received| received.map(drop))) {
                Err(error) => return Some(error.kind()),
                Ok(()) => sleep(Duration::from_millis(1)).await,
            }
        }
        None
    };
    match told.await {
        Some(io::ErrorKind::ConnectionRefused) => (true, false),
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::PermissionDenied) => {
            (false, true)
        }
        _ => (false, false),
    }
}

/// Whether the machine at `remote` answers TCP, be it with a refusal.
async fn tcp(platform: &dyn Platform, interface: &Interface, remote: SocketAddr) -> bool {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, Some(Protocol::TCP)).and_then(|socket| {
        platform.tie(&socket, interface, remote)?;
        socket.set_nonblocking(true)?;
        Ok(TcpSocket::from_std_stream(socket.into()))
    });
    let Ok(socket) = socket else { return false };
    match timeout(TCP_LIMIT, socket.connect(remote)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
}
