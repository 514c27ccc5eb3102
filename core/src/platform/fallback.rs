//! Systems without a file of their own: a socket is tied to the address of its interface, not to the interface.

use std::io;

use socket2::Socket;

use super::super::Interface;

/// Leaves the choice of the way to the source address, which the caller binds.
pub(super) fn to_interface(_socket: &Socket, _interface: &Interface) -> io::Result<()> {
    Ok(())
}
