//! The addresses that are the relay itself, kept up to date.
//!
//! What cannot be found out anew stays as it was last known: a resolver that fails must not open the way to the relay.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tandem_proto::wire::flow::{Host, Target};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How often interfaces and public names are looked at again: an address that the machine gets late is protected after this.
const REFRESH: Duration = Duration::from_secs(10);
/// How long all lookups of one refresh may take; the relay is not ready before the first refresh is done.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// The addresses of this machine's interfaces and those under which clients reach it; clones share them.
#[derive(Debug, Clone, Default)]
pub struct OwnAddresses {
    current: Arc<RwLock<Arc<BTreeSet<IpAddr>>>>,
    known: Arc<Mutex<Known>>,
}

/// What was found when it could last be found out.
#[derive(Debug, Default)]
struct Known {
    interfaces: BTreeSet<IpAddr>,
    names: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl OwnAddresses {
    /// The addresses as last seen.
    pub fn current(&self) -> Arc<BTreeSet<IpAddr>> {
        Arc::clone(&self.current.read())
    }

    /// Looks at the interfaces, and at what the `public` names mean; takes about two seconds at most.
    pub async fn refresh(&self, public: &[Target]) {
        self.refresh_with(public, look_up).await;
    }

    async fn refresh_with<F>(&self, public: &[Target], look_up: impl Fn(String, u16) -> F)
    where
        F: Future<Output = io::Result<BTreeSet<IpAddr>>> + Send + 'static,
    {
        let interfaces = interface_addresses().await;
        let mut found = BTreeSet::new();
        let mut lookups = JoinSet::new();
        for target in public {
            match &target.host {
                Host::Ip(address) => {
                    found.insert(address.to_canonical());
                }
                Host::Name(name) => {
                    let (name, lookup) = (name.clone(), timeout(LOOKUP_TIMEOUT, look_up(name.clone(), target.port)));
                    lookups.spawn(async move { (name, lookup.await.unwrap_or_else(|late| Err(late.into()))) });
                }
            }
        }
        let results = lookups.join_all().await;
        let mut known = self.known.lock();
        match interfaces {
            Some(interfaces) => known.interfaces = interfaces,
            None => tracing::warn!("the addresses of this machine's interfaces cannot be listed"),
        }
        for (name, result) in results {
            match result {
                Ok(addresses) => {
                    known.names.insert(name, addresses);
                }
                Err(error) if known.names.contains_key(&name) => {
                    tracing::debug!(%name, %error, "a public name of the relay does not resolve now; its last addresses stay protected");
                }
                Err(error) => {
                    tracing::warn!(%name, %error, "a public name of the relay does not resolve: its addresses are not protected yet");
                }
            }
        }
        found.extend(known.interfaces.iter().chain(known.names.values().flatten()));
        *self.current.write() = Arc::new(found);
    }

    /// Refreshes for as long as the future is polled.
    pub async fn keep_fresh(&self, public: &[Target]) {
        loop {
            tokio::time::sleep(REFRESH).await;
            self.refresh(public).await;
        }
    }
}

async fn look_up(name: String, port: u16) -> io::Result<BTreeSet<IpAddr>> {
    let addresses = tokio::net::lookup_host((name, port)).await?;
    Ok(addresses.map(|address| address.ip().to_canonical()).collect())
}

/// `None` if the system does not tell; there is always one, as loopback counts.
async fn interface_addresses() -> Option<BTreeSet<IpAddr>> {
    let list = || netdev::get_interfaces().iter().flat_map(|interface| interface.ip_addrs()).collect::<BTreeSet<_>>();
    // Listing asks the kernel, which may take milliseconds.
    tokio::task::spawn_blocking(list).await.ok().filter(|addresses| !addresses.is_empty())
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn addresses(text: &str) -> BTreeSet<IpAddr> {
        BTreeSet::from([text.parse().unwrap()])
    }

    #[tokio::test]
    async fn interfaces_and_public_addresses_are_the_relays_own() {
        let own = OwnAddresses::default();
        own.refresh(&["1.2.3.4:4433".parse().unwrap()]).await;
        assert!(own.current().contains(&"1.2.3.4".parse().unwrap()));
        assert!(own.current().contains(&"127.0.0.1".parse().unwrap()));
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_keeps_its_last_addresses_and_no_others() {
        let own = OwnAddresses::default();
        let public = ["relay.example.org:4433".parse().unwrap()];
        let is_own = |text: &str| own.current().contains(&text.parse::<IpAddr>().unwrap());
        own.refresh_with(&public, |_, _| ready(Ok(addresses("1.2.3.4")))).await;
        own.refresh_with(&public, |_, _| ready(Err(io::Error::other("no answer")))).await;
        assert!(is_own("1.2.3.4"));
        own.refresh_with(&public, |_, _| ready(Ok(addresses("1.2.3.5")))).await;
        assert!(is_own("1.2.3.5") && !is_own("1.2.3.4"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_says_nothing_delays_a_refresh_by_two_seconds_and_spoils_no_other_name() {
        let own = OwnAddresses::default();
        let public = ["silent:1", "silent-too:1", "good:1"].map(|text| text.parse().unwrap());
        let start = tokio::time::Instant::now();
        let look_up =
            |name: String, _| async move { if name == "good" { Ok(addresses("1.2.3.4")) } else { pending().await } };
        own.refresh_with(&public, look_up).await;
        assert!(start.elapsed() < LOOKUP_TIMEOUT * 2, "{:?}", start.elapsed());
        assert!(own.current().contains(&"1.2.3.4".parse().unwrap()));
    }
}
