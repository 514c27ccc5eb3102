//! The application: an HTTP download through the SOCKS5 proxy, counted as it arrives.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use socket2::SockRef;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_socks::tcp::Socks5Stream;

/// Bytes read at a time, at most.
const READ_BYTES: usize = 256 << 10;
/// How often the one who watches is told.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// A connection through the proxy on which nothing was asked yet.
pub(super) struct Download(BufReader<Socks5Stream<TcpStream>>);

impl Download {
    /// Connects to `origin` through the SOCKS5 `proxy`.
    pub(super) async fn connect(proxy: SocketAddr, origin: SocketAddr) -> anyhow::Result<Self> {
        let stream = Socks5Stream::connect(proxy, origin).await.context("no connection through the proxy")?;
        Ok(Self(BufReader::with_capacity(READ_BYTES, stream)))
    }

    /// Asks, and counts the bytes of the body that arrive within `time` of that. `tell` hears now and then of the time
    /// that has passed and the rate of late, in Mbit/s.
    pub(super) async fn count(mut self, time: Duration, tell: impl Fn(Duration, f64)) -> anyhow::Result<u64> {
        let start = Instant::now();
        let end = start + time;
        let mut bytes = 0;
        if let Ok(begun) = timeout_at(end, self.begin()).await {
            begun?;
        }
        let mut told = (start, 0);
        loop {
            let read = timeout_at(end.min(told.0 + TELL_EVERY), self.0.fill_buf()).await;
            let now = Instant::now();
            // Timers fire on whole milliseconds: what came between the end and its timer is not part of the time.
            if now >= end {
                break;
            }
            if let Ok(chunk) = read {
                let length = chunk.context("the download broke off")?.len();
                ensure!(length > 0, "the download ended early");
                self.0.consume(length);
                bytes += length as u64;
            }
            if now - told.0 >= TELL_EVERY {
                tell(now - start, mbps(bytes - told.1, now - told.0));
                told = (now, bytes);
            }
        }
        // Nobody wants the rest: a reset makes proxy and relay drop what is on its way.
        SockRef::from(&**self.0.get_ref()).set_linger(Some(Duration::ZERO)).context("the download cannot be ended")?;
        Ok(bytes)
    }

    /// Sends the request and reads the head of the response.
    async fn begin(&mut self) -> anyhow::Result<()> {
        self.0.write_all(b"GET /endless HTTP/1.1\r\nHost: origin\r\n\r\n").await.context("the request was not sent")?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ensure!(self.0.read_line(&mut head).await.context("no response came")? > 0, "the response ended early");
        }
        ensure!(head.starts_with("HTTP/1.1 200 "), "the origin answered {:?}", head.lines().next().unwrap_or_default());
        Ok(())
    }
}

/// Bits per second, in Mbit/s.
pub(super) fn mbps(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8e-6 / time.as_secs_f64() }
}
