//! TCP: flows that do not take what comes, and large ones.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::stand::{Background, median, percentile};
use super::{Case, Check, Context};
use crate::namespaces::{Plan, WIFI, Watched, connect_plainly, download_slowly, upload};

pub(super) const CASES: &[Case] = &[
    Case { code: "TCP-4", what: "twenty slow readers", run: |context| Box::pin(slow_readers(context)) },
    Case { code: "TCP-5", what: "a large upload", run: |context| Box::pin(large_upload(context)) },
];

/// How long twenty windows of 4 MiB take to fill at 50 Mbit/s, and more, as others take their share.
const FILLED: Duration = Duration::from_secs(30);

/// TCP-4
async fn slow_readers(context: Context) -> Result<Vec<Check>> {
    const READERS: u64 = 20;
    const EACH: u64 = 100_000;
    let mut plan = Plan::standard(context.seed);
    plan.lines.truncate(1);
    let stand = context.start_up(plan, &["--mode", "single"]).await?;
    let memory = (stand.client.process().memory(), stand.relay.process().memory());
    let rate = |seconds: Duration| 5.0 * 8.0 / seconds.as_secs_f64();
    let mut alone = Vec::new();
    for _ in 0..context.runs() {
        alone.push(rate(stand.fetch(5_000_000).await?));
    }
    let alone = median(&mut alone);
    context.say("twenty readers of 100 kB/s");
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let tcp = stand.client.connect().await?;
        let reader = async move { download_slowly(tcp, EACH, &Watched::new()).await };
        readers.push(Background::new(tokio::spawn(reader)));
    }
    let fetches = if context.quick { 40 } else { 100 };
    let small_fetches = async || -> Result<Vec<f64>> {
        let mut small = Vec::new();
        for _ in 0..fetches {
            small.push(stand.fetch(1_000).await?.as_secs_f64() * 1e3);
            sleep(Duration::from_millis(50)).await;
        }
        Ok(small)
    };
    // Until the windows of the slow flows are full they are flows like others, and take the share of such.
    let mut filling = small_fetches().await?;
    context.say("waiting until their windows are full");
    sleep(FILLED).await;
    let mut small = small_fetches().await?;
    let mut beside = Vec::new();
    for _ in 0..context.runs() {
        beside.push(rate(stand.fetch(5_000_000).await?));
    }
    let free = alone - (READERS * EACH) as f64 * 8e-6;
    let grown = |process: &crate::namespaces::Process, before| (process.memory() as f64 - before as f64) / 1e6;
    Ok(vec![
        Check::figure("1 kB while their windows fill, 95 %", percentile(&mut filling, 0.95), "ms"),
        Check::figure("1 kB beside them, median", median(&mut small), "ms"),
        Check::at_most("1 kB beside them, 95 %", percentile(&mut small, 0.95), 3.0 * 20.0 + 50.0, "ms"),
        Check::figure("5 MB alone", alone, "Mbit/s"),
        Check::at_least("5 MB beside them, of the free rate", median(&mut beside) / free, 0.7, ""),
        Check::figure("growth of the client's memory", grown(stand.client.process(), memory.0), "MB"),
        Check::figure("growth of the relay's memory", grown(stand.relay.process(), memory.1), "MB"),
        Check::at_most(
            "readers that ended",
            readers.iter().filter(|reader| reader.has_ended()).count() as f64,
            0.0,
            "",
        ),
    ])
}

/// TCP-5
async fn large_upload(context: Context) -> Result<Vec<Check>> {
    let mut plan = Plan::standard(context.seed);
    plan.lines.truncate(1);
    let stand = context.start_up(plan, &["--mode", "single"]).await?;
    context.say("plain TCP");
    let mut plain = Vec::new();
    for number in 0..context.runs() {
        let length = 25_000_000;
        let time = upload(connect_plainly(&stand.bed, WIFI).await?, number, length).await?;
        plain.push(length as f64 * 8e-6 / time.as_secs_f64());
    }
    let plain = median(&mut plain);
    let length: u64 = if context.quick { 50_000_000 } else { 500_000_000 };
    context.say(&format!("{} MB through the product", length / 1_000_000));
    let before = stand.client.process().memory();
    let (mut most, mut down) = (before, 0u32);
    let tcp = stand.client.connect().await?;
    let started = Instant::now();
    let going = tokio::spawn(upload(tcp, 100, length));
    while !going.is_finished() {
        most = most.max(stand.client.process().memory());
        down += u32::from(!stand.client.snapshot().await?.is_up("wifi0"));
        sleep(Duration::from_millis(100)).await;
    }
    let arrived = going.await?;
    let rate = length as f64 * 8e-6 / started.elapsed().as_secs_f64();
    Ok(vec![
        Check::figure("plain TCP", plain, "Mbit/s"),
        Check::at_least("the upload, of that", rate / plain, 0.85, ""),
        Check::holds("it arrives intact", arrived.is_ok()),
        Check::at_most("growth of the client's memory", (most - before) as f64 / f64::from(1 << 20), 64.0, "MiB"),
        Check::at_most("looks at which the path was not up", f64::from(down), 0.0, ""),
    ])
}
