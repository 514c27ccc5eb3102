//! What a bed measures: bulk downloads and uploads, and small requests beside them.
//!
//! Goodput counts application bytes. A gap is the time between two arrivals of bytes at the reader, the first counted
//! from the first byte.

use std::time::Duration;

use tandem_core::dial::{FlowRecv as _, FlowSend as _};
use tandem_core::transport::{Connection, RecvStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::exchange::{PING_BYTES, Request, write_bulk, write_evenly};

/// How much is downloaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// That many bytes.
    Bytes(u64),
    /// As much as comes in that time.
    Time(Duration),
}

/// A bulk download as its reader saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Application bytes that arrived.
    pub bytes: u64,
    /// From the request to the last byte, or to the end of the time.
    pub took: Duration,
    /// The longest time without a byte between the first and the last; until the end of the time, if that was the measure.
    pub longest_gap: Duration,
}

impl Download {
    /// Application bits per second, in Mbit/s.
    pub fn goodput_mbps(&self) -> f64 {
        if self.took.is_zero() { 0.0 } else { self.bytes as f64 * 8e-6 / self.took.as_secs_f64() }
    }
}

/// The stream or its connection ended before the measurement was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stream or its connection ended before the measurement was complete")
    }
}

impl std::error::Error for Interrupted {}

/// Downloads from the other end.
///
/// # Errors
/// When the stream ends early.
pub async fn download(connection: &Connection, amount: Amount) -> Result<Download, Interrupted> {
    let started = Instant::now();
    let (bytes, end) = match amount {
        Amount::Bytes(bytes) => (bytes, None),
        Amount::Time(time) => (u64::MAX, Some(started + time)),
    };
    let mut stream = connection.open_stream().await.map_err(|_| Interrupted)?;
    stream.send.write_all(&Request::Bulk(bytes).encode()).await.map_err(|_| Interrupted)?;
    stream.send.finish();
    let mut seen = Download { bytes: 0, took: Duration::ZERO, longest_gap: Duration::ZERO };
    let mut last: Option<Instant> = None;
    while seen.bytes < bytes {
        let Some(length) = next_length(&mut stream.recv, end).await? else { break };
        let now = Instant::now();
        // Timers fire on whole milliseconds: what came between the end and its timer is not part of the time.
        if end.is_some_and(|end| now > end) {
            break;
        }
        seen.longest_gap = seen.longest_gap.max(last.map_or(Duration::ZERO, |last| now - last));
        last = Some(now);
        seen.bytes += length as u64;
    }
    let finished = end.unwrap_or_else(Instant::now);
    seen.took = finished - started;
    match end {
        Some(end) => seen.longest_gap = seen.longest_gap.max(end - last.unwrap_or(started)),
        None if seen.bytes < bytes => return Err(Interrupted),
        None => {}
    }
    stream.recv.stop();
    Ok(seen)
}

/// Uploads so many bytes; answers with the time until the other end has confirmed them all.
///
/// # Errors
/// When the stream ends early or bytes are missing.
pub async fn upload(connection: &Connection, bytes: u64) -> Result<Duration, Interrupted> {
    let started = Instant::now();
    let mut stream = connection.open_stream().await.map_err(|_| Interrupted)?;
    stream.send.write_all(&Request::Take.encode()).await.map_err(|_| Interrupted)?;
    write_bulk(&mut stream.send, bytes).await.map_err(|_| Interrupted)?;
    let mut taken = [0; 8];
    stream.recv.read_exact(&mut taken).await.map_err(|_| Interrupted)?;
    if u64::from_be_bytes(taken) == bytes { Ok(started.elapsed()) } else { Err(Interrupted) }
}

/// The length of the next chunk; `None` at the end of the stream or of the time.
async fn next_length(recv: &mut RecvStream, end: Option<Instant>) -> Result<Option<usize>, Interrupted> {
    let chunk = match end {
        None => recv.read_chunk().await,
        Some(end) => match timeout_at(end, recv.read_chunk()).await {
            Ok(chunk) => chunk,
            Err(_) => return Ok(None),
        },
    };
    Ok(chunk.map_err(|_| Interrupted)?.map(|chunk| chunk.len()))
}

/// Even traffic in both directions at once, each on a stream of its own; ends when dropped.
#[derive(Debug)]
pub struct EvenStreams(JoinSet<()>);

