//! What stands still between the runs, and the networks that each run gets anew.
//!
//! [`Bed`] holds the origin and the relay. [`Networks`] are two emulated ones with a client's side: a scripted platform
//! whose sockets send to their network's entrance instead of to the relay. They run on a thread of their own, and every
//! run's networks draw the same chances.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ipnet::{IpNet, Ipv4Net};
use socket2::SockRef;
use tandem_core::platform::{Binder, Bound, Interface, InterfaceKind, Scripted};
use tandem_core::transport::{PathSocket, UdpPathSocket};
use tandem_netem::{Bitrate, Forwarder, LinkConfig, Loss};
use tandem_proto::pairing::PairingLink;
use tandem_proto::wire::flow::{Host, Target};
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::identity::Identity;
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Relay, RelayConfig};
use tandem_relay::tokens::Authority;
use time::OffsetDateTime;
use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::origin::Origin;

/// What each network carries in each direction.
pub(super) const RATE: Bitrate = Bitrate::from_mbit(100);
/// Round trip over each network while its queues, of one bandwidth-delay product each, are empty.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(10);

const NETWORKS: [(&str, InterfaceKind); 2] = [("wifi", InterfaceKind::Wifi), ("cellular", InterfaceKind::Cellular)];
/// Socket buffers asked for, in bytes, as for real networks.
const SOCKET_BUFFER: usize = 4 << 20;
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);
pub(super) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A thread of the networks' own: a packet waits for its time, not for what relay and client have to do.
struct NetworkThread(Option<Runtime>);

impl NetworkThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("networks").enable_all().build()?;
        Ok(Self(Some(runtime)))
    }

    fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.as_ref().map(Runtime::enter)
    }
}

impl Drop for NetworkThread {
    fn drop(&mut self) {
        // Other than a plain drop this may happen inside the demo's own runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// An origin and a relay that reaches it.
pub(super) struct Bed {
    thread: NetworkThread,
    origin: Origin,
    relay: SocketAddr,
    link: PairingLink,
    drain: CancellationToken,
    serving: AbortOnDropHandle<()>,
}

impl Bed {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let thread = NetworkThread::start().context("the networks cannot start")?;
        let origin = Origin::start().await.context("the origin cannot listen")?;
        let (socket, relay) = udp_socket().context("the relay cannot listen")?;
        let identity = Identity::generate()?;
        let authority = Authority::generate()?;
        let (token, _) = authority.issue("demo", OffsetDateTime::now_utc(), TOKEN_LIFETIME)?;
        let relays = vec![Target { host: Host::Ip(relay.ip()), port: relay.port() }];
        let link = PairingLink { relays, pins: vec![identity.pin()], token, name: "demo".to_owned() };
        let config = RelayConfig::new(identity, authority.verifier());
        // The origin is the one place on this machine that clients may reach.
        let allowed = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 32));
        let egress = TcpEgress::new(AccessRules::new(vec![allowed]), OwnAddresses::default());
        let drain = CancellationToken::new();
        let serving = tokio::spawn(Relay::bind(config, vec![socket], egress)?.serve(drain.clone()));
        let serving = AbortOnDropHandle::new(serving);
        Ok(Self { thread, origin, relay, link, drain, serving })
    }

    /// Where the origin listens.
    pub(super) fn origin(&self) -> SocketAddr {
        self.origin.address
    }

    /// What a client is paired with.
    pub(super) fn link(&self) -> PairingLink {
        self.link.clone()
    }

    /// New networks in front of the relay, which lose that many datagrams in percent.
    pub(super) fn networks(&self, loss_percent: f64) -> anyhow::Result<Networks> {
        let network = |index: usize| {
            let direction = |number: usize| {
                LinkConfig {
                    rate: Some(RATE),
                    delay: ROUND_TRIP / 2,
                    loss: Loss::Random(loss_percent / 100.0),
                    seed: (2 * index + number) as u64,
                    ..LinkConfig::default()
                }
                .with_queue_bdp(1.0, ROUND_TRIP)
            };
            Forwarder::spawn(LOOPBACK, self.relay, direction(0), direction(1))
        };
        let _inside = self.thread.enter();
        Ok(Networks([network(0)?, network(1)?]))
    }

    /// Ends the relay well.
    pub(super) async fn stop(self) {
        self.drain.cancel();
        // It fails only if the task panicked, and then there is nothing left to end.
        let _ = self.serving.await;
    }
}

/// Two emulated networks that lead to the relay.
pub(super) struct Networks([Forwarder; 2]);

/// What has entered a network on its way to the client, and what did not come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Carried {
    /// Datagrams that entered.
    pub(super) offered: u64,
    /// Datagrams lost by chance, or because the queue was full.
    pub(super) lost: u64,
}

impl Networks {
    /// A machine with an interface on each of the networks.
    pub(super) fn platform(&self) -> Scripted {
        let interface = |index: usize| {
            let (name, kind) = NETWORKS[index];
            let interface = Interface {
                name: name.to_owned(),
                index: index as u32 + 1,
                kind,
                addresses: vec![LOOPBACK.ip()],
                up: true,
                external: true,
            };
            let entrance = self.0[index].local_addr();
            let bind: Binder = Arc::new(move |_| Ok(Bound { socket: udp_socket()?.0, remote: entrance }));
            (interface, bind)
        };
        Scripted::new(vec![interface(0), interface(1)])
    }

    /// The traffic towards the client so far, of each network.
    pub(super) fn carried(&self) -> [Carried; 2] {
        [0, 1].map(|index| {
            let down = self.0[index].counters().down;
            Carried { offered: down.offered, lost: down.lost + down.queue_dropped }
        })
    }
}

/// The names of the networks.
pub(super) fn network_names() -> [&'static str; 2] {
    NETWORKS.map(|(name, _)| name)
}

/// A socket that carries paths, and its address.
fn udp_socket() -> io::Result<(Arc<dyn PathSocket>, SocketAddr)> {
    let socket = UdpSocket::bind(LOOPBACK)?;
    // Smaller buffers work too.
    let _ = SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER);
    let _ = SockRef::from(&socket).set_send_buffer_size(SOCKET_BUFFER);
    let address = socket.local_addr()?;
    Ok((UdpPathSocket::new(socket)?, address))
}
