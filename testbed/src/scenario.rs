//! A client and a relay, joined by lines: one experiment.
//!
//! A [`Scenario`] is data; [`Scenario::connect`] builds the network, both ends and a connection between them, and
//! [`Bed::measure_download`] is the experiment most are about. Every seed is drawn from the scenario's own, so that two
//! runs of equal scenarios take the same steps.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tandem_core::transport::{
    Client, ConnectConfig, ConnectError, Connection, PathSocket, PathSpec, RelayEndpoint, RelayEndpointConfig, SpkiPin,
};
use tandem_netem::{Bitrate, Jitter, LinkConfig, Loss};
use tandem_proto::admission::HandshakeRates;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::Mode;
use tokio::task::JoinHandle;

use crate::exchange::serve;
use crate::identity::Identity;
use crate::measure::{Amount, Download, Interrupted, Latencies, Pings, download};
use crate::network::{Line, VirtualNetwork, VirtualSocket};
use crate::tcp::TcpFlow;

/// Where the relay listens.
pub const RELAY: ([u8; 4], u16) = ([198, 51, 100, 1], 4433);

/// The two links of one path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathLinks {
    /// From client to relay.
    pub up: LinkConfig,
    /// From relay to client.
    pub down: LinkConfig,
}

impl PathLinks {
    /// A path as in the paper's experiments: both directions alike, a queue of one bandwidth-delay product, random loss
    /// before the queue.
    pub fn symmetric(rate: Bitrate, rtt: Duration, loss: f64) -> Self {
        let link = LinkConfig { rate: Some(rate), delay: rtt / 2, loss: Loss::Random(loss), ..LinkConfig::default() }
            .with_queue_bdp(1.0, rtt);
        Self { up: link.clone(), down: link }
    }

    /// The cases' standard bed: something like Wi-Fi (50 Mbit/s down, 20 up, 20 ms, a queue of 100 ms) and something like
    /// cellular (20 down, 8 up, 60 ms, a queue of 200 ms, and 15 ms of jitter in order: two standard deviations).
    pub fn standard() -> [Self; 2] {
        let link = |mbit, delay_ms, queue_ms| {
            let delay = Duration::from_millis(delay_ms);
            LinkConfig { rate: Some(Bitrate::from_mbit(mbit)), delay, ..LinkConfig::default() }
                .with_queue_time(Duration::from_millis(queue_ms))
        };
        let jitter =
            Jitter { sd: Duration::from_micros(7_500), correlation: Duration::from_millis(50), ..Jitter::default() };
        let cellular = |mbit| LinkConfig { jitter, ..link(mbit, 30, 200) };
        [Self { up: link(20, 10, 100), down: link(50, 10, 100) }, Self { up: cellular(8), down: cellular(20) }]
    }
}

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The paths, in the order in which the client knows them. The links' own seeds are replaced.
    pub paths: Vec<PathLinks>,
    /// The controller of both ends.
    pub congestion: Algorithm,
    /// How both directions use the paths.
    pub mode: Mode,
    /// Where all chance comes from.
    pub seed: u64,
}

/// A connected scenario. The connection lives as long as this does.
#[derive(Debug)]
pub struct Bed {
    /// The network between the ends.
    pub network: VirtualNetwork,
    /// One line for each path.
    pub lines: Vec<Line>,
    /// The client's socket of each path.
    pub client_sockets: Vec<Arc<VirtualSocket>>,
    /// The relay's socket.
    pub relay_socket: Arc<VirtualSocket>,
    /// The client's end.
    pub client: Connection,
    /// The relay's end; it answers what [`download`] and [`Pings`] ask.
    pub relay: Connection,
    endpoint: RelayEndpoint,
    pin: SpkiPin,
    serving: JoinHandle<()>,
    tcp_flows: AtomicU16,
}

/// Another client's connection over one of a bed's lines.
#[derive(Debug)]
pub struct Rival {
    /// Its client's end.
    pub client: Connection,
    serving: JoinHandle<()>,
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What a download and the small requests beside it came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The download.
    pub download: Download,
    /// The small requests on a second stream of the same connection.
    pub pings: Latencies,
    /// Packets that the relay's QUIC declared lost, of those it sent during the download, in percent.
    pub quic_loss_percent: f64,
}

impl Scenario {
    /// The standard bed in virtual time; see [`PathLinks::standard`].
    pub fn standard_bed(congestion: Algorithm, mode: Mode, seed: u64) -> Self {
        Self { paths: PathLinks::standard().to_vec(), congestion, mode, seed }
    }

