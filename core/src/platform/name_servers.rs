//! Asks the name servers of one network by DNS, over its interface: of them, those that answer there.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use hickory_resolver::Resolver;
use hickory_resolver::config::{LookupIpStrategy, ResolveHosts, ResolverConfig, ServerOrderingStrategy};
use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{RuntimeProvider, TokioHandle, TokioTime};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::super::Interface;
use super::os;

/// For how long one name server is waited for.
const QUERY_LIMIT: Duration = Duration::from_secs(2);
/// For how long a connection to one may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// A name's addresses as these name servers know them, the first ones asked first.
pub(super) async fn ask(config: ResolverConfig, name: &str, interface: Interface) -> io::Result<Vec<IpAddr>> {
    if config.name_servers().is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no name server is listed that {} reaches", interface.name),
        ));
    }
    let mut builder =
        Resolver::builder_with_config(config, OverInterface { interface, handle: TokioHandle::default() });
    let options = builder.options_mut();
    options.timeout = QUERY_LIMIT;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Never;
    options.cache_size = 0;
    // Those of the network are asked first, others when they do not answer.
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    let resolver = builder.build().map_err(io::Error::other)?;
    // A final dot: no search list is tried.
    let found = resolver.lookup_ip(format!("{}.", name.trim_end_matches('.'))).await.map_err(io::Error::other)?;
    Ok(found.iter().collect())
}

/// Makes the resolver's sockets on one interface.
#[derive(Clone)]
struct OverInterface {
    interface: Interface,
    handle: TokioHandle,
}

impl OverInterface {
    fn socket(&self, server: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
        let source = self.interface.source(server.ip()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let socket = Socket::new(Domain::for_address(server), kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        match kind {
            Type::DGRAM => os::steer(&socket, &self.interface, server.ip())?,
            _ => os::tie(&socket, &self.interface, server.ip())?,
        }
        socket.bind(&SocketAddr::new(source, 0).into())?;
        Ok(socket)
    }
}

type Opening<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl RuntimeProvider for OverInterface {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> TokioHandle {
        self.handle.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        _bind: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> Opening<AsyncIoTokioAsStd<TcpStream>> {
        let socket = self.socket(server, Type::STREAM, Protocol::TCP);
        Box::pin(async move {
            let connecting = TcpSocket::from_std_stream(socket?.into()).connect(server);
            let stream = timeout(limit.unwrap_or(CONNECT_LIMIT), connecting).await??;
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    fn bind_udp(&self, _local: SocketAddr, server: SocketAddr) -> Opening<UdpSocket> {
        let socket = self.socket(server, Type::DGRAM, Protocol::UDP);
        Box::pin(async move { UdpSocket::from_std(socket?.into()) })
    }
}
