//! Whether a port can be listened on, and who has it else.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// How a listening address stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortState {
    /// It can be listened on.
    Free,
    /// Another process has it.
    Taken {
        /// That process, where the system tells it.
        by: Option<Holder>,
    },
    /// The system refuses for another reason.
    Refused(String),
}

/// A process that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub name: String,
    /// Its number.
    pub pid: u32,
}

/// Tries to listen on `address`, and lets go of it at once.
pub(super) async fn state(address: SocketAddr) -> PortState {
    match TcpListener::bind(address).await {
        Ok(_) => PortState::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // It reads the tables of the system.
            let holder = tokio::task::spawn_blocking(move || holder(address.port()));
            PortState::Taken { by: holder.await.ok().flatten() }
        }
        Err(error) => PortState::Refused(error.to_string()),
    }
}

fn holder(port: u16) -> Option<Holder> {
    let process = listeners::get_process_by_port(port, listeners::Protocol::TCP).ok()?;
    Some(Holder { name: process.name, pid: process.pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_free_or_taken_by_someone_with_a_name() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        match state(address).await {
            PortState::Taken { by: Some(holder) } => assert_eq!(holder.pid, std::process::id()),
            other => panic!("{other:?}"),
        }
        drop(listener);
        assert_eq!(state(address).await, PortState::Free);
        let nowhere = "192.0.2.1:1080".parse().unwrap();
        assert!(matches!(state(nowhere).await, PortState::Refused(_)));
    }
}
