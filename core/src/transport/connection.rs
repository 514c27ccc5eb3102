//! An established session, as both ends use it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quinn::{ConnectionError, VarInt};
use tandem_proto::congestion::Algorithm;
use tandem_proto::hold::HoldCounters;
use tandem_proto::keys::{EXPORTER_LABEL, Role, SECRET_LEN};
use tandem_proto::link::{LinkCounters, LinkSnapshot, PathSigns};
use tandem_proto::mode::Mode;
use tandem_proto::path::order::PathOrder;
use tokio::sync::watch;

use super::bicast::BicastSocket;
use super::congestion::{HoldRule, Metrics};
use super::paths::{PathId, PathSpec, PathTable};
use super::session::Session;
use super::settings::SEND_WINDOW;
use super::stream::Stream;
use super::tls::{self, SpkiPin};

/// After the end of a session its last words may still be repeated.
const LINGER: Duration = Duration::from_secs(3);

/// How often a new session looks whether its paths have joined.
const JOIN_POLL: Duration = Duration::from_millis(2);

/// Goodput is taken over at least so long.
const RATE_INTERVAL: Duration = Duration::from_millis(200);

/// A session. Clones are the same session; it ends when it is closed or lost, not when they are dropped.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    quic: quinn::Connection,
    socket: Arc<BicastSocket>,
    session: Arc<Session>,
    role: Role,
    paths: Mutex<PathTable>,
    meter: Mutex<Meter>,
    /// The client's endpoint lives as long as its session.
    _endpoint: quinn::Endpoint,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionClosed {
    /// The code that the other end gave; `None` if the session was lost or closed by this end.
    pub code: Option<u32>,
    /// In words for a person.
    pub reason: String,
}

impl fmt::Display for ConnectionClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ConnectionClosed {}

impl From<ConnectionError> for ConnectionClosed {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => Self {
                code: u32::try_from(close.error_code.into_inner()).ok(),
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            ConnectionError::LocallyClosed => Self { code: None, reason: "closed by this end".to_owned() },
            ConnectionError::TimedOut => Self { code: None, reason: "the other end fell silent".to_owned() },
            ConnectionError::Reset => {
                Self { code: None, reason: "the other end no longer knows the session".to_owned() }
            }
            other => Self { code: None, reason: other.to_string() },
        }
    }
}

/// What a session's transport can tell of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionStats {
    /// Directions and paths; interfaces and local addresses are filled in on the client.
    pub link: LinkSnapshot,
    /// What the link counted besides.
    pub counters: LinkCounters,
    /// What this end's in-order hold did with what arrived.
    pub hold: HoldCounters,
    /// Smoothed round-trip time as QUIC sees it.
    pub srtt: Duration,
    /// What the congestion controller last decided.
    pub congestion: Metrics,
    /// Packets that QUIC sent, and those of them that it took for lost.
    pub packets_sent: u64,
    /// See `packets_sent`.
    pub packets_lost: u64,
    /// Acknowledgement frames that QUIC got.
    pub acknowledgements_received: u64,
    /// Largest QUIC datagram now, in bytes.
    pub mtu_bytes: u16,
}

#[derive(Default)]
struct Meter {
    at: Option<Instant>,
    sent: u64,
    received: u64,
    sent_mbps: f64,
    received_mbps: f64,
}

impl Connection {
    /// Sets a session up once its handshake is done: keys for the paths, and the clock's task.
    pub(super) fn establish(
        quic: quinn::Connection,
        socket: Arc<BicastSocket>,
        session: Arc<Session>,
        role: Role,
        endpoint: quinn::Endpoint,
        paths: PathTable,
    ) -> Self {
        let mut secret = [0; SECRET_LEN];
        quic.export_keying_material(&mut secret, EXPORTER_LABEL, b"").expect("a short secret can be exported");
        let now = tokio::time::Instant::now().into_std();
        {
            let mut link = session.link.lock();
            link.set_keys(&secret, now);
            socket.after(&session, &mut link, now);
        }
        if role == Role::Relay {
            socket.establish(&session);
        }
        tokio::spawn(super::session::keep_clock(Arc::clone(&socket), Arc::clone(&session)));
        let connection = Self(Arc::new(Inner {
            quic: quic.clone(),
            socket: Arc::clone(&socket),
            session: Arc::clone(&session),
            role,
            paths: Mutex::new(paths),
            meter: Mutex::default(),
            _endpoint: endpoint,
        }));
        tokio::spawn(async move {
            quic.closed().await;
            tokio::time::sleep(LINGER).await;
            socket.remove_session(&session);
        });
        connection
    }

