//! The pump between flows in memory and the kernel's TCP on loopback.

use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::dial::memory::{self as flow_memory, Line};

const DEADLINE: Duration = Duration::from_secs(10);

/// An application, a pump on its connection, the flow, a pump on the other side and the target.
struct Chain {
    app: TcpStream,
    target: TcpStream,
    near: JoinHandle<PumpStats>,
    far: JoinHandle<PumpStats>,
    line: Line,
}

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connect = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connect, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

async fn chain(window_bytes: usize) -> Chain {
    let (app, inbound) = tcp_pair().await;
    let (egress, target) = tcp_pair().await;
    let (near, far, line) = flow_memory::pair(window_bytes);
    Chain { app, target, near: tokio::spawn(pump(near, inbound)), far: tokio::spawn(pump(far, egress)), line }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("the condition holds within the deadline")
}

async fn assert_reset(stream: &mut TcpStream) {
    let error = within(stream.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// A pattern whose every byte depends on its place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + place / 251) as u8).collect()
}

/// TCP-1
#[tokio::test]
async fn a_client_that_finishes_writing_still_gets_the_whole_reply() {
    let mut chain = chain(16 * 1024).await;
    let (request, reply) = (pattern(300_000), pattern(500_000));
    let sent = request.clone();
    let target = tokio::spawn(async move {
        let mut got = Vec::new();
        chain.target.read_to_end(&mut got).await.unwrap();
        chain.target.write_all(&reply).await.unwrap();
        got
    });
    let (mut reader, mut writer) = chain.app.split();
    within(writer.write_all(&sent)).await.unwrap();
    writer.shutdown().await.unwrap();
    let mut got = Vec::new();
    within(reader.read_to_end(&mut got)).await.unwrap();
    assert!(got == pattern(500_000));
    assert!(within(target).await.unwrap() == request);
    let stats = within(chain.near).await.unwrap();
    assert_eq!(stats, PumpStats { to_flow_bytes: 300_000, to_tcp_bytes: 500_000, end: PumpEnd::Finished });
    assert_eq!(within(chain.far).await.unwrap().end, PumpEnd::Finished);
}

/// TCP-1, the other way round.
#[tokio::test]
async fn a_target_that_finishes_first_still_gets_what_the_client_sends_later() {
    let mut chain = chain(16 * 1024).await;
    chain.target.shutdown().await.unwrap();
    assert_eq!(within(chain.app.read(&mut [0; 8])).await.unwrap(), 0);
    chain.app.write_all(b"later").await.unwrap();
    chain.app.shutdown().await.unwrap();
    let mut got = Vec::new();
    within(chain.target.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got, b"later");
}

/// TCP-2
#[tokio::test]
async fn a_reset_by_the_target_resets_the_client() {
    let mut chain = chain(16 * 1024).await;
    reset(chain.target);
    assert_reset(&mut chain.app).await;
    assert_eq!(within(chain.far).await.unwrap().end, PumpEnd::TcpReset);
    assert_eq!(within(chain.near).await.unwrap().end, PumpEnd::FlowReset);
}

/// TCP-2
#[tokio::test]
async fn a_reset_by_the_client_resets_the_target() {
    let mut chain = chain(16 * 1024).await;
    reset(chain.app);
    assert_reset(&mut chain.target).await;
}

/// TCP-2, when no read is outstanding that could find the reset.
#[tokio::test]
async fn a_reset_after_a_finished_half_passes_without_any_data_moving() {
    let mut chain = chain(16 * 1024).await;
    chain.app.shutdown().await.unwrap();
    assert_eq!(within(chain.target.read(&mut [0; 8])).await.unwrap(), 0);
    reset(chain.app);
    let error = within(async {
        loop {
            // The target only finds out by writing, as with any TCP connection whose read half has ended.
            if let Err(error) = chain.target.write_all(b"reply").await {
                break error;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{error}");
}

/// TCP-2, while the other side's window is full.
#[tokio::test]
async fn a_reset_passes_while_the_flow_is_held_back() {
    let mut chain = chain(1024).await;
    let Chain { app, near, .. } = &mut chain;
    // Nobody reads at the target, so writes stop once every buffer on the way is full.
    let chunk = pattern(1 << 20);
    while timeout(Duration::from_millis(200), app.write_all(&chunk)).await.is_ok() {}
    assert!(!near.is_finished());
    reset(chain.app);
    assert_eq!(within(chain.near).await.unwrap().end, PumpEnd::TcpReset);
    assert_eq!(within(chain.far).await.unwrap().end, PumpEnd::FlowReset);
}

/// TCP-3
#[tokio::test]
async fn all_data_before_a_clean_close_arrives_in_many_short_flows() {
    for round in 0..200 {
        let mut chain = chain(4096).await;
        let data = pattern(1 + round * 97);
        let copy = data.clone();
        let writer = tokio::spawn(async move {
            chain.target.write_all(&copy).await.unwrap();
            drop(chain.target);
        });
        let mut got = Vec::new();
        within(chain.app.read_to_end(&mut got)).await.unwrap();
        assert!(got == data, "round {round}: {} of {} bytes", got.len(), data.len());
        drop(chain.app);
        within(writer).await.unwrap();
        assert_eq!(within(chain.near).await.unwrap().end, PumpEnd::Finished);
        assert_eq!(within(chain.far).await.unwrap().end, PumpEnd::Finished);
    }
}

#[tokio::test]
async fn what_was_read_ahead_goes_first_on_either_side() {
    let (mut app, inbound) = tcp_pair().await;
    let (egress, mut target) = tcp_pair().await;
    // A window smaller than what was read ahead.
    let (near, far, _line) = flow_memory::pair(1000);
    let early = Early { to_flow: pattern(5000).into(), to_tcp: b"hello ".as_slice().into() };
    let near = tokio::spawn(pump_after(near, inbound, None, early));
    tokio::spawn(pump(far, egress));
    app.write_all(b"later").await.unwrap();
    app.shutdown().await.unwrap();
    target.write_all(b"you").await.unwrap();
    target.shutdown().await.unwrap();
    let (mut at_target, mut at_app) = (Vec::new(), Vec::new());
    within(target.read_to_end(&mut at_target)).await.unwrap();
    within(app.read_to_end(&mut at_app)).await.unwrap();
    assert!(at_target == [&pattern(5000)[..], b"later"].concat());
    assert_eq!(at_app, b"hello you");
    let stats = within(near).await.unwrap();
    assert_eq!(stats, PumpStats { to_flow_bytes: 5005, to_tcp_bytes: 9, end: PumpEnd::Finished });
}

#[tokio::test]
async fn a_lost_session_resets_both_tcp_sides() {
    let mut chain = chain(4096).await;
    chain.line.cut();
    assert_reset(&mut chain.app).await;
    assert_reset(&mut chain.target).await;
    assert_eq!(within(chain.near).await.unwrap().end, PumpEnd::FlowLost);
}

#[tokio::test]
async fn an_aborted_pump_resets_rather_than_closes() {
    let mut chain = chain(4096).await;
    chain.near.abort();
    assert_reset(&mut chain.app).await;
    assert_reset(&mut chain.target).await;
}

#[tokio::test]
async fn a_slow_reader_holds_the_writer_back() {
    let chain = chain(4096).await;
    let mut written = 0;
    let chunk = pattern(256 * 1024);
    while let Ok(result) = timeout(Duration::from_millis(200), chain.app.writable()).await {
        result.unwrap();
        if let Ok(length) = chain.app.try_write(&chunk) {
            written += length;
        }
        assert!(written < 64 << 20, "nothing held the writer back");
    }
    assert!(!chain.near.is_finished());
}

#[tokio::test(start_paused = true)]
async fn connections_in_memory_finish_and_reset_like_the_kernels() {
    let (mut app, inbound) = memory::pair(1000);
    let (egress, mut target) = memory::pair(1000);
    let (near, far, _line) = flow_memory::pair(500);
    let near = tokio::spawn(pump(near, inbound));
    tokio::spawn(pump(far, egress));
    let data = pattern(20_000);
    let copy = data.clone();
    let echo = tokio::spawn(async move {
        let mut got = Vec::new();
        target.read_to_end(&mut got).await.unwrap();
        target.write_all(b"done").await.unwrap();
        target.shutdown().await.unwrap();
        got
    });
    app.write_all(&copy).await.unwrap();
    app.shutdown().await.unwrap();
    let mut reply = Vec::new();
    within(app.read_to_end(&mut reply)).await.unwrap();
    assert_eq!(reply, b"done");
    assert!(within(echo).await.unwrap() == data);
    assert_eq!(within(near).await.unwrap().end, PumpEnd::Finished);

    let (app, inbound) = memory::pair(1000);
    let (near, mut far, _line) = flow_memory::pair(500);
    let near = tokio::spawn(pump(near, inbound));
    app.reset();
    assert_eq!(within(near).await.unwrap().end, PumpEnd::TcpReset);
    assert_eq!(poll_fn(|cx| far.recv.poll_chunk(cx)).await, Err(FlowEnd::Reset));
}
