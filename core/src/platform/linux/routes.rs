//! What could keep answers from an interface: the strict reverse-path filter, which drops what arrives where nothing to its
//! sender would leave (ip-sysctl: `rp_filter`).

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use super::super::super::Interface;

/// Flag of a usable route in `/proc/net/route`: `RTF_UP`.
const UP: u32 = 1;
/// The value of `rp_filter` for the strict filter.
const STRICT: u8 = 1;

/// A reason in words why answers of `remote` may not come in by the interface; `None` if there is none that is known here.
/// Rules and other tables than the main one are not looked at: they may make good what is said.
pub(in super::super) fn obstacle(interface: &Interface, remote: IpAddr) -> Option<String> {
    let IpAddr::V4(remote) = remote else { return None };
    let name = &interface.name;
    let table = fs::read_to_string("/proc/net/route").ok()?;
    let mut routes: Vec<_> = table.lines().skip(1).filter_map(|line| route_to(line, remote)).collect();
    routes.sort();
    if !routes.iter().any(|route| route.interface == name) {
        return Some(format!("no route of the main table leads there by {name}"));
    }
    let read = |of: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter")).ok();
    let filter = [read("all"), read(name)].into_iter().flatten().filter_map(|text| text.trim().parse().ok()).max();
    let best = routes.first().filter(|route| filter == Some(STRICT) && route.interface != name)?;
    Some(format!(
        "the reverse-path filter of {name} is strict and the main route to the relay leaves by {}; \
         net.ipv4.conf.{name}.rp_filter=2 lets answers in",
        best.interface
    ))
}

/// A route to a remote, the better the less.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Route<'a> {
    /// The longest prefix comes first.
    bits_missing: u32,
    metric: u32,
    interface: &'a str,
}

/// Reads a line of `/proc/net/route`; `None` if it does not lead to the remote.
fn route_to(line: &str, remote: Ipv4Addr) -> Option<Route<'_>> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let hex = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    // Addresses are written as numbers of the machine's byte order.
    let address = |at: usize| Some(Ipv4Addr::from(hex(at)?.to_ne_bytes()));
    let (destination, mask) = (address(1)?, address(7)?);
    let fits = hex(3)? & UP != 0 && remote & mask == destination;
    let bits_missing = u32::from(mask).count_zeros();
    fits.then_some(Route { bits_missing, metric: fields.get(6)?.parse().ok()?, interface: fields.first()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";

    /// A route as the kernel writes it.
    fn route(name: &str, destination: [u8; 4], mask: [u8; 4], metric: u32) -> String {
        let number = |octets: [u8; 4]| u32::from_ne_bytes(octets);
        format!("{name}\t{:08X}\t00000000\t0001\t0\t0\t{metric}\t{:08X}\t0\t0\t0\n", number(destination), number(mask))
    }

    /// MULTI-7
    #[test]
    fn the_longest_prefix_and_then_the_lowest_metric_decide_by_which_interface_the_way_back_leads() {
        let table = [
            HEAD.to_owned(),
            route("cell0", [0; 4], [0; 4], 600),
            route("wifi0", [0; 4], [0; 4], 100),
            route("cell0", [203, 0, 113, 0], [255, 255, 255, 0], 600),
        ]
        .concat();
        let best = |table: &str, remote: [u8; 4]| {
            let route = table.lines().skip(1).filter_map(|line| route_to(line, remote.into())).min()?;
            Some(route.interface.to_owned())
        };
        assert_eq!(best(&table, [192, 0, 2, 1]).as_deref(), Some("wifi0"));
        assert_eq!(best(&table, [203, 0, 113, 1]).as_deref(), Some("cell0"));
        assert_eq!(best(HEAD, [192, 0, 2, 1]), None);
        assert_eq!(best("garbage\nmore garbage\n", [192, 0, 2, 1]), None);
    }
}
