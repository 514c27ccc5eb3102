//! Many clients of one relay: how they share the link that it hangs on. Prints a line for each run; one of 64 clients and 60 s
//! takes a minute of processor time.
//!
//! `cargo run -p tandem-testbed --example fairness_table [CONTROLLER]...`
//!
//! Each client has two networks of its own, like the cases' Wi-Fi and cellular ones, and all their datagrams meet on the
//! relay's link, which carries a fraction of what the networks could. Every client downloads for as long as it lasts; what
//! counts is what each application got, by Jain's index: 1 if all got the same, 1/n if one got everything.
#![expect(clippy::unwrap_used, reason = "nothing here fails in virtual time")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::transport::{Client, ConnectConfig, PathSocket, PathSpec, RelayEndpoint, RelayEndpointConfig};
use tandem_netem::{Bitrate, LinkConfig};
use tandem_proto::admission::HandshakeRates;
use tandem_proto::congestion::Algorithm;
use tandem_proto::measure::jain;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Amount, Identity, PathLinks, RELAY, VirtualNetwork, download, serve, virtual_time};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What a run came to.
struct Shared {
    /// What each client got, in Mbit/s, the first to begin first.
    goodputs: Vec<f64>,
}

impl Shared {
    fn jain(&self) -> f64 {
        jain(self.goodputs.iter().copied()).unwrap_or(f64::NAN)
    }

    fn total(&self) -> f64 {
        self.goodputs.iter().sum()
    }
}

/// `clients` that begin within a second of each other, one after the other.
async fn share(clients: u8, mbit: u32, time: Duration, congestion: Algorithm, mode: Mode) -> Shared {
    let network = VirtualNetwork::new();
    let relay_address = SocketAddr::from(RELAY);
    let identity = Identity::from_seed([7; 32]);
    let (cert_der, key_pkcs8_der) = (identity.certificate, identity.key);
    let handshakes = HandshakeRates::default();
    let config = RelayEndpointConfig { cert_der, key_pkcs8_der, handshakes, seed: Some([8; 32]) };
    let socket = network.socket(relay_address) as Arc<dyn PathSocket>;
    let endpoint = RelayEndpoint::bind(config, vec![socket]).unwrap();
    tokio::spawn(async move {
        while let Some(connection) = endpoint.accept().await {
            connection.set_congestion(congestion);
            tokio::spawn(serve(connection));
        }
    });
    let link = LinkConfig { rate: Some(Bitrate::from_mbit(mbit)), ..LinkConfig::default() };
    let link = link.with_queue_time(Duration::from_millis(50));
    let trunk = network.trunk(link.clone().with_seed(1), link.with_seed(2)).unwrap();
    let mut downloads = JoinSet::new();
    for client in 0..clients {
        let lay = |(index, links): (u8, PathLinks)| {
            let address = SocketAddr::from(([100, 64, client, index], 50_000));
            let seed = u64::from(client) * 4 + u64::from(index) * 2 + 3;
            let line = network.line(address, relay_address, links.up.with_seed(seed), links.down.with_seed(seed + 1));
            line.unwrap().lead_through(&trunk);
            let socket = network.socket(address) as Arc<dyn PathSocket>;
            PathSpec { interface: format!("virtual{index}"), socket, remote: relay_address }
        };
        let paths = (1..).zip(PathLinks::standard()).map(lay).collect();
        let pins = vec![identity.pin];
        let config = ConnectConfig { pins, congestion, mode, seed: Some([client; 32]) };
        let start = Duration::from_millis(u64::from(client) * 1_000 / u64::from(clients));
        downloads.spawn(async move {
            sleep(start).await;
            let connection = Client::connect(config, paths).await.unwrap();
            (client, download(&connection, Amount::Time(time)).await.unwrap().goodput_mbps())
        });
    }
    let mut ended = downloads.join_all().await;
    ended.sort_by_key(|(client, _)| *client);
    Shared { goodputs: ended.into_iter().map(|(_, goodput)| goodput).collect() }
}

fn main() {
    let named: Vec<Algorithm> = std::env::args().skip(1).map(|name| name.parse().unwrap()).collect();
    let controllers = if named.is_empty() { Algorithm::ALL.to_vec() } else { named };
    for congestion in controllers {
        for mode in [Mode::Single, Mode::Bicast(Sides::Both)] {
            let (clients, mbit, time) = (64, 128, Duration::from_secs(60));
            let shared = virtual_time::run(share(clients, mbit, time, congestion, mode));
            // In the order in which they began, by quarters.
            let quarters = shared.goodputs.chunks(usize::from(clients) / 4);
            let means = quarters.map(|part| format!("{:.2}", part.iter().sum::<f64>() / part.len() as f64));
            let mut sorted = shared.goodputs.clone();
            sorted.sort_by(f64::total_cmp);
            println!(
                "{congestion} {}: Jain's index {:.4}, {:.1} of {mbit} Mbit/s; least {:.2}, median {:.2}, most {:.2}; by \
                 quarters of when they began {}",
                mode.scheme(),
                shared.jain(),
                shared.total(),
                sorted[0],
                sorted[sorted.len() / 2],
                sorted[sorted.len() - 1],
                means.collect::<Vec<_>>().join(", "),
            );
        }
    }
}
