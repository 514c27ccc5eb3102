//! Somebody else's download in virtual time: a TCP flow with CUBIC over one line of a bed, for judging how fair ours are.
//!
//! It is a model of the transport alone, with whole segments of 1,448 bytes: each transmission has a number, and an
//! acknowledgement tells which of the last 512 arrived, as selective acknowledgements and time stamps do together. The receiver
//! acknowledges every second segment, a segment out of order at once and a lone one after 40 ms. What was lost is known once
//! three later ones have arrived, and is sent again within the window. There is no pacing, as in a kernel's defaults.
//! The window is CUBIC's (RFC 9438); RFC 6298 gives the timeout. Once a handshake is over that is all that others on a link see.

mod cubic;
mod sender;

use std::future::poll_fn;
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use tandem_core::transport::PathSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::network::VirtualSocket;
use sender::{MAP, Map, Sender, bytes, note};

/// Bytes of data in a segment, and of headers beyond what a link adds for IP and UDP: with both, and time stamps, a packet
/// has 1,500.
const MSS: usize = 1_448;
const HEADER: usize = 24;

const DELAYED_ACK: Duration = Duration::from_millis(40);

/// A download that lasts as long as this does.
#[derive(Debug)]
pub struct TcpFlow {
    delivered: Arc<AtomicU64>,
    _ends: JoinSet<()>,
}

impl TcpFlow {
    /// Begins to send from one socket to the other, which a line must join.
    pub(crate) fn start(server: Arc<VirtualSocket>, client: Arc<VirtualSocket>) -> Self {
        let delivered = Arc::new(AtomicU64::new(0));
        let mut ends = JoinSet::new();
        let (from, to) = (address(&server), address(&client));
        ends.spawn(send(server, to));
        ends.spawn(receive(client, from, delivered.clone()));
        Self { delivered, _ends: ends }
    }

    /// Bytes of data that have arrived, whatever is missing between them.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Relaxed)
    }

    /// What arrives within the next `time`, in Mbit/s.
    pub async fn goodput_mbps(&self, time: Duration) -> f64 {
        let before = self.delivered();
        tokio::time::sleep(time).await;
        (self.delivered() - before) as f64 * 8e-6 / time.as_secs_f64()
    }
}

fn address(socket: &VirtualSocket) -> SocketAddr {
    socket.local_addr().expect("a virtual socket has an address")
}

/// The next packet that arrives; its bytes are put at the start of `buffer`.
async fn next_packet(socket: &VirtualSocket, buffer: &mut [u8]) {
    let mut meta = [RecvMeta::default()];
    let arrived = poll_fn(|context| socket.poll_recv(context, &mut [IoSliceMut::new(buffer)], &mut meta)).await;
    arrived.expect("a virtual socket receives");
}

fn transmit(socket: &VirtualSocket, destination: SocketAddr, contents: &[u8]) {
    let transmit = Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None };
    // Nobody sets faults on these sockets.
    socket.try_send(&transmit).expect("a virtual socket sends");
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// The end that has the data.
async fn send(socket: Arc<VirtualSocket>, peer: SocketAddr) {
    let mut sender = Sender::new(now());
    let mut segment = [0; HEADER + MSS];
    let mut buffer = [0; 2 * MAP];
    loop {
        let now = now();
        while let Some(number) = sender.next_segment(now) {
            segment[..8].copy_from_slice(&number.to_be_bytes());
            transmit(&socket, peer, &segment);
        }
        tokio::select! {
            biased;
            () = next_packet(&socket, &mut buffer) => {
                let mut newest = [0; 8];
                newest.copy_from_slice(&buffer[..8]);
                sender.on_ack(u64::from_be_bytes(newest), &buffer[HEADER..HEADER + MAP], self::now());
            }
            () = sleep_until(sender.timeout_at().into()) => sender.on_timeout(self::now()),
        }
    }
}

/// The end that gets it.
async fn receive(socket: Arc<VirtualSocket>, peer: SocketAddr, delivered: Arc<AtomicU64>) {
    let mut buffer = [0; HEADER + MSS];
    let mut ack = [0; HEADER + MAP];
    let mut newest = None;
    let mut map = Map::default();
    let mut unacknowledged: Option<(u32, Instant)> = None;
    loop {
        let due = unacknowledged.map(|(_, since)| since + DELAYED_ACK);
        let arrived = tokio::select! {
            biased;
            () = next_packet(&socket, &mut buffer) => true,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => false,
        };
        let mut at_once = !arrived;
        if arrived {
            delivered.fetch_add(MSS as u64, Relaxed);
            let mut number = [0; 8];
            number.copy_from_slice(&buffer[..8]);
            let number = u64::from_be_bytes(number);
            at_once |= newest.map_or(0, |newest| newest + 1) != number;
            note(&mut map, &mut newest, number);
            let (count, since) = unacknowledged.unwrap_or((0, Instant::now()));
            unacknowledged = Some((count + 1, since));
            at_once |= count + 1 >= 2;
        }
        if at_once && let Some(newest) = newest {
            unacknowledged = None;
            ack[..8].copy_from_slice(&newest.to_be_bytes());
            ack[HEADER..].copy_from_slice(&bytes(&map));
            transmit(&socket, peer, &ack);
        }
    }
}