    /// Opens a stream; waits while the other end allows no more.
    ///
    /// # Errors
    /// [`ConnectionClosed`] once the session has ended.
    pub async fn open_stream(&self) -> Result<Stream, ConnectionClosed> {
        Ok(Stream::new(self.0.quic.open_bi().await?, &self.0.session))
    }

    /// The next stream that the other end opened.
    ///
    /// # Errors
    /// [`ConnectionClosed`] once the session has ended.
    pub async fn accept_stream(&self) -> Result<Stream, ConnectionClosed> {
        Ok(Stream::new(self.0.quic.accept_bi().await?, &self.0.session))
    }

    /// Waits for the end of the session.
    pub async fn closed(&self) -> ConnectionClosed {
        self.0.quic.closed().await.into()
    }

    /// Ends the session at once: flows are lost, the other end is told the code and the reason.
    pub fn close(&self, code: u32, reason: &str) {
        self.0.quic.close(VarInt::from_u32(code), reason.as_bytes());
    }

    /// Changes how datagrams use the paths; on the client for both directions.
    pub fn set_mode(&self, mode: Mode) {
        let now = tokio::time::Instant::now().into_std();
        let mut link = self.0.session.link.lock();
        link.set_mode(mode, now);
        self.0.socket.after(&self.0.session, &mut link, now);
    }

    /// Changes the congestion controller of what this end sends.
    pub fn set_congestion(&self, algorithm: Algorithm) {
        self.0.session.congestion.set_algorithm(algorithm);
    }

    /// Lets the far side have so many streams open at once from now on; never fewer than before.
    pub fn allow_streams(&self, count: u32) {
        self.0.quic.set_max_concurrent_bi_streams(count.into());
    }

    /// Changes what is made of the far side's hold, for comparisons on the testbed.
    pub fn set_hold_rule(&self, rule: HoldRule) {
        self.0.session.congestion.set_hold_rule(rule);
    }

    /// Lets an admitted client have as much on its way as a session may, on the relay: towards it as usual, from it `most` bytes.
    pub fn admit(&self, most: u64) {
        self.0.quic.set_send_window(SEND_WINDOW);
        self.0.quic.set_receive_window(VarInt::from_u64(most).unwrap_or(VarInt::MAX));
    }

    /// Bytes of streams sent and received so far.
    pub fn stream_bytes(&self) -> (u64, u64) {
        (self.0.session.flow_bytes_sent.load(Relaxed), self.0.session.flow_bytes_received.load(Relaxed))
    }

    /// For how long nothing has come from the other end.
    pub fn silent_for(&self) -> Duration {
        let now = tokio::time::Instant::now().into_std();
        self.0.session.link.lock().silent_for(now)
    }

    /// Adds a network; `None` if the session has the most paths already.
    pub fn add_path(&self, spec: PathSpec) -> Option<PathId> {
        self.0.paths.lock().add(spec, &self.0.socket, &self.0.session)
    }

    /// Removes a network and tells the relay by the others.
    pub fn remove_path(&self, id: PathId) {
        self.0.paths.lock().remove(id, &self.0.socket, &self.0.session);
    }

    /// Says what a path is for and how fast it may go, in both directions. On the client only.
    pub fn set_order(&self, id: PathId, order: PathOrder) {
        let now = tokio::time::Instant::now().into_std();
        let mut link = self.0.session.link.lock();
        link.set_order(id, order, now);
        self.0.socket.after(&self.0.session, &mut link, now);
    }