    /// Builds both ends and connects them.
    ///
    /// # Errors
    /// When no connection comes up.
    ///
    /// # Panics
    /// When a link's configuration cannot be.
    pub async fn connect(&self) -> Result<Bed, ConnectError> {
        let mut chance = Pcg64::seed_from_u64(self.seed);
        let network = VirtualNetwork::new();
        let relay_address = SocketAddr::from(RELAY);
        let relay_socket = network.socket(relay_address);
        let mut lines = Vec::new();
        let mut client_sockets = Vec::new();
        let mut specs = Vec::new();
        for (index, path) in self.paths.iter().enumerate() {
            let address = client_address(index);
            let up = path.up.clone().with_seed(chance.random());
            let down = path.down.clone().with_seed(chance.random());
            lines.push(network.line(address, relay_address, up, down).expect("the scenario's links are valid"));
            let socket = network.socket(address);
            specs.push(PathSpec {
                interface: format!("virtual{index}"),
                socket: socket.clone() as Arc<dyn PathSocket>,
                remote: relay_address,
            });
            client_sockets.push(socket);
        }
        let identity = Identity::from_seed([7; 32]);
        let pin = identity.pin;
        let endpoint = RelayEndpoint::bind(
            RelayEndpointConfig {
                cert_der: identity.certificate,
                key_pkcs8_der: identity.key,
                handshakes: HandshakeRates::default(),
                seed: Some(chance.random()),
            },
            vec![relay_socket.clone() as Arc<dyn PathSocket>],
        )
        .expect("the identity is valid");
        let config = ConnectConfig {
            pins: vec![identity.pin],
            congestion: self.congestion,
            mode: self.mode,
            seed: Some(chance.random()),
        };
        let (client, relay) = tokio::join!(biased; Client::connect(config, specs), endpoint.accept());
        let client = client?;
        let relay = relay.expect("the endpoint is open");
        relay.set_congestion(self.congestion);
        let serving = tokio::spawn(serve(relay.clone()));
        Ok(Bed {
            network,
            lines,
            client_sockets,
            relay_socket,
            client,
            relay,
            endpoint,
            pin,
            serving,
            tcp_flows: AtomicU16::new(0),
        })
    }
}

/// The client's address on its n-th path.
fn client_address(index: usize) -> SocketAddr {
    let index = u8::try_from(index).expect("a scenario has a handful of paths");
    ([100, 64, index, 1], 50_000).into()
}

impl Bed {
    /// Connects another client over one line alone, so that its flows compete with the bed's for that line.
    ///
    /// # Errors
    /// When no connection comes up.
    pub async fn rival(&self, line: usize, congestion: Algorithm) -> Result<Rival, ConnectError> {
        let address = SocketAddr::from(([100, 64, u8::try_from(line).expect("a handful of lines"), 2], 50_000));
        let remote = SocketAddr::from(RELAY);
        self.lines[line].share(address, remote);
        let socket = self.network.socket(address) as Arc<dyn PathSocket>;
        let spec = PathSpec { interface: "rival".to_owned(), socket, remote };
        let config = ConnectConfig { pins: vec![self.pin], congestion, mode: Mode::Single, seed: Some([9; 32]) };
        let (client, relay) = tokio::join!(biased; Client::connect(config, vec![spec]), self.endpoint.accept());
        let relay = relay.expect("the endpoint is open");
        relay.set_congestion(congestion);
        Ok(Rival { client: client?, serving: tokio::spawn(serve(relay)) })
    }

    /// Begins somebody else's download over one line: TCP with CUBIC, from a server at the relay's end.
    ///
    /// # Panics
    /// When there is no such line, or after some thousands of flows.
    pub fn tcp(&self, line: usize) -> TcpFlow {
        let number = self.tcp_flows.fetch_add(1, Relaxed);
        let server = SocketAddr::from((RELAY.0, 10_000 + number));
        let client = SocketAddr::new(client_address(line).ip(), 10_000 + number);
        self.lines[line].share(client, server);
        TcpFlow::start(self.network.socket(server), self.network.socket(client))
    }

    /// Downloads with a small request every 10 ms beside it.
    ///
    /// # Errors
    /// When the connection ends early.
    pub async fn measure_download(&self, amount: Amount) -> Result<Measured, Interrupted> {
        let before = self.relay.stats();
        let pings = Pings::start(self.client.clone(), Duration::from_millis(10));
        let download = download(&self.client, amount).await?;
        let after = self.relay.stats();
        let pings = pings.stop().await?;
        let sent = (after.packets_sent - before.packets_sent).max(1);
        let quic_loss_percent = (after.packets_lost - before.packets_lost) as f64 * 100.0 / sent as f64;
        Ok(Measured { download, pings, quic_loss_percent })
    }
}
