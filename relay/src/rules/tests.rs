//! Tests of the access rules.

use proptest::prelude::*;

use super::*;

fn own() -> BTreeSet<IpAddr> {
    ["8.8.4.4", "2600::7"].map(|text| text.parse().unwrap()).into()
}

fn check(text: &str) -> Result<(), Forbidden> {
    AccessRules::default().check(text.parse().unwrap(), &own())
}

/// SEC-1
#[test]
fn addresses_that_are_not_for_everyone_are_refused() {
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.168.1.1",
        "198.19.0.1",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::8.8.8.8",
        "fe80::1",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "100::1",
        "64:ff9b:1::10.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "2001:db8::1",
        "3fff::1",
        "5f00::1",
        "4000::1",
    ] {
        assert!(check(address).is_err(), "{address}");
    }
}

/// SEC-1
#[test]
fn the_relays_own_addresses_are_refused_in_every_form() {
    for address in ["8.8.4.4", "::ffff:8.8.4.4", "64:ff9b::8.8.4.4", "2002:808:404::1", "2600::7"] {
        assert_eq!(check(address), Err(Forbidden("the relay's own")), "{address}");
    }
}

#[test]
fn global_addresses_pass() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "2001:200::1",
        "2606:4700::1111",
        "2a00:1450::1",
    ] {
        assert_eq!(check(address), Ok(()), "{address}");
    }
}

#[test]
fn what_the_operator_allows_passes_and_nothing_beside_it() {
    let rules = AccessRules::new(vec!["127.0.0.0/8".parse().unwrap(), "fd00:1::/32".parse().unwrap()]);
    let check = |text: &str| rules.check(text.parse().unwrap(), &own());
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "fd00:1::5", "9.9.9.9"] {
        assert_eq!(check(address), Ok(()), "{address}");
    }
    for address in ["::1", "64:ff9b::127.0.0.1", "10.0.0.1", "fd00:2::5"] {
        assert!(check(address).is_err(), "{address}");
    }
    let rules = AccessRules::new(vec!["8.8.4.4/32".parse().unwrap()]);
    assert_eq!(rules.check("8.8.4.4".parse().unwrap(), &own()), Ok(()));
}

fn forms(address: Ipv4Addr) -> [Ipv6Addr; 5] {
    let [a, b, c, d] = address.octets().map(u16::from);
    let (high, low) = (a << 8 | b, c << 8 | d);
    [
        address.to_ipv6_mapped(),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0, high, low, 0, 0, !high, !low),
    ]
}

proptest! {
    /// SEC-1
    #[test]
    fn no_form_of_a_refused_ipv4_address_passes(
        (network, host) in (prop::sample::select(REFUSED_V4), any::<u32>()),
    ) {
        let (net, _) = network;
        let address = Ipv4Addr::from(u32::from(net.addr()) | (host & u32::from(net.hostmask())));
        let rules = AccessRules::default();
        prop_assert!(rules.check(address.into(), &own()).is_err());
        for form in forms(address) {
            prop_assert!(rules.check(form.into(), &own()).is_err(), "{}", form);
        }
    }

    #[test]
    fn the_standard_librarys_notion_of_special_addresses_never_passes(octets in any::<[u8; 4]>()) {
        let address = Ipv4Addr::from(octets);
        let special = address.is_private() || address.is_loopback() || address.is_link_local() || address.is_multicast()
            || address.is_broadcast() || address.is_documentation() || address.is_unspecified();
        let passes = AccessRules::default().check(address.into(), &own()).is_ok();
        prop_assert!(!(special && passes));
    }

    #[test]
    fn only_global_unicast_and_translated_ipv6_addresses_pass(octets in any::<[u8; 16]>()) {
        let address = Ipv6Addr::from(octets);
        let global = address.segments()[0] >> 13 == 1;
        let passes = AccessRules::default().check(address.into(), &own()).is_ok();
        prop_assert!(global || !passes);
    }
}
