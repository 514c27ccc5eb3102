//! CC: what the congestion controller does to queues, and how it follows a link that changes.
//!
//! One network, single mode, the product's default controller: what a user gets who chooses nothing.

use std::time::Duration;

use anyhow::Result;
use tandem_netem::{Bitrate, Direction, LinkConfig};
use tokio::time::{Instant, sleep, timeout};

use super::stand::{Background, PATIENCE, Stand, percentile};
use super::{Case, Check, Context};
use crate::namespaces::{Echo, Line, Plan, WIFI, Watched, download, upload};

pub(super) const CASES: &[Case] = &[
    Case { code: "CC-1", what: "20 MB after a minute at 64 kbit/s", run: |context| Box::pin(after_a_trickle(context)) },
    Case { code: "CC-2", what: "an upload over 30 Mbit/s", run: |context| Box::pin(offered(context)) },
    Case { code: "CC-3", what: "a link falls from 20 to 2 Mbit/s", run: |context| Box::pin(falling(context)) },
    Case { code: "CC-4", what: "an upload over a queue of 2 s", run: |context| Box::pin(deep_queue(context)) },
];

/// A network with these rates in Mbit/s, round trip and time in the queues.
fn network(up: u32, down: u32, rtt: u64, queue: u64, seed: u64) -> Plan {
    let link = |mbit, seed| {
        let delay = Duration::from_millis(rtt) / 2;
        let config = LinkConfig { rate: Some(Bitrate::from_mbit(mbit)), delay, seed, ..LinkConfig::default() };
        config.with_queue_time(Duration::from_millis(queue))
    };
    Plan { lines: vec![Line::wifi(link(up, seed * 2), link(down, seed * 2 + 1))], logs: None }
}

/// An upload in the background, without end unless it has a length.
async fn begin_upload(stand: &Stand, number: u64) -> Result<Background> {
    let tcp = stand.client.connect().await?;
    Ok(Background::new(tokio::spawn(async move { upload(tcp, number, u64::MAX).await.map(drop) })))
}

/// For how long a ping is waited for.
const LONGEST_PING: Duration = Duration::from_secs(10);

/// Pings until `time` has passed; each with when it was sent. One that is not answered in [`LONGEST_PING`] ends it.
async fn ping_for(echo: &mut Echo, time: Duration) -> Result<Vec<(Duration, Duration)>> {
    let started = Instant::now();
    let mut pings = Vec::new();
    while started.elapsed() < time {
        let sent = started.elapsed();
        let Ok(ping) = timeout(LONGEST_PING, echo.ping()).await else {
            pings.push((sent, LONGEST_PING));
            break;
        };
        pings.push((sent, ping?));
        sleep(Duration::from_millis(20)).await;
    }
    Ok(pings)
}

fn milliseconds(pings: &[(Duration, Duration)]) -> Vec<f64> {
    pings.iter().map(|(_, ping)| ping.as_secs_f64() * 1e3).collect()
}

/// CC-1
async fn after_a_trickle(context: Context) -> Result<Vec<Check>> {
    const LENGTH: u64 = 20_000_000;
    let mut worst_loss = 0.0f64;
    let mut fresh = Vec::new();
    let mut late = Vec::new();
    for _ in 0..context.runs() {
        for trickle in [None, Some(context.time(Duration::from_secs(60), Duration::from_secs(20)))] {
            let stand = context.start_up(network(20, 50, 20, 100, context.seed), &["--mode", "single"]).await?;
            match trickle {
                None => context.say("on a fresh connection"),
                Some(time) => {
                    context.say(&format!("after {} s at 64 kbit/s", time.as_secs()));
                    let (_, going) = stand.begin_stream(8_000, time).await?;
                    going.end().await?;
                }
            }
            let tcp = stand.client.connect().await?;
            let before = stand.bed.network(WIFI).counters(Direction::Down);
            let watched = Watched::new();
            let transfer = download(tcp, LENGTH, &watched);
            let first_second = async {
                sleep(Duration::from_secs(1)).await;
                stand.bed.network(WIFI).counters(Direction::Down)
            };
            let (trace, after) = tokio::join!(transfer, first_second);
            let seconds = trace?.duration().as_secs_f64();
            let lost = (after.queue_dropped - before.queue_dropped) as f64 / (after.offered - before.offered) as f64;
            if trickle.is_some() {
                worst_loss = worst_loss.max(lost * 100.0);
                late.push(seconds);
            } else {
                fresh.push(seconds);
            }
        }
    }
    let (fresh, late) = (percentile(&mut fresh, 0.5), percentile(&mut late, 0.5));
    Ok(vec![
        Check::figure("20 MB on a fresh connection", fresh, "s"),
        Check::at_most("20 MB after a trickle, of that", late / fresh, 1.3, ""),
        Check::at_most("loss in its first second", worst_loss, 10.0, "%"),
    ])
}

