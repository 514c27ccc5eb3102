//! The virtual network by itself: lines, faults, attackers.

use std::future::poll_fn;
use std::io::IoSliceMut;
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use tandem_core::transport::PathSocket;
use tandem_netem::Bitrate;
use tokio::time::timeout;

use super::*;
use crate::virtual_time::{elapsed, run};

const MILLISECOND: Duration = Duration::from_millis(1);

fn client() -> SocketAddr {
    ([100, 64, 0, 1], 5000).into()
}

fn relay() -> SocketAddr {
    ([198, 51, 100, 1], 4433).into()
}

fn public() -> SocketAddr {
    ([203, 0, 113, 7], 61_000).into()
}

/// One datagram, or several of `segment` bytes.
fn send(
    socket: &VirtualSocket,
    destination: SocketAddr,
    contents: &[u8],
    segment: Option<usize>,
) -> std::io::Result<()> {
    socket.try_send(&Transmit { destination, ecn: None, contents, segment_size: segment, src_ip: None })
}

/// The next datagram: contents, source, and the address it was sent to.
async fn receive(socket: &VirtualSocket) -> (Vec<u8>, RecvMeta) {
    let mut buffer = [0; 2_000];
    let mut meta = [RecvMeta::default()];
    let filled = poll_fn(|cx| socket.poll_recv(cx, &mut [IoSliceMut::new(&mut buffer)], &mut meta)).await.unwrap();
    assert_eq!(filled, 1);
    (buffer[..meta[0].len].to_vec(), meta[0])
}

async fn nothing_arrives(socket: &VirtualSocket) -> bool {
    timeout(Duration::from_secs(1), receive(socket)).await.is_err()
}

fn delay(delay: Duration) -> LinkConfig {
    LinkConfig { delay, ..LinkConfig::default() }
}

#[test]
fn a_datagram_arrives_when_the_link_delivers_it_to_the_nanosecond() {
    run(async {
        let network = VirtualNetwork::new();
        let (client_socket, relay_socket) = (network.socket(client()), network.socket(relay()));
        // 1,222 bytes and 28 of headers take 100 µs at 100 Mbit/s.
        let up = LinkConfig { rate: Some(Bitrate::from_mbit(100)), ..delay(Duration::from_micros(5_250)) };
        network.line(client(), relay(), up, delay(7 * MILLISECOND)).unwrap();
        send(&client_socket, relay(), &[1; 1_222], None).unwrap();
        send(&client_socket, relay(), &[2; 1_222], None).unwrap();
        let (contents, meta) = receive(&relay_socket).await;
        assert_eq!(elapsed(), Duration::from_micros(5_350));
        assert_eq!((contents[0], meta.addr, meta.dst_ip), (1, client(), Some(relay().ip())));
        receive(&relay_socket).await;
        assert_eq!(elapsed(), Duration::from_micros(5_450));
        send(&relay_socket, client(), b"back", None).unwrap();
        let (contents, meta) = receive(&client_socket).await;
        assert_eq!((&contents[..], meta.addr), (&b"back"[..], relay()));
        assert_eq!(elapsed(), Duration::from_micros(12_450));
    });
}

#[test]
fn timers_fire_on_time_while_datagrams_move_between_ticks() {
    run(async {
        let network = VirtualNetwork::new();
        let (client_socket, relay_socket) = (network.socket(client()), network.socket(relay()));
        network.line(client(), relay(), delay(Duration::from_micros(330)), delay(Duration::ZERO)).unwrap();
        let echo = tokio::spawn(async move {
            loop {
                let (contents, meta) = receive(&relay_socket).await;
                send(&relay_socket, meta.addr, &contents, None).unwrap();
            }
        });
        let pings = tokio::spawn(async move {
            loop {
                send(&client_socket, relay(), b"ping", None).unwrap();
                receive(&client_socket).await;
            }
        });
        for tick in 1..=20 {
            tokio::time::sleep(MILLISECOND).await;
            assert_eq!(elapsed(), tick * MILLISECOND);
        }
        echo.abort();
        pings.abort();
    });
}

