//! The server behind the relay, and the application before the client: what travels between them is checked byte by byte.
//!
//! A connection begins with a letter: `D` and a length asks for that many bytes of the pattern, `U` and a number sends
//! the pattern until its end and is told how much came and whether it was intact, `S`, a rate in bytes per second and a time
//! in milliseconds get the pattern at that rate for that time, `E` gets everything back, `W` and a time in milliseconds
//! gets one line after that time; `B` before another letter lets the server send by the kernel's BBR rather than CUBIC.
//! Numbers are eight bytes, big endian. The pattern's period is prime, so that bytes lost, doubled or out of place are seen.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::bed::{Bed, ORIGIN, PORTAL};

/// The bytes after which the pattern begins again.
const PERIOD: usize = 65_521;
/// How much is read or written at a time.
const CHUNK: usize = 32 * 1024;
/// Samples of a transfer are at least this far apart.
const SAMPLE: Duration = Duration::from_millis(1);
/// How often an even stream sends.
const BEAT: Duration = Duration::from_millis(5);
/// The line that the letter `W` gets.
pub const LINE: &[u8] = b"wake up\n";

/// The pattern, twice, so that any stretch of up to one period lies in one piece.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let period: Vec<u8> = std::iter::repeat_with(|| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 56) as u8
    })
    .take(PERIOD)
    .collect();
    period.repeat(2)
});

/// The pattern's next bytes at that place, at most [`CHUNK`].
fn stretch(place: u64, length: u64) -> &'static [u8] {
    let start = (place % PERIOD as u64) as usize;
    &PATTERN[start..start + length.min(CHUNK as u64) as usize]
}

/// A congestion controller of the kernel's TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelTcp {
    /// CUBIC, which every kernel has.
    Cubic,
    /// BBR; version 1 in kernels without patches.
    Bbr,
}

impl KernelTcp {
    /// The kernel's name of it.
    pub fn name(self) -> &'static str {
        match self {
            KernelTcp::Cubic => "cubic",
            KernelTcp::Bbr => "bbr",
        }
    }

    /// Whether this machine's kernel has it.
    pub fn is_there(self) -> bool {
        let all = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
        all.split_whitespace().any(|name| name == self.name())
    }
}

/// How a transfer went.
#[derive(Debug, Clone)]
pub struct Trace {
    started: Instant,
    /// Bytes so far at times since the start, in steps of at least a millisecond.
    samples: Vec<(Duration, u64)>,
    bytes: u64,
    intact: bool,
    last: Instant,
    longest: Duration,
    longest_at: Duration,
}

impl Trace {
    fn start() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            samples: Vec::new(),
            bytes: 0,
            intact: true,
            last: now,
            longest: Duration::ZERO,
            longest_at: Duration::ZERO,
        }
    }

    fn add(&mut self, data: &[u8]) {
        let now = Instant::now();
        self.intact &= stretch(self.bytes, data.len() as u64) == data;
        self.bytes += data.len() as u64;
        let gap = now - self.last;
        if gap > self.longest {
            (self.longest, self.longest_at) = (gap, self.last - self.started);
        }
        self.last = now;
        let at = now - self.started;
        if self.samples.last().is_none_or(|(last, _)| at - *last >= SAMPLE) {
            self.samples.push((at, self.bytes));
        }
    }

    /// Bytes that arrived.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether every byte was the right one.
    pub fn is_intact(&self) -> bool {
        self.intact
    }

    /// Bytes that had arrived at that time.
    pub fn bytes_at(&self, time: Instant) -> u64 {
        self.at(time.saturating_duration_since(self.started))
    }

    /// From the start to the last byte.
    pub fn duration(&self) -> Duration {
        self.last - self.started
    }

    /// When it started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The longest time without a byte, before the first included, and when it began.
    pub fn longest_gap(&self) -> (Duration, Duration) {
        (self.longest, self.longest_at)
    }

    /// The longest time without a byte among those that ended after `from`, a time since the start; what has not ended at
    /// `until` counts as if it had.
    pub fn longest_gap_between(&self, from: Duration, until: Duration) -> Duration {
        let mut last = Duration::ZERO;
        let mut longest = Duration::ZERO;
        for at in self.samples.iter().map(|(at, _)| *at).filter(|at| *at < until).chain([until]) {
            if at > from {
                longest = longest.max(at - last.max(from));
            }
            last = at;
        }
        longest
    }

    /// The mean rate between two times since the start, in Mbit/s.
    pub fn rate_between(&self, from: Duration, to: Duration) -> f64 {
        (self.at(to) - self.at(from)) as f64 * 8e-6 / (to - from).as_secs_f64()
    }

    /// Bytes that had arrived at a time since the start.
    fn at(&self, time: Duration) -> u64 {
        let index = self.samples.partition_point(|(at, _)| *at <= time);
        if index == self.samples.len() { self.bytes } else { index.checked_sub(1).map_or(0, |i| self.samples[i].1) }
    }

    /// The mean rate from the start to the last byte, in Mbit/s.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.duration().as_secs_f64()
    }
}

