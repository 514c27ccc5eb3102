//! What only Linux can be asked in this way: sockets tied to an interface, the resolvers of one network, time asleep.

#[path = "linux/resolver.rs"]
mod resolver;
#[path = "linux/routes.rs"]
mod routes;
#[path = "linux/servers.rs"]
mod servers;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

#[cfg(feature = "fuzzing")]
pub(super) use resolver::read_reply;
pub(super) use resolver::resolve;
pub(super) use routes::obstacle;
use socket2::Socket;

use super::super::Interface;

/// What an interface is called.
pub(super) fn name(found: &netdev::Interface) -> String {
    found.name.clone()
}

/// Makes every datagram of an unbound UDP socket leave through the interface.
///
/// `IP_UNICAST_IF` asks for no privilege and says nothing about where datagrams may come in. `SO_BINDTODEVICE` would refuse
/// those that come in by another interface, as happens with two in one subnet: each answers for the addresses of both
/// (ARP), and a router may send to either.
pub(super) fn steer(socket: &Socket, interface: &Interface, remote: IpAddr) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (level, name) = match remote {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_UNICAST_IF),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF),
    };
    // In network byte order (ip(7)).
    let index = interface.index.to_be();
    // SAFETY: the descriptor is open while `socket` is borrowed; the value is a `u32` that outlives the call, of the length
    // given.
    let done = unsafe {
        let value = std::ptr::from_ref(&index).cast();
        libc::setsockopt(socket.as_raw_fd(), level, name, value, size_of::<u32>() as libc::socklen_t)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes every packet of an unbound socket, of whatever kind, leave and come in through the interface.
pub(super) fn tie(socket: &Socket, interface: &Interface, _remote: IpAddr) -> io::Result<()> {
    match socket.bind_device(Some(interface.name.as_bytes())) {
        // Kernels before 5.7 ask for a privilege. The source address then chooses the way, where the machine's routes
        // are set up for that.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(interface = interface.name, "cannot tie a socket to the interface, only to its address");
            Ok(())
        }
        done => done,
    }
}

/// Time that counts in a sleep less time that does not.
pub(super) fn suspended() -> Duration {
    clock(libc::CLOCK_BOOTTIME).saturating_sub(clock(libc::CLOCK_MONOTONIC))
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write to.
    let done = unsafe { libc::clock_gettime(id, &raw mut time) };
    if done != 0 {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
