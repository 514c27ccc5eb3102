//! The forwarder between real sockets on loopback.

#![expect(clippy::unwrap_used, reason = "a test may fail by a panic, in its helpers too")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tandem_netem::{Bitrate, Direction, Forwarder, LinkConfig, Loss, SpawnError};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

/// Far longer than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn datagrams_arrive_whole_in_both_directions() {
    let bed = Bed::perfect().await;
    let client = bed.client().await;
    for bytes in [0, 1, 1_472, 60_000] {
        let payload = vec![bytes as u8; bytes];
        client.send(&payload).await.unwrap();
        let (received, from) = receive(&bed.server).await;
        assert!(received == payload, "{bytes} bytes up");
        bed.server.send_to(&payload, from).await.unwrap();
        assert!(receive(&client).await.0 == payload, "{bytes} bytes down");
    }
    let counters = bed.forwarder.counters();
    assert_eq!((counters.up.delivered, counters.down.delivered, counters.unsent), (4, 4, 0));
}

#[tokio::test]
async fn it_works_over_ipv6() {
    let any = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let Ok(server) = UdpSocket::bind(any).await else {
        eprintln!("SKIPPED: this machine has no IPv6 loopback");
        return;
    };
    let bed = Bed::new(server, any, LinkConfig::default(), LinkConfig::default());
    let client = UdpSocket::bind(any).await.unwrap();
    client.connect(bed.forwarder.local_addr()).await.unwrap();
    assert!(bed.upstream_port(&client).await > 0);
}

#[tokio::test]
async fn each_client_has_an_upstream_port_of_its_own_and_gets_its_own_answers() {
    let bed = Bed::perfect().await;
    let (one, other) = (bed.client().await, bed.client().await);
    let ports = [bed.upstream_port(&one).await, bed.upstream_port(&other).await, bed.upstream_port(&one).await];
    assert_eq!(ports[0], ports[2]);
    assert_ne!(ports[0], ports[1]);
}

