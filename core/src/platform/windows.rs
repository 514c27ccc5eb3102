//! What only Windows can be asked in this way: sockets steered to an interface, the resolvers of one network, time asleep.

use std::io;
use std::net::IpAddr;
use std::os::windows::io::AsRawSocket;
use std::time::Duration;

use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use socket2::Socket;
use windows_sys::Win32::Networking::WinSock::{
    IP_UNICAST_IF, IPPROTO_IP, IPPROTO_IPV6, IPV6_UNICAST_IF, SOCKET, setsockopt,
};
use windows_sys::Win32::System::SystemInformation::GetTickCount64;
use windows_sys::Win32::System::WindowsProgramming::QueryUnbiasedInterruptTime;

use super::super::{Answer, Interface};
use super::name_servers;

/// Units of [`QueryUnbiasedInterruptTime`] in a millisecond.
const UNITS_PER_MS: u64 = 10_000;

/// What an interface is called: the name that people see, such as `Wi-Fi`; the system's own is a number in braces.
pub(super) fn name(found: &netdev::Interface) -> String {
    found.friendly_name.clone().unwrap_or_else(|| found.name.clone())
}

/// Makes every datagram of an unbound UDP socket leave through the interface; no privilege needed.
pub(super) fn steer(socket: &Socket, interface: &Interface, remote: IpAddr) -> io::Result<()> {
    // The index is in network byte order for IPv4, and in the host's for IPv6 (IPPROTO_IP and IPPROTO_IPV6 Socket Options).
    let (level, name, index) = match remote {
        IpAddr::V4(_) => (IPPROTO_IP, IP_UNICAST_IF, interface.index.to_be()),
        IpAddr::V6(_) => (IPPROTO_IPV6, IPV6_UNICAST_IF, interface.index),
    };
    // SAFETY: the socket is open while `socket` is borrowed; the value is a `u32` that outlives the call, of the length
    // given.
    let done = unsafe {
        let value = std::ptr::from_ref(&index).cast();
        setsockopt(socket.as_raw_socket() as SOCKET, level, name, value, size_of::<u32>() as i32)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The same for a socket of whatever kind.
pub(super) fn tie(socket: &Socket, interface: &Interface, remote: IpAddr) -> io::Result<()> {
    steer(socket, interface, remote)
}

/// A name's addresses as the resolvers of the interface's network know them.
pub(super) fn resolve(name: &str, interface: &Interface) -> Answer<Vec<IpAddr>> {
    let (name, interface) = (name.to_owned(), interface.clone());
    Box::pin(async move {
        let adapters = netdev::get_interfaces();
        let adapter = adapters.iter().find(|adapter| adapter.index == interface.index);
        let mut config = ResolverConfig::default();
        for server in adapter.into_iter().flat_map(|adapter| &adapter.dns_servers) {
            if !is_placeholder(*server) && interface.source(*server).is_some() {
                config.add_name_server(NameServerConfig::udp_and_tcp(*server));
            }
        }
        name_servers::ask(config, &name, interface).await
    })
}

/// Site-local addresses (`fec0:0:0:ffff::1` to `::3`) are listed where IPv6 has no name server.
fn is_placeholder(server: IpAddr) -> bool {
    matches!(server, IpAddr::V6(server) if server.segments()[0] & 0xffc0 == 0xfec0)
}

/// Unknown: answers come in by whatever interface.
pub(super) fn obstacle(_interface: &Interface, _remote: IpAddr) -> Option<String> {
    None
}

/// Time that counts in a sleep less time that does not. The first one moves in steps of 16 ms at most.
pub(super) fn suspended() -> Duration {
    let mut awake = 0;
    // SAFETY: `awake` is a valid place to write to; the other call takes nothing.
    let (done, since_start) = unsafe { (QueryUnbiasedInterruptTime(&raw mut awake), GetTickCount64()) };
    if done == 0 {
        return Duration::ZERO;
    }
    Duration::from_millis(since_start.saturating_sub(awake / UNITS_PER_MS))
}
