//! Where everything stands: the client with its networks, the router, the relay and the origin.
//!
//! ```text
//! client namespace            router (this process)            relay namespace        origin namespace
//!   wifi0  192.168.1.2  ──── up/down links, 81.2.3.4 ─┐
//!                                                     ├── NAT ── eth0 45.10.0.2
//!   cell0  192.168.2.2  ──── up/down links, 37.4.5.6 ─┘           lan0 93.50.0.1 ─veth─ eth0 93.50.0.2
//! ```
//!
//! IPv6 beside it: `2a02:1::2` and `2a02:2::2` at the client (where a network has it), `2a01:4f8:1::2` at the relay,
//! `2a03:2880::2` at the origin. The relay's namespace routes between router and origin, so that plain TCP can be compared
//! with the product over the same links; it uses CUBIC.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::Ipv4Net;
use tandem_netem::{Bitrate, LinkConfig};
use tandem_proto::mode::Sides;
use tempfile::TempDir;

use super::dns::Names;
use super::netns::{self, Namespace};
use super::router::{Access, Behaviour, CopyCounts, Internet, Network, Router};
use super::tap::Tap;
use crate::PathLinks;

/// The relay's address.
pub const RELAY: Ipv4Addr = Ipv4Addr::new(45, 10, 0, 2);
/// Another address of the relay's machine.
pub const RELAY_SECOND: Ipv4Addr = Ipv4Addr::new(45, 10, 0, 3);
/// The relay's address of IPv6.
pub const RELAY_V6: Ipv6Addr = Ipv6Addr::new(0x2a01, 0x4f8, 1, 0, 0, 0, 0, 2);
/// The origin's address.
pub const ORIGIN: Ipv4Addr = Ipv4Addr::new(93, 50, 0, 2);
/// The login page's address, on the origin's machine.
pub const PORTAL: Ipv4Addr = Ipv4Addr::new(93, 50, 0, 80);
/// A name of the relay that has only its IPv4 address.
pub const RELAY_NAME_V4: &str = "relay4.example.com";
/// A name of the relay that has both addresses.
pub const RELAY_NAME: &str = "relay.example.com";

/// The number of the network that is like Wi-Fi.
pub const WIFI: usize = 0;
/// The number of the network that is like a cellular one.
pub const CELL: usize = 1;

/// How the client's host is set up for a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSide {
    /// The interface's name.
    pub interface: &'static str,
    /// The IPv4 address with its subnet; `None`: none.
    pub v4: Option<Ipv4Net>,
    /// The IPv6 address, in a subnet of 64 bits; `None`: none.
    pub v6: Option<Ipv6Addr>,
    /// Where the default route stands.
    pub default_route: DefaultRoute,
}

/// Where an interface's default route stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultRoute {
    /// In the main table, with this metric.
    Main(u32),
    /// In a table of this number that only packets from the interface's address use.
    Policy(u32),
    /// Nowhere: the interface reaches its own subnet alone.
    None,
}

impl HostSide {
    /// The lines of `ip` that bring the interface up.
    fn up(&self, behaviour: &Behaviour) -> String {
        let Self { interface, default_route, .. } = self;
        let mut lines = vec![format!("link set {interface} up")];
        let route = match default_route {
            DefaultRoute::Main(metric) => Some(format!("dev {interface} metric {metric}")),
            DefaultRoute::Policy(table) => Some(format!("dev {interface} table {table}")),
            DefaultRoute::None => None,
        };
        if let Some((v4, gateway)) = self.v4.zip(behaviour.gateway_v4()) {
            lines.push(format!("addr replace {v4} dev {interface}"));
            lines.extend(route.iter().map(|route| format!("route replace default via {gateway} {route}")));
        }
        if let Some((v6, gateway)) = self.v6.zip(behaviour.gateway_v6()) {
            lines.push(format!("addr replace {v6}/64 dev {interface} nodad"));
            lines.extend(route.iter().map(|route| format!("-6 route replace default via {gateway} {route}")));
        }
        lines.join("\n")
    }

    /// The lines that make packets from the interface's addresses use its own table.
    fn rules(&self) -> String {
        let DefaultRoute::Policy(table) = self.default_route else { return String::new() };
        let v4 = self.v4.map(|v4| format!("rule add from {} lookup {table}\n", v4.addr())).unwrap_or_default();
        let v6 = self.v6.map(|v6| format!("-6 rule add from {v6} lookup {table}\n")).unwrap_or_default();
        v4 + &v6
    }
}