#[tokio::test]
async fn the_delay_of_both_links_is_in_the_round_trip() {
    let delayed = |milliseconds| LinkConfig { delay: Duration::from_millis(milliseconds), ..LinkConfig::default() };
    let bed = Bed::with_links(delayed(30), delayed(20)).await;
    let client = bed.client().await;
    let start = Instant::now();
    bed.upstream_port(&client).await;
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn the_rate_is_kept_over_a_burst() {
    let up = LinkConfig { rate: Some(Bitrate::from_mbit(20)), ..LinkConfig::default() };
    let bed = Bed::with_links(up, LinkConfig::default()).await;
    let client = bed.client().await;
    // 100 packets of 1,000 bytes on the wire: 40 ms at this rate.
    let start = Instant::now();
    for _ in 0..100 {
        client.send(&[0; 972]).await.unwrap();
    }
    for _ in 0..100 {
        receive(&bed.server).await;
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(40), "{took:?}");
}

#[tokio::test]
async fn a_share_of_the_datagrams_is_lost_and_a_change_of_loss_holds_at_once() {
    let up = LinkConfig { loss: Loss::Random(0.3), ..LinkConfig::default() };
    let bed = Bed::with_links(up, LinkConfig::default()).await;
    let client = bed.client().await;
    bed.offer(&client, 2_000).await;
    let lost = bed.forwarder.counters().up.lost;
    assert!((500..700).contains(&lost), "{lost} of 2000 lost");

    bed.forwarder.set_loss(Direction::Up, Loss::None).unwrap();
    bed.offer(&client, 500).await;
    assert_eq!(bed.forwarder.counters().up.lost, lost);
    let error = bed.forwarder.set_loss(Direction::Up, Loss::Random(-0.1)).unwrap_err();
    assert_eq!(error.to_string(), "loss.random is -0.1; allowed: 0 to 1");
}

#[tokio::test]
async fn a_cut_is_a_black_hole_for_its_direction_only() {
    let bed = Bed::perfect().await;
    let client = bed.client().await;
    bed.upstream_port(&client).await;

    bed.forwarder.cut(Direction::Down);
    client.send(b"up").await.unwrap();
    let (received, from) = receive(&bed.server).await;
    assert_eq!(received, b"up");
    bed.server.send_to(b"vanishes", from).await.unwrap();
    bed.until(|counters| counters.down.outage_dropped == 1).await;

    bed.forwarder.restore(Direction::Down);
    bed.server.send_to(b"back", from).await.unwrap();
    assert_eq!(receive(&client).await.0, b"back");

    bed.forwarder.cut(Direction::Up);
    client.send(b"vanishes").await.unwrap();
    bed.until(|counters| counters.up.outage_dropped == 1).await;
    bed.forwarder.restore(Direction::Up);
    bed.upstream_port(&client).await;
}

#[tokio::test]
async fn a_rebind_changes_the_port_seen_upstream_and_the_old_one_leads_nowhere() {
    let bed = Bed::perfect().await;
    let client = bed.client().await;
    let before = bed.upstream_port(&client).await;
    bed.forwarder.rebind();
    let after = bed.upstream_port(&client).await;
    assert_ne!(before, after);

    let to_old = SocketAddr::from((Ipv4Addr::LOCALHOST, before));
    bed.server.send_to(b"to the old port", to_old).await.unwrap();
    // An answer on the new port comes after; had the old one worked, it would have come before.
    client.send(b"?").await.unwrap();
    let (_, from) = receive(&bed.server).await;
    bed.server.send_to(b"to the new port", from).await.unwrap();
    assert_eq!(receive(&client).await.0, b"to the new port");
}

#[tokio::test]
async fn a_client_that_stays_silent_loses_its_port() {
    let bed = Bed::perfect().await;
    let client = bed.client().await;
    let before = bed.upstream_port(&client).await;
    bed.forwarder.set_idle_expiry(Duration::from_millis(50));
    // The port is free again as soon as the mapping is gone; the system may even give it out next.
    timeout(DEADLINE, async {
        while UdpSocket::bind((Ipv4Addr::UNSPECIFIED, before)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the port is freed");
    bed.upstream_port(&client).await;
}

#[tokio::test]
async fn shutdown_frees_the_address_and_so_does_dropping() {
    for awaited in [true, false] {
        let bed = Bed::perfect().await;
        let address = bed.forwarder.local_addr();
        assert!(UdpSocket::bind(address).await.is_err());
        if awaited {
            bed.forwarder.shutdown().await;
            UdpSocket::bind(address).await.unwrap();
        } else {
            drop(bed);
            timeout(DEADLINE, async {
                while UdpSocket::bind(address).await.is_err() {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .expect("the address is freed");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let wrong = LinkConfig { duplicate_share: 2.0, ..LinkConfig::default() };
    let error = Forwarder::spawn(LOOPBACK, LOOPBACK, LinkConfig::default(), wrong).unwrap_err();
    assert_eq!(error.to_string(), "the forwarder's Down link is configured wrongly");
    assert!(matches!(error, SpawnError::Config { source, .. } if source.field == "duplicate_share"));

    let taken = UdpSocket::bind(LOOPBACK).await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = Forwarder::spawn(address, LOOPBACK, LinkConfig::default(), LinkConfig::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("the forwarder cannot listen on {address}"));
}

#[test]
fn outside_a_runtime_it_is_refused_rather_than_a_panic() {
    let result = Forwarder::spawn(LOOPBACK, LOOPBACK, LinkConfig::default(), LinkConfig::default());
    assert!(matches!(result, Err(SpawnError::NoRuntime)));
}

/// A forwarder before a server.
struct Bed {
    server: UdpSocket,
    forwarder: Forwarder,
}

impl Bed {
    fn new(server: UdpSocket, listen: SocketAddr, up: LinkConfig, down: LinkConfig) -> Self {
        let upstream = server.local_addr().unwrap();
        let forwarder = Forwarder::spawn(listen, upstream, up, down).unwrap();
        Self { server, forwarder }
    }

    async fn with_links(up: LinkConfig, down: LinkConfig) -> Self {
        let server = UdpSocket::bind(LOOPBACK).await.unwrap();
        Self::new(server, LOOPBACK, up, down)
    }

    async fn perfect() -> Self {
        Self::with_links(LinkConfig::default(), LinkConfig::default()).await
    }

    async fn client(&self) -> UdpSocket {
        let client = UdpSocket::bind(LOOPBACK).await.unwrap();
        client.connect(self.forwarder.local_addr()).await.unwrap();
        client
    }

    /// Sends one datagram there and back, and tells from which port it came to the server.
    async fn upstream_port(&self, client: &UdpSocket) -> u16 {
        client.send(b"who am I?").await.unwrap();
        let (question, from) = receive(&self.server).await;
        assert_eq!(question, b"who am I?");
        self.server.send_to(from.to_string().as_bytes(), from).await.unwrap();
        assert_eq!(receive(client).await.0, from.to_string().as_bytes());
        from.port()
    }

    /// Sends that many datagrams, never more at a time than a socket's buffer takes, and waits until all were offered to the link.
    async fn offer(&self, client: &UdpSocket, packets: u64) {
        let before = self.forwarder.counters().up.offered;
        for sent in 1..=packets {
            client.send(b"packet").await.unwrap();
            if sent % 50 == 0 || sent == packets {
                self.until(|counters| counters.up.offered == before + sent).await;
            }
        }
    }

    async fn until(&self, condition: impl Fn(tandem_netem::ForwarderCounters) -> bool) {
        timeout(DEADLINE, async {
            while !condition(self.forwarder.counters()) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("in time; found {:?}", self.forwarder.counters()));
    }
}

async fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65_536];
    let (bytes, from) = timeout(DEADLINE, socket.recv_from(&mut buffer)).await.expect("a datagram in time").unwrap();
    buffer.truncate(bytes);
    (buffer, from)
}
