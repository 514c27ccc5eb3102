//! Prints what a download gets over two emulated paths of 100 Mbit/s, by controller, paths and scheme.
//!
//! For each row: goodput in Mbit/s, the loss that QUIC sees in percent, median and 99th percentile of a small request beside
//! the download in milliseconds, and the longest gap without a byte; each the mean over the seeds, the gap the longest.
//! Takes about a minute: `cargo run -p tandem-testbed --example goodput_table [SEEDS]`, 5 seeds unless told.

use std::time::Duration;

use tandem_netem::Bitrate;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Amount, Measured, PathLinks, Scenario, virtual_time};

/// RTT in milliseconds and loss, of the first and of the second path; queues hold one bandwidth-delay product.
const PATHS: [[(u64, f64); 2]; 10] = [
    [(10, 0.0), (10, 0.0)],
    [(10, 0.05), (10, 0.05)],
    [(10, 0.15), (10, 0.15)],
    [(10, 0.40), (10, 0.40)],
    [(20, 0.01), (60, 0.01)],
    [(20, 0.05), (60, 0.05)],
    [(20, 0.01), (120, 0.01)],
    [(20, 0.05), (120, 0.05)],
    [(60, 0.005), (20, 0.05)],
    [(20, 0.05), (30, 0.05)],
];

/// What is downloaded: 20 MB, unless that takes a minute.
const MOST_TIME: Duration = Duration::from_secs(60);
const BYTES: u64 = 20_000_000;

fn main() {
    let seeds = std::env::args().nth(1).and_then(|seeds| seeds.parse().ok()).unwrap_or(5);
    println!("| controller | RTT (ms), loss (%) | scheme | Mbit/s | QUIC loss % | ping p50, p99 (ms) | gap (ms) |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for congestion in Algorithm::ALL {
        for paths in PATHS {
            for mode in [Mode::Single, Mode::Bicast(Sides::Both)] {
                row(congestion, paths, mode, seeds);
            }
        }
    }
}

fn row(congestion: Algorithm, paths: [(u64, f64); 2], mode: Mode, seeds: u64) {
    let measured: Vec<Measured> = (1..=seeds).filter_map(|seed| measure(congestion, paths, mode, seed)).collect();
    if measured.is_empty() {
        println!("| {congestion} | {paths:?} | {} | no run came to its end |", mode.scheme());
        return;
    }
    let mean = |value: fn(&Measured) -> f64| measured.iter().map(value).sum::<f64>() / measured.len() as f64;
    let gap = measured.iter().map(|measured| measured.download.longest_gap).max().unwrap_or_default();
    let [(rtt, loss), (other_rtt, other_loss)] = paths;
    println!(
        "| {congestion} | {rtt}/{other_rtt}, {}/{} | {} | {:.1} | {:.2} | {:.0}, {:.0} | {} |{}",
        loss * 100.0,
        other_loss * 100.0,
        mode.scheme(),
        mean(|measured| measured.download.goodput_mbps()),
        mean(|measured| measured.quic_loss_percent),
        mean(|measured| measured.pings.p50_ms()),
        mean(|measured| measured.pings.p99_ms()),
        gap.as_millis(),
        if measured.len() as u64 == seeds { "" } else { " some runs failed" },
    );
}

fn measure(congestion: Algorithm, paths: [(u64, f64); 2], mode: Mode, seed: u64) -> Option<Measured> {
    let paths = paths
        .map(|(rtt, loss)| PathLinks::symmetric(Bitrate::from_mbit(100), Duration::from_millis(rtt), loss))
        .to_vec();
    let scenario = Scenario { paths, congestion, mode, seed };
    virtual_time::run(async {
        let bed = scenario.connect().await.ok()?;
        let whole = tokio::time::timeout(MOST_TIME, bed.measure_download(Amount::Bytes(BYTES))).await;
        match whole {
            Ok(measured) => measured.ok(),
            // Slower than that: the same experiment again, cut off at the time.
            Err(_) => {
                drop(bed);
                let bed = scenario.connect().await.ok()?;
                bed.measure_download(Amount::Time(MOST_TIME)).await.ok()
            }
        }
    })
}