#[test]
fn a_batch_is_split_into_datagrams_before_the_link() {
    run(async {
        let network = VirtualNetwork::new();
        let (client_socket, relay_socket) = (network.socket(client()), network.socket(relay()));
        let line = network.line(client(), relay(), delay(MILLISECOND), delay(MILLISECOND)).unwrap();
        send(&client_socket, relay(), &[7; 2_500], Some(1_000)).unwrap();
        let mut lengths = Vec::new();
        for _ in 0..3 {
            lengths.push(receive(&relay_socket).await.0.len());
        }
        assert_eq!(lengths, [1_000, 1_000, 500]);
        assert_eq!(line.counters(Direction::Up).offered, 3);
    });
}

#[test]
fn a_rebound_line_shows_its_new_address_and_forgets_the_old_one() {
    run(async {
        let network = VirtualNetwork::new();
        let (client_socket, relay_socket) = (network.socket(client()), network.socket(relay()));
        let line = network.line(client(), relay(), delay(MILLISECOND), delay(MILLISECOND)).unwrap();
        line.rebind(public());
        send(&client_socket, relay(), b"new", None).unwrap();
        assert_eq!(receive(&relay_socket).await.1.addr, public());
        send(&relay_socket, client(), b"to the old address", None).unwrap();
        assert!(nothing_arrives(&client_socket).await);
        send(&relay_socket, public(), b"to the new address", None).unwrap();
        assert_eq!(receive(&client_socket).await.0, b"to the new address");
    });
}

#[test]
fn a_neighbour_on_the_same_line_stands_in_the_same_queue() {
    run(async {
        let network = VirtualNetwork::new();
        let neighbour: SocketAddr = ([100, 64, 0, 2], 5000).into();
        let (client_socket, relay_socket) = (network.socket(client()), network.socket(relay()));
        let neighbour_socket = network.socket(neighbour);
        let up = LinkConfig { rate: Some(Bitrate::from_mbit(10)), ..delay(MILLISECOND) };
        let line = network.line(client(), relay(), up, delay(MILLISECOND)).unwrap();
        line.share(neighbour, relay());
        // 1,222 bytes and 28 of headers take 1 ms at 10 Mbit/s.
        send(&client_socket, relay(), &[1; 1_222], None).unwrap();
        send(&neighbour_socket, relay(), &[2; 1_222], None).unwrap();
        assert_eq!(receive(&relay_socket).await.1.addr, client());
        assert_eq!(receive(&relay_socket).await.1.addr, neighbour);
        assert_eq!(elapsed(), 3 * MILLISECOND);
        send(&relay_socket, neighbour, b"back", None).unwrap();
        assert_eq!(receive(&neighbour_socket).await.0, b"back");
        assert_eq!(line.counters(Direction::Up).delivered, 2);
    });
}

#[test]
fn a_cut_direction_is_silent_and_the_other_is_not() {
    run(async {
        let network = VirtualNetwork::new();
        let (client_socket, relay_socket) = (network.socket(client()), network.socket(relay()));
        let line = network.line(client(), relay(), delay(MILLISECOND), delay(MILLISECOND)).unwrap();
        line.cut(Direction::Up);
        send(&client_socket, relay(), b"lost", None).unwrap();
        assert!(nothing_arrives(&relay_socket).await);
        send(&relay_socket, client(), b"down", None).unwrap();
        receive(&client_socket).await;
        line.restore(Direction::Up);
        send(&client_socket, relay(), b"up", None).unwrap();
        receive(&relay_socket).await;
        assert_eq!(line.counters(Direction::Up).outage_dropped, 1);
    });
}

#[test]
fn each_fault_is_the_error_it_names_and_ends_when_taken_away() {
    run(async {
        let network = VirtualNetwork::new();
        let socket = network.socket(client());
        for (fault, number) in [
            (SendFault::NetworkUnreachable, libc::ENETUNREACH),
            (SendFault::NotPermitted, libc::EPERM),
            (SendFault::NoBuffers, libc::ENOBUFS),
            (SendFault::AddressGone, libc::EADDRNOTAVAIL),
        ] {
            socket.set_fault(Some(fault));
            let error = send(&socket, relay(), b"x", None).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(number), "{fault:?}");
        }
        socket.set_fault(None);
        send(&socket, relay(), b"x", None).unwrap();
        assert_eq!(socket.failed_sends(), 4);
    });
}