/// One network of a bed.
#[derive(Debug, Clone)]
pub struct Line {
    /// The client's end.
    pub host: HostSide,
    /// What the network does.
    pub behaviour: Behaviour,
    /// The link from the client.
    pub up: LinkConfig,
    /// The link to the client.
    pub down: LinkConfig,
}

impl Line {
    /// Wi-Fi's addresses, around these links.
    pub fn wifi(up: LinkConfig, down: LinkConfig) -> Self {
        Self::plain("wifi0", 1, Ipv4Addr::new(81, 2, 3, 4), up, down)
    }

    /// The cellular network's addresses, around these links.
    pub fn cell(up: LinkConfig, down: LinkConfig) -> Self {
        Self::plain("cell0", 2, Ipv4Addr::new(37, 4, 5, 6), up, down)
    }

    fn plain(interface: &'static str, number: u8, public: Ipv4Addr, up: LinkConfig, down: LinkConfig) -> Self {
        let address = Ipv4Net::new_assert(Ipv4Addr::new(192, 168, number, 2), 24);
        let default_route = DefaultRoute::Main(u32::from(number) * 100);
        let host = HostSide { interface, v4: Some(address), v6: None, default_route };
        Self { host, behaviour: Behaviour::plain(address.trunc(), public), up, down }
    }

    /// The network with IPv6 too.
    #[must_use]
    pub fn with_v6(mut self) -> Self {
        let number = if self.host.interface == "wifi0" { 1 } else { 2 };
        let address = Ipv6Addr::new(0x2a02, number, 0, 0, 0, 0, 0, 2);
        self.host.v6 = Some(address);
        self.behaviour.v6 = Some(ipnet::Ipv6Net::new_assert(address, 64).trunc());
        self
    }
}

/// A bed as data.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The client's networks: Wi-Fi, then cellular.
    pub lines: Vec<Line>,
    /// Where the programs' logs are kept; `None`: in the bed's folder, which goes with it.
    pub logs: Option<PathBuf>,
}

impl Plan {
    /// The cases' standard bed; see [`PathLinks::standard`].
    pub fn standard(seed: u64) -> Self {
        Self::over(PathLinks::standard(), seed)
    }

    /// The paper's bed: twice 100 Mbit/s, 10 ms and a queue of one bandwidth-delay product; `loss` before the queue, both
    /// ways.
    pub fn paper(loss: f64, seed: u64) -> Self {
        let path = PathLinks::symmetric(Bitrate::from_mbit(100), Duration::from_millis(10), loss);
        Self::over([path.clone(), path], seed)
    }

    /// Wi-Fi over the first of these paths, cellular over the second, packets of up to 1,500 bytes on both.
    pub(crate) fn over([wifi, cell]: [PathLinks; 2], seed: u64) -> Self {
        let seeds = seed.wrapping_mul(4);
        let link = |link: LinkConfig, number| LinkConfig { mtu: Some(1_500), seed: seeds + number, ..link };
        let lines =
            vec![Line::wifi(link(wifi.up, 0), link(wifi.down, 1)), Line::cell(link(cell.up, 2), link(cell.down, 3))];
        Self { lines, logs: None }
    }

    /// Both interfaces in Wi-Fi's subnet, behind one address.
    #[must_use]
    pub fn in_one_subnet(mut self) -> Self {
        let wifi = self.lines[WIFI].behaviour.clone();
        let cell = &mut self.lines[CELL];
        cell.host.v4 = Some(Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 1, 3), 24));
        cell.behaviour = wifi;
        self
    }

    /// The same with no delay, rate or loss: for what the machine can do.
    pub fn perfect() -> Self {
        let perfect = LinkConfig::default;
        Self { lines: vec![Line::wifi(perfect(), perfect()), Line::cell(perfect(), perfect())], logs: None }
    }
}

/// A standing bed; all of it is gone when it is dropped.
#[derive(Debug)]
pub struct Bed {
    // In the order in which they are to go.
    router: Router,
    client: Arc<Namespace>,
    relay: Arc<Namespace>,
    origin: Arc<Namespace>,
    folder: TempDir,
    logs: PathBuf,
    hosts: Vec<HostSide>,
}

