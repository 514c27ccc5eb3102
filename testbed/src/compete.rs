//! How a download of ours and other people's TCP flows share the lines of a bed.

use std::time::Duration;

use tandem_core::transport::ConnectError;
use tandem_proto::measure::jain;
use tokio::time::sleep;

use crate::measure::{Amount, download};
use crate::scenario::Scenario;

/// A download of ours beside TCP flows with CUBIC, all of which last as long as the experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Competition {
    /// Our session and its paths.
    pub scenario: Scenario,
    /// TCP flows on each path.
    pub flows: usize,
    /// How long all have been under way when counting begins.
    pub settle: Duration,
    /// Over which time is counted.
    pub time: Duration,
}

/// What each got, in Mbit/s at the application.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// Our download; 0 without one.
    pub ours: f64,
    /// The TCP flows of each path together.
    pub tcp: Vec<f64>,
    /// Packets that our sender took for lost, in percent of those it sent.
    pub lost_percent: f64,
}

impl Shares {
    /// Ours and what TCP got on one path.
    pub fn sum(&self, path: usize) -> f64 {
        self.ours + self.tcp[path]
    }

    /// Jain's index of ours and what TCP got on one path; 0 if nobody got anything.
    pub fn jain(&self, path: usize) -> f64 {
        jain([self.ours, self.tcp[path]]).unwrap_or(0.0)
    }

    /// The part of what TCP got in `alone` that it got here, on each path.
    pub fn kept(&self, alone: &Shares) -> Vec<f64> {
        self.tcp.iter().zip(&alone.tcp).map(|(tcp, alone)| tcp / alone).collect()
    }

    /// The mean of several.
    ///
    /// # Panics
    /// Of none.
    pub fn mean(shares: &[Shares]) -> Shares {
        let mean = |value: &dyn Fn(&Shares) -> f64| shares.iter().map(value).sum::<f64>() / shares.len() as f64;
        let tcp = (0..shares[0].tcp.len()).map(|path| mean(&|shares| shares.tcp[path])).collect();
        Shares { ours: mean(&|shares| shares.ours), tcp, lost_percent: mean(&|shares| shares.lost_percent) }
    }
}

impl Competition {
    /// One flow on each path, counted for 24 s after 8 s.
    pub fn new(scenario: Scenario) -> Self {
        Self { scenario, flows: 1, settle: Duration::from_secs(8), time: Duration::from_secs(24) }
    }

    /// What the TCP flows get without us. To be called within [`virtual_time::run`](crate::virtual_time::run).
    ///
    /// # Errors
    /// When no connection comes up.
    pub async fn alone(&self) -> Result<Shares, ConnectError> {
        self.count(false).await
    }

    /// What they and our download get together. To be called within [`virtual_time::run`](crate::virtual_time::run).
    ///
    /// # Errors
    /// When no connection comes up.
    pub async fn beside(&self) -> Result<Shares, ConnectError> {
        self.count(true).await
    }

    async fn count(&self, beside: bool) -> Result<Shares, ConnectError> {
        let bed = self.scenario.connect().await?;
        let paths = 0..self.scenario.paths.len();
        let flows: Vec<Vec<_>> = paths.map(|path| (0..self.flows).map(|_| bed.tcp(path)).collect()).collect();
        let client = bed.client.clone();
        let ours = beside.then(|| tokio::spawn(async move { download(&client, Amount::Bytes(u64::MAX)).await }));
        let count = || {
            let tcp = flows.iter().map(|flows| flows.iter().map(|flow| flow.delivered()).sum::<u64>());
            (bed.client.stats().link.down.flow_bytes, tcp.collect::<Vec<_>>(), bed.relay.stats())
        };
        sleep(self.settle).await;
        let before = count();
        sleep(self.time).await;
        let after = count();
        if let Some(ours) = ours {
            ours.abort();
        }
        let mbps = |before: u64, after: u64| (after - before) as f64 * 8e-6 / self.time.as_secs_f64();
        let tcp = before.1.iter().zip(&after.1).map(|(before, after)| mbps(*before, *after)).collect();
        let sent = (after.2.packets_sent - before.2.packets_sent).max(1);
        let lost_percent = (after.2.packets_lost - before.2.packets_lost) as f64 * 100.0 / sent as f64;
        Ok(Shares { ours: mbps(before.0, after.0), tcp, lost_percent })
    }
}
