//! The real machine: interfaces by `netdev`, changes by `netwatcher`, sockets by the operating system's own file.

#[cfg(any(target_os = "linux", target_os = "macos", windows))]
#[path = "name_servers.rs"]
mod name_servers;
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(target_os = "macos", path = "macos.rs")]
#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(not(any(target_os = "linux", target_os = "macos", windows)), path = "fallback.rs")]
mod os;
#[cfg(any(target_os = "macos", test))]
#[path = "scoped_resolvers.rs"]
mod scoped_resolvers;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use chrono::Datelike as _;
use netdev::interface::types::InterfaceType;
use socket2::{Domain, Protocol, Socket, Type};
use tandem_proto::networks::Date;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::watch;

use super::{Answer, Bound, Changes, Interface, InterfaceKind, Platform};
use crate::transport::socket::UdpPathSocket;

/// Buffers of each path's socket, in bytes: a tenth of a second at 300 Mbit/s. The kernel may grant less.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;

/// What is read of an answer by TCP, in bytes: the head of an HTTP answer.
const LONGEST_ANSWER: usize = 4096;

/// This machine's networks.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Platform for System {
    fn interfaces(&self) -> io::Result<Vec<Interface>> {
        Ok(netdev::get_interfaces().iter().map(describe).collect())
    }

    fn watch(&self) -> io::Result<Changes> {
        let (sender, receiver) = watch::channel(0);
        let handle = netwatcher::watch_interfaces_with_callback(move |update| {
            if !update.is_initial {
                sender.send_modify(|count| *count += 1);
            }
        })
        .map_err(io::Error::other)?;
        Ok(Changes::new(receiver, Some(Box::new(handle))))
    }

    fn bind(&self, interface: &Interface, remote: SocketAddr) -> io::Result<Bound> {
        let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
        if remote.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Big buffers are an advantage, not a need.
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
        os::steer(&socket, interface, remote.ip())?;
        socket.bind(&source(interface, remote)?.into())?;
        Ok(Bound { socket: UdpPathSocket::new(socket.into())?, remote })
    }

    fn tie(&self, socket: &Socket, interface: &Interface, remote: SocketAddr) -> io::Result<()> {
        os::tie(socket, interface, remote.ip())?;
        socket.bind(&source(interface, remote)?.into())
    }

    fn resolve(&self, name: &str, interface: Option<&Interface>) -> Answer<Vec<IpAddr>> {
        if let Some(interface) = interface {
            return os::resolve(name, interface);
        }
        let name = name.to_owned();
        Box::pin(async move {
            // The port is not used.
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    fn ask(&self, interface: &Interface, to: SocketAddr, request: String) -> Answer<Vec<u8>> {
        let open = || {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_nonblocking(true)?;
            self.tie(&socket, interface, to).map(|()| socket)
        };
        let tied = open();
        Box::pin(async move {
            let mut stream = TcpSocket::from_std_stream(tied?.into()).connect(to).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::with_capacity(LONGEST_ANSWER);
            // Not to the end: the far side may keep the connection open.
            while answer.len() < LONGEST_ANSWER && !answer.windows(2).any(|pair| pair == b"\n\n" || pair == b"\n\r") {
                if stream.read_buf(&mut answer).await? == 0 {
                    break;
                }
            }
            Ok(answer)
        })
    }

    fn obstacle(&self, interface: &Interface, remote: IpAddr) -> Option<String> {
        os::obstacle(interface, remote)
    }

    fn today(&self) -> Date {
        let today = chrono::Local::now().date_naive();
        let date = || Date::new(u16::try_from(today.year()).ok()?, today.month() as u8, today.day() as u8);
        // No clock is that wrong.
        date().unwrap_or_default()
    }

    fn suspended(&self) -> Duration {
        os::suspended()
    }
}

/// Reads a reply of systemd-resolved, for the fuzzers.
#[cfg(all(feature = "fuzzing", target_os = "linux"))]
pub fn read_resolved_reply(reply: &[u8]) -> io::Result<Vec<IpAddr>> {
    os::read_reply(reply)
}

/// The interface's address for what goes to `remote`, with any port.
fn source(interface: &Interface, remote: SocketAddr) -> io::Result<SocketAddr> {
    let source = interface.source(remote.ip()).ok_or_else(|| {
        let family = if remote.is_ipv4() { "IPv4" } else { "IPv6" };
        io::Error::new(io::ErrorKind::AddrNotAvailable, format!("{} has no {family} address", interface.name))
    })?;
    Ok(SocketAddr::new(source, 0))
}

fn describe(found: &netdev::Interface) -> Interface {
    let kind = match found.if_type {
        InterfaceType::Wireless80211 => InterfaceKind::Wifi,
        InterfaceType::Wwan | InterfaceType::Wwanpp | InterfaceType::Wwanpp2 | InterfaceType::Ppp => {
            InterfaceKind::Cellular
        }
        InterfaceType::Ethernet | InterfaceType::GigabitEthernet => InterfaceKind::Ethernet,
        _ => InterfaceKind::Other,
    };
    let loopback = found.is_loopback();
    let gateway = found.gateway.as_ref().is_some_and(|gateway| !gateway.ipv4.is_empty() || !gateway.ipv6.is_empty());
    // A modem is point-to-point like a tunnel; a container's or a machine's virtual card is external by its gateway.
    let external = !loopback
        && match kind {
            InterfaceKind::Wifi | InterfaceKind::Cellular => true,
            _ => !found.is_tun() && (gateway || found.is_physical()),
        };
    let v4 = found.ipv4.iter().map(|net| IpAddr::V4(net.addr()));
    let v6 = found.ipv6.iter().map(|net| IpAddr::V6(net.addr()));
    Interface {
        name: os::name(found),
        index: found.index,
        kind,
        addresses: v4.chain(v6).filter(|address| loopback || leaves_the_link(*address)).collect(),
        up: found.is_up() && found.is_running(),
        external,
    }
}

fn leaves_the_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_loopback() && !address.is_unspecified(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_loopback() && !address.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn loopback() -> Interface {
        let all = System.interfaces().unwrap();
        all.into_iter().find(|interface| interface.addresses.contains(&Ipv4Addr::LOCALHOST.into())).unwrap()
    }

    #[test]
    fn loopback_is_listed_and_is_no_way_to_the_internet() {
        let loopback = loopback();
        assert!(loopback.up);
        assert!(!loopback.external);
    }

    #[tokio::test]
    async fn a_socket_is_bound_to_the_address_of_its_interface() {
        let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let bound = System.bind(&loopback(), remote).unwrap();
        assert_eq!(bound.remote, remote);
        assert_eq!(bound.socket.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
    }

    #[tokio::test]
    async fn an_interface_without_an_address_of_the_family_is_refused_by_name() {
        let only_v4 = Interface { addresses: vec![Ipv4Addr::LOCALHOST.into()], ..loopback() };
        let error = System.bind(&only_v4, "[2001:db8::1]:9".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("has no IPv6 address"), "{error}");
    }

    #[tokio::test]
    async fn changes_can_be_watched_here() {
        System.watch().unwrap();
    }
}
