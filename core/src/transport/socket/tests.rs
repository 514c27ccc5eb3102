//! The kernel's sockets when segmentation offload fails.
//!
//! Two real refusals are used. Linux answers EINVAL to an offloaded send on a socket without UDP checksums
//! (`SO_NO_CHECK`), and EIO on a UDP-Lite socket; plain sends pass on both.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::*;

const SEGMENT: usize = 1_000;
const DEADLINE: Duration = Duration::from_secs(10);
const IPPROTO_UDPLITE: i32 = 136;

fn udp() -> std::net::UdpSocket {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// From now on the kernel refuses to segment what this socket sends.
fn refuse_offload(socket: &UdpPathSocket) {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for the length of the call, and the option's value is an int of the length given.
    let done = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&socket.io),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            std::ptr::from_ref(&on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Sends a batch of datagrams, the last one shorter, in one transmit, each filled with its number.
async fn send_batch(socket: &UdpPathSocket, destination: SocketAddr, first: u8) -> io::Result<()> {
    // tokio knows that a socket is writable only once it has been asked.
    socket.io.writable().await?;
    let contents: Vec<u8> = (0..5 * SEGMENT - 300).map(|place| first + (place / SEGMENT) as u8).collect();
    let transmit = Transmit { destination, ecn: None, contents: &contents, segment_size: Some(SEGMENT), src_ip: None };
    send(socket, &transmit)
}

async fn batch_arrives(receiver: &tokio::net::UdpSocket, first: u8) {
    for number in 0..5 {
        let mut buffer = [0; 2 * SEGMENT];
        let length = tokio::time::timeout(DEADLINE, receiver.recv(&mut buffer)).await.expect("it arrives").unwrap();
        assert_eq!(length, if number == 4 { SEGMENT - 300 } else { SEGMENT });
        assert!(buffer[..length].iter().all(|byte| *byte == first + number), "datagram {number} of {first}");
    }
}

/// PATH-7: EINVAL, at once and after a while.
#[tokio::test]
async fn offload_that_is_refused_as_invalid_is_given_up_and_no_datagram_is_lost() {
    for at_once in [true, false] {
        let (sender, receiver) = (UdpPathSocket::new(udp()).unwrap(), plain_receiver(udp()));
        let destination = receiver.local_addr().unwrap();
        assert!(sender.max_transmit_segments() > 1, "this kernel has segmentation offload");
        if !at_once {
            send_batch(&sender, destination, 10).await.unwrap();
            batch_arrives(&receiver, 10).await;
            assert!(sender.max_transmit_segments() > 1);
        }
        refuse_offload(&sender);
        send_batch(&sender, destination, 20).await.unwrap();
        batch_arrives(&receiver, 20).await;
        assert_eq!(sender.max_transmit_segments(), 1);
        // What was put together before the limit was known goes out as well.
        send_batch(&sender, destination, 30).await.unwrap();
        batch_arrives(&receiver, 30).await;
    }
}

/// PATH-7: EIO, as drivers without checksum offload and IPsec routes give it.
#[tokio::test]
async fn offload_that_is_refused_with_an_io_error_is_given_up_and_no_datagram_is_lost() {
    let lite = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::from(IPPROTO_UDPLITE)))?;
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
        Ok::<std::net::UdpSocket, io::Error>(socket.into())
    };
    let (Ok(sender), Ok(receiver)) = (lite(), lite()) else {
        eprintln!("SKIPPED: this kernel has no UDP-Lite, the only unprivileged way to an EIO");
        return;
    };
    let (sender, receiver) = (UdpPathSocket::new(sender).unwrap(), plain_receiver(receiver));
    send_batch(&sender, receiver.local_addr().unwrap(), 10).await.unwrap();
    batch_arrives(&receiver, 10).await;
    assert_eq!(sender.max_transmit_segments(), 1);
}

/// PATH-8, on a real socket: an unreachable network is an error of that send, and the next one may pass.
#[tokio::test]
async fn a_send_that_fails_leaves_the_socket_usable() {
    let (sender, receiver) = (UdpPathSocket::new(udp()).unwrap(), plain_receiver(udp()));
    // A socket bound to loopback has no way to other networks.
    assert!(send_batch(&sender, "192.0.2.1:9".parse().unwrap(), 10).await.is_err());
    send_batch(&sender, receiver.local_addr().unwrap(), 20).await.unwrap();
    batch_arrives(&receiver, 20).await;
}

/// A receiver without receive offload, which sees datagrams one by one.
fn plain_receiver(socket: std::net::UdpSocket) -> tokio::net::UdpSocket {
    socket.set_nonblocking(true).unwrap();
    tokio::net::UdpSocket::from_std(socket).unwrap()
}
