//! The bed itself, measured with plain quinn on one path: what it shows must be what such a path does, and the same each
//! time. What Tandem adds is tested elsewhere; a strange figure there is checked against this one first.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Endpoint, EndpointConfig, TokioRuntime, TransportConfig, UdpPoller};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tandem_core::transport::PathSocket;
use tandem_core::transport::socket::Writable;
use tandem_netem::{Bitrate, Direction, LinkConfig, Loss};
use tandem_testbed::{Identity, VirtualNetwork, VirtualSocket, virtual_time};

const MEGABYTE: u64 = 1_000_000;

#[derive(Debug)]
struct Socket(Arc<VirtualSocket>);

struct Poller {
    socket: Arc<VirtualSocket>,
    waiting: Option<Writable>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Poller")
    }
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let waiting = this.waiting.get_or_insert_with(|| this.socket.clone().writable());
        let done = waiting.as_mut().poll(cx);
        if done.is_ready() {
            this.waiting = None;
        }
        done
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { socket: self.0.clone(), waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments()
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    took: Duration,
    lost_packets: u64,
    sent_packets: u64,
    rtt: Duration,
    datagrams_down: u64,
    datagrams_up: u64,
}

impl Outcome {
    fn goodput_mbps(&self, bytes: u64) -> f64 {
        bytes as f64 * 8e-6 / self.took.as_secs_f64()
    }
}

/// Downloads with CUBIC over a path of 100 Mbit/s with a queue of one bandwidth-delay product.
fn download(bytes: u64, rtt: Duration, loss: f64, seed: u64) -> Outcome {
    virtual_time::run(async move {
        let network = VirtualNetwork::new();
        let client_address: SocketAddr = ([100, 64, 0, 1], 5000).into();
        let relay_address: SocketAddr = ([198, 51, 100, 1], 4433).into();
        let link = LinkConfig {
            rate: Some(Bitrate::from_mbit(100)),
            delay: rtt / 2,
            loss: Loss::Random(loss),
            ..LinkConfig::default()
        }
        .with_queue_bdp(1.0, rtt);
        let (up, down) = (link.clone().with_seed(2 * seed), link.with_seed(2 * seed + 1));
        let line = network.line(client_address, relay_address, up, down).unwrap();

        let identity = Identity::from_seed([1; 32]);
        let certificate = CertificateDer::from(identity.certificate);
        let key = PrivateKeyDer::try_from(identity.key).unwrap();
        let mut transport = TransportConfig::default();
        transport
            .stream_receive_window((16 * MEGABYTE as u32).into())
            .send_window(16 * MEGABYTE)
            .congestion_controller_factory(Arc::new(quinn::congestion::CubicConfig::default()));
        let transport = Arc::new(transport);
        let mut server_config = quinn::ServerConfig::with_single_cert(vec![certificate.clone()], key).unwrap();
        server_config.transport_config(transport.clone());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        let mut client_config = quinn::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
        client_config.transport_config(transport);

        let endpoint = |address, seed, server| {
            let mut config = EndpointConfig::default();
            config.rng_seed(Some([seed; 32]));
            let socket = Arc::new(Socket(network.socket(address)));
            Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime)).unwrap()
        };
        let server = endpoint(relay_address, 1, Some(server_config));
        let client = endpoint(client_address, 2, None);
        let serving = tokio::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            let mut stream = connection.accept_uni().await.unwrap();
            stream.read_to_end(100).await.unwrap();
            let mut answer = connection.open_uni().await.unwrap();
            let chunk = bytes::Bytes::from(vec![7; 64 * 1024]);
            let mut left = bytes as usize;
            while left > 0 {
                let part = chunk.slice(..chunk.len().min(left));
                left -= part.len();
                answer.write_chunk(part).await.unwrap();
            }
            answer.finish().unwrap();
            answer.stopped().await.unwrap();
            connection.stats().path
        });
        let connection = client.connect_with(client_config, relay_address, "relay.test").unwrap().await.unwrap();
        let started = virtual_time::elapsed();
        connection.open_uni().await.unwrap().finish().unwrap();
        let mut answer = connection.accept_uni().await.unwrap();
        let mut received = 0;
        while let Some(chunk) = answer.read_chunk(usize::MAX, true).await.unwrap() {
            received += chunk.bytes.len() as u64;
        }
        assert_eq!(received, bytes);
        let took = virtual_time::elapsed() - started;
        let path = serving.await.unwrap();
        Outcome {
            took,
            lost_packets: path.lost_packets,
            sent_packets: path.sent_packets,
            rtt: connection.rtt(),
            datagrams_down: line.counters(Direction::Down).offered,
            datagrams_up: line.counters(Direction::Up).offered,
        }
    })
}

#[test]
fn the_same_run_takes_the_same_steps_and_another_seed_others() {
    let run = |seed| download(2 * MEGABYTE, Duration::from_millis(20), 0.01, seed);
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
}

#[test]
fn a_clean_path_is_filled() {
    let outcome = download(20 * MEGABYTE, Duration::from_millis(20), 0.0, 1);
    let goodput = outcome.goodput_mbps(20 * MEGABYTE);
    eprintln!("{goodput:.1} Mbit/s: {outcome:?}");
    assert!((85.0..97.0).contains(&goodput), "{goodput} Mbit/s");
}

#[test]
fn one_percent_of_loss_makes_cubic_as_slow_as_it_is_known_to_be() {
    let outcome = download(10 * MEGABYTE, Duration::from_millis(20), 0.01, 1);
    let goodput = outcome.goodput_mbps(10 * MEGABYTE);
    eprintln!("{goodput:.1} Mbit/s: {outcome:?}");
    assert!((5.0..10.0).contains(&goodput), "{goodput} Mbit/s");
}
