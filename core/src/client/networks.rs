//! Which networks carry paths, and when that has changed.
//!
//! Without names from the user these are all that lead outside; with names, exactly the named ones. Each gets one path, to
//! the first of the relay's addresses that it has an address of the same family for; a later try of the same session
//! starts at a later address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::handshake::SessionError;
use crate::platform::{Changes, Interface, Platform};
use crate::transport::PathSpec;

/// Changes come in bursts (address, route, state); they are looked at once they have calmed down.
const CALM: Duration = Duration::from_millis(200);
/// How often to look where changes cannot be watched, and for a network whose socket could not be opened.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The machine's networks, as far as the session may use them.
pub(super) struct Networks {
    platform: Arc<dyn Platform>,
    names: Vec<String>,
}

/// Tells when it is time to look at the networks again.
pub(super) struct Watch {
    changes: Option<Changes>,
    look_at: Instant,
}

/// A network and the relay's address that its path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) interface: Interface,
    pub(super) remote: SocketAddr,
}

impl Way {
    /// Whether a path on `self` may stay when the networks ask for `other`.
    pub(super) fn is_same(&self, other: &Way) -> bool {
        let key = |way: &Way| (way.interface.index, way.interface.source(way.remote.ip()));
        key(self) == key(other) && self.interface.name == other.interface.name
    }
}

impl Networks {
    pub(super) fn new(platform: Arc<dyn Platform>, names: Vec<String>) -> Self {
        Self { platform, names }
    }

    pub(super) fn watch(&self) -> Watch {
        let changes = self.platform.watch();
        let changes = changes.inspect_err(|error| tracing::warn!(%error, "networks cannot be watched")).ok();
        Watch { changes, look_at: Instant::now() + LOOK_AGAIN }
    }

    /// The interfaces that would carry paths now; empty also if the system does not tell.
    pub(super) fn chosen(&self) -> Vec<Interface> {
        let all = self.platform.interfaces().unwrap_or_default();
        all.into_iter().filter(|interface| self.is_chosen(interface)).collect()
    }

