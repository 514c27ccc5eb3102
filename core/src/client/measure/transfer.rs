//! The transfers of a measurement: bytes without meaning, as fast as they go, for a while.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tandem_proto::measure::{Load, Meter};
use tandem_proto::stats::PathState;
use tandem_proto::wire::flow::{GRANT_LEN, Grant, Measure, OpenError, decode_answer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, interval, timeout};

use super::super::accounts::Accounts;
use crate::platform::{Interface, Platform};
use crate::transport::{Connection, RecvStream, Stream};

/// How often a transfer is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How long the relay may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// What is sent at a time. What it is does not matter: it travels encrypted.
static BLOCK: [u8; 65_536] = [0; 65_536];
/// What is read from TCP at a time.
const READ: usize = 256 * 1024;
/// TCP's payload in a full packet of 1,500 bytes, and the packet.
const SEGMENT: (u64, u64) = (1_448, 1_500);

/// How TCP gets to the relay on one network.
pub(super) struct Way {
    pub(super) platform: Arc<dyn Platform>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) interface: Interface,
    /// Where the session reaches it, which is another port.
    pub(super) relay: SocketAddr,
}

/// A connection to the measuring service beside the tunnel.
pub(super) struct Tcp {
    stream: TcpStream,
    way: Way,
    length: Duration,
}

/// Brings bytes from the relay through the session.
pub(super) async fn download(
    connection: &Connection,
    seconds: u16,
    show: impl Fn(Option<f64>),
) -> Result<Load, String> {
    let Stream { send: _send, mut recv } = ask(connection, Measure::Download { seconds }).await?;
    let meter = Mutex::new(Meter::new(Duration::from_secs(seconds.into())));
    watch(connection, &meter, show, |_| (), receive(&mut recv, &meter)).await;
    load(&meter.lock(), connection.stats().link.down.effective_loss_percent)
}

/// Takes bytes to the relay through the session.
pub(super) async fn upload(connection: &Connection, seconds: u16, show: impl Fn(Option<f64>)) -> Result<Load, String> {
    let Stream { mut send, mut recv } = ask(connection, Measure::Upload { seconds }).await?;
    let length = Duration::from_secs(seconds.into());
    let meter = Mutex::new(Meter::new(length));
    let reports = async {
        let mut report = [0; 8];
        while recv.read_exact(&mut report).await.is_ok() {
            meter.lock().see(u64::from_be_bytes(report), Instant::now().into_std());
        }
    };
    let sending = async { while send.write_all(&BLOCK).await.is_ok() {} };
    let work = async {
        tokio::select! {
            biased;
            () = reports => {}
            () = sending => {}
            () = tokio::time::sleep(length) => {}
        }
    };
    watch(connection, &meter, show, |_| (), work).await;
    load(&meter.lock(), connection.stats().link.up.effective_loss_percent)
}

/// As [`download`]; answers with its rate and what was carried on each network, in Mbit/s.
pub(super) async fn shares(
    connection: &Connection,
    seconds: u16,
    show: impl Fn(Option<f64>),
) -> Result<(f64, Vec<(String, f64)>), String> {
    let Stream { send: _send, mut recv } = ask(connection, Measure::Download { seconds }).await?;
    let meter = Mutex::new(Meter::new(Duration::from_secs(seconds.into())));
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let look = |connection: &Connection| {
        // As for the rate, the beginning does not count.
        if meter.lock().rate().is_none() {
            return;
        }
        for path in connection.stats().link.paths.into_iter().filter(|path| path.state == PathState::Up) {
            let (sum, count) = sums.entry(path.interface).or_default();
            (*sum, *count) = (*sum + path.down.rate_mbps, *count + 1.0);
        }
    };
    watch(connection, &meter, show, look, receive(&mut recv, &meter)).await;
    let rate = load(&meter.lock(), 0.0)?.mbps;
    Ok((rate, sums.into_iter().map(|(network, (sum, count))| (network, sum / count)).collect()))
}