/// CC-2
async fn offered(context: Context) -> Result<Vec<Check>> {
    let stand = context.start_up(network(30, 50, 20, 100, context.seed), &["--mode", "single"]).await?;
    let uplink = || stand.bed.network(WIFI).counters(Direction::Up);
    let before = uplink();
    let _going = begin_upload(&stand, 1).await?;
    sleep(Duration::from_secs(3)).await;
    let mut worst = 0.0f64;
    let (from, started) = (uplink(), Instant::now());
    let mut last = from;
    let seconds = if context.quick { 8 } else { 20 };
    for second in 1..=seconds {
        tokio::time::sleep_until(started + Duration::from_secs(second)).await;
        let now = uplink();
        worst = worst.max(mbit(now.offered_bytes - last.offered_bytes, now.offered - last.offered));
        last = now;
    }
    let mean = mbit(last.offered_bytes - from.offered_bytes, last.offered - from.offered) / seconds as f64;
    let lost = (last.queue_dropped - before.queue_dropped) as f64 / (last.offered - before.offered) as f64;
    let goodput = stand.origin.upload(1).map_or(0.0, |trace| trace.rate());
    Ok(vec![
        Check::at_most("offered after 3 s, of the link: mean", mean / 30.0, 1.25, ""),
        Check::at_most("offered after 3 s, of the link: worst second", worst / 30.0, 1.25, ""),
        Check::at_most("loss over the run", lost * 100.0, 5.0, "%"),
        Check::figure("goodput", goodput, "Mbit/s"),
    ])
}

/// Megabits on the wire.
fn mbit(payload_bytes: u64, packets: u64) -> f64 {
    (payload_bytes + 28 * packets) as f64 * 8e-6
}

/// CC-3
async fn falling(context: Context) -> Result<Vec<Check>> {
    let base = Duration::from_millis(20);
    let stand = context.start_up(network(20, 20, 20, 100, context.seed), &["--mode", "single"]).await?;
    let mut echo = stand.echo().await?;
    let (bulk, going) = stand.begin_bulk().await?;
    sleep(Duration::from_secs(5)).await;
    context.say("20 to 2 Mbit/s");
    let rate = |mbit| stand.bed.network(WIFI).change_links(|link| link.rate = Some(Bitrate::from_mbit(mbit)));
    rate(2);
    let pings = ping_for(&mut echo, Duration::from_secs(20)).await?;
    let limit = base * 2 + Duration::from_millis(100);
    let high = pings.iter().filter(|(_, ping)| *ping > limit).map(|(sent, ping)| *sent + *ping).max();
    let mut settled = milliseconds(&pings.iter().copied().filter(|(sent, _)| sent.as_secs() >= 5).collect::<Vec<_>>());
    let from = bulk.trace().started().elapsed();
    let low_rate = bulk.trace().rate_between(from - Duration::from_secs(10), from);
    context.say("2 to 20 Mbit/s");
    rate(20);
    let (risen, limit_s) = (Instant::now(), 30.0);
    let mut used = limit_s;
    while risen.elapsed().as_secs_f64() < limit_s {
        sleep(Duration::from_millis(100)).await;
        let now = bulk.trace().started().elapsed();
        let window = Duration::from_secs(1);
        if risen.elapsed() > window && bulk.trace().rate_between(now - window, now) >= 0.8 * 20.0 {
            used = (risen.elapsed() - window).as_secs_f64();
            break;
        }
    }
    Ok(vec![
        Check::within("last round trip over 140 ms ended after", high.unwrap_or_default(), Duration::from_secs(5)),
        Check::figure("round trip after 5 s, 95 %", percentile(&mut settled, 0.95), "ms"),
        Check::figure("goodput at 2 Mbit/s", low_rate, "Mbit/s"),
        Check::at_most("80 % of 20 Mbit/s used after", used, 10.0, "s"),
        Check::holds("the flow lives", !going.has_ended()),
    ])
}

/// CC-4
async fn deep_queue(context: Context) -> Result<Vec<Check>> {
    let stand = context.start_up(network(5, 50, 20, 2_000, context.seed), &["--mode", "single"]).await?;
    let mut echo = stand.echo().await?;
    let mut idle = milliseconds(&ping_for(&mut echo, Duration::from_secs(1)).await?);
    let base = percentile(&mut idle, 0.5);
    let _going = begin_upload(&stand, 1).await?;
    let settle = Duration::from_secs(3);
    let time = context.time(Duration::from_secs(30), Duration::from_secs(12));
    let mut down = 0u32;
    let pings = ping_for(&mut echo, settle + time);
    let watch = stand.watch(settle + time, |_, now| down += u32::from(!now.is_up("wifi0")));
    let (pings, watched) = tokio::join!(pings, watch);
    watched?;
    let pings: Vec<_> = pings?.into_iter().filter(|(sent, _)| *sent >= settle).collect();
    let trace = stand.origin.upload(1);
    let rate = trace.map_or(0.0, |trace| trace.rate_between(settle, settle + time));
    let mut pings = milliseconds(&pings);
    Ok(vec![
        Check::figure("round trip without load", base, "ms"),
        Check::at_most("round trip beside the upload, 95 %", percentile(&mut pings, 0.95), base + 150.0, "ms"),
        Check::at_least("goodput, of the link", rate / 5.0, 0.8, ""),
        Check::at_most("looks at which the path was not up", f64::from(down), 0.0, ""),
        Check::at_most("longest round trip", percentile(&mut pings, 1.0), PATIENCE.as_secs_f64() * 1e3, "ms"),
    ])
}
