//! One run in virtual time: the transport alone, the same in every run with that seed, and without root.
//!
//! Competitors are clients of their own with a controller of the QUIC library, each on one line.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tandem_core::transport::Connection;
use tandem_netem::Direction;
use tandem_proto::congestion::Algorithm;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until, timeout_at};

use super::point::{Amount, Carrier, Point};
use super::record::Measured;
use crate::measure::{Interrupted, download};
use crate::scenario::{Bed, Scenario};
use crate::virtual_time;

/// How often the sender's window is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Makes the run.
///
/// # Errors
/// When the point is not one for virtual time, no connection comes up or one breaks.
pub(super) fn run(point: &Point, seed: u64) -> Result<Measured> {
    let congestion = match point.carrier {
        Carrier::Nobody => Algorithm::default(),
        carrier => tandem(carrier)?,
    };
    let scenario = Scenario { paths: point.paths(), congestion, mode: point.scheme.mode(), seed };
    virtual_time::run(async {
        let bed = scenario.connect().await.context("no connection")?;
        match point.amount {
            Amount::File { bytes, longest_s } => file(&bed, bytes, Duration::from_secs(longest_s)).await,
            Amount::Window { settle_s, window_s } => {
                window(&bed, point, Duration::from_secs(settle_s), Duration::from_secs(window_s)).await
            }
        }
    })
}

fn tandem(carrier: Carrier) -> Result<Algorithm> {
    match carrier {
        Carrier::Tandem(algorithm) => Ok(algorithm),
        carrier => bail!("there is no {} in virtual time", carrier.title()),
    }
}

/// A file, and the course of the sender's window meanwhile.
async fn file(bed: &Bed, bytes: u64, longest: Duration) -> Result<Measured> {
    let before = Seen::of(bed);
    let started = Instant::now();
    let mut window = Vec::new();
    let look = async {
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            let at = started.elapsed().as_millis() as f64 / 1e3;
            window.push((at, bed.relay.stats().congestion.cwnd_bytes));
        }
    };
    let finished = tokio::select! {
        biased;
        () = look => unreachable!("looks have no end"),
        ended = timeout_at(started + longest, download(&bed.client, crate::Amount::Bytes(bytes))) => match ended {
            Ok(download) => download.map(|_| true)?,
            Err(_) => false,
        },
    };
    let mut measured = Seen::of(bed).since(&before);
    (measured.seconds, measured.finished, measured.window) = (started.elapsed().as_secs_f64(), finished, window);
    Ok(measured)
}

/// What comes in a window, with competitors beside.
async fn window(bed: &Bed, point: &Point, settle: Duration, window: Duration) -> Result<Measured> {
    let mut transfers = JoinSet::new();
    let mut rivals = Vec::new();
    for line in 0..if point.rivals > 0 { bed.lines.len() } else { 0 } {
        let rival = bed.rival(line, tandem(point.rival)?).await.context("no connection of a competitor")?;
        begin(&mut transfers, &rival.client);
        rivals.push(rival);
    }
    if point.carrier != Carrier::Nobody {
        begin(&mut transfers, &bed.client);
    }
    let got = || rivals.iter().map(|rival| rival.client.stats().link.down.flow_bytes).collect::<Vec<_>>();
    let from = Instant::now() + settle;
    undisturbed(&mut transfers, from).await?;
    let (before, got_before) = (Seen::of(bed), got());
    undisturbed(&mut transfers, from + window).await?;
    let mut measured = Seen::of(bed).since(&before);
    measured.seconds = window.as_secs_f64();
    measured.finished = true;
    let rate = |(now, before): (u64, u64)| (now - before) as f64 * 8e-6 / window.as_secs_f64();
    measured.rivals_mbps = got().into_iter().zip(got_before).map(rate).collect();
    Ok(measured)
}

/// Starts a download without end.
fn begin(transfers: &mut JoinSet<Result<(), Interrupted>>, client: &Connection) {
    let client = client.clone();
    transfers.spawn(async move { download(&client, crate::Amount::Bytes(u64::MAX)).await.map(drop) });
}

/// Waits until that time; transfers without end must not end.
async fn undisturbed(transfers: &mut JoinSet<Result<(), Interrupted>>, until: Instant) -> Result<()> {
    tokio::select! {
        biased;
        Some(ended) = transfers.join_next() => {
            ended.context("a transfer")??;
            bail!("a transfer without end has ended")
        }
        () = sleep_until(until) => Ok(()),
    }
}

/// What was counted until some moment.
struct Seen {
    bytes: u64,
    carried: Vec<u64>,
    sent_bytes: [u64; 2],
    acknowledgements: u64,
}

impl Seen {
    fn of(bed: &Bed) -> Self {
        let sent = |direction| {
            let counters = bed.lines.iter().map(|line| line.counters(direction));
            // IPv4 and UDP around each payload.
            counters.map(|counters| counters.offered_bytes + 28 * counters.offered).sum()
        };
        let relay = bed.relay.stats();
        Self {
            bytes: bed.client.stats().link.down.flow_bytes,
            carried: relay.link.paths.iter().map(|path| path.down.datagrams).collect(),
            sent_bytes: [sent(Direction::Up), sent(Direction::Down)],
            acknowledgements: relay.acknowledgements_received,
        }
    }

    fn since(&self, before: &Self) -> Measured {
        Measured {
            bytes: self.bytes - before.bytes,
            carried: self.carried.iter().zip(&before.carried).map(|(now, before)| now - before).collect(),
            sent_bytes: [0, 1].map(|side| self.sent_bytes[side] - before.sent_bytes[side]),
            acknowledgements: Some(self.acknowledgements - before.acknowledgements),
            ..Measured::default()
        }
    }
}
