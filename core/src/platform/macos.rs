//! What only macOS can be asked in this way: sockets tied to an interface, the resolvers of one network, time asleep.

use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use socket2::Socket;
use tokio::process::Command;

use super::super::{Answer, Interface};
use super::{name_servers, scoped_resolvers};

/// Prints what the system knows of resolvers, those of single networks among it.
const SCUTIL: &str = "/usr/sbin/scutil";

/// What an interface is called.
pub(super) fn name(found: &netdev::Interface) -> String {
    found.name.clone()
}

/// Makes every datagram of an unbound UDP socket leave through the interface (`IP_BOUND_IF`, no privilege needed).
pub(super) fn steer(socket: &Socket, interface: &Interface, remote: IpAddr) -> io::Result<()> {
    let index = NonZeroU32::new(interface.index);
    match remote {
        IpAddr::V4(_) => socket.bind_device_by_index_v4(index),
        IpAddr::V6(_) => socket.bind_device_by_index_v6(index),
    }
}

/// The same for a socket of whatever kind.
pub(super) fn tie(socket: &Socket, interface: &Interface, remote: IpAddr) -> io::Result<()> {
    steer(socket, interface, remote)
}

/// A name's addresses as the resolvers of the interface's network know them.
pub(super) fn resolve(name: &str, interface: &Interface) -> Answer<Vec<IpAddr>> {
    let (name, interface) = (name.to_owned(), interface.clone());
    Box::pin(async move {
        let listed = Command::new(SCUTIL).arg("--dns").kill_on_drop(true).output().await?;
        let mut config = ResolverConfig::default();
        for server in scoped_resolvers::of(&String::from_utf8_lossy(&listed.stdout), interface.index) {
            if interface.source(server).is_some() {
                config.add_name_server(NameServerConfig::udp_and_tcp(server));
            }
        }
        name_servers::ask(config, &name, interface).await
    })
}

/// Unknown: answers come in by whatever interface.
pub(super) fn obstacle(_interface: &Interface, _remote: IpAddr) -> Option<String> {
    None
}

/// Time that counts in a sleep less time that does not: `mach_continuous_time` and `mach_absolute_time` as clocks.
pub(super) fn suspended() -> Duration {
    clock(libc::CLOCK_MONOTONIC_RAW).saturating_sub(clock(libc::CLOCK_UPTIME_RAW))
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
