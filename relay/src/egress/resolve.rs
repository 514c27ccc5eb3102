//! From names to addresses, on the relay.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::{Name, RecordType};
use tandem_proto::wire::flow::OpenError;

use super::race::Lookups;

/// One try of one name server; with [`ATTEMPTS`], an answer of some kind comes before a client gives up.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Tries of a query.
const ATTEMPTS: usize = 2;
/// Answers kept; enough for the names that many browsers use at once, at well under a kilobyte each.
const CACHED_ANSWERS: u64 = 4096;

/// Addresses of a name that DNS is not asked about: addresses written as names, and `localhost` (RFC 6761, section 6.3).
pub(super) fn without_dns(name: &str) -> Option<Vec<IpAddr>> {
    let bare = name.strip_suffix('.').unwrap_or(name);
    if let Ok(address) = bare.parse() {
        return Some(vec![address]);
    }
    let last_label = bare.rsplit('.').next().unwrap_or(bare);
    last_label.eq_ignore_ascii_case("localhost").then(|| vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()])
}

/// The system's name servers and hosts file.
pub(super) struct Resolver {
    /// `None` on a machine that has no name servers: names are not found then.
    inner: Option<TokioResolver>,
}

impl Resolver {
    pub(super) fn system() -> Self {
        let build = || {
            let mut builder = TokioResolver::builder_tokio()?;
            let options = builder.options_mut();
            options.timeout = TIMEOUT;
            options.attempts = ATTEMPTS;
            options.cache_size = CACHED_ANSWERS;
            builder.build()
        };
        let inner = build();
        if let Err(error) = &inner {
            tracing::warn!(%error, "this machine has no usable DNS configuration: targets given by name will not be found");
        }
        Self { inner: inner.ok() }
    }

    /// Both families' lookups, to be polled side by side.
    pub(super) fn lookups(&self, name: &str) -> Lookups<impl Future<Output = Result<Vec<IpAddr>, OpenError>>> {
        Lookups {
            ipv6: self.lookup(name.to_owned(), RecordType::AAAA),
            ipv4: self.lookup(name.to_owned(), RecordType::A),
        }
    }

    async fn lookup(&self, name: String, record_type: RecordType) -> Result<Vec<IpAddr>, OpenError> {
        let resolver = self.inner.as_ref().ok_or(OpenError::NameNotFound)?;
        let mut name = Name::from_ascii(&name).map_err(|_| OpenError::NameNotFound)?;
        // A client's names are whole; the relay's own search domains are none of its business.
        name.set_fqdn(true);
        match resolver.lookup(name, record_type).await {
            Ok(lookup) => Ok(lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect()),
            Err(error) if error.is_no_records_found() => Err(OpenError::NameNotFound),
            Err(error) => {
                tracing::debug!(%error, ?record_type, "DNS gave no answer");
                Err(OpenError::TimedOut)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names_and_addresses_are_not_asked_of_dns() {
        for name in ["localhost", "LOCALHOST.", "a.b.localhost"] {
            let addresses = without_dns(name).unwrap();
            assert!(addresses.iter().all(IpAddr::is_loopback), "{name}");
        }
        assert_eq!(without_dns("127.0.0.1"), Some(vec![Ipv4Addr::LOCALHOST.into()]));
        assert_eq!(without_dns("localhost.example.org"), None);
        assert_eq!(without_dns("example.org"), None);
    }
}
