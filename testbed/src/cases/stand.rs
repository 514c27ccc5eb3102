//! What every case needs: a bed with the product running in it, and the usual measurements.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::namespaces::{
    Bed, Client, Echo, Origin, Plan, Programs, Relay, Snapshot, Trace, Watched, connect_plainly, download, stream_down,
};

/// Longer than anything that is not measured takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What a case is given.
#[derive(Debug, Clone)]
pub struct Context {
    /// The programs to be tried.
    pub programs: Programs,
    /// Whether to take less time and one run instead of three.
    pub quick: bool,
    /// Where all chance of the links comes from.
    pub seed: u64,
    /// Where logs are kept, in a folder by case.
    pub logs: PathBuf,
    /// The case's code.
    pub code: &'static str,
}

impl Context {
    /// Tells what the case does now.
    pub(super) fn say(&self, what: &str) {
        eprintln!("  {}: {what}", self.code);
    }

    /// How often to measure what is compared.
    pub(super) fn runs(&self) -> u64 {
        if self.quick { 1 } else { 3 }
    }

    /// One of two times, by whether the run is to be quick.
    pub(super) fn time(&self, full: Duration, quick: Duration) -> Duration {
        if self.quick { quick } else { full }
    }

    /// Builds a bed and starts the product in it, with more arguments of `tandem run`.
    pub(super) fn start(&self, mut plan: Plan, arguments: &[&str]) -> Result<Stand> {
        plan.logs = Some(self.logs.join(self.code));
        let bed = Bed::build(&plan).context("building the bed")?;
        let origin = Origin::start(&bed)?;
        let relay = Relay::start_plain(&bed, &self.programs)?;
        let client = Client::start(&bed, &self.programs, &relay, arguments)?;
        Ok(Stand { client, relay, origin, bed })
    }

    /// The same, and waits until every network has a path.
    pub(super) async fn start_up(&self, plan: Plan, arguments: &[&str]) -> Result<Stand> {
        let lines = plan.lines.len();
        let stand = self.start(plan, arguments)?;
        stand.client.paths_up(lines).await?;
        Ok(stand)
    }

    /// What plain TCP downloads over a network, in Mbit/s: the median of the runs.
    pub(super) async fn plain_rate(&self, stand: &Stand, network: usize, time: Duration) -> Result<f64> {
        let mut rates = Vec::new();
        for _ in 0..self.runs() {
            rates.push(bulk_rate(connect_plainly(&stand.bed, network).await?, time).await?);
        }
        Ok(median(&mut rates))
    }

    /// What the product downloads, in Mbit/s: the median of the runs.
    pub(super) async fn product_rate(&self, stand: &Stand, time: Duration) -> Result<f64> {
        let mut rates = Vec::new();
        for _ in 0..self.runs() {
            rates.push(bulk_rate(stand.client.connect().await?, time).await?);
        }
        Ok(median(&mut rates))
    }
}

/// How long a rate has to settle before it is measured.
const SETTLE: Duration = Duration::from_secs(2);

/// What a download brings in Mbit/s over `time`, after two seconds to settle.
async fn bulk_rate(tcp: tokio::net::TcpStream, time: Duration) -> Result<f64> {
    let watched = Watched::new();
    let _ = timeout(SETTLE + time, download(tcp, u64::MAX, &watched)).await;
    let trace = watched.trace();
    anyhow::ensure!(trace.is_intact(), "a download's bytes were not those sent");
    Ok(trace.rate_between(SETTLE, SETTLE + time))
}

/// The middle value; of an even number the upper middle.
pub(super) fn median(values: &mut [f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value that a share of values does not exceed.
pub(super) fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * share) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The product, running in a bed.
#[derive(Debug)]
pub(super) struct Stand {
    // In the order in which they are to go.
    pub(super) client: Client,
    pub(super) relay: Relay,
    pub(super) origin: Origin,
    pub(super) bed: Bed,
}

impl Stand {
    /// Starts a download without end in the background; it is to be looked at while it runs.
    pub(super) async fn begin_bulk(&self) -> Result<(Watched, Background)> {
        let tcp = self.client.connect().await?;
        let watched = Watched::new();
        let shared = watched.clone();
        let task = tokio::spawn(async move { download(tcp, u64::MAX, &shared).await.map(drop) });
        Ok((watched, Background(task)))
    }

    /// Starts an even stream from the origin in the background.
    pub(super) async fn begin_stream(&self, bytes_per_second: u64, time: Duration) -> Result<(Watched, Background)> {
        let tcp = self.client.connect().await?;
        let watched = Watched::new();
        let shared = watched.clone();
        let task = tokio::spawn(async move { stream_down(tcp, bytes_per_second, time, &shared).await.map(drop) });
        Ok((watched, Background(task)))
    }

    /// Opens an echo.
    pub(super) async fn echo(&self) -> Result<Echo> {
        Echo::begin(self.client.connect().await?).await
    }

    /// Opens a flow, fetches so many bytes, and tells how long all of it took.
    pub(super) async fn fetch(&self, length: u64) -> Result<Duration> {
        let started = Instant::now();
        download(self.client.connect().await?, length, &Watched::new()).await?;
        Ok(started.elapsed())
    }

    /// Looks at the client again and again for so long.
    pub(super) async fn watch(&self, time: Duration, mut look: impl FnMut(Duration, &Snapshot)) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < time {
            look(started.elapsed(), &self.client.snapshot().await?);
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

/// Something that goes on beside a case; it stops when dropped.
#[derive(Debug)]
pub(super) struct Background(JoinHandle<Result<()>>);

impl Background {
    /// Keeps a task.
    pub(super) fn new(task: JoinHandle<Result<()>>) -> Self {
        Self(task)
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for its end.
    pub(super) async fn end(mut self) -> Result<()> {
        timeout(PATIENCE, &mut self.0).await.context("it does not end")??
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits until a transfer has brought a byte after now; how long that took, or `within` if it did not.
pub(super) async fn next_byte(watched: &Watched, within: Duration) -> Duration {
    let (started, before) = (Instant::now(), watched.trace().bytes());
    while started.elapsed() < within {
        if watched.trace().bytes() > before {
            return started.elapsed();
        }
        sleep(Duration::from_millis(2)).await;
    }
    within
}

/// The gap in a transfer around something that happened `from` ago until now.
pub(super) fn gap_since(trace: &Trace, from: Instant) -> Duration {
    let since = from.saturating_duration_since(trace.started());
    trace.longest_gap_between(since, trace.started().elapsed())
}
