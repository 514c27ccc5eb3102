//! Two sockets with a session between them, without QUIC: what one datagram costs our layer.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use tandem_proto::congestion::Algorithm;
use tandem_proto::keys::SECRET_LEN;
use tandem_proto::mode::Sides;
use tandem_proto::wire::header::HoldClass;

use super::*;
use crate::transport::socket::Writable;

const RELAY: ([u8; 4], u16) = ([198, 51, 100, 1], 4433);
const MS: Duration = Duration::from_millis(1);
const DATAGRAM: usize = 1_300;

/// Every port's queue. Grown, it allocates nothing.
#[derive(Debug, Default)]
struct Network {
    queues: HashMap<SocketAddr, VecDeque<(SocketAddr, Vec<u8>)>>,
    spare: Vec<Vec<u8>>,
    carried: u64,
    /// Every so many datagrams one gets lost; 0 for none.
    lose_every: u64,
}

#[derive(Debug)]
struct Port {
    network: Arc<Mutex<Network>>,
    own: SocketAddr,
}

impl PathSocket for Port {
    fn poll_recv(
        &self,
        _: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut network = self.network.lock();
        let mut filled = 0;
        while filled < bufs.len()
            && let Some((from, payload)) = network.queues.entry(self.own).or_default().pop_front()
        {
            bufs[filled][..payload.len()].copy_from_slice(&payload);
            meta[filled].addr = from;
            (meta[filled].len, meta[filled].stride) = (payload.len(), payload.len());
            filled += 1;
            network.spare.push(payload);
        }
        if filled > 0 { Poll::Ready(Ok(filled)) } else { Poll::Pending }
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let mut network = self.network.lock();
        for segment in transmit.contents.chunks(transmit.segment_size.unwrap_or(transmit.contents.len())) {
            network.carried += 1;
            if network.lose_every > 0 && network.carried.is_multiple_of(network.lose_every) {
                continue;
            }
            let mut payload = network.spare.pop().unwrap_or_else(|| Vec::with_capacity(2_048));
            payload.clear();
            payload.extend_from_slice(segment);
            network.queues.entry(transmit.destination).or_default().push_back((self.own, payload));
        }
        Ok(())
    }

    fn writable(self: Arc<Self>) -> Writable {
        Box::pin(std::future::ready(Ok(())))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.own)
    }

    fn max_transmit_segments(&self) -> usize {
        MOST_SEGMENTS
    }

    fn max_receive_segments(&self) -> usize {
        1
    }
}

/// What quinn would receive into.
struct Inbox {
    buffers: Vec<Vec<u8>>,
}

impl Inbox {
    /// Takes what is there; returns how many datagrams that was.
    fn receive(&mut self, socket: &BicastSocket) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let mut received = 0;
        loop {
            let mut buffers = self.buffers.iter_mut();
            let mut slices: [IoSliceMut<'_>; 4] =
                std::array::from_fn(|_| IoSliceMut::new(buffers.next().expect("four buffers")));
            let mut meta = [RecvMeta::default(); 4];
            match socket.poll_recv(&mut context, &mut slices, &mut meta) {
                Poll::Ready(Ok(filled)) => {
                    received += meta[..filled].iter().map(|meta| meta.len.div_ceil(meta.stride)).sum::<usize>();
                }
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Pending => return received,
            }
        }
    }
}

fn send(socket: &BicastSocket, session: u64, contents: &[u8], segment_size: Option<usize>) {
    let transmit = Transmit { destination: session_address(session), ecn: None, contents, segment_size, src_ip: None };
    socket.try_send(&transmit).unwrap();
}

#[tokio::test(start_paused = true)]
async fn datagrams_of_a_bicast_session_are_sent_and_received_without_allocating() {
    let network = Arc::new(Mutex::new(Network::default()));
    let port =
        |own: ([u8; 4], u16)| Arc::new(Port { network: Arc::clone(&network), own: own.into() }) as Arc<dyn PathSocket>;
    let now = || tokio::time::Instant::now().into_std();
    let mode = Mode::Bicast(Sides::Both);
    let client = BicastSocket::new(Role::Client, vec![port(([10, 0, 0, 1], 1)), port(([10, 0, 1, 1], 1))], 1);
    let at_client = client.add_session(0, mode, CongestionHandle::new(Algorithm::Cubic, now()), now());
    for socket in 0..2 {
        at_client.link.lock().add_path(PathAddress { socket, remote: RELAY.into(), local: None }, now()).unwrap();
    }
    let relay = BicastSocket::new(Role::Relay, vec![port(RELAY)], 2);
    let mut inbox = Inbox { buffers: vec![vec![0; 16 * 1_472]; 4] };

    // The handshake's first datagram makes the relay's session; then both have keys, and the paths join.
    send(&client, at_client.number, &[0xc0; 1_200], None);
    inbox.receive(&relay);
    let at_relay = relay.sessions.read().values().next().cloned().expect("a stranger is a session");
    at_relay.link.lock().set_keys(&[9; SECRET_LEN], now());
    relay.establish(&at_relay);
    at_client.link.lock().set_keys(&[9; SECRET_LEN], now());
    for _ in 0..2_000 {
        for (socket, session) in [(&client, &at_client), (&relay, &at_relay)] {
            let mut link = session.link.lock();
            link.handle_timeout(now());
            socket.after(session, &mut link, now());
        }
        inbox.receive(&relay);
        inbox.receive(&client);
        tokio::time::advance(MS).await;
    }
    assert_eq!(at_client.link.lock().joined_paths(), (2, 2));

    network.lock().lose_every = 17;
    at_relay.congestion.pacing().set_hold(HoldClass::Full);
    at_relay.congestion.pacing().limited(now(), MS);
    let data = [0x40; 3 * DATAGRAM];
    let mut download = |batches: usize| {
        let mut received = 0;
        for _ in 0..batches {
            send(&relay, at_relay.number, &data, Some(DATAGRAM));
            received += inbox.receive(&client);
            send(&client, at_client.number, &data[..40], None);
            inbox.receive(&relay);
        }
        received
    };
    // More than the window of numbers, so that all is grown.
    download(6_000);
    let mut received = 0;
    let measured = allocation_counter::measure(|| received = download(2_000));
    assert_eq!(received, 6_000, "no two copies of one datagram get lost, and each is handed on once");
    assert_eq!(measured.count_total, 0, "{measured:?}");
}
