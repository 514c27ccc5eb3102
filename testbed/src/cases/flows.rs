//! FLOWS: many connections, one after the other and at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tandem_netem::{Bitrate, LinkConfig};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::stand::{Stand, percentile};
use super::{Case, Check, Context};
use crate::namespaces::{Connector, Echo, Line, Plan, Watched, download};

pub(super) const CASES: &[Case] = &[
    Case { code: "FLOWS-1", what: "short requests with 1,024 descriptors", run: |context| Box::pin(short(context)) },
    Case { code: "FLOWS-2", what: "a burst of 1,000 connections", run: |context| Box::pin(burst(context)) },
];

/// Descriptors that each program may have.
const DESCRIPTORS: u64 = 1_024;
/// Short requests that are under way at once.
const AT_ONCE: usize = 50;
/// Connections of the burst.
const BURST: usize = 1_000;
/// How long closed connections may take to be gone on both sides.
const SETTLE: Duration = Duration::from_secs(20);

/// FLOWS-1
async fn short(context: Context) -> Result<Vec<Check>> {
    let requests = if context.quick { 2_000 } else { 20_000 };
    let stand = context.start_up(Plan::standard(context.seed), &["--mode", "single"]).await?;
    for process in [stand.client.process(), stand.relay.process()] {
        process.limit_descriptors(DESCRIPTORS)?;
    }
    let before = stand.fetch(1_000).await.map(|_| descriptors(&stand))?;
    context.say(&format!("{requests} requests of 1 kB, {AT_ONCE} at a time"));
    let started = Instant::now();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut going = JoinSet::new();
    let mut most = before;
    for _ in 0..requests {
        let place = Arc::clone(&places).acquire_owned().await?;
        let connector = stand.client.connector();
        going.spawn(async move {
            let fetched = fetch(&connector, 1_000).await;
            drop(place);
            fetched
        });
        let now = descriptors(&stand);
        most = [most[0].max(now[0]), most[1].max(now[1])];
    }
    let failed = going.join_all().await.iter().filter(|fetched| fetched.is_err()).count();
    let took = started.elapsed();
    let after = settled(&stand, before).await;
    let left = |end: usize| after[end] as f64 - before[end] as f64;
    Ok(vec![
        Check::at_most("requests that failed", failed as f64, 0.0, ""),
        Check::figure("requests a second", f64::from(requests) / took.as_secs_f64(), ""),
        Check::figure("the client's descriptors at most", most[0] as f64, ""),
        Check::figure("the relay's descriptors at most", most[1] as f64, ""),
        Check::at_most("descriptors left at the client", left(0).abs(), 10.0, ""),
        Check::at_most("descriptors left at the relay", left(1).abs(), 10.0, ""),
        Check::figure("the client's memory", stand.client.process().memory() as f64 / 1e6, "MB"),
        Check::figure("the relay's memory", stand.relay.process().memory() as f64 / 1e6, "MB"),
    ])
}

/// FLOWS-2
async fn burst(context: Context) -> Result<Vec<Check>> {
    let link = LinkConfig {
        rate: Some(Bitrate::from_mbit(100)),
        delay: Duration::from_millis(30),
        mtu: Some(1_500),
        seed: context.seed,
        ..LinkConfig::default()
    };
    let link = link.with_queue_time(Duration::from_millis(60));
    let plan = Plan { lines: vec![Line::wifi(link.clone(), link.with_seed(context.seed + 1))], logs: None };
    let stand = context.start_up(plan, &["--mode", "single"]).await?;
    stand.fetch(1_000).await?;
    let before = descriptors(&stand);
    context.say(&format!("{BURST} connections at once, 10 kB each"));
    let mut going = JoinSet::new();
    for _ in 0..BURST {
        let connector = stand.client.connector();
        going.spawn(async move { fetch(&connector, 10_000).await });
    }
    let fetched = going.join_all().await;
    let failed = fetched.iter().filter(|fetched| fetched.is_err()).count();
    let mut times: Vec<f64> = fetched.iter().flatten().map(|took| took.as_secs_f64() * 1e3).collect();
    settled(&stand, before).await;

    context.say(&format!("{BURST} connections that stay open"));
    let mut opening = JoinSet::new();
    for _ in 0..BURST {
        let connector = stand.client.connector();
        opening.spawn(async move { Echo::begin(connector.connect().await?).await });
    }
    let mut echoes: Vec<Echo> = opening.join_all().await.into_iter().flatten().collect();
    let open = stand.client.snapshot().await?.0["flows_open"].as_f64().context("no flows_open in the snapshot")?;
    let mut answered = 0;
    for echo in &mut echoes {
        answered += usize::from(echo.ping().await.is_ok());
    }
    let memory = [stand.client.process().memory(), stand.relay.process().memory()];
    drop(echoes);
    let after = settled(&stand, before).await;
    Ok(vec![
        Check::at_most("connections that failed", failed as f64, 0.0, ""),
        Check::figure("10 kB over each, median", percentile(&mut times, 0.5), "ms"),
        Check::at_most("10 kB over each, 99 %", percentile(&mut times, 0.99), 5_000.0, "ms"),
        Check::at_least("flows open at once", open, BURST as f64, ""),
        Check::at_least("of them answering", answered as f64, BURST as f64, ""),
        Check::figure("the client's memory with them", memory[0] as f64 / 1e6, "MB"),
        Check::figure("the relay's memory with them", memory[1] as f64 / 1e6, "MB"),
        Check::at_most("descriptors left at the client", (after[0] as f64 - before[0] as f64).abs(), 10.0, ""),
        Check::at_most("descriptors left at the relay", (after[1] as f64 - before[1] as f64).abs(), 10.0, ""),
    ])
}

async fn fetch(connector: &Connector, length: u64) -> Result<Duration> {
    let started = Instant::now();
    download(connector.connect().await?, length, &Watched::new()).await?;
    Ok(started.elapsed())
}

/// Those of the client and the relay.
fn descriptors(stand: &Stand) -> [usize; 2] {
    [stand.client.process().descriptors(), stand.relay.process().descriptors()]
}

/// The descriptors once they are as few as before, or the time is over.
async fn settled(stand: &Stand, before: [usize; 2]) -> [usize; 2] {
    let started = Instant::now();
    loop {
        let now = descriptors(stand);
        if (now[0] <= before[0] && now[1] <= before[1]) || started.elapsed() > SETTLE {
            return now;
        }
        sleep(Duration::from_millis(100)).await;
    }
}