/// The running server; stops when dropped.
#[derive(Debug)]
pub struct Origin {
    uploads: Arc<Mutex<HashMap<u64, Trace>>>,
    tasks: Vec<AbortHandle>,
}

impl Origin {
    /// Where it listens.
    pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(ORIGIN), 7_000);

    /// Starts the server, and the login page's.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(bed: &Bed) -> Result<Self> {
        let listen = |address: SocketAddr| -> Result<TcpListener> {
            let socket = bed.origin().enter(|| std::net::TcpListener::bind(address))?.context("listening")?;
            socket.set_nonblocking(true)?;
            // Connections take it over from their listener.
            let cubic = KernelTcp::Cubic.name().as_bytes();
            socket2::SockRef::from(&socket).set_tcp_congestion(cubic).context("choosing CUBIC")?;
            Ok(TcpListener::from_std(socket)?)
        };
        let listener = listen((Ipv6Addr::UNSPECIFIED, Self::ADDRESS.port()).into())?;
        let portal = listen((PORTAL, 80).into())?;
        let uploads = Arc::<Mutex<HashMap<u64, Trace>>>::default();
        let served = uploads.clone();
        let serving = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let uploads = served.clone();
                tokio::spawn(async move {
                    // The other end reports what went wrong.
                    let _ = serve(tcp, &uploads).await;
                });
            }
        });
        let showing = tokio::spawn(async move {
            while let Ok((tcp, _)) = portal.accept().await {
                tokio::spawn(async move {
                    let _ = show_login(tcp).await;
                });
            }
        });
        Ok(Self { uploads, tasks: vec![serving.abort_handle(), showing.abort_handle()] })
    }

    /// How the upload of that number has gone so far.
    pub fn upload(&self, number: u64) -> Option<Trace> {
        self.uploads.lock().get(&number).cloned()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn serve(mut tcp: TcpStream, uploads: &Mutex<HashMap<u64, Trace>>) -> Result<()> {
    tcp.set_nodelay(true)?;
    let mut letter = tcp.read_u8().await?;
    if letter == b'B' {
        socket2::SockRef::from(&tcp).set_tcp_congestion(KernelTcp::Bbr.name().as_bytes())?;
        letter = tcp.read_u8().await?;
    }
    match letter {
        b'D' => {
            let length = tcp.read_u64().await?;
            send(&mut tcp, length).await?;
        }
        b'U' => {
            let number = tcp.read_u64().await?;
            uploads.lock().insert(number, Trace::start());
            let mut buffer = vec![0; CHUNK];
            loop {
                let read = tcp.read(&mut buffer).await?;
                if read == 0 {
                    break;
                }
                uploads.lock().get_mut(&number).context("the upload's trace")?.add(&buffer[..read]);
            }
            let (bytes, intact) = uploads.lock().get(&number).map_or((0, false), |trace| (trace.bytes, trace.intact));
            tcp.write_all(&[&bytes.to_be_bytes()[..], &[u8::from(intact)]].concat()).await?;
        }
        b'S' => {
            let (rate, time) = (tcp.read_u64().await?, tcp.read_u64().await?);
            send_evenly(&mut tcp, rate, Duration::from_millis(time)).await?;
        }
        b'E' => {
            let (mut reader, mut writer) = tcp.split();
            tokio::io::copy(&mut reader, &mut writer).await?;
        }
        b'W' => {
            let wait = tcp.read_u64().await?;
            sleep(Duration::from_millis(wait)).await;
            tcp.write_all(LINE).await?;
        }
        _ => {}
    }
    tcp.shutdown().await?;
    // Until the other side has gone too, so that what was sent is not reset away.
    while tcp.read(&mut [0; 64]).await? > 0 {}
    Ok(())
}

async fn show_login(mut tcp: TcpStream) -> Result<()> {
    // Whatever was asked for, all of it or not, the answer is the same.
    let _ = tcp.read(&mut [0; 1_024]).await?;
    tcp.write_all(b"HTTP/1.1 302 Found\r\nLocation: http://93.50.0.80/login\r\nContent-Length: 0\r\n\r\n").await?;
    Ok(())
}

/// Sends that many bytes of the pattern.
async fn send(tcp: &mut TcpStream, length: u64) -> Result<()> {
    let mut sent = 0;
    while sent < length {
        let bytes = stretch(sent, length - sent);
        tcp.write_all(bytes).await?;
        sent += bytes.len() as u64;
    }
    Ok(())
}

/// Sends the pattern at that rate for that long.
async fn send_evenly(tcp: &mut TcpStream, bytes_per_second: u64, time: Duration) -> Result<()> {
    let mut beat = tokio::time::interval(BEAT);
    let (started, mut sent) = (Instant::now(), 0);
    while started.elapsed() < time {
        beat.tick().await;
        let due = (started.elapsed().as_secs_f64() * bytes_per_second as f64) as u64;
        while sent < due {
            let bytes = stretch(sent, due - sent);
            tcp.write_all(bytes).await?;
            sent += bytes.len() as u64;
        }
    }
    Ok(())
}

/// A download in progress, to be looked at while it runs.
#[derive(Debug, Clone)]
pub struct Watched(Arc<Mutex<Trace>>);

impl Watched {
    /// A download that has not begun.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Trace::start())))
    }

    /// How it has gone so far.
    pub fn trace(&self) -> Trace {
        self.0.lock().clone()
    }
}

