//! How the relay reaches targets: names resolved here, rules applied to what they resolve to, happy eyeballs.
//!
//! Sessions know the [`Egress`] trait alone. [`TcpEgress`] is the real one; tests in virtual time bring an origin in
//! memory. The order matters for safety: a name is resolved first, every address is checked against the access rules, and the
//! connection goes to exactly the address that was checked, so that a name cannot mean one thing to the rules and
//! another to the kernel.

mod own_addresses;
mod race;
mod resolve;

pub use own_addresses::OwnAddresses;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tandem_core::pump::TcpLike;
use tandem_proto::wire::flow::{Host, OpenError, Target};
use tokio::net::TcpStream;

use self::race::{Lookups, race};
use self::resolve::Resolver;
use crate::rules::AccessRules;

/// How long a client waits for a connection at most, name resolution included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A target that says nothing is asked whether it is still there after this long, and then this often; Linux gives up after nine times.
const KEEPALIVE: Duration = Duration::from_secs(300);
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(30);

/// Opens connections to targets.
pub trait Egress: Send + Sync + 'static {
    /// A connection to a target.
    type Connection: TcpLike + 'static;

    /// Connects to `target`, or says why not within [`CONNECT_TIMEOUT`].
    ///
    /// # Cancel safety
    /// Dropping the future abandons every attempt.
    fn connect(&self, target: &Target) -> impl Future<Output = Result<Self::Connection, OpenError>> + Send;
}

/// Connections from this machine's network.
pub struct TcpEgress {
    rules: AccessRules,
    own: OwnAddresses,
    resolver: Resolver,
}

impl TcpEgress {
    /// An egress with the system's resolver. `own` are the relay's own addresses, which it refuses unless allowed.
    pub fn new(rules: AccessRules, own: OwnAddresses) -> Self {
        Self { rules, own, resolver: Resolver::system() }
    }

    async fn attempt(&self, target: &Target) -> Result<TcpStream, OpenError> {
        let own = self.own.current();
        let permit = |address: IpAddr| {
            let verdict = self.rules.check(address, &own);
            if let Err(forbidden) = &verdict {
                tracing::debug!(%target, %address, %forbidden, "target refused");
            }
            verdict.is_ok()
        };
        let connect = move |address: SocketAddr| async move {
            let stream = TcpStream::connect(address).await?;
            // The pump writes whole chunks; waiting for more would only add delay.
            stream.set_nodelay(true)?;
            // A target that vanished without a word must not hold its flow for ever.
            SockRef::from(&stream)
                .set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_AGAIN))?;
            Ok(stream)
        };
        match &target.host {
            Host::Ip(address) => race(Lookups::known(vec![*address]), target.port, permit, connect).await,
            Host::Name(name) => match resolve::without_dns(name) {
                Some(addresses) => race(Lookups::known(addresses), target.port, permit, connect).await,
                None => race(self.resolver.lookups(name), target.port, permit, connect).await,
            },
        }
    }
}

impl Egress for TcpEgress {
    type Connection = TcpStream;

    async fn connect(&self, target: &Target) -> Result<TcpStream, OpenError> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.attempt(target)).await.unwrap_or(Err(OpenError::TimedOut))
    }
}

/// What a failed attempt means to a client.
fn open_error(error: &io::Error) -> OpenError {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable,
        PermissionDenied, TimedOut,
    };
    match error.kind() {
        ConnectionRefused | ConnectionReset => OpenError::Refused,
        TimedOut => OpenError::TimedOut,
        // No address of ours to send from, as with IPv6 switched off, is no route as well.
        HostUnreachable | NetworkUnreachable | NetworkDown | AddrNotAvailable => OpenError::NoRoute,
        // This machine's own firewall.
        PermissionDenied => OpenError::Forbidden,
        _ if is_out_of_descriptors(error) => OpenError::Limit,
        _ => OpenError::Internal,
    }
}

#[cfg(unix)]
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(not(unix))]
fn is_out_of_descriptors(_: &io::Error) -> bool {
    false
}

#[cfg(test)]
mod tests;
