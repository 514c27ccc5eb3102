//! Which addresses the relay connects to for its clients.
//!
//! A relay stands inside somebody's network: a client must not reach through it what only its neighbours may reach (loopback,
//! private networks, a cloud's metadata service) nor the relay itself. So an address passes only if it is unicast and global by the
//! IANA special-purpose registries (RFC 6890 and its updates) and not one of the relay's own, or if the operator allowed it.
//! An IPv6 address that carries an IPv4 one through a translator or tunnel is judged by that one.
//!
//! Pure: the relay's own addresses are passed in, names are resolved before.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The operator's and the built-in rules.
#[derive(Debug, Clone, Default)]
pub struct AccessRules {
    allowed: Vec<IpNet>,
}

/// Why an address is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the address is {0}")]
pub struct Forbidden(&'static str);

/// IPv4 networks that are not global unicast, with what they are.
const REFUSED_V4: &[(Ipv4Net, &str)] = &[
    (v4([0, 0, 0, 0], 8), "of this network (0.0.0.0/8)"),
    (v4([10, 0, 0, 0], 8), "private"),
    (v4([100, 64, 0, 0], 10), "behind a carrier's NAT"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([168, 63, 129, 16], 32), "a cloud's metadata service"),
    (v4([169, 254, 0, 0], 16), "link-local"),
    (v4([172, 16, 0, 0], 12), "private"),
    (v4([192, 0, 0, 0], 24), "reserved for protocols"),
    (v4([192, 0, 2, 0], 24), "for documentation"),
    (v4([192, 88, 99, 0], 24), "of the former 6to4 relays"),
    (v4([192, 168, 0, 0], 16), "private"),
    (v4([198, 18, 0, 0], 15), "for benchmarks"),
    (v4([198, 51, 100, 0], 24), "for documentation"),
    (v4([203, 0, 113, 0], 24), "for documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([240, 0, 0, 0], 4), "reserved or broadcast"),
];

/// IPv6 global unicast; all else is refused, but for [`NAT64`].
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0, 0], 3);
/// Parts of [`GLOBAL_V6`] that are not for everyone.
const REFUSED_V6: &[(Ipv6Net, &str)] = &[
    // Teredo (2001::/32), which carries two IPv4 addresses, is a part of this.
    (v6([0x2001, 0, 0, 0], 23), "reserved for protocols, Teredo included"),
    (v6([0x2001, 0xdb8, 0, 0], 32), "for documentation"),
    (v6([0x3fff, 0, 0, 0], 20), "for documentation"),
];
/// RFC 6052's prefix for translators: the last 32 bits are the IPv4 address.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0], 96);
/// RFC 3056: bits 16 to 47 are the IPv4 address.
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0, 0], 16);

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b, c, d]: [u16; 4], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

impl AccessRules {
    /// The built-in rules with exceptions: addresses in `allowed` pass whatever they are.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }

    /// Whether the relay may connect to `address`, given the addresses that are its `own`.
    ///
    /// # Errors
    /// [`Forbidden`] with the reason in words.
    pub fn check(&self, address: IpAddr, own: &BTreeSet<IpAddr>) -> Result<(), Forbidden> {
        // An IPv4-mapped address is the IPv4 address to the kernel, so it is to the rules.
        let address = address.to_canonical();
        if self.allowed.iter().any(|net| net.contains(&address)) {
            return Ok(());
        }
        check_global(address, own)
    }
}

fn check_global(address: IpAddr, own: &BTreeSet<IpAddr>) -> Result<(), Forbidden> {
    if own.contains(&address) {
        return Err(Forbidden("the relay's own"));
    }
    match address {
        IpAddr::V4(address) => match REFUSED_V4.iter().find(|(net, _)| net.contains(&address)) {
            Some((_, what)) => Err(Forbidden(what)),
            None => Ok(()),
        },
        IpAddr::V6(address) => {
            if let Some(carried) = carried_v4(address) {
                return check_global(carried.into(), own);
            }
            if !GLOBAL_V6.contains(&address) {
                return Err(Forbidden(name_of(address)));
            }
            match REFUSED_V6.iter().find(|(net, _)| net.contains(&address)) {
                Some((_, what)) => Err(Forbidden(what)),
                None => Ok(()),
            }
        }
    }
}

/// The IPv4 address to which a translator or tunnel would bring packets for `address`.
fn carried_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    let at = match address {
        _ if NAT64.contains(&address) => 12,
        _ if SIX_TO_FOUR.contains(&address) => 2,
        _ => return None,
    };
    Some(Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]))
}

/// What an address outside of global unicast is, for logs.
fn name_of(address: Ipv6Addr) -> &'static str {
    if address.is_loopback() {
        "loopback"
    } else if address.is_unicast_link_local() {
        "link-local"
    } else if address.is_unique_local() {
        "unique-local"
    } else if address.is_multicast() {
        "multicast"
    } else {
        "not global"
    }
}

#[cfg(test)]
mod tests;
