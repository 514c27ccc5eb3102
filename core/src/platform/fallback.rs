//! Systems without a file of their own: a socket is tied to the address of its interface, not to the interface; the resolvers
//! of one network cannot be asked, and a sleep of the machine is not told of.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use socket2::Socket;

use super::super::{Answer, Interface};

/// What an interface is called.
pub(super) fn name(found: &netdev::Interface) -> String {
    found.name.clone()
}

/// Leaves the choice of the way to the source address, which the caller binds.
pub(super) fn steer(_socket: &Socket, _interface: &Interface, _remote: IpAddr) -> io::Result<()> {
    Ok(())
}

/// The same.
pub(super) fn tie(_socket: &Socket, _interface: &Interface, _remote: IpAddr) -> io::Result<()> {
    Ok(())
}

/// Cannot.
pub(super) fn resolve(_name: &str, _interface: &Interface) -> Answer<Vec<IpAddr>> {
    Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
}

/// Unknown.
pub(super) fn obstacle(_interface: &Interface, _remote: IpAddr) -> Option<String> {
    None
}

/// Unknown: zero.
pub(super) fn suspended() -> Duration {
    Duration::ZERO
}
