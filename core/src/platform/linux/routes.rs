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
pub(in super::super) fn obstacle(interface: &Interface, remote: IpAddr) -> Option<String> {
    let IpAddr::V4(remote) = remote else { return None };
    let name = &interface.name;
    let read = |of: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter")).ok();
    let filter = [read("all"), read(name)].into_iter().flatten().filter_map(|text| text.trim().parse().ok()).max();
    let routes = fs::read_to_string("/proc/net/route").ok()?;
    let leaves_by = best(&routes, remote);
    (filter == Some(STRICT) && leaves_by != Some(name)).then(|| {
        let other = leaves_by.map_or_else(|| "nowhere".to_owned(), |other| format!("by {other}"));
        format!(
            "the reverse-path filter of {name} is strict and the main route to the relay leaves {other}; \
             net.ipv4.conf.{name}.rp_filter=2 lets them in"
        )
    })
}

/// The interface of the main table's best route: the longest prefix, then the lowest metric.
fn best(routes: &str, remote: Ipv4Addr) -> Option<&str> {
    let parsed = routes.lines().skip(1).filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let hex = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        // Addresses are written as numbers of the machine's byte order.
        let address = |at: usize| Some(Ipv4Addr::from(hex(at)?.to_ne_bytes()));
        let (destination, mask) = (address(1)?, address(7)?);
        let metric: u32 = fields.get(6)?.parse().ok()?;
        let fits = hex(3)? & UP != 0 && remote & mask == destination;
        fits.then(|| (u32::from(mask).count_ones(), std::cmp::Reverse(metric), *fields.first().unwrap_or(&"")))
    });
    parsed.max_by_key(|(length, metric, _)| (*length, *metric)).map(|(.., name)| name)
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
        assert_eq!(best(&table, Ipv4Addr::new(192, 0, 2, 1)), Some("wifi0"));
        assert_eq!(best(&table, Ipv4Addr::new(203, 0, 113, 1)), Some("cell0"));
        assert_eq!(best(HEAD, Ipv4Addr::new(192, 0, 2, 1)), None);
        assert_eq!(best("garbage\nmore garbage\n", Ipv4Addr::new(192, 0, 2, 1)), None);
    }
}
