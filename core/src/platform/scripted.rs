//! A platform whose networks are what a script says.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Bound, Changes, Interface, Platform};

/// Opens a socket on one scripted network towards a remote.
pub type Binder = Arc<dyn Fn(SocketAddr) -> io::Result<Bound> + Send + Sync>;

/// A platform with scripted networks; clones share them.
#[derive(Clone)]
pub struct Scripted {
    networks: Arc<Mutex<Vec<(Interface, Binder)>>>,
    changes: watch::Sender<u64>,
}

impl Scripted {
    /// A platform with these networks.
    pub fn new(networks: Vec<(Interface, Binder)>) -> Self {
        Self { networks: Arc::new(Mutex::new(networks)), changes: watch::Sender::new(0) }
    }

    /// Replaces the networks and tells those who watch.
    pub fn set(&self, networks: Vec<(Interface, Binder)>) {
        *self.networks.lock() = networks;
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Platform for Scripted {
    fn interfaces(&self) -> io::Result<Vec<Interface>> {
        Ok(self.networks.lock().iter().map(|(interface, _)| interface.clone()).collect())
    }

    fn watch(&self) -> io::Result<Changes> {
        Ok(Changes::new(self.changes.subscribe(), None))
    }

    fn bind(&self, interface: &Interface, remote: SocketAddr) -> io::Result<Bound> {
        let binder =
            self.networks.lock().iter().find(|(known, _)| known.name == interface.name).map(|(_, b)| b.clone());
        binder.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?(remote)
    }
}
