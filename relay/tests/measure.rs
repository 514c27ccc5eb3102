//! The relay's measuring service, in sessions and by plain TCP.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod bed;

use std::time::Duration;

use bed::{Bed, PATIENCE};
use tandem_core::transport::{Connection, Stream};
use tandem_proto::wire::flow::{GRANT_LEN, Grant, Measure, OpenError, TICKET_LEN, decode_answer};
use tandem_relay::serve::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn ask(connection: &Connection, what: Measure) -> (Stream, Result<(), OpenError>) {
    let mut stream = connection.open_stream().await.unwrap();
    stream.send.write_all(&what.encode()).await.unwrap();
    let mut answer = [0];
    timeout(PATIENCE, stream.recv.read_exact(&mut answer)).await.unwrap().unwrap();
    (stream, decode_answer(answer[0]))
}

async fn grant(connection: &Connection) -> Grant {
    let (mut stream, answer) = ask(connection, Measure::Ticket).await;
    assert_eq!(answer, Ok(()));
    let mut grant = [0; GRANT_LEN];
    stream.recv.read_exact(&mut grant).await.unwrap();
    Grant::decode(&grant)
}

/// How much comes of a TCP connection that begins so, to its end.
async fn tcp(port: u16, head: &[u8]) -> usize {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(head).await.unwrap();
    let (mut total, mut buffer) = (0, vec![0; 1 << 20]);
    loop {
        match timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap() {
            Ok(length) if length > 0 => total += length,
            _ => return total,
        }
    }
}

#[tokio::test]
async fn in_a_session_bytes_come_and_go_for_as_long_as_was_asked() {
    let bed = Bed::start(&[], Limits::default());
    let (connection, _control) = bed.session().await;
    let (mut stream, answer) = ask(&connection, Measure::Download { seconds: 1 }).await;
    assert_eq!(answer, Ok(()));
    let mut down = 0;
    while let Ok(Some(chunk)) = timeout(PATIENCE, stream.recv.read_chunk()).await.unwrap() {
        down += chunk.len();
    }
    assert!(down > 100_000, "{down}");

    let (Stream { mut send, mut recv }, answer) = ask(&connection, Measure::Upload { seconds: 60 }).await;
    assert_eq!(answer, Ok(()));
    let sending = async { while send.write_all(&[7; 10_000]).await.is_ok() {} };
    let reports = async {
        let mut report = [0; 8];
        while u64::from_be_bytes(report) < 100_000 {
            recv.read_exact(&mut report).await.unwrap();
        }
    };
    tokio::select! {
        () = sending => panic!("the relay reads no more"),
        done = timeout(PATIENCE, reports) => done.unwrap(),
    }
}

/// SEC-2 (the measuring service is for clients alone)
#[tokio::test]
async fn by_tcp_a_ticket_brings_bytes_once_and_nothing_else_does() {
    let bed = Bed::start(&[], Limits::default());
    let (connection, _control) = bed.session().await;
    let grant = grant(&connection).await;
    let nobodys = Grant { ticket: [7; TICKET_LEN], ..grant };
    assert_eq!(tcp(grant.port, &nobodys.tcp_head(1)).await, 0);
    assert_eq!(tcp(grant.port, b"GET / HTTP/1.1\r\nHost: relay\r\n\r\n").await, 0);
    assert_eq!(tcp(grant.port, b"").await, 0, "silence is closed after a while");
    assert!(tcp(grant.port, &grant.tcp_head(1)).await > 100_000);
    assert_eq!(tcp(grant.port, &grant.tcp_head(1)).await, 0, "a second time");
}

#[tokio::test]
async fn no_more_is_measured_at_once_than_the_relay_bears() {
    let bed = Bed::start(&[], Limits::default());
    let (connection, _control) = bed.session().await;
    let mut open = Vec::new();
    loop {
        let (stream, answer) = ask(&connection, Measure::Upload { seconds: 60 }).await;
        if answer == Err(OpenError::Limit) {
            break;
        }
        assert_eq!(answer, Ok(()));
        open.push(stream);
        assert!(open.len() < 100);
    }
    drop(open);
    let freed = async {
        while ask(&connection, Measure::Upload { seconds: 1 }).await.1.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, freed).await.unwrap();
}
