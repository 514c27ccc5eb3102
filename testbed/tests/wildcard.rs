//! A relay on the wildcard of a machine with several addresses: whatever it says, it says from the address that was asked.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use tandem_core::transport::socket::Writable;
use tandem_core::transport::{Client, ConnectConfig, PathSocket, PathSpec, RelayEndpoint, RelayEndpointConfig};
use tandem_netem::{Direction, LinkConfig};
use tandem_proto::admission::HandshakeRates;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::Mode;
use tandem_testbed::{Identity, VirtualNetwork, VirtualSocket, virtual_time};
use tokio::time::{sleep, timeout};

/// Handshakes under way above which the relay answers newcomers with Retry only.
const LOAD: u8 = 70;
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket that notes the source and the first byte of all that arrives.
#[derive(Debug)]
struct Recorder {
    inner: Arc<VirtualSocket>,
    seen: Mutex<Vec<(SocketAddr, u8)>>,
}

impl PathSocket for Recorder {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let filled = ready!(self.inner.poll_recv(cx, bufs, meta))?;
        for (buffer, meta) in bufs.iter().zip(meta).take(filled) {
            self.seen.lock().unwrap().push((meta.addr, buffer[0]));
        }
        Poll::Ready(Ok(filled))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn writable(self: Arc<Self>) -> Writable {
        Arc::clone(&self.inner).writable()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }
}

/// The relay's machine; a datagram that names no source leaves from the first.
fn relay_addresses() -> [SocketAddr; 2] {
    [([203, 0, 113, 1], 4433).into(), ([203, 0, 113, 2], 4433).into()]
}

fn client_address(index: u8) -> SocketAddr {
    ([100, 64, index, 1], 5000).into()
}

fn link() -> LinkConfig {
    LinkConfig { delay: Duration::from_millis(10), ..LinkConfig::default() }
}

fn relay(network: &VirtualNetwork, identity: &Identity) -> RelayEndpoint {
    let socket = network.wildcard_socket("0.0.0.0:4433".parse().unwrap(), &relay_addresses());
    let (cert_der, key_pkcs8_der) = (identity.certificate.clone(), identity.key.clone());
    let handshakes = HandshakeRates::default();
    RelayEndpoint::bind(RelayEndpointConfig { cert_der, key_pkcs8_der, handshakes, seed: Some([1; 32]) }, vec![socket])
        .unwrap()
}

fn config(identity: &Identity, seed: u8) -> ConnectConfig {
    let seed = Some([seed; 32]);
    ConnectConfig { pins: vec![identity.pin], congestion: Algorithm::Cubic, mode: Mode::Single, seed }
}

/// PATH-11: the handshake and, under load, Retry. PATH-10: under load there is nothing but Retry.
#[test]
fn under_load_retry_and_the_handshake_after_it_come_from_the_address_that_was_asked() {
    virtual_time::run(async {
        let network = VirtualNetwork::new();
        let identity = Identity::from_seed([7; 32]);
        let endpoint = Arc::new(relay(&network, &identity));
        let asked = relay_addresses()[1];
        let path = |socket: Arc<dyn PathSocket>| PathSpec { interface: "virtual".to_owned(), socket, remote: asked };
        // Clients that hear no answer keep their handshakes under way.
        let mut stuck = tokio::task::JoinSet::new();
        for index in 1..=LOAD {
            let address = client_address(index);
            network.line(address, asked, link(), link()).unwrap().cut(Direction::Down);
            stuck.spawn(Client::connect(config(&identity, index), vec![path(network.socket(address))]));
        }
        sleep(Duration::from_millis(100)).await;

        network.line(client_address(0), asked, link(), link()).unwrap();
        let recorder = Arc::new(Recorder { inner: network.socket(client_address(0)), seen: Mutex::default() });
        let connecting = Client::connect(config(&identity, 0), vec![path(Arc::clone(&recorder) as _)]);
        let connection = timeout(PATIENCE, connecting).await.expect("a session comes up").unwrap();
        assert!(timeout(PATIENCE, endpoint.accept()).await.unwrap().is_some());
        connection.close(0, "done");

        let seen = recorder.seen.lock().unwrap().clone();
        // RFC 9000, section 17.2.5: a long header of type 3.
        assert_eq!(seen[0].1 & 0xf0, 0xf0, "the first answer is Retry: {seen:x?}");
        assert!(seen.len() > 3 && seen.iter().all(|(source, _)| *source == asked), "{seen:x?}");
    });
}

/// PATH-11: version negotiation and stateless reset, which belong to no session.
#[test]
fn answers_outside_of_any_session_come_from_the_address_that_was_asked() {
    virtual_time::run(async {
        let network = VirtualNetwork::new();
        let _endpoint = relay(&network, &Identity::from_seed([7; 32]));
        let asked = relay_addresses()[1];
        network.line(client_address(0), asked, link(), link()).unwrap();
        let socket = network.socket(client_address(0));
        // An Initial of a version that does not exist; then a packet of a session that does not.
        let mut unknown_version = [0; 1200];
        unknown_version[..7].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1]);
        for (packet, long_header) in [(&unknown_version[..], true), (&[0x41; 100][..], false)] {
            let transmit =
                Transmit { destination: asked, ecn: None, contents: packet, segment_size: None, src_ip: None };
            socket.try_send(&transmit).unwrap();
            let mut buffer = [0; 2000];
            let mut meta = [RecvMeta::default()];
            let receive = poll_fn(|cx| socket.poll_recv(cx, &mut [IoSliceMut::new(&mut buffer)], &mut meta));
            assert_eq!(timeout(PATIENCE, receive).await.expect("an answer comes").unwrap(), 1);
            assert_eq!((meta[0].addr, buffer[0] & 0x80 != 0), (asked, long_header));
        }
    });
}
