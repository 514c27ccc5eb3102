//! Reads which name servers belong to which interface off what macOS's `scutil --dns` prints.
//!
//! ```text
//! DNS configuration (for scoped queries)
//!
//! resolver #1
//!   search domain[0] : home
//!   nameserver[0] : 192.168.1.1
//!   nameserver[1] : fe80::1%en0
//!   if_index : 6 (en0)
//!   flags    : Scoped, Request A records
//! ```
//!
//! Resolvers above that heading serve the whole system or single domains, and some name an interface as well: only the
//! scoped ones are a network's own.

use std::net::IpAddr;

/// Name servers taken of one network at most.
const MOST: usize = 4;

/// The name servers of the interface with this index, in the system's order.
pub(super) fn of(printed: &str, index: u32) -> Vec<IpAddr> {
    let Some((_, scoped)) = printed.split_once("(for scoped queries)") else { return Vec::new() };
    let mut found = Vec::new();
    for resolver in scoped.split("\nresolver #").skip(1) {
        let fields = || resolver.lines().filter_map(|line| line.split_once(" : "));
        let value = |wanted: &str| fields().find(|(key, _)| key.trim() == wanted).map(|(_, value)| value.trim());
        let scope = value("if_index").and_then(|scope| scope.split(' ').next()).and_then(|number| number.parse().ok());
        if scope != Some(index) {
            continue;
        }
        let servers = fields().filter(|(key, _)| key.trim().starts_with("nameserver["));
        // A link-local address carries its interface (`fe80::1%en0`) and is not reached by a plain one.
        found.extend(servers.filter_map(|(_, server)| server.trim().parse::<IpAddr>().ok()));
    }
    found.dedup();
    found.truncate(MOST);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "DNS configuration\n\nresolver #1\n  search domain[0] : home\n  nameserver[0] : 192.168.1.1\n  \
        if_index : 6 (en0)\n  flags    : Request A records, Request AAAA records\n  reach    : 0x00020002 (Reachable)\n\n\
        resolver #2\n  domain   : local\n  options  : mdns\n  timeout  : 5\n\n\
        DNS configuration (for scoped queries)\n\nresolver #1\n  search domain[0] : home\n  nameserver[0] : 192.168.1.1\n  \
        nameserver[1] : fe80::1%en0\n  nameserver[2] : 2001:db8::53\n  if_index : 6 (en0)\n  flags    : Scoped\n\n\
        resolver #2\n  nameserver[0] : 172.20.10.1\n  if_index : 16 (en8)\n  flags    : Scoped\n  reach    : 0x2\n";

    #[test]
    fn each_interface_has_its_own_name_servers() {
        let servers = |index| of(PRINTED, index).iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(servers(6), ["192.168.1.1", "2001:db8::53"]);
        assert_eq!(servers(16), ["172.20.10.1"]);
        assert_eq!(servers(1), [] as [&str; 0]);
    }

    #[test]
    fn what_is_not_like_that_names_nobody() {
        for printed in ["", "No DNS configuration available", "(for scoped queries)\nresolver #1\n  if_index : x\n"] {
            assert!(of(printed, 6).is_empty(), "{printed:?}");
        }
    }
}
