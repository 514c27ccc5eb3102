//! The HTTP proxy over the kernel's loopback, with a dial that connects by itself and origins that a test plays.

mod endings;
mod limits;
mod messages;

use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::dial::{Dial, DialError, Flow, loopback::Loopback};
use crate::inbound::Service;
use crate::inbound::tests::{Failing, Running, Silent, origin_name, shouting_origin, start, within};

/// An origin that a test plays by hand.
struct Played(TcpListener);

impl Played {
    async fn new() -> Self {
        Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap())
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// Its URL by the name that [`origin_name`] knows.
    fn url(&self, path: &str) -> String {
        format!("http://origin.test:{}{path}", self.port())
    }

    async fn accept(&self) -> TcpStream {
        within(self.0.accept()).await.unwrap().0
    }
}

async fn proxy() -> Running {
    start(Service::Proxy(None), origin_name()).await
}

/// A client that has sent something.
async fn client(proxy: &Running, words: impl AsRef<[u8]>) -> TcpStream {
    let mut tcp = TcpStream::connect(proxy.local).await.unwrap();
    tcp.write_all(words.as_ref()).await.unwrap();
    tcp
}

/// Reads a head and not a byte more.
async fn head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(tcp.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn exactly(tcp: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    within(tcp.read_exact(&mut bytes)).await.unwrap();
    bytes
}

/// Everything until a clean end.
async fn rest(tcp: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    within(tcp.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn assert_reset(tcp: &mut TcpStream) {
    let error = within(tcp.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + place / 251) as u8).collect()
}
