//! Inbounds over the kernel's loopback, with a dial that connects by itself.

use std::future::{Future, pending};
use std::net::Ipv4Addr;
use std::pin::Pin;

use tandem_proto::pairing::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::dial::loopback::Loopback;

const DEADLINE: Duration = Duration::from_secs(10);

pub(super) struct Running {
    pub(super) local: SocketAddr,
    pub(super) flows: Arc<FlowGauge>,
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<()>,
}

pub(super) async fn start(service: Service, dial: impl Dial) -> Running {
    let inbound = Inbound::bind((Ipv4Addr::LOCALHOST, 0).into(), service).await.unwrap();
    let local = inbound.local_address();
    let (flows, stop) = (Arc::new(FlowGauge::default()), CancellationToken::new());
    let task = tokio::spawn(inbound.serve(Arc::new(dial), Arc::clone(&flows), stop.clone()));
    Running { local, flows, stop, task }
}

/// An origin that answers every connection with what it was sent, upper case, after the client has finished.
pub(super) async fn shouting_origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut got = Vec::new();
                if tcp.read_to_end(&mut got).await.is_ok() {
                    let _ = tcp.write_all(&got.to_ascii_uppercase()).await;
                }
            });
        }
    });
    address
}

fn request(host: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, 3, host.len() as u8], host, &port.to_be_bytes()[..]].concat()
}

pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("the condition holds within the deadline")
}

/// Sends the greeting and a request for a name; answers with the reply code and the connection.
async fn connect(proxy: SocketAddr, host: &[u8], port: u16) -> (u8, TcpStream) {
    let mut tcp = TcpStream::connect(proxy).await.unwrap();
    tcp.write_all(&[5, 1, 0]).await.unwrap();
    tcp.write_all(&request(host, port)).await.unwrap();
    let mut replies = [0; 12];
    within(tcp.read_exact(&mut replies)).await.unwrap();
    assert_eq!(replies[..2], [5, 0]);
    (replies[3], tcp)
}

async fn shout(mut tcp: TcpStream, words: &[u8]) -> Vec<u8> {
    tcp.write_all(words).await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut got = Vec::new();
    within(tcp.read_to_end(&mut got)).await.unwrap();
    got
}

pub(super) fn origin_name() -> Loopback {
    Loopback { names: vec![("origin.test".to_owned(), Ipv4Addr::LOCALHOST.into())] }
}

/// A dial that always fails in one way.
pub(super) struct Failing(pub(super) DialError);

impl Dial for Failing {
    fn open_tcp(&self, _: Target) -> Pin<Box<dyn Future<Output = Result<Flow, DialError>> + Send + '_>> {
        Box::pin(async { Err(self.0.clone()) })
    }
}

/// A dial that never answers.
pub(super) struct Silent;

impl Dial for Silent {
    fn open_tcp(&self, _: Target) -> Pin<Box<dyn Future<Output = Result<Flow, DialError>> + Send + '_>> {
        Box::pin(pending())
    }
}

