//! A platform whose networks, names, days and sleeps are what a script says.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tandem_proto::networks::Date;
use tokio::sync::watch;

use super::{Answer, Bound, Changes, Interface, Platform};

/// Opens a socket on one scripted network towards a remote.
pub type Binder = Arc<dyn Fn(SocketAddr) -> io::Result<Bound> + Send + Sync>;

/// Looks a name up on the network of this name, or for everyone.
pub type Resolver = Arc<dyn Fn(&str, Option<&str>) -> Answer<Vec<IpAddr>> + Send + Sync>;

/// Answers a request that is sent by TCP on the network of this name.
pub type Asker = Arc<dyn Fn(&str, SocketAddr, &str) -> Answer<Vec<u8>> + Send + Sync>;

/// A platform with scripted networks; clones share them. Nobody answers its requests by TCP, and it knows no name, until it is
/// given who does.
#[derive(Clone)]
pub struct Scripted {
    script: Arc<Mutex<Script>>,
    changes: watch::Sender<u64>,
}

struct Script {
    networks: Vec<(Interface, Binder)>,
    resolver: Resolver,
    asker: Asker,
    suspended: Duration,
    today: Date,
}

impl Scripted {
    /// A platform with these networks.
    pub fn new(networks: Vec<(Interface, Binder)>) -> Self {
        let resolver: Resolver = Arc::new(|_, _| Box::pin(async { Err(io::ErrorKind::NotFound.into()) }));
        let asker: Asker = Arc::new(|_, _, _| Box::pin(async { Err(io::ErrorKind::TimedOut.into()) }));
        let script = Script { networks, resolver, asker, suspended: Duration::ZERO, today: Date::default() };
        Self { script: Arc::new(Mutex::new(script)), changes: watch::Sender::new(0) }
    }

    /// Replaces the networks and tells those who watch.
    pub fn set(&self, networks: Vec<(Interface, Binder)>) {
        self.script.lock().networks = networks;
        self.changes.send_modify(|count| *count += 1);
    }

    /// Replaces what names mean.
    pub fn set_resolver(&self, resolver: Resolver) {
        self.script.lock().resolver = resolver;
    }

    /// Replaces who answers by TCP.
    pub fn set_asker(&self, asker: Asker) {
        self.script.lock().asker = asker;
    }

    /// It is this day from now on; before, the first of January of some year.
    pub fn set_today(&self, today: Date) {
        self.script.lock().today = today;
    }

    /// The machine has been suspended for so long.
    pub fn suspend(&self, time: Duration) {
        self.script.lock().suspended += time;
    }
}

impl Platform for Scripted {
    fn interfaces(&self) -> io::Result<Vec<Interface>> {
        Ok(self.script.lock().networks.iter().map(|(interface, _)| interface.clone()).collect())
    }

    fn watch(&self) -> io::Result<Changes> {
        Ok(Changes::new(self.changes.subscribe(), None))
    }

    fn bind(&self, interface: &Interface, remote: SocketAddr) -> io::Result<Bound> {
        let binder =
            self.script.lock().networks.iter().find(|(known, _)| known.name == interface.name).map(|(_, b)| b.clone());
        binder.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?(remote)
    }

    fn resolve(&self, name: &str, interface: Option<&Interface>) -> Answer<Vec<IpAddr>> {
        let resolver = Arc::clone(&self.script.lock().resolver);
        resolver(name, interface.map(|interface| interface.name.as_str()))
    }

    fn ask(&self, interface: &Interface, to: SocketAddr, request: String) -> Answer<Vec<u8>> {
        let asker = Arc::clone(&self.script.lock().asker);
        asker(&interface.name, to, &request)
    }

    fn obstacle(&self, _interface: &Interface, _remote: IpAddr) -> Option<String> {
        None
    }

    fn today(&self) -> Date {
        self.script.lock().today
    }

    fn suspended(&self) -> Duration {
        self.script.lock().suspended
    }
}
