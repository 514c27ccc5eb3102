//! LONG: ten minutes of random events, beside flows of all sizes that check every byte; nothing may be lost or left behind.
//!
//! All chance comes from the seed, which is printed: the same seed takes the same events at the same times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use ipnet::Ipv4Net;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tandem_netem::{Bitrate, Jitter, Loss, Reorder};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::stand::{Background, Stand};
use super::{Case, Check, Context};
use crate::namespaces::{CELL, Echo, Ecn, Plan, WIFI, Watched, download, upload};

pub(super) const CASES: &[Case] =
    &[Case { code: "LONG", what: "ten minutes of random events", run: |context| Box::pin(long(context)) }];

/// How many flows there are at any time.
const FLOWS: u64 = 6;
/// The largest flow, in bytes.
const LARGEST: f64 = 8e6;
/// How long a flow may take before it counts as hanging: far more than any event lasts.
const HANGS: Duration = Duration::from_secs(120);

/// What flows have come to.
#[derive(Debug, Default)]
struct Tally {
    done: AtomicU64,
    bytes: AtomicU64,
    failed: Mutex<Vec<String>>,
}

async fn long(context: Context) -> Result<Vec<Check>> {
    let time = context.time(Duration::from_secs(600), Duration::from_secs(90));
    context.say(&format!("seed {}, {} s", context.seed, time.as_secs()));
    let mut stand = context.start_up(Plan::standard(context.seed), &["--mode", "bicast"]).await?;
    // What first use brings (threads, buffers, memory that the allocator keeps) is no leak.
    warm_up(&stand).await?;
    let resources = |stand: &Stand| {
        [stand.client.process(), stand.relay.process()].map(|process| (process.descriptors(), process.memory()))
    };
    let before = resources(&stand);

    let tally = Arc::<Tally>::default();
    let connect = stand.client.connector();
    let started = Instant::now();
    let mut flows = JoinSet::new();
    for worker in 0..FLOWS {
        let (connect, tally, seed) = (connect.clone(), tally.clone(), context.seed);
        flows.spawn(async move {
            let mut chance = Pcg64::seed_from_u64(seed.wrapping_mul(1_000).wrapping_add(worker));
            let mut number = worker << 32;
            while started.elapsed() < time {
                number += 1;
                // From a kilobyte to megabytes, small ones more often.
                let length = (LARGEST.powf(chance.random_range(0.45..1.0))) as u64;
                let kind = chance.random_range(0..3);
                let flow = async {
                    let tcp = connect.connect().await?;
                    match kind {
                        0 => download(tcp, length, &Watched::new()).await.map(drop),
                        1 => upload(tcp, number, length).await.map(drop),
                        _ => {
                            let mut echo = Echo::begin(tcp).await?;
                            for _ in 0..20 {
                                echo.ping().await?;
                                sleep(Duration::from_millis(100)).await;
                            }
                            Ok(())
                        }
                    }
                };
                let what = ["download", "upload", "echo"][kind];
                match timeout(HANGS, flow).await {
                    Ok(Ok(())) => {
                        tally.done.fetch_add(1, Ordering::Relaxed);
                        tally.bytes.fetch_add(if kind < 2 { length } else { 1_280 }, Ordering::Relaxed);
                    }
                    Ok(Err(error)) => {
                        tally.failed.lock().push(format!("{what} at {:?}: {error:#}", started.elapsed()));
                    }
                    Err(_) => tally.failed.lock().push(format!("{what} hangs at {:?}", started.elapsed())),
                }
            }
        });
    }
    let mut chance = Pcg64::seed_from_u64(context.seed);
    while started.elapsed() < time {
        let event = happen(&mut stand, &mut chance).await?;
        context.say(&format!("{:>3} s: {event}", started.elapsed().as_secs()));
        sleep(Duration::from_millis(chance.random_range(500..4_000))).await;
    }
    let ended = timeout(HANGS * 2, async { while flows.join_next().await.is_some() {} }).await;
    calm(&stand, WIFI)?;
    calm(&stand, CELL)?;
    let up = stand.client.paths_up(2).await;
    // Flows' last descriptors go a moment after the flows.
    sleep(Duration::from_secs(5)).await;
    let after = resources(&stand);
    let snapshot = stand.client.snapshot().await?;
    let failed = tally.failed.lock().clone();
    failed.iter().for_each(|failed| context.say(failed));
    let mut checks = vec![
        Check::at_least(
            "flows that came to their end, every byte right",
            tally.done.load(Ordering::Relaxed) as f64,
            50.0,
            "",
        ),
        Check::figure("their bytes", tally.bytes.load(Ordering::Relaxed) as f64 * 1e-6, "MB"),
        Check::at_most("flows that failed or hung", failed.len() as f64, 0.0, ""),
        Check::holds("all flows have ended", ended.is_ok()),
        Check::holds("both paths are up in the end", up.is_ok()),
        Check::at_most("paths known in the end", snapshot.0["paths"].as_array().map_or(0, Vec::len) as f64, 2.0, ""),
        Check::at_most("flows open in the end", snapshot.0["flows_open"].as_f64().unwrap_or(f64::NAN), 0.0, ""),
    ];
    for (name, before, after) in [("client", before[0], after[0]), ("relay", before[1], after[1])] {
        let opened = after.0 as f64 - before.0 as f64;
        checks.push(Check::at_most(format!("{name}: growth of descriptors"), opened, 5.0, ""));
        let grown = (after.1 as f64 - before.1 as f64) / f64::from(1 << 20);
        checks.push(Check::at_most(format!("{name}: growth of memory"), grown, 24.0, "MiB"));
    }
    Ok(checks)
}

