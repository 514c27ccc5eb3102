//! The name servers of one network, as it told this machine when it was joined: they are right where the system's own list leads
//! elsewhere, as into a tunnel.
//!
//! NetworkManager is asked over D-Bus; systemd-networkd's and dhclient's leases are files. systemd-resolved, which knows them
//! too, is asked for names themselves ([`super::resolver`]).

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;
use zbus::Connection;
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Value};

use super::super::super::Interface;

/// How long NetworkManager may take.
const DBUS_LIMIT: Duration = Duration::from_secs(1);
const NETWORK_MANAGER: &str = "org.freedesktop.NetworkManager";
/// systemd-networkd's files, one for each interface's number.
const NETWORKD: [&str; 2] = ["/run/systemd/netif/leases", "/run/systemd/netif/links"];
/// Where dhclient's leases are, by system.
const DHCLIENT: [&str; 3] = ["/var/lib/dhcp", "/var/lib/dhclient", "/var/lib/NetworkManager"];
/// A longer file is no lease, in bytes.
const LONGEST: u64 = 1024 * 1024;

/// The name servers that the interface's network named, in its order.
pub(super) async fn of(interface: &Interface) -> Vec<IpAddr> {
    let mut servers = Vec::new();
    // A system without D-Bus, or without NetworkManager, is nothing special.
    if let Ok(Ok(bus)) = timeout(DBUS_LIMIT, Connection::system()).await
        && let Ok(Ok(told)) = timeout(DBUS_LIMIT, network_manager(&bus, &interface.name)).await
    {
        servers.extend(told);
    }
    for directory in NETWORKD {
        let text = read(&Path::new(directory).join(interface.index.to_string()));
        servers.extend(text.iter().flat_map(|text| networkd(text)));
    }
    for directory in DHCLIENT {
        let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let leases = files.filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("dhclient") && name.contains("lease")
        });
        let texts = leases.filter_map(|path| read(&path));
        servers.extend(texts.flat_map(|text| dhclient(&text, &interface.name)));
    }
    servers
}

fn read(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.is_file() && metadata.len() <= LONGEST);
    metadata.and_then(|_| fs::read_to_string(path).ok())
}

/// `DNS=` of a lease or a link: addresses with spaces between, each perhaps with a port, an interface and a name.
fn networkd(text: &str) -> Vec<IpAddr> {
    let lists = text.lines().filter_map(|line| line.strip_prefix("DNS="));
    lists.flat_map(str::split_whitespace).filter_map(address).collect()
}

fn address(word: &str) -> Option<IpAddr> {
    let word = word.split(['#', '%']).next().unwrap_or_default();
    word.parse().ok()
}

/// `option domain-name-servers` of the interface's last lease (dhclient.leases(5)).
fn dhclient(text: &str, interface: &str) -> Vec<IpAddr> {
    let of_interface = format!("interface \"{interface}\";");
    let leases = text.split("lease ").filter(|lease| lease.contains(&of_interface));
    let Some(last) = leases.last() else { return Vec::new() };
    let options = last.lines().filter_map(|line| line.trim().strip_prefix("option domain-name-servers "));
    options.flat_map(|list| list.split([',', ' ', ';'])).filter_map(|word| word.parse().ok()).collect()
}

/// What NetworkManager knows of the interface's network, and of no other: those of a tunnel are the tunnel's.
async fn network_manager(bus: &Connection, interface: &str) -> zbus::Result<Vec<IpAddr>> {
    // Asking it would start it.
    let dbus = "org.freedesktop.DBus";
    let runs =
        bus.call_method(Some(dbus), "/org/freedesktop/DBus", Some(dbus), "NameHasOwner", &NETWORK_MANAGER).await?;
    if !runs.body().deserialize::<bool>()? {
        return Ok(Vec::new());
    }
    let device = bus
        .call_method(
            Some(NETWORK_MANAGER),
            "/org/freedesktop/NetworkManager",
            Some(NETWORK_MANAGER),
            "GetDeviceByIpIface",
            &interface,
        )
        .await?;
    let device: OwnedObjectPath = device.body().deserialize()?;
    let mut servers = Vec::new();
    for (of_device, kind, of_config) in
        [("Ip4Config", "IP4Config", "NameserverData"), ("Ip6Config", "IP6Config", "Nameservers")]
    {
        let config = property(bus, &device, "Device", of_device).await?;
        let Ok(config) = OwnedObjectPath::try_from(config) else { continue };
        // "/" stands for none.
        if config.as_str() == "/" {
            continue;
        }
        let told = property(bus, &config, kind, of_config).await?;
        collect(&told, &mut servers);
    }
    Ok(servers)
}

async fn property(bus: &Connection, path: &OwnedObjectPath, kind: &str, name: &str) -> zbus::Result<OwnedValue> {
    let interface = format!("{NETWORK_MANAGER}.{kind}");
    let properties = Some("org.freedesktop.DBus.Properties");
    let reply = bus.call_method(Some(NETWORK_MANAGER), path, properties, "Get", &(interface, name)).await?;
    reply.body().deserialize()
}

