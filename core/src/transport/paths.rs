//! The networks of one client's session: which socket and interface stand behind each path.
//!
//! The link knows paths by number and address; this table knows their sockets and names, and adds and removes both together.

use std::net::SocketAddr;
use std::sync::Arc;

use tandem_proto::path::PathAddress;
use tandem_proto::stats::PathStats;
pub use tandem_proto::wire::control::PathId;

use super::bicast::BicastSocket;
use super::session::Session;
use super::socket::PathSocket;

/// A network to reach the relay by.
#[derive(Debug, Clone)]
pub struct PathSpec {
    /// The interface's name.
    pub interface: String,
    /// A socket bound to it.
    pub socket: Arc<dyn PathSocket>,
    /// The relay's address on this network.
    pub remote: SocketAddr,
}

/// Paths with what they were made of and the index of their socket.
#[derive(Debug, Default)]
pub(super) struct PathTable(Vec<(PathId, PathSpec, usize)>);

impl PathTable {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a network to a session; `None` if that has the most paths already.
    pub(super) fn add(&mut self, spec: PathSpec, socket: &BicastSocket, session: &Session) -> Option<PathId> {
        let now = tokio::time::Instant::now().into_std();
        let index = socket.add_socket(Arc::clone(&spec.socket));
        let address = PathAddress { socket: index, remote: spec.remote, local: None };
        let mut link = session.link.lock();
        let Some(id) = link.add_path(address, now) else {
            socket.remove_socket(index);
            return None;
        };
        self.0.push((id, spec, index));
        socket.after(session, &mut link, now);
        Some(id)
    }

    /// Removes a network from a session and tells the relay by the others.
    pub(super) fn remove(&mut self, id: PathId, socket: &BicastSocket, session: &Session) {
        let now = tokio::time::Instant::now().into_std();
        {
            let mut link = session.link.lock();
            link.remove_path(id, now);
            socket.after(session, &mut link, now);
        }
        if let Some(at) = self.0.iter().position(|(known, ..)| *known == id) {
            let (_, _, index) = self.0.remove(at);
            socket.remove_socket(index);
        }
    }

    /// Adds what the link does not know to its figures.
    pub(super) fn name(&self, paths: &mut [PathStats]) {
        for (id, spec, _) in &self.0 {
            if let Some(path) = paths.iter_mut().find(|path| path.id == id.0) {
                path.interface.clone_from(&spec.interface);
                path.local = spec.socket.local_addr().map(|local| local.to_string()).unwrap_or_default();
            }
        }
    }
}