    /// Every network of the machine, and whether it would carry a path.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(super) fn all(&self) -> std::io::Result<Vec<(Interface, bool)>> {
        let all = self.platform.interfaces()?;
        Ok(all.into_iter().map(|interface| (interface.clone(), self.is_chosen(&interface))).collect())
    }

    /// The ways to the relay that there are now.
    ///
    /// # Errors
    /// [`SessionError::NoNetwork`] if there is none.
    pub(super) fn ways(&self, remotes: &[SocketAddr], attempt: usize) -> Result<Vec<Way>, SessionError> {
        let all = self.platform.interfaces().map_err(|error| SessionError::NoNetwork(error.to_string()))?;
        let chosen: Vec<_> = all.iter().filter(|interface| self.is_chosen(interface)).collect();
        let ways: Vec<_> = chosen.iter().filter_map(|interface| way(interface, remotes, attempt)).collect();
        if ways.is_empty() { Err(SessionError::NoNetwork(self.reason(&all, &chosen))) } else { Ok(ways) }
    }

    /// Opens the socket of a way.
    pub(super) fn open(&self, way: &Way) -> std::io::Result<PathSpec> {
        let bound = self.platform.bind(&way.interface, way.remote)?;
        Ok(PathSpec { interface: way.interface.name.clone(), socket: bound.socket, remote: bound.remote })
    }

    fn is_chosen(&self, interface: &Interface) -> bool {
        interface.up && if self.names.is_empty() { interface.external } else { self.names.contains(&interface.name) }
    }

    fn reason(&self, all: &[Interface], chosen: &[&Interface]) -> String {
        let names = |interfaces: &mut dyn Iterator<Item = &Interface>| {
            interfaces.map(|interface| interface.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        if !chosen.is_empty() {
            return format!("{} has no address of the relay's kind", names(&mut chosen.iter().copied()));
        }
        let up = names(&mut all.iter().filter(|interface| interface.up));
        if self.names.is_empty() {
            format!("none leads outside; name one to use it anyway, up are: {up}")
        } else {
            format!("{} is not there or down; up are: {up}", self.names.join(", "))
        }
    }
}

impl Watch {
    /// Resolves when the networks may have changed.
    ///
    /// # Cancel safety
    /// A change that was seen in the last moments before the drop may go unreported.
    pub(super) async fn changed(&mut self) {
        match &mut self.changes {
            Some(changes) => tokio::select! {
                biased;
                () = changes.changed() => sleep(CALM).await,
                () = sleep_until(self.look_at) => {}
            },
            None => sleep_until(self.look_at).await,
        }
        self.look_at = Instant::now() + LOOK_AGAIN;
    }
}

fn way(interface: &Interface, remotes: &[SocketAddr], attempt: usize) -> Option<Way> {
    let fitting: Vec<_> = remotes.iter().filter(|remote| interface.source(remote.ip()).is_some()).collect();
    let remote = **fitting.get(attempt % fitting.len().max(1))?;
    Some(Way { interface: interface.clone(), remote })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::IpAddr;

    use super::*;
    use crate::platform::{Bound, InterfaceKind, Scripted};

    fn interface(name: &str, address: &str, external: bool) -> Interface {
        let addresses = vec![address.parse::<IpAddr>().unwrap()];
        Interface { name: name.to_owned(), index: 1, kind: InterfaceKind::Other, addresses, up: true, external }
    }

    fn networks(interfaces: Vec<Interface>, names: &[&str]) -> Networks {
        let no_socket = |_| Err::<Bound, _>(io::Error::from(io::ErrorKind::Unsupported));
        let scripted = interfaces.into_iter().map(|interface| (interface, Arc::new(no_socket) as _)).collect();
        Networks::new(Arc::new(Scripted::new(scripted)), names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn remotes() -> Vec<SocketAddr> {
        ["[2001:db8::1]:4433", "192.0.2.1:4433", "192.0.2.2:4433"].map(|text| text.parse().unwrap()).to_vec()
    }

    fn used(networks: &Networks, attempt: usize) -> Vec<(String, String)> {
        let ways = networks.ways(&remotes(), attempt).unwrap();
        ways.into_iter().map(|way| (way.interface.name, way.remote.to_string())).collect()
    }

    fn pair(name: &str, remote: &str) -> (String, String) {
        (name.to_owned(), remote.to_owned())
    }

    #[tokio::test]
    async fn by_default_every_external_network_carries_a_path_and_loopback_none() {
        let all = vec![
            interface("lo", "127.0.0.1", false),
            interface("wifi0", "198.51.100.7", true),
            interface("cell0", "2001:db8:1::7", true),
        ];
        let networks = networks(all, &[]);
        let expected = [pair("wifi0", "192.0.2.1:4433"), pair("cell0", "[2001:db8::1]:4433")];
        assert_eq!(used(&networks, 0), expected);
    }

    #[tokio::test]
    async fn a_later_try_uses_a_later_address() {
        let networks = networks(vec![interface("wifi0", "198.51.100.7", true)], &[]);
        assert_eq!(used(&networks, 1), [pair("wifi0", "192.0.2.2:4433")]);
        assert_eq!(used(&networks, 2), [pair("wifi0", "192.0.2.1:4433")]);
    }

    #[tokio::test]
    async fn named_networks_are_used_and_no_others() {
        let all = vec![interface("lo", "127.0.0.1", false), interface("wifi0", "198.51.100.7", true)];
        assert_eq!(used(&networks(all.clone(), &["lo"]), 0), [pair("lo", "192.0.2.1:4433")]);
        let error = networks(all, &["wlan9"]).ways(&remotes(), 0).unwrap_err().to_string();
        assert!(error.contains("wlan9 is not there or down; up are: lo, wifi0"), "{error}");
    }

    #[tokio::test]
    async fn a_machine_without_a_way_outside_is_told_what_it_could_use() {
        let error = networks(vec![interface("lo", "127.0.0.1", false)], &[]).ways(&remotes(), 0).unwrap_err();
        assert!(error.to_string().contains("name one to use it anyway, up are: lo"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_reported_once_it_has_calmed_down() {
        let scripted = Scripted::new(Vec::new());
        let mut watch = Networks::new(Arc::new(scripted.clone()), Vec::new()).watch();
        let start = Instant::now();
        scripted.set(Vec::new());
        watch.changed().await;
        assert_eq!(start.elapsed(), CALM);
        watch.changed().await;
        assert_eq!(start.elapsed(), CALM + LOOK_AGAIN);
    }
}