impl Default for Watched {
    fn default() -> Self {
        Self::new()
    }
}

/// Downloads over a connection to the origin and checks every byte.
///
/// # Errors
/// When the connection breaks or brings other bytes.
pub async fn download(tcp: TcpStream, length: u64, watched: &Watched) -> Result<Trace> {
    download_by(tcp, KernelTcp::Cubic, length, watched).await
}

/// The same; the origin sends by that controller.
///
/// # Errors
/// When the connection breaks or brings other bytes, or the kernel does not have the controller.
pub async fn download_by(mut tcp: TcpStream, by: KernelTcp, length: u64, watched: &Watched) -> Result<Trace> {
    *watched.0.lock() = Trace::start();
    if by == KernelTcp::Bbr {
        tcp.write_all(b"B").await.context("asking for BBR")?;
    }
    tcp.write_all(&[&b"D"[..], &length.to_be_bytes()].concat()).await.context("asking for a download")?;
    let trace = receive(tcp, watched).await?;
    ensure!(trace.bytes == length, "{} of {length} bytes came", trace.bytes);
    Ok(trace)
}

/// Receives a stream that the origin sends at that rate for that long, and checks every byte.
///
/// # Errors
/// When the connection breaks or brings other bytes.
pub async fn stream_down(
    mut tcp: TcpStream,
    bytes_per_second: u64,
    time: Duration,
    watched: &Watched,
) -> Result<Trace> {
    *watched.0.lock() = Trace::start();
    let time = time.as_millis() as u64;
    let request = [&b"S"[..], &bytes_per_second.to_be_bytes(), &time.to_be_bytes()].concat();
    tcp.write_all(&request).await.context("asking for a stream")?;
    receive(tcp, watched).await
}

/// Sends a stream at that rate for that long; the origin checks every byte and keeps the trace under `number`.
///
/// # Errors
/// When the connection breaks or not all came.
pub async fn stream_up(mut tcp: TcpStream, number: u64, bytes_per_second: u64, time: Duration) -> Result<()> {
    tcp.write_all(&[&b"U"[..], &number.to_be_bytes()].concat()).await.context("asking for an upload")?;
    send_evenly(&mut tcp, bytes_per_second, time).await.context("in a stream up")?;
    tcp.shutdown().await.context("at a stream's end")?;
    tcp.read_u64().await.context("waiting for the answer to a stream")?;
    ensure!(tcp.read_u8().await? == 1, "a stream's bytes were not those sent");
    Ok(())
}

/// Reads to the end.
async fn receive(mut tcp: TcpStream, watched: &Watched) -> Result<Trace> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = tcp.read(&mut buffer).await.context("in a download")?;
        if read == 0 {
            break;
        }
        let mut trace = watched.0.lock();
        trace.add(&buffer[..read]);
        ensure!(trace.intact, "a download's bytes were not those sent");
    }
    Ok(watched.trace())
}

