//! A relay in this process and clients of it that speak the protocol by hand, over loopback.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

pub(crate) mod log;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::transport::{
    Client, ConnectConfig, ConnectError, Connection, PathSocket, PathSpec, Stream, UdpPathSocket,
};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::Mode;
use tandem_proto::pairing::Secret;
use tandem_proto::wire::flow::{
    CloseCode, ControlMessage, FRAME_HEAD, Hello, OpenError, Target, VersionRange, decode_answer, encode_request,
    frame_length,
};
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::identity::Identity;
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Limits, Measuring, Monitor, Relay, RelayConfig};
use tandem_relay::tokens::{Authority, Renewer, Revoked, Verifier};
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A relay that listens on loopback, and what it takes to use it.
pub(crate) struct Bed {
    pub(crate) address: SocketAddr,
    pub(crate) pin: [u8; 32],
    pub(crate) authority: Authority,
    pub(crate) revoked: watch::Sender<Arc<Revoked>>,
    pub(crate) next_pin: watch::Sender<Option<[u8; 32]>>,
    pub(crate) drain: CancellationToken,
    pub(crate) monitor: Monitor,
    pub(crate) serving: JoinHandle<()>,
}

impl Bed {
    /// A relay that lets clients reach the networks in `allow`.
    pub(crate) fn start(allow: &[&str], limits: Limits) -> Self {
        let authority = Authority::generate().unwrap();
        let bed = Self::with_tokens(allow, limits, authority.verifier(), None);
        Self { authority, ..bed }
    }

    /// The same, with tokens of another authority.
    pub(crate) fn with_tokens(
        allow: &[&str],
        limits: Limits,
        verifier: Verifier,
        renewer: Option<Arc<Renewer>>,
    ) -> Self {
        let socket = udp_socket();
        let address = socket.local_addr().unwrap();
        let identity = Identity::generate().unwrap();
        let pin = identity.pin();
        let authority = Authority::generate().unwrap();
        let (revoked, receiver) = watch::channel(Arc::default());
        let next_pin = watch::Sender::new(Some([9; 32]));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let measuring = Some(Measuring::new(vec![TcpListener::from_std(listener).unwrap()]).unwrap());
        let config = RelayConfig {
            identity,
            next_pin: next_pin.subscribe(),
            renewer,
            verifier,
            revoked: receiver,
            limits,
            measuring,
            seed: None,
        };
        let rules = AccessRules::new(allow.iter().map(|net| net.parse().unwrap()).collect());
        let relay = Relay::bind(config, vec![socket], TcpEgress::new(rules, OwnAddresses::default())).unwrap();
        let (drain, monitor) = (CancellationToken::new(), relay.monitor());
        let serving = tokio::spawn(relay.serve(drain.clone()));
        Bed { address, pin, authority, revoked, next_pin, drain, monitor, serving }
    }

    /// What the relay tells of the series that begins so.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = self.monitor.metrics();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{series} in\n{text}")).parse().unwrap()
    }

    /// A token that is good for an hour, and its id.
    pub(crate) fn token(&self) -> (Secret, String) {
        let hour = Duration::from_secs(3600);
        let (token, claims) = self.authority.issue("test", OffsetDateTime::now_utc(), hour).unwrap();
        (token, claims.id)
    }

    /// A connection on which nothing has been said.
    pub(crate) async fn connect(&self) -> Connection {
        connect(self.address, self.pin).await
    }

    /// A session that was welcomed, with its control stream.
    pub(crate) async fn session(&self) -> (Connection, Stream) {
        let connection = self.connect().await;
        let (control, answer) = say_hello(&connection, hello(self.token().0)).await;
        assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");
        (connection, control)
    }
}

fn udp_socket() -> Arc<dyn PathSocket> {
    UdpPathSocket::new(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap()
}

pub(crate) async fn connect(address: SocketAddr, pin: [u8; 32]) -> Connection {
    try_connect(address, pin).await.unwrap()
}

pub(crate) async fn try_connect(address: SocketAddr, pin: [u8; 32]) -> Result<Connection, ConnectError> {
    let config = ConnectConfig { pins: vec![pin], congestion: Algorithm::Cubic, mode: Mode::Single, seed: None };
    let path = PathSpec { interface: "lo".to_owned(), socket: udp_socket(), remote: address };
    timeout(PATIENCE, Client::connect(config, vec![path])).await.unwrap()
}

pub(crate) fn hello(token: Secret) -> Hello {
    let client = "test".to_owned();
    Hello { versions: VersionRange::OURS, features: 0, congestion: Some(Algorithm::NewReno), token, client }
}

/// Sends a Hello on a new stream; answers with the stream and the relay's answer.
pub(crate) async fn say_hello(connection: &Connection, hello: Hello) -> (Stream, ControlMessage) {
    let mut control = connection.open_stream().await.unwrap();
    write(&mut control, &ControlMessage::Hello(hello)).await;
    let answer = read(&mut control).await;
    (control, answer)
}

pub(crate) async fn write(control: &mut Stream, message: &ControlMessage) {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    control.send.write_all(&frame).await.unwrap();
}

pub(crate) async fn read(control: &mut Stream) -> ControlMessage {
    let whole = async {
        let mut head = [0; FRAME_HEAD];
        control.recv.read_exact(&mut head).await.unwrap();
        let mut frame = head.to_vec();
        frame.resize(frame_length(&head).unwrap(), 0);
        control.recv.read_exact(&mut frame[FRAME_HEAD..]).await.unwrap();
        ControlMessage::decode(&frame).unwrap().unwrap().0
    };
    timeout(PATIENCE, whole).await.unwrap()
}

/// Opens a flow; answers with the stream and the relay's answer.
pub(crate) async fn open(connection: &Connection, target: &str) -> (Stream, Result<(), OpenError>) {
    let target: Target = target.parse().unwrap();
    let mut stream = connection.open_stream().await.unwrap();
    let mut request = Vec::new();
    encode_request(&target, &mut request).unwrap();
    stream.send.write_all(&request).await.unwrap();
    let mut answer = [0];
    timeout(PATIENCE, stream.recv.read_exact(&mut answer)).await.unwrap().unwrap();
    (stream, decode_answer(answer[0]))
}

/// Waits for the relay to close the connection; answers with its code.
pub(crate) async fn closed(connection: &Connection) -> Option<CloseCode> {
    let closed = timeout(PATIENCE, connection.closed()).await.expect("the relay closes the connection");
    closed.code.and_then(CloseCode::from_code)
}

/// A listener on loopback, and its address as a target.
pub(crate) async fn origin() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    (listener, target)
}

pub(crate) async fn accept(listener: &TcpListener) -> TcpStream {
    timeout(PATIENCE, listener.accept()).await.unwrap().unwrap().0
}

/// Everything that a stream brings until its clean end.
pub(crate) async fn read_to_end(stream: &mut Stream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(chunk) = timeout(PATIENCE, stream.recv.read_chunk()).await.unwrap().unwrap() {
        all.extend_from_slice(&chunk);
    }
    all
}
