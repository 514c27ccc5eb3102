//! Asks the resolvers of one network, which may know other addresses than everyone's: a DNS64 makes IPv6 ones.
//!
//! systemd-resolved, where it runs, knows which resolvers belong to which interface and is asked over its Varlink socket.
//! Without it, or if it does not tell, name servers are asked by DNS over the interface: those that its network named
//! ([`super::servers`]), and those that the system lists, of which some may answer there.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::system_conf::parse_resolv_conf;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::super::super::{Answer, Interface};
use super::super::name_servers;

/// Where systemd-resolved listens.
const RESOLVED: &str = "/run/systemd/resolve/io.systemd.Resolve";
/// Its longest answer, in bytes.
const LONGEST_ANSWER: u64 = 64 * 1024;
/// Where name servers may be listed. The first lists a local forwarder on some systems, and then the others the real ones.
const LISTS: [&str; 3] =
    ["/etc/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// A name's addresses as the resolvers of the interface's network know them.
pub(in super::super) fn resolve(name: &str, interface: &Interface) -> Answer<Vec<IpAddr>> {
    let (name, interface) = (name.to_owned(), interface.clone());
    Box::pin(async move {
        match ask_resolved(Path::new(RESOLVED), &name, interface.index).await {
            Ok(found) if !found.is_empty() => Ok(found),
            _ => {
                let own = super::servers::of(&interface).await;
                ask_servers(&name, interface, &own, &listed()).await
            }
        }
    })
}

/// The reply of `io.systemd.Resolve.ResolveHostname`.
#[derive(Deserialize)]
struct Reply {
    error: Option<String>,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    addresses: Vec<ReplyAddress>,
}

#[derive(Deserialize)]
struct ReplyAddress {
    /// In network byte order: 4 or 16.
    address: Vec<u8>,
}

/// Asks systemd-resolved for a name on one interface: JSON objects that end with a zero byte.
async fn ask_resolved(socket: &Path, name: &str, index: u32) -> io::Result<Vec<IpAddr>> {
    let mut stream = UnixStream::connect(socket).await?;
    let call = json!({
        "method": "io.systemd.Resolve.ResolveHostname",
        "parameters": { "name": name, "ifindex": index },
    });
    let mut request = call.to_string().into_bytes();
    request.push(0);
    stream.write_all(&request).await?;
    let mut reply = Vec::new();
    let mut reader = BufReader::new(stream.take(LONGEST_ANSWER));
    tokio::io::AsyncBufReadExt::read_until(&mut reader, 0, &mut reply).await?;
    if reply.pop() != Some(0) {
        return Err(io::Error::other("systemd-resolved broke off its answer"));
    }
    read_reply(&reply)
}

/// The addresses in a reply of systemd-resolved, without its zero byte.
pub(in super::super) fn read_reply(reply: &[u8]) -> io::Result<Vec<IpAddr>> {
    let reply: Reply = serde_json::from_slice(reply).map_err(io::Error::other)?;
    if let Some(error) = reply.error {
        return Err(io::Error::other(format!("systemd-resolved says {error}")));
    }
    Ok(reply.parameters.addresses.iter().filter_map(|found| address(&found.address)).collect())
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// Every name server that the system lists.
fn listed() -> Vec<NameServerConfig> {
    let mut servers = Vec::new();
    for list in LISTS {
        let Ok(text) = std::fs::read(list) else { continue };
        match parse_resolv_conf(text) {
            Ok((listed, _)) => servers.extend_from_slice(listed.name_servers()),
            Err(error) => tracing::debug!(list, %error, "a list of name servers cannot be read"),
        }
    }
    servers
}

/// Asks name servers over the interface, first its network's `own`.
async fn ask_servers(
    name: &str,
    interface: Interface,
    own: &[IpAddr],
    listed: &[NameServerConfig],
) -> io::Result<Vec<IpAddr>> {
    let mut config = ResolverConfig::default();
    let own = own.iter().map(|ip| NameServerConfig::udp_and_tcp(*ip));
    for server in own.chain(listed.iter().cloned()) {
        let reachable = !server.ip.is_loopback() && interface.source(server.ip).is_some();
        if reachable && config.name_servers().iter().all(|known| known.ip != server.ip) {
            config.add_name_server(server);
        }
    }
    name_servers::ask(config, name, interface).await
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// MULTI-9
    #[tokio::test]
    async fn resolved_is_asked_for_one_interface_and_its_addresses_of_both_families_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolve");
        let listener = UnixListener::bind(&path).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            let request: serde_json::Value = serde_json::from_slice(&request[..length - 1]).unwrap();
            assert_eq!(request["parameters"], json!({ "name": "relay.example", "ifindex": 7 }));
            let v6 = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1];
            let addresses =
                json!([{ "ifindex": 7, "family": 2, "address": [192, 0, 2, 1] }, { "family": 10, "address": v6 }]);
            let reply = json!({ "parameters": { "addresses": addresses, "name": "relay.example", "flags": 1 } });
            stream.write_all(format!("{reply}\0").as_bytes()).await.unwrap();
        };
        let (found, ()) = tokio::join!(ask_resolved(&path, "relay.example", 7), server);
        assert_eq!(found.unwrap(), ["192.0.2.1", "64:ff9b::c000:201"].map(|text| text.parse::<IpAddr>().unwrap()));
    }

    #[tokio::test]
    async fn resolveds_refusal_and_its_absence_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolve");
        let absent = ask_resolved(&path, "relay.example", 7).await.unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_u8().await.unwrap();
            stream.write_all(b"{\"error\":\"io.systemd.Resolve.NoNameServers\",\"parameters\":{}}\0").await.unwrap();
            // Until the client has it: closing with something unread would take it back.
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        };
        let (found, ()) = tokio::join!(ask_resolved(&path, "relay.example", 7), server);
        assert!(found.unwrap_err().to_string().contains("NoNameServers"));
    }
}
