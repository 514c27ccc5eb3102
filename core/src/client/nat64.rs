//! IPv4 addresses on a network that carries IPv6 only: NAT64 prefixes, found in the answers of its DNS64 (RFC 7050), and the
//! addresses that stand for IPv4 ones behind them (RFC 6052).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The name that has IPv4 addresses only: an IPv6 address of it is made by a DNS64 (RFC 7050, section 2.2).
pub(super) const IPV4_ONLY: &str = "ipv4only.arpa";
/// Its addresses.
const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
/// Lengths that a prefix may have, in bits (RFC 6052, section 2.2), the usual first.
const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];
/// Prefixes kept of one network, the first ones told: its resolver is not trusted, and every one makes addresses to be tried.
const MOST_PREFIXES: usize = 4;
/// The octet that is zero in every such address, whatever the prefix.
const ZERO_OCTET: usize = 8;

/// A NAT64's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    octets: [u8; 16],
    length: u8,
}

impl Prefix {
    /// `64:ff9b::/96` (RFC 6052, section 2.1).
    pub(super) const WELL_KNOWN: Self =
        Self { octets: Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0).octets(), length: 96 };

    /// The address that stands for `address` behind this prefix; `None` where it must not be used: the well-known prefix
    /// leads to global addresses only (RFC 6052, section 3.1).
    pub(super) fn embed(&self, address: Ipv4Addr) -> Option<Ipv6Addr> {
        let local =
            address.is_private() || address.is_loopback() || address.is_link_local() || address.is_unspecified();
        if *self == Self::WELL_KNOWN && local {
            return None;
        }
        let mut octets = self.octets;
        for (at, octet) in self.places().zip(address.octets()) {
            octets[at] = octet;
        }
        Some(octets.into())
    }

    /// Where the IPv4 address's octets lie.
    fn places(&self) -> impl Iterator<Item = usize> {
        (usize::from(self.length / 8)..16).filter(|at| *at != ZERO_OCTET).take(4)
    }
}

/// The prefixes that the addresses of [`IPV4_ONLY`] tell of, each once, [`MOST_PREFIXES`] at most.
pub(super) fn prefixes(answers: &[IpAddr]) -> Vec<Prefix> {
    let mut found = Vec::new();
    for answer in answers {
        if found.len() == MOST_PREFIXES {
            break;
        }
        let IpAddr::V6(answer) = answer else { continue };
        if let Some(prefix) = prefix_of(*answer)
            && !found.contains(&prefix)
        {
            found.push(prefix);
        }
    }
    found
}

fn prefix_of(answer: Ipv6Addr) -> Option<Prefix> {
    let octets = answer.octets();
    LENGTHS.into_iter().find_map(|length| {
        let mut prefix = Prefix { octets, length };
        let mut embedded = [0; 4];
        for (octet, at) in embedded.iter_mut().zip(prefix.places()) {
            *octet = octets[at];
        }
        let zero = length == 96 || octets[ZERO_OCTET] == 0;
        if !zero || !WELL_KNOWN.contains(&embedded.into()) {
            return None;
        }
        prefix.octets[usize::from(length / 8)..].fill(0);
        Some(prefix)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 6052, section 2.4: the example addresses of each length.
    const EXAMPLES: [(&str, u8, &str); 6] = [
        ("2001:db8::", 32, "2001:db8:c000:221::"),
        ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
        ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::", 96, "2001:db8:122:344::c000:221"),
    ];

    fn prefix(text: &str, length: u8) -> Prefix {
        Prefix { octets: text.parse::<Ipv6Addr>().unwrap().octets(), length }
    }

    #[test]
    fn addresses_are_embedded_as_in_the_standard() {
        for (text, length, expected) in EXAMPLES {
            let embedded = prefix(text, length).embed(Ipv4Addr::new(192, 0, 2, 33)).unwrap();
            assert_eq!(embedded, expected.parse::<Ipv6Addr>().unwrap(), "/{length}");
        }
    }

    #[test]
    fn the_prefix_is_found_in_the_answers_of_a_dns64_and_in_no_others() {
        for (text, length, _) in EXAMPLES {
            let prefix = prefix(text, length);
            let answers = WELL_KNOWN.map(|address| IpAddr::V6(prefix.embed(address).unwrap()));
            assert_eq!(prefixes(&answers), [prefix], "/{length}");
        }
        let without = ["192.0.0.170", "2001:db8::1", "::"].map(|text| text.parse().unwrap());
        assert_eq!(prefixes(&without), []);
    }

    #[test]
    fn a_resolver_that_tells_of_many_prefixes_is_believed_a_few() {
        let answer = |number: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0xc000, 0xaa));
        let answers: Vec<_> = (0..2000).map(answer).collect();
        let found = prefixes(&answers);
        assert_eq!(found.len(), MOST_PREFIXES);
        assert_eq!(found[0], prefix("2001:db8::", 96));
    }

    #[test]
    fn the_well_known_prefix_leads_to_no_private_address() {
        assert_eq!(Prefix::WELL_KNOWN.embed(Ipv4Addr::new(192, 168, 0, 1)), None);
        let embedded = Prefix::WELL_KNOWN.embed(Ipv4Addr::new(192, 0, 2, 33)).unwrap();
        assert_eq!(embedded.to_string(), "64:ff9b::c000:221");
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(octets in any::<[u8; 16]>()) {
            let _ = prefixes(&[IpAddr::V6(octets.into())]);
        }
    }
}