/// Downloads at most that many bytes a second, for as long as it is let.
///
/// # Errors
/// When the connection breaks or brings other bytes.
pub async fn download_slowly(mut tcp: TcpStream, bytes_per_second: u64, watched: &Watched) -> Result<()> {
    *watched.0.lock() = Trace::start();
    tcp.write_all(&[&b"D"[..], &u64::MAX.to_be_bytes()].concat()).await.context("asking for a download")?;
    let mut buffer = vec![0; (bytes_per_second / 10).max(1) as usize];
    loop {
        let read = tcp.read(&mut buffer).await.context("in a slow download")?;
        ensure!(read > 0, "a slow download ended");
        let ahead = {
            let mut trace = watched.0.lock();
            buffer[..read].chunks(CHUNK).for_each(|data| trace.add(data));
            ensure!(trace.intact, "a slow download's bytes were not those sent");
            trace.started + Duration::from_secs_f64(trace.bytes as f64 / bytes_per_second as f64)
        };
        tokio::time::sleep_until(ahead).await;
    }
}

/// Uploads over a connection to the origin, which checks every byte. Returns how long it took, the origin's answer included.
///
/// # Errors
/// When the connection breaks or not all came.
pub async fn upload(mut tcp: TcpStream, number: u64, length: u64) -> Result<Duration> {
    let started = Instant::now();
    tcp.write_all(&[&b"U"[..], &number.to_be_bytes()].concat()).await.context("asking for an upload")?;
    send(&mut tcp, length).await.context("in an upload")?;
    tcp.shutdown().await.context("at an upload's end")?;
    let came = tcp.read_u64().await.context("waiting for the answer to an upload")?;
    ensure!(came == length, "{came} of {length} bytes came");
    ensure!(tcp.read_u8().await? == 1, "an upload's bytes were not those sent");
    Ok(started.elapsed())
}

/// Sends bytes to the echo and waits for them, again and again on one connection.
#[derive(Debug)]
pub struct Echo {
    tcp: TcpStream,
    /// Where in the pattern the next bytes begin: each exchange has its own, so that a late or doubled answer is seen.
    place: u64,
}

impl Echo {
    /// Begins.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn begin(mut tcp: TcpStream) -> Result<Self> {
        tcp.set_nodelay(true)?;
        tcp.write_all(b"E").await.context("asking for an echo")?;
        Ok(Self { tcp, place: 0 })
    }

    /// One exchange of 32 bytes; how long it took.
    ///
    /// # Errors
    /// When the connection breaks or brings other bytes.
    pub async fn ping(&mut self) -> Result<Duration> {
        let started = Instant::now();
        let sent = stretch(self.place, 32);
        self.place += sent.len() as u64;
        self.tcp.write_all(sent).await.context("sending to the echo")?;
        let mut got = [0; 32];
        self.tcp.read_exact(&mut got).await.context("waiting for the echo")?;
        ensure!(got == sent, "the echo's bytes were not those sent");
        Ok(started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_sees_bytes_out_of_place() {
        let mut trace = Trace::start();
        trace.add(stretch(0, 1_000));
        trace.add(stretch(1_000, 1_000));
        assert!(trace.is_intact());
        trace.add(stretch(1_999, 1_000));
        assert!(!trace.is_intact());
        assert_eq!(trace.bytes(), 3_000);
    }

    #[tokio::test(start_paused = true)]
    async fn gaps_and_rates_are_those_of_the_samples() {
        let mut trace = Trace::start();
        for step in [100, 100, 700, 100] {
            sleep(Duration::from_millis(step)).await;
            trace.add(stretch(trace.bytes(), 1_000));
        }
        assert_eq!(trace.longest_gap(), (Duration::from_millis(700), Duration::from_millis(200)));
        let between = |from, until| {
            trace.longest_gap_between(Duration::from_millis(from), Duration::from_millis(until)).as_millis()
        };
        assert_eq!(between(0, 1_000), 700);
        assert_eq!(between(400, 1_000), 500);
        assert_eq!(between(900, 2_000), 1_000);
        assert_eq!(trace.rate(), 0.032);
        let rate = trace.rate_between(Duration::from_millis(200), Duration::from_millis(1_000));
        assert!((rate - 0.02).abs() < 1e-9, "{rate}");
    }
}