/// The addresses in a list of dictionaries (`address`, as text) or of arrays of 16 bytes.
fn collect(value: &Value<'_>, servers: &mut Vec<IpAddr>) {
    let Value::Array(items) = value else { return };
    for item in items.iter() {
        match item {
            Value::Dict(server) => {
                let text = server.get::<_, Value<'_>>(&"address").ok().flatten();
                if let Some(Value::Str(text)) = text {
                    servers.extend(text.parse::<IpAddr>());
                }
            }
            Value::Array(octets) => {
                let octets: Vec<u8> = octets.iter().filter_map(|octet| u8::try_from(octet).ok()).collect();
                servers.extend(<[u8; 16]>::try_from(octets).map(IpAddr::from));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// DNS-3
    #[test]
    fn networkds_lease_names_the_networks_own_servers() {
        let text =
            "# This is private data. Do not parse.\nADDRESS=192.0.2.7\nDNS=192.0.2.1 2001:db8::53%2#dns.example\n";
        assert_eq!(networkd(text), ips(&["192.0.2.1", "2001:db8::53"]));
        assert!(networkd("DNS=\nDNS=nonsense\n").is_empty());
    }

    /// DNS-3
    #[test]
    fn dhclients_last_lease_of_the_interface_counts() {
        let lease = |interface: &str, servers: &str| {
            format!("lease {{\n  interface \"{interface}\";\n  option domain-name-servers {servers};\n}}\n")
        };
        let text =
            lease("eth0", "192.0.2.1") + &lease("wlan0", "198.51.100.1") + &lease("eth0", "192.0.2.2, 192.0.2.3");
        assert_eq!(dhclient(&text, "eth0"), ips(&["192.0.2.2", "192.0.2.3"]));
        assert_eq!(dhclient(&text, "wlan0"), ips(&["198.51.100.1"]));
        assert!(dhclient(&text, "eth1").is_empty());
    }

    /// A bus of our own; ended when dropped.
    struct Bus(Child);

    impl Drop for Bus {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn bus() -> Option<(Bus, String)> {
        let daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut daemon = Bus(daemon.ok()?);
        let mut address = String::new();
        BufReader::new(daemon.0.stdout.take()?).read_line(&mut address).ok()?;
        Some((daemon, address.trim().to_owned())).filter(|(_, address)| !address.is_empty())
    }

    struct Manager;

    #[zbus::interface(name = "org.freedesktop.NetworkManager")]
    impl Manager {
        fn get_device_by_ip_iface(&self, interface: &str) -> zbus::fdo::Result<OwnedObjectPath> {
            match interface {
                "wlan0" => Ok(OwnedObjectPath::try_from("/device").unwrap()),
                other => Err(zbus::fdo::Error::Failed(format!("no device {other}"))),
            }
        }
    }

    struct Device;

    #[zbus::interface(name = "org.freedesktop.NetworkManager.Device")]
    impl Device {
        #[zbus(property)]
        fn ip4_config(&self) -> OwnedObjectPath {
            OwnedObjectPath::try_from("/four").unwrap()
        }

        #[zbus(property)]
        fn ip6_config(&self) -> OwnedObjectPath {
            OwnedObjectPath::try_from("/six").unwrap()
        }
    }

    struct Four;

    #[zbus::interface(name = "org.freedesktop.NetworkManager.IP4Config")]
    impl Four {
        #[zbus(property)]
        fn nameserver_data(&self) -> Vec<HashMap<String, OwnedValue>> {
            let address = Value::from("192.0.2.53").try_into().unwrap();
            vec![HashMap::from([("address".to_owned(), address)])]
        }
    }

    struct Six;

    #[zbus::interface(name = "org.freedesktop.NetworkManager.IP6Config")]
    impl Six {
        #[zbus(property)]
        fn nameservers(&self) -> Vec<Vec<u8>> {
            vec!["2001:db8::53".parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec()]
        }
    }

    /// DNS-3
    #[tokio::test]
    async fn network_manager_is_asked_for_the_servers_of_one_network() {
        let Some((_daemon, address)) = bus() else {
            eprintln!("SKIPPED: dbus-daemon does not run here");
            return;
        };
        let connect = async || zbus::connection::Builder::address(address.as_str()).unwrap().build().await.unwrap();
        let asking = connect().await;
        assert!(network_manager(&asking, "wlan0").await.unwrap().is_empty(), "nobody has that name yet");
        let manager = connect().await;
        let server = manager.object_server();
        server.at("/org/freedesktop/NetworkManager", Manager).await.unwrap();
        server.at("/device", Device).await.unwrap();
        server.at("/four", Four).await.unwrap();
        server.at("/six", Six).await.unwrap();
        manager.request_name(NETWORK_MANAGER).await.unwrap();
        assert_eq!(network_manager(&asking, "wlan0").await.unwrap(), ips(&["192.0.2.53", "2001:db8::53"]));
        assert!(network_manager(&asking, "tun0").await.is_err());
    }
}