/// As many flows of the largest size as there will ever be.
async fn warm_up(stand: &Stand) -> Result<()> {
    let mut flows = Vec::new();
    for number in 0..FLOWS {
        let (down, up) = (stand.client.connect().await?, stand.client.connect().await?);
        flows.push(Background::new(tokio::spawn(async move {
            download(down, LARGEST as u64, &Watched::new()).await?;
            upload(up, number, LARGEST as u64 / 4).await.map(drop)
        })));
    }
    for flow in flows {
        flow.end().await?;
    }
    sleep(Duration::from_secs(5)).await;
    Ok(())
}

/// One event; what it was.
async fn happen(stand: &mut Stand, chance: &mut Pcg64) -> Result<String> {
    let network = chance.random_range(0..2);
    let name = stand.bed.interface(network);
    let link = stand.bed.network(network);
    Ok(match chance.random_range(0..12) {
        0 => {
            let loss = chance.random_range(0.0..0.15);
            link.change_links(|link| link.loss = Loss::Random(loss));
            format!("{name} loses {:.1} %", loss * 100.0)
        }
        1 => {
            link.change_links(|link| link.loss = Loss::bursts(0.05, 8.0));
            format!("{name} loses in bursts")
        }
        2 => {
            let time = Duration::from_millis(chance.random_range(200..4_000));
            link.silence();
            sleep(time).await;
            link.revive();
            format!("{name} was silent for {time:?}")
        }
        3 => {
            let time = Duration::from_millis(chance.random_range(200..6_000));
            for network in [WIFI, CELL] {
                stand.bed.network(network).silence();
            }
            sleep(time).await;
            for network in [WIFI, CELL] {
                stand.bed.network(network).revive();
            }
            format!("both were silent for {time:?}")
        }
        4 => {
            link.rebind();
            format!("{name} rebinds")
        }
        5 => {
            let mtu = [1_500, 1_400, 1_300, 1_281][chance.random_range(0..4)];
            link.change_links(|link| link.mtu = Some(mtu));
            format!("{name} has an MTU of {mtu}")
        }
        6 => {
            let sd = Duration::from_millis(chance.random_range(0..15));
            link.change_links(|link| {
                link.jitter = Jitter { sd, correlation: Duration::from_millis(30), ..Jitter::default() };
            });
            format!("{name} has a jitter of {sd:?}")
        }
        7 => {
            let last = chance.random_range(2..250);
            stand.bed.move_interface(network, Ipv4Net::new_assert([192, 168, network as u8 + 1, last].into(), 24))?;
            format!("{name} gets another address")
        }
        8 => {
            let time = Duration::from_millis(chance.random_range(200..3_000));
            stand.bed.interface_down(network)?;
            sleep(time).await;
            stand.bed.interface_up(network)?;
            format!("{name} was switched off for {time:?}")
        }
        9 => {
            let mbit = chance.random_range(3..50);
            link.change_links(|link| link.rate = Some(Bitrate::from_mbit(mbit)));
            format!("{name} has {mbit} Mbit/s")
        }
        10 => {
            let share = chance.random_range(0.0..0.2);
            let (least, most) = (Duration::from_millis(1), Duration::from_millis(8));
            link.change_links(|link| link.reorder = Reorder { share, least, most });
            link.change(|behaviour| behaviour.ecn_down = Ecn::Set((share * 20.0) as u8));
            format!("{name} reorders {:.0} % and marks", share * 100.0)
        }
        _ => {
            calm(stand, network)?;
            format!("{name} is calm")
        }
    })
}

/// A network without faults, at a rate of its own.
fn calm(stand: &Stand, network: usize) -> Result<()> {
    let link = stand.bed.network(network);
    link.revive();
    link.change_links(|link| {
        (link.loss, link.reorder, link.mtu) = (Loss::None, Reorder::default(), Some(1_500));
        (link.jitter, link.rate) = (Jitter::default(), Some(Bitrate::from_mbit(20)));
    });
    link.change(|behaviour| behaviour.ecn_down = Ecn::Keep);
    stand.bed.interface_up(network)
}