/// SOCKS-1 and SOCKS-7 (the client's half: the name reaches the dial as it is)
#[tokio::test]
async fn a_client_that_sends_byte_by_byte_is_served_like_any_other() {
    let origin = shouting_origin().await;
    let proxy = start(Service::Proxy(None), origin_name()).await;
    let mut tcp = TcpStream::connect(proxy.local).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    for byte in [&[5, 2, 0, 2][..], &request(b"origin.test", origin.port())].concat() {
        tcp.write_all(&[byte]).await.unwrap();
        sleep(Duration::from_millis(2)).await;
    }
    let mut replies = [0; 12];
    within(tcp.read_exact(&mut replies)).await.unwrap();
    assert_eq!(replies, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(shout(tcp, b"hello").await, b"HELLO");
}

/// SOCKS-1
#[tokio::test]
async fn data_sent_along_with_the_request_reaches_the_origin() {
    let origin = shouting_origin().await;
    let proxy = start(Service::Proxy(None), origin_name()).await;
    let mut tcp = TcpStream::connect(proxy.local).await.unwrap();
    let all = [&[5, 1, 0][..], &request(b"origin.test", origin.port()), b"early "].concat();
    tcp.write_all(&all).await.unwrap();
    let mut replies = [0; 12];
    within(tcp.read_exact(&mut replies)).await.unwrap();
    assert_eq!(shout(tcp, b"and late").await, b"EARLY AND LATE");
    assert_eq!(proxy.flows.total(), 1);
}

/// SOCKS-2
#[tokio::test]
async fn an_unacceptable_method_gets_ff_and_a_close() {
    let credentials = Credentials { user: "ann".to_owned(), password: Secret::new("secret".to_owned()) };
    for (credentials, greeting, answer) in [
        (None, &b"\x05\x01\x02"[..], &b"\x05\xff"[..]),
        (Some(credentials.clone()), b"\x05\x01\x00", b"\x05\xff"),
        (Some(credentials), b"\x05\x02\x00\x02\x01\x03ann\x05wrong", b"\x05\x02\x01\x01"),
    ] {
        let proxy = start(Service::Proxy(credentials), Silent).await;
        let mut tcp = TcpStream::connect(proxy.local).await.unwrap();
        tcp.write_all(greeting).await.unwrap();
        let mut got = Vec::new();
        within(tcp.read_to_end(&mut got)).await.unwrap();
        assert_eq!(got, answer);
    }
}

/// SOCKS-6
#[tokio::test]
async fn a_failure_reaches_the_client_as_its_reply_and_a_clean_close() {
    for (error, code) in [
        (DialError::Open(OpenError::Refused), 5),
        (DialError::Open(OpenError::NoRoute), 3),
        (DialError::Open(OpenError::NameNotFound), 4),
        (DialError::Open(OpenError::Forbidden), 2),
        (DialError::Open(OpenError::Limit), 1),
        (DialError::NotConnected, 1),
    ] {
        let proxy = start(Service::Proxy(None), Failing(error)).await;
        let (reply, mut tcp) = connect(proxy.local, b"origin.test", 80).await;
        assert_eq!(reply, code);
        // Data sent too early must not turn the close into a reset that eats the reply.
        let _ = tcp.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
        assert_eq!(within(tcp.read(&mut [0; 8])).await.unwrap(), 0);
        assert_eq!(proxy.flows.total(), 0);
    }
}

/// SOCKS-6
#[tokio::test(start_paused = true)]
async fn a_target_that_never_answers_gives_a_reply_within_ten_seconds() {
    let proxy = start(Service::Proxy(None), Silent).await;
    let start = Instant::now();
    let mut tcp = TcpStream::connect(proxy.local).await.unwrap();
    tcp.write_all(&[&[5, 1, 0][..], &request(b"origin.test", 80)].concat()).await.unwrap();
    let mut replies = [0; 12];
    tcp.read_exact(&mut replies).await.unwrap();
    assert_eq!(replies[3], 6);
    assert!(start.elapsed() <= OPEN_LIMIT + Duration::from_millis(100), "{:?}", start.elapsed());
}

/// SEC-3
#[tokio::test(start_paused = true)]
async fn a_client_that_trickles_its_handshake_is_closed_after_thirty_seconds_in_all() {
    let proxy = start(Service::Proxy(None), Silent).await;
    let start = Instant::now();
    let mut tcp = TcpStream::connect(proxy.local).await.unwrap();
    let trickle = async {
        for byte in [&[5, 255][..], &[1; 255]].concat() {
            if tcp.write_all(&[byte]).await.is_err() {
                break;
            }
            let mut answer = [0; 1];
            if let Ok(Ok(0) | Err(_)) = timeout(Duration::from_secs(4), tcp.read(&mut answer)).await {
                break;
            }
        }
    };
    trickle.await;
    let took = start.elapsed();
    assert!((HANDSHAKE_LIMIT..HANDSHAKE_LIMIT + Duration::from_secs(5)).contains(&took), "{took:?}");
}

/// SEC-3
#[tokio::test]
async fn eight_hundred_silent_clients_do_not_keep_a_good_one_out() {
    let needed = 2 * 800 + 200;
    let limit = rlimit::increase_nofile_limit(needed).unwrap();
    assert!(limit >= needed, "this test needs {needed} descriptors and may have {limit}");
    let origin = shouting_origin().await;
    let proxy = start(Service::Proxy(None), origin_name()).await;
    let mut silent = Vec::new();
    for _ in 0..800 {
        silent.push(TcpStream::connect(proxy.local).await.unwrap());
    }
    let (reply, tcp) = connect(proxy.local, b"origin.test", origin.port()).await;
    assert_eq!(reply, 0);
    assert_eq!(shout(tcp, b"still here").await, b"STILL HERE");
}

#[tokio::test]
async fn when_accepting_fails_the_oldest_dawdler_makes_room() {
    let waiting = Waiting::default();
    let dawdler = tokio::spawn(pending::<()>());
    let younger = tokio::spawn(pending::<()>());
    waiting.enter(|_| dawdler.abort_handle());
    waiting.enter(|_| younger.abort_handle());
    let shared = Shared {
        service: Service::Proxy(None),
        dial: Arc::new(Silent),
        flows: Arc::default(),
        stop: CancellationToken::new(),
        waiting,
        guesses: Mutex::default(),
    };
    shared.accept_failed(&io::ErrorKind::OutOfMemory.into()).await;
    assert!(within(dawdler).await.unwrap_err().is_cancelled());
    assert!(!younger.is_finished());
}

/// Whoever takes the port for something else is told so, and not left waiting.
#[tokio::test]
async fn other_protocols_get_a_refusal_of_their_own() {
    let proxy = start(Service::Proxy(None), Silent).await;
    for (words, refusal) in [
        (&b"\x04\x01\x00\x50\x7f\x00\x00\x01ann\x00"[..], &[0, 91, 0, 0, 0, 0, 0, 0][..]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", &[21, 3, 3, 0, 2, 2, 70]),
    ] {
        let mut tcp = TcpStream::connect(proxy.local).await.unwrap();
        tcp.write_all(words).await.unwrap();
        let mut got = Vec::new();
        within(tcp.read_to_end(&mut got)).await.unwrap();
        assert_eq!(got, refusal);
    }
}

#[tokio::test]
async fn a_forward_joins_its_clients_to_its_target() {
    let origin = shouting_origin().await;
    let target = Target { host: "origin.test".parse().unwrap(), port: origin.port() };
    let forward = start(Service::Forward(target), origin_name()).await;
    let tcp = TcpStream::connect(forward.local).await.unwrap();
    assert_eq!(shout(tcp, b"through").await, b"THROUGH");
}

#[tokio::test]
async fn a_forward_whose_target_fails_resets_the_client() {
    let target = "origin.test:80".parse().unwrap();
    let forward = start(Service::Forward(target), Failing(DialError::NotConnected)).await;
    let mut tcp = TcpStream::connect(forward.local).await.unwrap();
    let error = within(tcp.read(&mut [0; 8])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// TCP-3
#[tokio::test]
async fn a_stop_lets_finishing_flows_end_and_cuts_open_ones() {
    let origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = origin.local_addr().unwrap().port();
    let proxy = start(Service::Proxy(None), origin_name()).await;
    let (_, mut finishing) = connect(proxy.local, b"origin.test", port).await;
    let (mut finishing_origin, _) = origin.accept().await.unwrap();
    let (_, mut open) = connect(proxy.local, b"origin.test", port).await;
    let (_open_origin, _) = origin.accept().await.unwrap();
    finishing.write_all(b"last words").await.unwrap();
    finishing.shutdown().await.unwrap();
    let mut got = Vec::new();
    within(finishing_origin.read_to_end(&mut got)).await.unwrap();

    proxy.stop.cancel();
    sleep(Duration::from_millis(500)).await;
    assert!(!proxy.task.is_finished());
    finishing_origin.write_all(b"an answer").await.unwrap();
    drop(finishing_origin);
    let mut got = Vec::new();
    within(finishing.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got, b"an answer");
    within(proxy.task).await.unwrap();
    assert_eq!(within(open.read(&mut [0; 8])).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(proxy.flows.open(), 0);
    assert!(TcpStream::connect(proxy.local).await.is_err());
}
