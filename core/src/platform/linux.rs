//! Ties a socket to its interface on Linux.

use std::io;

use socket2::Socket;

use super::super::Interface;

/// Makes every datagram of an unbound socket leave through the interface.
pub(super) fn to_interface(socket: &Socket, interface: &Interface) -> io::Result<()> {
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
