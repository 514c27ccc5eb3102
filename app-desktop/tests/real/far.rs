//! What is beyond the app: an origin, a real relay, and emulated networks in front of it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::client::EngineConfig;
use tandem_core::platform::{Binder, Bound, Interface, InterfaceKind, Scripted};
use tandem_core::transport::{PathSocket, UdpPathSocket};
use tandem_netem::{Bitrate, Forwarder, LinkConfig, Loss};
use tandem_proto::pairing::{PairingLink, Pairings};
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::identity::Identity;
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Measuring, Relay, RelayConfig};
use tandem_relay::tokens::{Authority, Revoked};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::interval;
use tokio_socks::tcp::Socks5Stream;
use tokio_util::sync::CancellationToken;

/// Any port of this machine.
pub(crate) const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How often an origin that is to be slow sends; no more than a block at a time, so up to 130 Mbit/s.
const TICK: Duration = Duration::from_millis(4);

/// A relay and an origin behind it.
pub(crate) struct Far {
    /// The relay's address.
    pub(crate) relay: SocketAddr,
    /// What a client is paired with; a secret.
    pub(crate) link: String,
    /// Sends as many bytes as it is asked for, as fast as it is asked to.
    pub(crate) origin: SocketAddr,
    revoked: watch::Sender<Arc<Revoked>>,
    token: String,
}

impl Far {
    /// One that measures for its clients.
    pub(crate) async fn start() -> Self {
        Self::start_with(true).await
    }

    /// One that measures, or whose owner has switched that off.
    pub(crate) async fn start_with(measures: bool) -> Self {
        let (socket, relay, tcp) = relay_sockets().await;
        let identity = Identity::generate().unwrap();
        let authority = Authority::generate().unwrap();
        let (token, claims) =
            authority.issue("laptop", OffsetDateTime::now_utc(), Duration::from_secs(86_400)).unwrap();
        let relays = vec![relay.to_string().parse().unwrap()];
        let link = PairingLink { relays, pins: vec![identity.pin()], token, name: "laptop".to_owned() };
        let mut config = RelayConfig::new(identity, authority.verifier());
        let (revoked, list) = watch::channel(Arc::default());
        config.revoked = list;
        config.measuring = measures.then(|| Measuring::new(vec![tcp]).unwrap());
        let rules = AccessRules::new(vec!["127.0.0.0/8".parse().unwrap()]);
        let relay_program = Relay::bind(config, vec![socket], TcpEgress::new(rules, OwnAddresses::default())).unwrap();
        tokio::spawn(relay_program.serve(CancellationToken::new()));
        let listener = TcpListener::bind(LOCALHOST).await.unwrap();
        let origin = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        Self { relay, link: link.expose(), origin, revoked, token: claims.id }
    }

    /// Takes the link's token back.
    pub(crate) fn revoke(&self) {
        self.revoked.send_replace(Arc::new(Revoked::from_str(&self.token).unwrap()));
    }

    /// An engine that is paired with the relay, and listens on a port of its own.
    pub(crate) fn engine(&self) -> EngineConfig {
        engine(&self.link)
    }
}

/// An engine with this link.
pub(crate) fn engine(link: &str) -> EngineConfig {
    let mut pairings = Pairings::default();
    pairings.add(link.parse().unwrap(), Some("home")).unwrap();
    EngineConfig { listen: Some(LOCALHOST), ..EngineConfig::with_relays(&pairings) }
}

/// A machine with two networks of 100 Mbit/s and 20 ms that lead to the relay and lose this much, both ways.
pub(crate) fn emulated(relay: SocketAddr, losses: [f64; 2]) -> (Arc<Scripted>, [Forwarder; 2]) {
    let networks = [0, 1].map(|index| {
        let direction = |seed: u64| LinkConfig {
            rate: Some(Bitrate::from_mbit(if index == 0 { 100 } else { 60 })),
            delay: Duration::from_millis(10 + 8 * index as u64),
            loss: Loss::Random(losses[index]),
            seed: 2 * index as u64 + seed,
            ..LinkConfig::default()
        };
        let queue = Duration::from_millis(30);
        let shaped = |seed| direction(seed).with_queue_bdp(1.0, queue);
        Forwarder::spawn(LOCALHOST, relay, shaped(0), shaped(1)).unwrap()
    });
    let kinds = [("wifi", InterfaceKind::Wifi), ("cellular", InterfaceKind::Cellular)];
    let cards = [0, 1].map(|index| {
        let (name, kind) = kinds[index];
        card(name, kind, index as u32 + 1, networks[index].local_addr())
    });
    (Arc::new(Scripted::new(cards.into())), networks)
}

/// A network whose entrance is there.
pub(crate) fn card(name: &str, kind: InterfaceKind, index: u32, entrance: SocketAddr) -> (Interface, Binder) {
    let addresses = vec![LOCALHOST.ip()];
    let interface = Interface { name: name.to_owned(), index, kind, addresses, up: true, external: true };
    let bind: Binder = Arc::new(move |_| Ok(Bound { socket: udp_socket()?.0, remote: entrance }));
    (interface, bind)
}

/// Downloads through a proxy as fast as it goes; answers with how many bytes came before the end, or before the connection was cut.
pub(crate) async fn download(proxy: SocketAddr, origin: SocketAddr, bytes: u64) -> u64 {
    download_at(proxy, origin, bytes, u64::MAX).await
}

/// The same with so many bytes per second.
pub(crate) async fn download_at(proxy: SocketAddr, origin: SocketAddr, bytes: u64, rate: u64) -> u64 {
    let mut stream = Socks5Stream::connect(proxy, origin).await.unwrap();
    stream.write_u64(bytes).await.unwrap();
    stream.write_u64(rate).await.unwrap();
    let (mut got, mut buffer) = (0, vec![0; 65_536]);
    loop {
        match stream.read(&mut buffer).await {
            Ok(length) if length > 0 => got += length as u64,
            _ => return got,
        }
    }
}

async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let (Ok(mut left), Ok(rate)) = (stream.read_u64().await, stream.read_u64().await) else { return };
            let in_a_tick = (rate as f64 * TICK.as_secs_f64()) as u64;
            let block = vec![7; 65_536];
            let mut ticks = interval(TICK);
            while left > 0 {
                if rate < u64::MAX {
                    ticks.tick().await;
                }
                let length = left.min(block.len() as u64).min(in_a_tick);
                if stream.write_all(&block[..length as usize]).await.is_err() {
                    return;
                }
                left -= length;
            }
        });
    }
}

/// Sockets for UDP and TCP at one port.
async fn relay_sockets() -> (Arc<dyn PathSocket>, SocketAddr, TcpListener) {
    loop {
        let (socket, address) = udp_socket().unwrap();
        // The port may be another program's for TCP.
        if let Ok(listener) = TcpListener::bind(address).await {
            return (socket, address, listener);
        }
    }
}

fn udp_socket() -> io::Result<(Arc<dyn PathSocket>, SocketAddr)> {
    let socket = UdpSocket::bind(LOCALHOST)?;
    let address = socket.local_addr()?;
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20);
    Ok((UdpPathSocket::new(socket)?, address))
}