impl Bed {
    /// What this machine lacks for a bed; `None` if nothing.
    pub fn lacks() -> Option<String> {
        // SAFETY: reads nothing.
        if unsafe { libc::geteuid() } != 0 {
            return Some("root, for namespaces and devices of its own".to_owned());
        }
        // Root of a container may have lost them.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(capability) = missing_capability(&status) {
            return Some(format!("{capability}, which root has outside of containers"));
        }
        if !Path::new("/dev/net/tun").exists() {
            return Some("/dev/net/tun".to_owned());
        }
        match std::process::Command::new("ip").arg("-V").output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("iproute2's ip (what is called so says {})", output.status)),
            Err(error) => Some(format!("iproute2's ip ({error})")),
        }
    }

    /// Builds a bed, and removes what killed runs have left.
    ///
    /// # Errors
    /// When the machine lacks something or the kernel refuses.
    pub fn build(plan: &Plan) -> Result<Self> {
        if let Some(lack) = Self::lacks() {
            anyhow::bail!("this machine lacks {lack}");
        }
        netns::remove_leftovers();
        let number = netns::next_bed();
        let namespace = |role| Namespace::create(number, role).map(Arc::new);
        let (client, relay, origin) = (namespace("client")?, namespace("relay")?, namespace("origin")?);
        for namespace in [&client, &relay, &origin] {
            set_up_kernel(namespace)?;
        }
        let accesses = plan.lines.iter().map(|line| access(&client, line)).collect::<Result<Vec<_>>>()?;
        let internet = internet(&relay)?;
        join_origin(&relay, &origin)?;
        let router = Router::start(accesses, internet, names())?;
        let hosts = plan.lines.iter().map(|line| line.host.clone()).collect();
        let folder = TempDir::new().context("making a folder")?;
        let logs = plan.logs.clone().unwrap_or_else(|| folder.path().to_owned());
        std::fs::create_dir_all(&logs).context("making the folder of the logs")?;
        let bed = Self { router, client, relay, origin, folder, logs, hosts };
        for line in &plan.lines {
            bed.client.ip(&line.host.up(&line.behaviour))?;
            bed.client.ip(&line.host.rules())?;
        }
        bed.set_resolvers(plan)?;
        Ok(bed)
    }

    /// One of the client's networks.
    pub fn network(&self, index: usize) -> Network {
        self.router.network(index)
    }

    /// Lets plain TCP bicast: packets of these sides travel over every network, and the first copy of each goes on; `None`:
    /// none do.
    pub fn copy_tcp(&self, sides: Option<Sides>) {
        self.router.copy_tcp(sides);
    }

    /// What has become of packets that were copied so.
    pub fn copy_counts(&self) -> CopyCounts {
        self.router.copy_counts()
    }

    /// Processor time that the router has used.
    pub fn router_processor(&self) -> Duration {
        self.router.processor()
    }

    /// The client's namespace.
    pub fn client(&self) -> &Arc<Namespace> {
        &self.client
    }

    /// The relay's namespace.
    pub fn relay(&self) -> &Arc<Namespace> {
        &self.relay
    }

    /// The origin's namespace.
    pub fn origin(&self) -> &Arc<Namespace> {
        &self.origin
    }

    /// Where the product's files of this bed lie.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the programs' logs lie.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// The interface's name at the client.
    pub fn interface(&self, index: usize) -> &'static str {
        self.hosts[index].interface
    }

    /// The client's IPv4 address on a network.
    pub fn host_v4(&self, index: usize) -> Option<Ipv4Addr> {
        self.hosts[index].v4.map(|v4| v4.addr())
    }

    /// Switches an interface off.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn interface_down(&self, index: usize) -> Result<()> {
        self.client.ip(&format!("link set {} down", self.hosts[index].interface))
    }

    /// Switches it on, with address and routes, as the system's network manager would.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn interface_up(&self, index: usize) -> Result<()> {
        let mut behaviour = None;
        self.network(index).change(|now| behaviour = Some(now.clone()));
        self.client.ip(&self.hosts[index].up(&behaviour.context("a network has a behaviour")?))
    }

    /// Gives an interface another IPv4 address, perhaps in another subnet, and the network with it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn move_interface(&mut self, index: usize, to: Ipv4Net) -> Result<()> {
        let host = &mut self.hosts[index];
        let from = host.v4.replace(to);
        ensure!(from.is_some(), "{} has no IPv4 address to change", host.interface);
        self.router.network(index).change(|behaviour| behaviour.v4 = Some(to.trunc()));
        self.client.ip(&format!("addr flush dev {} scope global", self.hosts[index].interface))?;
        self.interface_up(index)
    }

    /// Changes what a name stands for.
    pub fn set_name(&self, name: &str, addresses: Vec<IpAddr>) {
        self.router.change_names(|names| {
            names.insert(name.to_owned(), addresses);
        });
    }

    /// Each network's gateway is a name server.
    fn set_resolvers(&self, plan: &Plan) -> Result<()> {
        let gateways = plan.lines.iter().flat_map(|line| {
            let v4 = line.host.v4.and(line.behaviour.gateway_v4()).map(IpAddr::V4);
            [v4, line.host.v6.and(line.behaviour.gateway_v6()).map(IpAddr::V6)]
        });
        let lines: String = gateways.flatten().map(|gateway| format!("nameserver {gateway}\n")).collect();
        self.client.etc("resolv.conf", &(lines + "options timeout:1 attempts:2\n"))
    }
}