#[test]
fn refused_segmentation_fails_batches_only_and_lowers_the_limit() {
    run(async {
        let network = VirtualNetwork::new();
        let socket = network.socket(client());
        assert!(socket.max_transmit_segments() > 1);
        socket.set_fault(Some(SendFault::SegmentationRefused));
        send(&socket, relay(), &[0; 100], Some(100)).unwrap();
        let error = send(&socket, relay(), &[0; 200], Some(100)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(socket.max_transmit_segments(), 1);
    });
}

#[test]
fn a_full_buffer_blocks_until_it_drains() {
    run(async {
        let network = VirtualNetwork::new();
        let socket = network.socket(client());
        socket.set_fault(Some(SendFault::BufferFull));
        assert_eq!(send(&socket, relay(), b"x", None).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        let waiting = tokio::spawn(socket.clone().writable());
        tokio::time::sleep(MILLISECOND).await;
        assert!(!waiting.is_finished());
        socket.set_fault(None);
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn a_wildcard_socket_says_where_a_datagram_came_in_and_answers_from_there() {
    run(async {
        let network = VirtualNetwork::new();
        let second: SocketAddr = ([198, 51, 100, 2], 4433).into();
        let client_socket = network.socket(client());
        let relay_socket = network.wildcard_socket(([0, 0, 0, 0], 4433).into(), &[relay(), second]);
        network.line(client(), second, delay(MILLISECOND), delay(MILLISECOND)).unwrap();
        send(&client_socket, second, b"hello", None).unwrap();
        let (contents, meta) = receive(&relay_socket).await;
        assert_eq!(meta.dst_ip, Some(second.ip()));
        let answer = Transmit {
            destination: meta.addr,
            ecn: None,
            contents: &contents,
            segment_size: None,
            src_ip: meta.dst_ip,
        };
        relay_socket.try_send(&answer).unwrap();
        assert_eq!(receive(&client_socket).await.1.addr, second);
        // From its first address no line leads to this client.
        send(&relay_socket, client(), b"astray", None).unwrap();
        assert_eq!(network.unroutable(), 1);
    });
}

#[test]
fn an_attacker_on_the_wire_adds_datagrams_under_the_line_s_address() {
    run(async {
        let network = VirtualNetwork::new();
        let (client_socket, relay_socket) = (network.socket(client()), network.socket(relay()));
        let line = network.line(client(), relay(), delay(MILLISECOND), delay(MILLISECOND)).unwrap();
        let interval = Duration::from_micros(120);
        let hostility = Hostility { interval, vantage: Vantage::Entrance, seed: 1 };
        line.set_hostility(Direction::Down, Some(hostility));
        send(&relay_socket, client(), b"true", None).unwrap();
        let mut genuine = 0;
        let end = tokio::time::Instant::now() + 10 * MILLISECOND;
        while let Ok((contents, meta)) = tokio::time::timeout_at(end, receive(&client_socket)).await {
            assert_eq!(meta.addr, relay());
            genuine += usize::from(contents == b"true");
        }
        assert!(line.forged(Direction::Down) > 80, "{}", line.forged(Direction::Down));
        assert!(genuine > 1, "replays arrive as well");
        line.set_hostility(Direction::Down, None);
    });
}

#[test]
fn a_dropped_socket_frees_its_address_and_what_is_sent_there_is_counted() {
    run(async {
        let network = VirtualNetwork::new();
        let client_socket = network.socket(client());
        drop(network.socket(relay()));
        network.line(client(), relay(), delay(MILLISECOND), delay(MILLISECOND)).unwrap();
        send(&client_socket, relay(), b"nobody there", None).unwrap();
        tokio::time::sleep(2 * MILLISECOND).await;
        assert_eq!(network.unroutable(), 1);
        let relay_socket = network.socket(relay());
        assert!(network.inject(public(), relay(), Bytes::from_static(b"from anywhere")));
        assert_eq!(receive(&relay_socket).await.1.addr, public());
    });
}
