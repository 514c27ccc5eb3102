//! The sockets that the relay listens on.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use anyhow::Context;
use socket2::{Domain, Protocol, Socket, Type};
use tandem_core::transport::{PathSocket, UdpPathSocket};
use tokio::net::TcpListener;

/// Socket buffers asked for, in bytes: what arrives in some 20 ms at 1 Gbit/s while the process is not scheduled. The
/// kernel may give less.
const BUFFER_BYTES: usize = 4 << 20;

/// TCP connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A UDP socket for each address.
pub(crate) fn bind(listen: &[SocketAddr]) -> anyhow::Result<Vec<Arc<dyn PathSocket>>> {
    let mut sockets: Vec<Arc<dyn PathSocket>> = Vec::new();
    for address in listen {
        let socket = match open(*address) {
            Ok(socket) => socket,
            Err(error) => {
                let hint = match error.kind() {
                    ErrorKind::AddrInUse => " (another program does already: is a relay running?)",
                    ErrorKind::AddrNotAvailable => " (it is no address of this machine)",
                    ErrorKind::PermissionDenied => " (ports below 1024 ask for privileges)",
                    _ if address.is_ipv6() => " (without IPv6 on this machine, listen on 0.0.0.0)",
                    _ => "",
                };
                return Err(error).with_context(|| format!("cannot listen on UDP {address}{hint}"));
            }
        };
        sockets.push(UdpPathSocket::new(socket)?);
    }
    Ok(sockets)
}

/// TCP listeners at the same addresses, for measuring; none if one of them is taken, by a web server for instance.
pub(crate) fn bind_tcp(listen: &[SocketAddr]) -> Vec<TcpListener> {
    let bound: std::io::Result<_> = listen.iter().copied().map(open_tcp).collect();
    bound.unwrap_or_else(|error| {
        tracing::warn!(%error, "clients cannot measure fairness: TCP at the relay's own port cannot be listened on");
        Vec::new()
    })
}

fn open_tcp(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let SocketAddr::V6(v6) = address {
        socket.set_only_v6(!v6.ip().is_unspecified())?;
    }
    socket.set_nonblocking(true)?;
    // Otherwise a restart would have to wait for connections of before.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn open(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if let SocketAddr::V6(v6) = address {
        // The wildcard takes IPv4 as well, whatever the system's default is.
        socket.set_only_v6(!v6.ip().is_unspecified())?;
    }
    socket.set_nonblocking(true)?;
    // Smaller buffers work too.
    let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(BUFFER_BYTES);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Lets the process open as many descriptors as it may: every flow is one, and the usual soft limit is 1,024.
pub(crate) fn raise_descriptor_limit() {
    #[cfg(unix)]
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}
