//! Floods of handshakes: whoever is good gets in meanwhile, and is not let in without end.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod bed;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bed::{Bed, PATIENCE, connect, hello, say_hello, try_connect};
use quinn::udp::Transmit;
use tandem_core::transport::{PathSocket, UdpPathSocket};
use tandem_proto::wire::flow::ControlMessage;
use tandem_relay::serve::Limits;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

/// First datagrams of different handshakes, as clients make them.
async fn initials(count: usize) -> Vec<Vec<u8>> {
    let sink = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = sink.local_addr().unwrap();
    let mut initials = Vec::new();
    let mut destinations = BTreeSet::new();
    while initials.len() < count {
        let first = async {
            let mut datagram = vec![0; 2_000];
            loop {
                let length = sink.recv(&mut datagram).await.unwrap();
                // The one before, when it was given up, sent a last word, which was to the same connection ID.
                if destinations.insert(datagram[6..14].to_vec()) {
                    datagram.truncate(length);
                    return datagram;
                }
            }
        };
        tokio::select! {
            datagram = first => initials.push(datagram),
            _ = try_connect(address, [0; 32]) => panic!("a sink answers nothing"),
        }
    }
    initials
}

/// Sends them over and over, each time from another address, until it is told to stop; answers with how many.
///
/// Far more than a relay takes without a proof of the address, and fewer than it can read: what is beyond that the
/// system drops unread, a good client's datagrams among the rest, and the relay has no say in who gets in.
#[expect(clippy::disallowed_methods, reason = "in a thread of its own")]
fn flood(socket: &dyn PathSocket, target: SocketAddr, initials: &[Vec<u8>], stop: &AtomicBool) -> u32 {
    let mut number = 0u32;
    let mut sent = 0u32;
    while !stop.load(Relaxed) {
        for _ in 0..16 {
            number = number.wrapping_add(1);
            // Every address below 127.0.0.0/8 is this machine's own, so any may be the source.
            let [.., b, c, d] = (number.wrapping_mul(2_654_435_761) | 0x0080_0000).to_be_bytes();
            let source = IpAddr::V4(Ipv4Addr::new(127, b, c, d));
            let contents = &initials[number as usize % initials.len()];
            let transmit =
                Transmit { destination: target, ecn: None, contents, segment_size: None, src_ip: Some(source) };
            sent += u32::from(socket.try_send(&transmit).is_ok());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    sent
}

/// SEC-2 (a flood of handshakes keeps nobody out)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_handshakes_from_made_up_addresses_keeps_no_good_client_out() {
    let bed = Bed::start(&["127.0.0.0/8"], Limits::default());
    let initials = initials(400).await;
    let (before, _control) = bed.session().await;
    let stop = Arc::new(AtomicBool::new(false));
    let flooding = {
        let socket = UdpPathSocket::new(std::net::UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        let (target, stop) = (bed.address, Arc::clone(&stop));
        std::thread::spawn(move || flood(&*socket, target, &initials, &stop))
    };
    let start = Instant::now();
    let mut took = Vec::new();
    // Some while the flood begins, and some once the relay asks everyone for a proof of its address.
    while took.len() < 5 || bed.metric("tandem_relay_handshakes_total{outcome=\"retried\"}") < 1_000.0 {
        let outlasted = start.elapsed() > 2 * PATIENCE;
        assert!(!outlasted, "{} sessions, {:?}", took.len(), handshakes(&bed.monitor.metrics()));
        let begun = Instant::now();
        let connection = connect(bed.address, bed.pin).await;
        let (_control, answer) = say_hello(&connection, hello(bed.token().0)).await;
        assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");
        took.push(begun.elapsed());
        connection.close(0, "done");
    }
    let lasted = start.elapsed();
    stop.store(true, Relaxed);
    let sent = flooding.join().unwrap();
    took.sort();
    println!(
        "{:.0} first datagrams a second; {} sessions meanwhile, median {:?}, longest {:?}",
        f64::from(sent) / lasted.as_secs_f64(),
        took.len(),
        took[took.len() / 2],
        took[took.len() - 1]
    );
    println!("{:?}", handshakes(&bed.monitor.metrics()));
    // And the session that was there goes on.
    let (_, answer) = bed::open(&before, "127.0.0.1:1").await;
    assert!(answer.is_err());
}

/// What became of newcomers, and of how many.
fn handshakes(metrics: &str) -> Vec<&str> {
    metrics.lines().filter_map(|line| line.strip_prefix("tandem_relay_handshakes_total")).collect()
}

/// SEC-2 (tokens cannot be tried at any rate)
#[tokio::test]
async fn one_network_gets_no_more_handshakes_than_it_may() {
    let limits = Limits { handshakes_per_second_and_network: 2, ..Limits::default() };
    let bed = Bed::start(&[], limits);
    let start = Instant::now();
    // Ten at once, and two each second then.
    for _ in 0..14 {
        timeout(PATIENCE, connect(bed.address, bed.pin)).await.unwrap().close(0, "done");
    }
    assert!(start.elapsed() >= Duration::from_millis(1_500), "{:?}", start.elapsed());
    assert!(bed.metric("tandem_relay_handshakes_total{outcome=\"dropped\"}") >= 1.0);
}
