//! The server behind the relay: it answers any HTTP/1.1 request with a body that has no end.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// A request's head may not be longer than this, in bytes.
const MAX_HEAD: u64 = 8192;
/// Bytes written at a time.
const BLOCK: usize = 64 << 10;

/// A running origin; dropping it ends it.
pub(super) struct Origin {
    /// Where it listens, on loopback.
    pub(super) address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl Origin {
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, _serving: AbortOnDropHandle::new(tokio::spawn(serve(listener))) })
    }
}

async fn serve(listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                // A connection that breaks is its client's affair.
                Ok((tcp, _)) => drop(connections.spawn(async { answer(tcp).await.is_ok() })),
                Err(error) => return tracing::warn!(%error, "the origin accepts no more"),
            },
        }
    }
}

async fn answer(mut tcp: TcpStream) -> io::Result<()> {
    let (read, mut write) = tcp.split();
    let mut head = BufReader::new(read).take(MAX_HEAD).lines();
    while let Some(line) = head.next_line().await? {
        if line.is_empty() {
            // Without a length the body ends with the connection.
            write
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\n")
                .await?;
            let block = vec![0; BLOCK];
            loop {
                write.write_all(&block).await?;
            }
        }
    }
    write.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await
}
