//! Control stream and flow headers: what the two ends say to each other on QUIC streams.
//!
//! Section numbers refer to `docs/PROTOCOL.md`.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Where a flow is to go: a name that the relay resolves, or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Name or address.
    pub host: Host,
    /// TCP or UDP port, 1 to 65,535.
    pub port: u16,
}

/// The host of a [`Target`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name of 1 to 255 bytes, resolved by the relay.
    Name(String),
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Ip(IpAddr::V4(ip)) => write!(f, "{ip}:{}", self.port),
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
        }
    }
}

/// Why the relay did not connect a flow; each inbound turns it into its own reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum OpenError {
    /// The target refused the connection.
    #[error("the target refused the connection")]
    Refused,
    /// The relay has no route to the target.
    #[error("the relay has no route to the target")]
    NoRoute,
    /// The name does not resolve.
    #[error("the target's name was not found")]
    NameNotFound,
    /// The target did not answer in time.
    #[error("the target did not answer in time")]
    TimedOut,
    /// The relay's access rules forbid the target.
    #[error("the relay's rules forbid the target")]
    Forbidden,
    /// A limit of the relay is reached.
    #[error("a limit of the relay is reached")]
    Limit,
    /// Anything else: the relay's own failure, or a request that it does not understand.
    #[error("the relay could not serve the request")]
    Internal,
}