/// The first of a bed's capabilities that the process with that `/proc/PID/status` lacks.
fn missing_capability(status: &str) -> Option<&'static str> {
    // Their numbers in the effective set (capabilities(7)).
    const NEEDED: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    NEEDED.into_iter().find(|(number, _)| effective >> number & 1 == 0).map(|(_, name)| name)
}

fn set_up_kernel(namespace: &Namespace) -> Result<()> {
    for (name, value) in [
        // The machine's own may be anything. CUBIC is not allowed to every namespace; who compares chooses it by socket.
        ("net.ipv4.tcp_congestion_control", "reno"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv6.conf.all.accept_ra", "0"),
        ("net.ipv6.conf.default.accept_ra", "0"),
        ("net.ipv6.conf.default.accept_dad", "0"),
    ] {
        namespace.sysctl(name, value)?;
    }
    Ok(())
}

fn access(client: &Namespace, line: &Line) -> Result<Access> {
    let interface = line.host.interface;
    let tap = Tap::create(client, interface)?;
    let host = mac(if interface == "wifi0" { 0x11 } else { 0x12 });
    client.ip(&format!("link set {interface} address {}", written(host)))?;
    Access::new(tap, host, line.behaviour.clone(), line.up.clone(), line.down.clone())
        .with_context(|| format!("the network of {interface}"))
}

fn internet(relay: &Namespace) -> Result<Internet> {
    let tap = Tap::create(relay, "eth0")?;
    let host = mac(0x21);
    relay.ip(&format!(
        "link set eth0 address {}\n\
         link set eth0 up\n\
         addr add {RELAY}/24 dev eth0\n\
         addr add {RELAY_SECOND}/24 dev eth0\n\
         addr add {RELAY_V6}/64 dev eth0 nodad\n\
         route add default via 45.10.0.1 dev eth0\n\
         -6 route add default via 2a01:4f8:1::1 dev eth0",
        written(host)
    ))?;
    relay.sysctl("net.ipv4.ip_forward", "1")?;
    relay.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    let gateways = [Ipv4Addr::new(45, 10, 0, 1).into(), Ipv6Addr::new(0x2a01, 0x4f8, 1, 0, 0, 0, 0, 1).into()];
    Ok(Internet { tap, host, gateways })
}

fn join_origin(relay: &Namespace, origin: &Namespace) -> Result<()> {
    relay.ip(&format!(
        "link add lan0 type veth peer name eth0 netns {}\n\
         link set lan0 up\n\
         addr add 93.50.0.1/24 dev lan0\n\
         addr add 2a03:2880::1/64 dev lan0 nodad",
        origin.name()
    ))?;
    origin.ip(&format!(
        "link set eth0 up\n\
         addr add {ORIGIN}/24 dev eth0\n\
         addr add {PORTAL}/24 dev eth0\n\
         addr add 2a03:2880::2/64 dev eth0 nodad\n\
         route add default via 93.50.0.1\n\
         -6 route add default via 2a03:2880::1"
    ))
}

fn names() -> Names {
    Names::from([
        (RELAY_NAME.to_owned(), vec![RELAY_V6.into(), RELAY.into()]),
        (RELAY_NAME_V4.to_owned(), vec![RELAY.into()]),
    ])
}

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

fn written(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_keeps_capabilities_from_its_root_is_noticed() {
        let missing = |effective: &str| missing_capability(&format!("Name:\tcat\nCapEff:\t{effective}\nSeccomp:\t0\n"));
        assert_eq!(missing("000001ffffffffff"), None);
        // What docker leaves, without and with --cap-add NET_ADMIN.
        assert_eq!(missing("00000000a80425fb"), Some("CAP_NET_ADMIN"));
        assert_eq!(missing("00000000a80435fb"), Some("CAP_SYS_ADMIN"));
        assert_eq!(missing_capability(""), None);
    }
}