    /// What every path has shown of itself.
    pub fn signs(&self) -> Vec<PathSigns> {
        self.0.session.link.lock().signs().collect()
    }

    /// Changes whenever a path begins or ceases to carry traffic.
    pub fn path_changes(&self) -> watch::Receiver<u64> {
        self.0.session.path_changes.subscribe()
    }

    /// Believes no path until it has answered again, and asks all at once; `why` is shown until then. On the client only.
    pub fn suspect_paths(&self, why: &str) {
        let now = tokio::time::Instant::now().into_std();
        let mut link = self.0.session.link.lock();
        link.suspect_all(why, now);
        self.0.socket.after(&self.0.session, &mut link, now);
    }

    /// Resolves once every path has joined, or some have and `patience` has passed.
    pub(super) async fn paths_joined(&self, patience: Duration) {
        let started = tokio::time::Instant::now();
        loop {
            let (joined, all) = self.0.session.link.lock().joined_paths();
            if joined == all || (joined > 0 && started.elapsed() >= patience) {
                return;
            }
            tokio::time::sleep(JOIN_POLL).await;
        }
    }

    /// The other end's addresses, one per path.
    pub fn remote_addresses(&self) -> Vec<SocketAddr> {
        self.0.session.link.lock().addresses().map(|address| address.remote).collect()
    }

    /// Whether both are the same session.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Smoothed round-trip time as QUIC sees it; right after the handshake, that of the handshake.
    pub fn round_trip(&self) -> Duration {
        self.0.quic.rtt()
    }

    /// How many streams are in use here, the control stream among them.
    pub fn open_streams(&self) -> usize {
        self.0.session.streams_open.load(Relaxed)
    }

    /// The pin of the key that the other end has proved to have; `None` if it showed none, as clients do.
    pub fn peer_pin(&self) -> Option<SpkiPin> {
        let identity = self.0.quic.peer_identity()?;
        let certificates = identity.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>().ok()?;
        tls::spki_pin(certificates.first()?).ok()
    }

    /// What there is to tell now.
    pub fn stats(&self) -> ConnectionStats {
        let now = tokio::time::Instant::now().into_std();
        let (mut link, counters, hold) = {
            let link = self.0.session.link.lock();
            (link.snapshot(now), link.counters(), link.hold_counters())
        };
        let session = &self.0.session;
        let (sent, received) = (session.flow_bytes_sent.load(Relaxed), session.flow_bytes_received.load(Relaxed));
        let (sent_mbps, received_mbps) = self.0.meter.lock().update(sent, received, now);
        let (own, peer) = match self.0.role {
            Role::Client => (&mut link.up, &mut link.down),
            Role::Relay => (&mut link.down, &mut link.up),
        };
        (own.flow_bytes, own.goodput_mbps) = (sent, sent_mbps);
        (peer.flow_bytes, peer.goodput_mbps) = (received, received_mbps);
        self.0.paths.lock().name(&mut link.paths);
        let quic = self.0.quic.stats();
        ConnectionStats {
            link,
            counters,
            hold,
            srtt: self.0.quic.rtt(),
            congestion: session.congestion.metrics(),
            packets_sent: quic.path.sent_packets,
            packets_lost: quic.path.lost_packets,
            acknowledgements_received: quic.frame_rx.acks,
            mtu_bytes: quic.path.current_mtu,
        }
    }
}

impl Meter {
    fn update(&mut self, sent: u64, received: u64, now: Instant) -> (f64, f64) {
        match self.at {
            Some(at) if now.saturating_duration_since(at) < RATE_INTERVAL => {}
            Some(at) => {
                let mbps = |bytes: u64| bytes as f64 * 8.0 / 1e6 / (now - at).as_secs_f64();
                self.sent_mbps = mbps(sent - self.sent);
                self.received_mbps = mbps(received - self.received);
                (self.at, self.sent, self.received) = (Some(now), sent, received);
            }
            None => (self.at, self.sent, self.received) = (Some(now), sent, received),
        }
        (self.sent_mbps, self.received_mbps)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("session", &self.0.session.number).finish_non_exhaustive()
    }
}
