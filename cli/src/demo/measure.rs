//! One run: a client started anew, one download, and what it came to.
//!
//! Goodput is what the application gets: body bytes that arrive within the run's time, which begins when the request is
//! sent. Nothing is left out but connecting. Copies, bytes on the links and losses come from the client's own snapshots,
//! as differences over the run; what the relay sent it reports a quarter of a second later, so they are read when the
//! download has ended and its last report is in.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tandem_core::client::{Engine, EngineConfig, EngineHandle};
use tandem_proto::stats::{PathState, SessionState, Snapshot};
use tokio::time::{Instant, sleep, timeout};

use super::Plan;
use super::bed::{Bed, Carried, LOOPBACK};
use super::download::{Download, mbps};

/// How long a session with both paths may take to come up.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// No news from the relay for this long means that there is no more: it reports four times a second, and now and then a
/// report is lost.
const NO_NEWS: Duration = Duration::from_millis(700);
/// How long the last reports are waited for.
const REPORT_LIMIT: Duration = Duration::from_secs(3);

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// Body bytes that the application received within the time, in Mbit/s.
    pub(super) goodput_mbps: f64,
    /// Share of the download's datagrams of which no copy arrived, in percent.
    pub(super) effective_loss_percent: f64,
    /// Copies beyond the first that both sides sent.
    pub(super) copies: u64,
    /// UDP payload bytes that both sides sent on both networks.
    pub(super) link_bytes: u64,
    /// Body bytes that the application received within the time.
    pub(super) application_bytes: u64,
    /// Share of the datagrams lost in each network on the way to the client, in percent; `None` where hardly any went.
    pub(super) network_loss_percent: [Option<f64>; 2],
}

/// Carries out one run. `tell` hears now and then of the time that has passed and the rate of late, in Mbit/s.
pub(super) async fn measure(bed: &Bed, plan: &Plan, tell: impl Fn(Duration, f64)) -> anyhow::Result<Measured> {
    let networks = bed.networks(plan.loss_percent)?;
    let config = EngineConfig {
        listen: Some(LOOPBACK),
        mode: plan.mode,
        congestion: plan.congestion,
        ..EngineConfig::new(bed.link())
    };
    let engine = Engine::start(config, Arc::new(networks.platform())).await?;
    let proxy = engine.proxy_address().context("the engine has no proxy")?;
    let handle = engine.handle();
    connected(&handle).await?;
    let download = Download::connect(proxy, bed.origin()).await?;

    let (before, carried_before) = (handle.snapshot(), networks.carried());
    let application_bytes = download.count(plan.time, tell).await?;
    let carried_after = networks.carried();
    let after = last_report(&handle).await;
    engine.stop().await;

    let over_run = |counter: fn(&Snapshot) -> u64| counter(&after) - counter(&before);
    Ok(Measured {
        goodput_mbps: mbps(application_bytes, plan.time),
        // The session is as old as the run but for its handshake.
        effective_loss_percent: after.down.effective_loss_percent,
        copies: over_run(|snapshot| snapshot.up.copies + snapshot.down.copies),
        link_bytes: over_run(|snapshot| snapshot.up.link_bytes + snapshot.down.link_bytes),
        application_bytes,
        network_loss_percent: losses(carried_before, carried_after),
    })
}

/// Waits for a session whose paths are all up.
async fn connected(handle: &EngineHandle) -> anyhow::Result<()> {
    let mut snapshots = handle.subscribe();
    let settled = snapshots.wait_for(|snapshot| match snapshot.state {
        SessionState::Connected => {
            snapshot.paths.len() == 2 && snapshot.paths.iter().all(|path| path.state == PathState::Up)
        }
        SessionState::Connecting => false,
        SessionState::Stopped => snapshot.problem.is_some(),
    });
    let snapshot = match timeout(CONNECT_LIMIT, settled).await {
        Ok(snapshot) => snapshot.context("the engine has ended")?.clone(),
        Err(_) => handle.snapshot(),
    };
    match (snapshot.state, snapshot.problem) {
        (SessionState::Connected, _) => Ok(()),
        (_, Some(problem)) => bail!(problem),
        (_, None) => bail!("no session over both networks came up within {} s", CONNECT_LIMIT.as_secs()),
    }
}

/// Waits until the relay has nothing new to tell of what it sent.
async fn last_report(handle: &EngineHandle) -> Snapshot {
    let limit = Instant::now() + REPORT_LIMIT;
    let mut latest = handle.snapshot();
    let mut news = Instant::now();
    while news.elapsed() < NO_NEWS && Instant::now() < limit {
        sleep(NO_NEWS / 10).await;
        let snapshot = handle.snapshot();
        if snapshot.down.datagrams != latest.down.datagrams {
            news = Instant::now();
        }
        latest = snapshot;
    }
    latest
}

/// The share lost in each network between two looks, in percent.
fn losses(before: [Carried; 2], after: [Carried; 2]) -> [Option<f64>; 2] {
    let offered = [0, 1].map(|index| after[index].offered - before[index].offered);
    // Pings and reports alone are too few to tell a loss.
    let enough = offered.iter().sum::<u64>() / 10;
    [0, 1].map(|index| {
        let lost = after[index].lost - before[index].lost;
        (offered[index] > enough).then(|| 100.0 * lost as f64 / offered[index] as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_of_the_time_between_and_of_networks_that_were_used() {
        let at = |offered, lost| Carried { offered, lost };
        assert_eq!(losses([at(50, 50), at(7, 7)], [at(1050, 100), at(17, 8)]), [Some(5.0), None]);
        assert_eq!(losses([at(0, 0); 2], [at(1000, 0), at(500, 10)]), [Some(0.0), Some(2.0)]);
    }
}