impl Tcp {
    /// Connects on one network, with a ticket from the session.
    pub(super) async fn connect(connection: &Connection, way: Way, seconds: u16) -> Result<Self, String> {
        let mut stream = ask(connection, Measure::Ticket).await?;
        let mut grant = [0; GRANT_LEN];
        let read = timeout(ANSWER_LIMIT, stream.recv.read_exact(&mut grant)).await;
        if !matches!(read, Ok(Ok(()))) {
            return Err(SILENT.to_owned());
        }
        let grant = Grant::decode(&grant);
        let to = SocketAddr::new(way.relay.ip(), grant.port);
        let connect = async {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_nonblocking(true)?;
            way.platform.tie(&socket, &way.interface, to)?;
            let mut stream = TcpSocket::from_std_stream(socket.into()).connect(to).await?;
            stream.write_all(&grant.tcp_head(seconds)).await?;
            std::io::Result::Ok(stream)
        };
        match timeout(ANSWER_LIMIT, connect).await {
            Ok(Ok(stream)) => Ok(Self { stream, way, length: Duration::from_secs(seconds.into()) }),
            Ok(Err(error)) => Err(format!("no TCP connection to the relay at {to}: {error}")),
            Err(_) => Err(format!("no TCP connection to the relay at {to}: is its TCP port open, as the UDP one is?")),
        }
    }

    /// Brings bytes; answers with the rate, in Mbit/s.
    pub(super) async fn download(mut self, show: impl Fn(Option<f64>)) -> Result<f64, String> {
        let mut meter = Meter::new(self.length);
        let mut buffer = vec![0; READ];
        let (mut total, mut charged) = (0u64, 0u64);
        let mut ticks = interval(LOOK);
        let charge = |total: u64, charged: &mut u64| {
            self.way.accounts.charge(&self.way.interface.name, (total - *charged) * SEGMENT.1 / SEGMENT.0);
            *charged = total;
        };
        let end = Instant::now() + self.length;
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {
                    show(meter.of_late());
                    charge(total, &mut charged);
                    if let Some(bar) = self.way.accounts.bar(&self.way.interface.name) {
                        return Err(bar.to_string());
                    }
                    if Instant::now() >= end {
                        break;
                    }
                }
                read = self.stream.read(&mut buffer) => match read {
                    Ok(length) if length > 0 => {
                        total += length as u64;
                        meter.see(total, Instant::now().into_std());
                    }
                    _ => break,
                },
            }
        }
        charge(total, &mut charged);
        meter.rate().ok_or_else(|| "the relay closed the TCP connection at once: it measures for too many".to_owned())
    }
}

const SILENT: &str = "the relay does not answer";

/// Opens a stream of the measuring service.
async fn ask(connection: &Connection, what: Measure) -> Result<Stream, String> {
    let open = async {
        let mut stream = connection.open_stream().await.map_err(|closed| format!("the session ended: {closed}"))?;
        let mut answer = [0; 1];
        let exchange = async {
            stream.send.write_all(&what.encode()).await?;
            stream.recv.read_exact(&mut answer).await
        };
        exchange.await.map_err(|end| end.to_string())?;
        match decode_answer(answer[0]) {
            Ok(()) => Ok(stream),
            Err(OpenError::Forbidden) => {
                Err("the relay does not measure TCP: its port is taken by another program".to_owned())
            }
            Err(OpenError::Limit) => Err("the relay measures for too many clients now: try again later".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    timeout(ANSWER_LIMIT, open).await.unwrap_or_else(|_| Err(SILENT.to_owned()))
}

/// Reads to the end, or as long as the meter counts.
async fn receive(recv: &mut RecvStream, meter: &Mutex<Meter>) {
    let mut total = 0;
    while let Ok(Some(chunk)) = recv.read_chunk().await {
        total += chunk.len() as u64;
        meter.lock().see(total, Instant::now().into_std());
    }
}

/// Does `work`, and looks at it meanwhile.
async fn watch(
    connection: &Connection,
    meter: &Mutex<Meter>,
    show: impl Fn(Option<f64>),
    mut look: impl FnMut(&Connection),
    work: impl Future<Output = ()>,
) {
    let mut work = std::pin::pin!(work);
    let mut ticks = interval(LOOK);
    loop {
        tokio::select! {
            biased;
            _ = ticks.tick() => {
                let late = {
                    let mut meter = meter.lock();
                    meter.see_round_trip(connection.stats().srtt.as_secs_f64() * 1e3);
                    meter.of_late()
                };
                show(late);
                look(connection);
            }
            () = &mut work => return,
        }
    }
}

fn load(meter: &Meter, loss_percent: f64) -> Result<Load, String> {
    match (meter.rate(), meter.round_trip()) {
        (Some(mbps), Some(rtt_ms)) => Ok(Load { mbps, rtt_ms, loss_percent }),
        _ => Err("hardly anything came through".to_owned()),
    }
}