impl EvenStreams {
    /// Starts to send and to receive so many bytes every 10 ms.
    pub fn start(connection: &Connection, bytes: u64) -> Self {
        let mut streams = JoinSet::new();
        for request in [Request::Take, Request::Even(bytes)] {
            let connection = connection.clone();
            streams.spawn(async move {
                // The end of the connection ends the traffic; who measures notices.
                let Ok(mut stream) = connection.open_stream().await else { return };
                if stream.send.write_all(&request.encode()).await.is_err() {
                    return;
                }
                if request == Request::Take {
                    let _ = write_evenly(&mut stream.send, bytes).await;
                } else {
                    while let Ok(Some(_)) = stream.recv.read_chunk().await {}
                }
            });
        }
        Self(streams)
    }

    /// Stops both.
    pub async fn stop(mut self) {
        self.0.shutdown().await;
    }
}

/// Small requests at a steady rate on a stream of their own, whether or not earlier ones were answered.
#[derive(Debug)]
pub struct Pings {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Latencies, Interrupted>>,
}

impl Pings {
    /// Starts to send a small request every `period`.
    pub fn start(connection: Connection, period: Duration) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, task: tokio::spawn(ping(connection, period, stopped)) }
    }

    /// Sends no more, waits for the answers that are missing, and tells how long each took.
    ///
    /// # Errors
    /// When the stream ended early.
    pub async fn stop(self) -> Result<Latencies, Interrupted> {
        // Gone already means ended early; the task says so itself.
        let _ = self.stop.send(());
        self.task.await.map_err(|_| Interrupted)?
    }
}

async fn ping(
    connection: Connection,
    period: Duration,
    mut stopped: oneshot::Receiver<()>,
) -> Result<Latencies, Interrupted> {
    let mut stream = connection.open_stream().await.map_err(|_| Interrupted)?;
    stream.send.write_all(&Request::Echo.encode()).await.map_err(|_| Interrupted)?;
    let origin = Instant::now();
    let mut recv = stream.recv;
    let reader = tokio::spawn(async move {
        let mut latencies = Vec::new();
        let mut answer = [0; PING_BYTES];
        while recv.read_exact(&mut answer).await.is_ok() {
            let mut sent = [0; 8];
            sent.copy_from_slice(&answer[..8]);
            latencies.push(origin.elapsed() - Duration::from_nanos(u64::from_be_bytes(sent)));
        }
        latencies
    });
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut sent = 0;
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            _ = ticks.tick() => {}
        }
        let mut request = [0; PING_BYTES];
        let now = u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        request[..8].copy_from_slice(&now.to_be_bytes());
        stream.send.write_all(&request).await.map_err(|_| Interrupted)?;
        sent += 1;
    }
    stream.send.finish();
    let latencies = reader.await.map_err(|_| Interrupted)?;
    if latencies.len() == sent { Ok(Latencies::new(latencies)) } else { Err(Interrupted) }
}

/// How long small requests took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    sorted: Vec<Duration>,
}

impl Latencies {
    fn new(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self { sorted: latencies }
    }

    /// How many were measured.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The time within which `percent` of them were answered (nearest rank); zero if there were none.
    pub fn percentile(&self, percent: f64) -> Duration {
        let rank = (percent / 100.0 * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).or(self.sorted.last()).copied().unwrap_or_default()
    }

    /// The median in milliseconds.
    pub fn p50_ms(&self) -> f64 {
        self.percentile(50.0).as_secs_f64() * 1e3
    }

    /// The 99th percentile in milliseconds.
    pub fn p99_ms(&self) -> f64 {
        self.percentile(99.0).as_secs_f64() * 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let latencies = Latencies::new((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!(latencies.percentile(50.0), Duration::from_millis(50));
        assert_eq!(latencies.percentile(99.0), Duration::from_millis(99));
        assert_eq!(latencies.percentile(100.0), Duration::from_millis(100));
        assert_eq!(Latencies::new(vec![]).percentile(99.0), Duration::ZERO);
    }

    #[test]
    fn goodput_is_application_bits_over_time() {
        let download = Download { bytes: 1_250_000, took: Duration::from_millis(100), longest_gap: Duration::ZERO };
        assert!((download.goodput_mbps() - 100.0).abs() < 1e-9);
    }
}
