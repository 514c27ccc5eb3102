//! The addresses that are the relay itself, kept up to date.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tandem_proto::wire::flow::{Host, Target};

/// How often interfaces and public names are looked at again: an address that the machine gets late is protected after this.
const REFRESH: Duration = Duration::from_secs(10);

/// The addresses of this machine's interfaces and those under which clients reach it; clones share them.
#[derive(Debug, Clone, Default)]
pub struct OwnAddresses {
    current: Arc<RwLock<Arc<BTreeSet<IpAddr>>>>,
}

impl OwnAddresses {
    /// The addresses as last seen.
    pub fn current(&self) -> Arc<BTreeSet<IpAddr>> {
        Arc::clone(&self.current.read())
    }

    /// Looks at the interfaces, and at what the `public` names mean.
    pub async fn refresh(&self, public: &[Target]) {
        let mut found = interface_addresses().await;
        for target in public {
            match &target.host {
                Host::Ip(address) => {
                    found.insert(address.to_canonical());
                }
                Host::Name(name) => match tokio::net::lookup_host((name.as_str(), target.port)).await {
                    Ok(addresses) => found.extend(addresses.map(|address| address.ip().to_canonical())),
                    Err(error) => tracing::debug!(%name, %error, "a public name of the relay does not resolve"),
                },
            }
        }
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

async fn interface_addresses() -> BTreeSet<IpAddr> {
    let list = || netdev::get_interfaces().iter().flat_map(|interface| interface.ip_addrs()).collect();
    // Listing asks the kernel, which may take milliseconds.
    tokio::task::spawn_blocking(list).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn interfaces_and_public_addresses_are_the_relays_own() {
        let own = OwnAddresses::default();
        own.refresh(&["1.2.3.4:4433".parse().unwrap()]).await;
        assert!(own.current().contains(&"1.2.3.4".parse().unwrap()));
        assert!(own.current().contains(&"127.0.0.1".parse().unwrap()));
    }
}
