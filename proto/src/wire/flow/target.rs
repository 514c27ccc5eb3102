//! Where a flow is to go, and how people write it: `example.org:443`, `192.0.2.1:80`, `[2001:db8::1]:80`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// The longest name of a target, in bytes: what DNS allows for a name as text.
pub const MAX_NAME: usize = 255;

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
    /// A DNS name of 1 to [`MAX_NAME`] bytes of printable ASCII (international names in their `xn--` form), resolved by
    /// the relay. [`Host::from_str`] checks this.
    Name(String),
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
}

/// Why a text is not a host or a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The host is neither an address nor a possible name.
    #[error("host {0:?} is not an address or a name of 1 to 255 printable ASCII characters")]
    Host(String),
    /// No port, or one out of range.
    #[error("port of {0:?} is missing or wrong: write HOST:PORT with a port from 1 to 65535")]
    Port(String),
    /// An IPv6 address without brackets cannot be told from its port.
    #[error("IPv6 address of {0:?} needs brackets: [ADDRESS]:PORT")]
    Brackets(String),
}

impl Host {
    /// Whether a name can be asked of DNS and shown on a terminal at all; what it resolves to is the relay's affair.
    pub(super) fn is_possible_name(name: &[u8]) -> bool {
        // A colon or bracket would make the text of a target ambiguous.
        (1..=MAX_NAME).contains(&name.len()) && name.iter().all(|b| b.is_ascii_graphic() && !b"[]:/@,".contains(b))
    }
}

impl FromStr for Host {
    type Err = TargetError;

    /// Reads a name or an address; an IPv6 address may stand in brackets.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let ip: Ipv6Addr = inner.parse().map_err(|_| TargetError::Host(text.to_owned()))?;
            return Ok(Host::Ip(ip.into()));
        }
        if let Ok(ip) = text.parse() {
            return Ok(Host::Ip(ip));
        }
        if Host::is_possible_name(text.as_bytes()) {
            return Ok(Host::Name(text.to_owned()));
        }
        Err(TargetError::Host(text.to_owned()))
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text.rsplit_once(':').ok_or_else(|| TargetError::Port(text.to_owned()))?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(TargetError::Brackets(text.to_owned()));
        }
        let digits_only = port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|port| *port != 0 && digits_only);
        let port = port.ok_or_else(|| TargetError::Port(text.to_owned()))?;
        Ok(Target { host: host.parse()?, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_reads_back_from_its_own_text() {
        for text in ["example.org:443", "192.0.2.1:80", "[2001:db8::1]:65535", "under_score.example:1"] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_wrong_target_is_refused_with_the_part_that_is_wrong() {
        let error = |text: &str| text.parse::<Target>().unwrap_err();
        for text in ["example.org", "example.org:", "example.org:0", "example.org:+80", "example.org:65536"] {
            assert!(matches!(error(text), TargetError::Port(_)), "{text}");
        }
        for text in [":80", "a b:80", "[::1:80", "[192.0.2.1]:80", "bücher.example:80", "user@host:80"] {
            assert!(matches!(error(text), TargetError::Host(_)), "{text}");
        }
        assert!(matches!(error("2001:db8::1:80"), TargetError::Brackets(_)));
        assert!(matches!(error(&format!("{}:80", "a".repeat(256))), TargetError::Host(_)));
    }
}
