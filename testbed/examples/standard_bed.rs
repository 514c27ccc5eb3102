//! Prints what a download gets on the standard bed, something like Wi-Fi beside something like cellular, and the longest
//! gap when one of the two dies in the middle.
//!
//! For each controller: goodput in Mbit/s on Wi-Fi alone and in bicast, share of the datagrams copied, median and 99th
//! percentile of a small request beside it in milliseconds; then the longest gap of each seed, by what was lost and how.
//! `cargo run -p tandem-testbed --example standard_bed [SEEDS [CONTROLLER...]]`, 3 seeds and all controllers unless told.

use std::time::Duration;

use tandem_netem::Direction;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Amount, Scenario, SendFault, virtual_time};
use tokio::time::sleep;

const SPAN: Duration = Duration::from_secs(10);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    let named: Vec<Algorithm> = arguments.filter_map(|name| name.parse().ok()).collect();
    let controllers = if named.is_empty() { Algorithm::ALL.to_vec() } else { named };
    println!("| controller | paths | Mbit/s | copied % | cellular loss % | ping p50, p99 (ms) |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for congestion in &controllers {
        for (name, bicast) in [("Wi-Fi", false), ("both", true)] {
            for seed in 1..=seeds {
                goodput(*congestion, name, bicast, seed);
            }
        }
    }
    println!("| controller | lost | longest gap (ms) of each seed |");
    println!("| --- | --- | --- |");
    for congestion in &controllers {
        for (name, path) in [("Wi-Fi", 0), ("cellular", 1)] {
            for interface_down in [false, true] {
                let gaps: Vec<u128> = (1..=seeds).map(|seed| gap(*congestion, path, interface_down, seed)).collect();
                println!("| {congestion} | {name}, interface down: {interface_down} | {gaps:?} |");
            }
        }
    }
}

fn scenario(congestion: Algorithm, bicast: bool, seed: u64) -> Scenario {
    let mut scenario = Scenario::standard_bed(congestion, Mode::Bicast(Sides::Both), seed);
    if !bicast {
        scenario.mode = Mode::Single;
        scenario.paths.truncate(1);
    }
    scenario
}

fn goodput(congestion: Algorithm, name: &str, bicast: bool, seed: u64) {
    virtual_time::run(async {
        let bed = scenario(congestion, bicast, seed).connect().await.expect("a connection");
        let measured = bed.measure_download(Amount::Time(SPAN)).await.expect("the whole time");
        let link = bed.relay.stats().link;
        let cellular_loss = link.paths.get(1).map_or(0.0, |path| path.down.total_loss_percent);
        println!(
            "| {congestion} | {name} | {:.1} | {:.0} | {cellular_loss:.1} | {:.0}, {:.0} |",
            measured.download.goodput_mbps(),
            100.0 * link.down.copies as f64 / link.down.datagrams.max(1) as f64,
            measured.pings.p50_ms(),
            measured.pings.p99_ms(),
        );
    });
}

fn gap(congestion: Algorithm, path: usize, interface_down: bool, seed: u64) -> u128 {
    virtual_time::run(async {
        let bed = scenario(congestion, true, seed).connect().await.expect("a connection");
        // The gaps of startup are not what is looked for.
        bed.measure_download(Amount::Time(Duration::from_secs(3))).await.expect("the whole time");
        let death = async {
            sleep(Duration::from_millis(1_000 + seed * 7)).await;
            bed.lines[path].cut(Direction::Up);
            bed.lines[path].cut(Direction::Down);
            if interface_down {
                bed.client_sockets[path].set_fault(Some(SendFault::NetworkUnreachable));
            }
        };
        let (measured, ()) = tokio::join!(biased; bed.measure_download(Amount::Time(Duration::from_secs(2))), death);
        measured.map_or(u128::MAX, |measured| measured.download.longest_gap.as_millis())
    })
}
