//! The measuring service: bytes without meaning for clients that want to know how fast and how fair they are.
//!
//! In a session it is a flow of its own kind; beside it a client may measure plain TCP, for which it gets a ticket in its
//! session. Whoever has no ticket is closed without a word, so the port tells strangers nothing and sends them nothing.
//! What may run at the same time is bounded, in all and by time (`docs/PROTOCOL.md`, "Measuring").

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use tandem_core::dial::{FlowEnd, FlowSend as _};
use tandem_core::transport::{RecvStream, SendStream, Stream};
use tandem_proto::measure::Tickets;
use tandem_proto::wire::flow::{
    Grant, Measure, OpenError, TCP_HEAD, TICKET_LEN, UPLOAD_REPORT_MS, decode_tcp_head, encode_answer,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// Transfers at the same time, of all clients together.
const MOST_TRANSFERS: usize = 32;
/// TCP connections at the same time; more wait in the system's queue.
const MOST_CONNECTIONS: usize = 64;
/// How long a TCP connection may take to show its ticket.
const TICKET_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer than asked for an upload is read: what is on its way at its end.
const GRACE: Duration = Duration::from_secs(5);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is sent over and over. Nothing on the way compresses it.
static BLOCK: LazyLock<Vec<u8>> = LazyLock::new(|| {
    // Xorshift: good enough for what nobody reads.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..8 * 1024).flat_map(|_| next()).collect()
});

/// The service of one relay.
#[derive(Debug)]
pub struct Measuring {
    tickets: Mutex<Tickets>,
    places: Semaphore,
    listeners: Vec<TcpListener>,
    /// Where the listeners listen; `None` without any.
    port: Option<u16>,
}

impl Measuring {
    /// A service that also answers on `listeners`, which share a port; without any it measures in sessions alone.
    ///
    /// # Errors
    /// When a listener has no address.
    pub fn new(listeners: Vec<TcpListener>) -> io::Result<Self> {
        let port = listeners.first().map(TcpListener::local_addr).transpose()?.map(|address| address.port());
        let places = Semaphore::new(MOST_TRANSFERS);
        Ok(Self { tickets: Mutex::default(), places, listeners, port })
    }

    /// What a flow that asks for this gets.
    pub(crate) fn judge(&self, what: Measure) -> Result<Job<'_>, OpenError> {
        match (what, self.port) {
            (Measure::Ticket, None) => Err(OpenError::Forbidden),
            (Measure::Ticket, Some(port)) => {
                let mut ticket = [0; TICKET_LEN];
                SystemRandom::new().fill(&mut ticket).map_err(|_| OpenError::Internal)?;
                self.tickets.lock().issue(ticket, Instant::now().into_std());
                Ok(Job::Grant(Grant { port, ticket }))
            }
            (transfer, _) => {
                let place = self.places.try_acquire().map_err(|_| OpenError::Limit)?;
                Ok(Job::Transfer(transfer, place))
            }
        }
    }

    /// Serves TCP connections until dropped.
    pub(crate) async fn serve_tcp(self: Arc<Self>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(_) = connections.join_next() => {}
                accepted = self.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                    Ok(stream) => {
                        let service = Arc::clone(&self);
                        connections.spawn(async move { service.serve_connection(stream).await });
                    }
                    Err(error) => {
                        tracing::debug!(%error, "accepting a connection for measuring failed");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    /// A connection of any listener.
    async fn accept(&self) -> io::Result<TcpStream> {
        let accepted = poll_fn(|cx| {
            let ready = |listener: &TcpListener| match listener.poll_accept(cx) {
                Poll::Ready(accepted) => Some(accepted),
                Poll::Pending => None,
            };
            self.listeners.iter().find_map(ready).map_or(Poll::Pending, Poll::Ready)
        });
        Ok(accepted.await?.0)
    }

    async fn serve_connection(&self, mut stream: TcpStream) {
        let mut head = [0; TCP_HEAD];
        let Ok(Ok(_)) = timeout(TICKET_TIMEOUT, stream.read_exact(&mut head)).await else { return };
        let Ok((ticket, seconds)) = decode_tcp_head(&head) else { return };
        if !self.tickets.lock().redeem(&ticket, Instant::now().into_std()) {
            return;
        }
        let Ok(_place) = self.places.try_acquire() else { return };
        choose_cubic(&stream);
        let sending = async { while stream.write_all(&BLOCK).await.is_ok() {} };
        // Either way it is over: the client has gone, or the time is up.
        let _ = timeout(Duration::from_secs(seconds.into()), sending).await;
    }
}

/// What a flow of the service does.
pub(crate) enum Job<'s> {
    /// It brings a ticket.
    Grant(Grant),
    /// It moves bytes, as long as it holds its place.
    Transfer(Measure, SemaphorePermit<'s>),
}

impl Job<'_> {
    /// Answers, and does it.
    pub(crate) async fn run(self, stream: Stream) {
        let Stream { mut send, recv } = stream;
        if send.write_all(&[encode_answer(Ok(()))]).await.is_err() {
            return;
        }
        match self {
            Job::Grant(grant) => {
                if send.write_all(&grant.encode()).await.is_ok() {
                    end(send).await;
                }
            }
            Job::Transfer(Measure::Upload { seconds }, _place) => {
                let length = Duration::from_secs(seconds.into()) + GRACE;
                let _ = timeout(length, take(&mut send, recv)).await;
            }
            Job::Transfer(Measure::Download { seconds }, _place) => {
                let sending = async { while send.write_all(&BLOCK).await.is_ok() {} };
                let _ = timeout(Duration::from_secs(seconds.into()), sending).await;
            }
            Job::Transfer(Measure::Ticket, _) => {}
        }
    }
}

/// Reads an upload, and tells how much has come.
async fn take(send: &mut SendStream, mut recv: RecvStream) -> Result<(), FlowEnd> {
    let mut total = 0u64;
    let mut reports = interval(Duration::from_millis(UPLOAD_REPORT_MS));
    reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = reports.tick() => send.write_all(&total.to_be_bytes()).await?,
            chunk = recv.read_chunk() => match chunk? {
                Some(chunk) => total += chunk.len() as u64,
                None => return Ok(()),
            },
        }
    }
}

/// Ends a stream, and waits until the client has all of it.
async fn end(mut send: SendStream) {
    send.finish();
    let _ = poll_fn(|cx| send.poll_stopped(cx)).await;
}

/// The paper's competitor is CUBIC, and so is nearly everyone's; what the system's own default is, a relay's owner may
/// have changed.
fn choose_cubic(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_congestion(b"cubic") {
        tracing::debug!(%error, "TCP is measured with the system's own congestion control");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}
