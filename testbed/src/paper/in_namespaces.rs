//! One run on real sockets: Tandem's programs and the kernel's TCP over the bed's links, competitors beside them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tandem_netem::Direction;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::point::{Amount, Carrier, Point};
use super::record::Measured;
use crate::namespaces::{
    Bed, Client, KernelTcp, Origin, Plan, Programs, Relay, WIFI, Watched, connect_plainly, download_by,
};

/// Makes the run; the programs' logs go to `logs`.
///
/// # Errors
/// When the bed cannot be built, a transfer breaks or brings other bytes, or the kernel lacks a controller.
pub(super) async fn run(programs: &Programs, point: &Point, seed: u64, logs: &Path) -> Result<Measured> {
    for carrier in [point.carrier, point.rival] {
        let by = kernel_tcp(carrier);
        ensure!(by.is_there(), "this kernel's TCP has no {}", by.name());
    }
    let mut paths = point.paths().into_iter();
    let wifi = paths.next().context("a point has a network")?;
    let mut plan = Plan::over([wifi.clone(), paths.next().unwrap_or(wifi)], seed);
    plan.lines.truncate(point.scheme.networks());
    plan.logs = Some(logs.to_owned());
    let bed = Bed::build(&plan).context("building the bed")?;
    let origin = Origin::start(&bed)?;
    let product = match point.carrier {
        Carrier::Tandem(algorithm) => {
            let relay = Relay::start_plain(&bed, programs)?;
            let sides = point.scheme.sides().map(|sides| sides.to_string());
            let mut arguments = vec!["--congestion", algorithm.name()];
            arguments.extend(sides.as_deref().map_or(["--mode", "single"], |sides| ["--bicast", sides]));
            let client = Client::start(&bed, programs, &relay, &arguments)?;
            client.paths_up(plan.lines.len()).await?;
            Some((client, relay))
        }
        Carrier::TcpCubic | Carrier::TcpBbr => {
            bed.copy_tcp(point.scheme.sides());
            None
        }
        Carrier::Nobody => None,
    };
    let stand = Stand { product, _origin: origin, bed, networks: plan.lines.len() };
    let mut transfers = JoinSet::new();
    let mut rivals = Vec::new();
    for network in 0..stand.networks {
        let mut flows = Vec::new();
        for _ in 0..point.rivals {
            let tcp = connect_plainly(&stand.bed, network).await?;
            flows.push(begin(&mut transfers, tcp, kernel_tcp(point.rival), u64::MAX));
        }
        rivals.push(flows);
    }
    let length = match point.amount {
        Amount::File { bytes, .. } => bytes,
        Amount::Window { .. } => u64::MAX,
    };
    let before = stand.seen().await?;
    let started = Instant::now();
    let own = match point.carrier {
        Carrier::Nobody => None,
        carrier => Some(begin(&mut transfers, stand.connect().await?, kernel_tcp(carrier), length)),
    };
    match point.amount {
        Amount::File { longest_s, .. } => {
            let own = own.context("nobody carries a file")?;
            // Competitors have no end: the first to end is the file.
            let ended = timeout(Duration::from_secs(longest_s), transfers.join_next()).await;
            let finished = match ended {
                Ok(ended) => ended.context("the file is among the transfers")??.map(|()| true)?,
                Err(_) => false,
            };
            let until = Instant::now();
            let trace = own.trace();
            let seconds = if finished { trace.duration() } else { until - started }.as_secs_f64();
            let mut measured = stand.measured(before, &rivals, started, until).await?;
            (measured.seconds, measured.bytes, measured.finished) = (seconds, trace.bytes(), finished);
            Ok(measured)
        }
        Amount::Window { settle_s, window_s } => {
            let from = started + Duration::from_secs(settle_s);
            let until = from + Duration::from_secs(window_s);
            undisturbed(&mut transfers, from).await?;
            let before = stand.seen().await?;
            undisturbed(&mut transfers, until).await?;
            let mut measured = stand.measured(before, &rivals, from, until).await?;
            measured.seconds = (until - from).as_secs_f64();
            measured.bytes = own.map_or(0, |own| bytes_between(&own, from, until));
            measured.finished = true;
            Ok(measured)
        }
    }
}

/// What the kernel's end of a carrier's TCP runs: Tandem's has a local connection at each end, without loss.
fn kernel_tcp(carrier: Carrier) -> KernelTcp {
    if carrier == Carrier::TcpBbr { KernelTcp::Bbr } else { KernelTcp::Cubic }
}

/// Starts a download in the background.
fn begin(transfers: &mut JoinSet<Result<()>>, tcp: TcpStream, by: KernelTcp, length: u64) -> Watched {
    let watched = Watched::new();
    let shared = watched.clone();
    transfers.spawn(async move { download_by(tcp, by, length, &shared).await.map(drop) });
    watched
}

/// Waits until that time; transfers without end must not end.
async fn undisturbed(transfers: &mut JoinSet<Result<()>>, until: Instant) -> Result<()> {
    tokio::select! {
        biased;
        () = sleep_until(until) => Ok(()),
        Some(ended) = transfers.join_next() => {
            ended.context("a transfer")?.context("a transfer")?;
            bail!("a transfer without end has ended")
        }
    }
}

fn bytes_between(watched: &Watched, from: Instant, until: Instant) -> u64 {
    let trace = watched.trace();
    trace.bytes_at(until) - trace.bytes_at(from)
}

/// What stands while a run is made.
struct Stand {
    // In the order in which they are to go.
    product: Option<(Client, Relay)>,
    _origin: Origin,
    bed: Bed,
    networks: usize,
}

/// What was counted until some moment.
struct Seen {
    /// From the relay, by network.
    carried: Vec<u64>,
    sent_bytes: [u64; 2],
}

impl Stand {
    /// Opens the carrier's connection to the origin.
    async fn connect(&self) -> Result<TcpStream> {
        match &self.product {
            Some((client, _)) => client.connect().await,
            None => connect_plainly(&self.bed, WIFI).await,
        }
    }

    async fn seen(&self) -> Result<Seen> {
        let counters = |direction| (0..self.networks).map(move |network| self.bed.network(network).counters(direction));
        let sent = |direction| {
            // What the link model takes for payload is 28 bytes less than the IP packet.
            counters(direction).map(|counters| counters.offered_bytes + 28 * counters.offered).sum()
        };
        let carried = match &self.product {
            Some((client, _)) => {
                let snapshot = client.snapshot().await?;
                let carried = |network| snapshot.number(self.bed.interface(network), &["down", "datagrams"]) as u64;
                (0..self.networks).map(carried).collect()
            }
            None => vec![0; self.networks],
        };
        Ok(Seen { carried, sent_bytes: [sent(Direction::Up), sent(Direction::Down)] })
    }

    /// What was counted since `before`, and what competitors got between two times.
    async fn measured(&self, before: Seen, rivals: &[Vec<Watched>], from: Instant, until: Instant) -> Result<Measured> {
        let now = self.seen().await?;
        let seconds = (until - from).as_secs_f64();
        let rate = |flows: &Vec<Watched>| {
            flows.iter().map(|flow| bytes_between(flow, from, until)).sum::<u64>() as f64 * 8e-6 / seconds
        };
        Ok(Measured {
            rivals_mbps: rivals.iter().map(rate).collect(),
            carried: now.carried.iter().zip(&before.carried).map(|(now, before)| now - before).collect(),
            sent_bytes: [0, 1].map(|side| now.sent_bytes[side] - before.sent_bytes[side]),
            ..Measured::default()
        })
    }
}
