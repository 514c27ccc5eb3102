//! Measures what the in-order hold is worth on unequal paths, in virtual time: one download of 20 MB with a small request
//! every 10 ms beside it, two paths of 100 Mbit/s with queues of one bandwidth-delay product and loss before the queue.
//!
//! `cargo run --release -p tandem-testbed --example hold_table [SEEDS]` prints, as means over the seeds, goodput in Mbit/s,
//! the loss that QUIC sees in percent, and the median and 99th percentile of the small requests in milliseconds.

use std::time::Duration;

use tandem_core::transport::congestion::HoldRule;
use tandem_netem::Bitrate;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Amount, PathLinks, Scenario, virtual_time};

const DOWNLOAD: u64 = 20_000_000;

/// Round-trip times in milliseconds and losses in percent of both paths.
const PAIRS: [([u64; 2], [f64; 2]); 8] = [
    ([20, 60], [1.0, 1.0]),
    ([20, 60], [2.0, 2.0]),
    ([20, 60], [5.0, 5.0]),
    ([20, 120], [1.0, 1.0]),
    ([20, 120], [5.0, 5.0]),
    ([60, 20], [0.5, 5.0]),
    ([20, 30], [5.0, 5.0]),
    ([10, 10], [1.0, 1.0]),
];

struct Means {
    goodput: f64,
    loss: f64,
    p50: f64,
    p99: f64,
}

fn measure(scenario: &Scenario, rule: HoldRule, seeds: u64) -> Means {
    let mut means = Means { goodput: 0.0, loss: 0.0, p50: 0.0, p99: 0.0 };
    for seed in 1..=seeds {
        let scenario = Scenario { seed, ..scenario.clone() };
        let measured = virtual_time::run(async move {
            let bed = scenario.connect().await.expect("a session");
            bed.client.set_hold_rule(rule);
            bed.relay.set_hold_rule(rule);
            bed.measure_download(Amount::Bytes(DOWNLOAD)).await.expect("a whole download")
        });
        let share = 1.0 / seeds as f64;
        means.goodput += share * measured.download.goodput_mbps();
        means.loss += share * measured.quic_loss_percent;
        means.p50 += share * measured.pings.p50_ms();
        means.p99 += share * measured.pings.p99_ms();
    }
    means
}

fn main() {
    let seeds = std::env::args().nth(1).and_then(|seeds| seeds.parse().ok()).unwrap_or(5);
    println!("| RTT, loss | controller | best single path | no hold | hold | hold + signals |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (rtts, losses) in PAIRS {
        for congestion in [Algorithm::Cubic, Algorithm::Bbr1] {
            let path = |index: usize| {
                let rtt = Duration::from_millis(rtts[index]);
                PathLinks::symmetric(Bitrate::from_mbit(100), rtt, losses[index] / 100.0)
            };
            let single = |index| Scenario { paths: vec![path(index)], congestion, mode: Mode::Single, seed: 0 };
            let both = Scenario { paths: vec![path(0), path(1)], congestion, mode: Mode::Bicast(Sides::Both), seed: 0 };
            let best = [0, 1]
                .map(|index| measure(&single(index), HoldRule::On, seeds))
                .into_iter()
                .max_by(|a, b| a.goodput.total_cmp(&b.goodput))
                .expect("two paths");
            let cells = [best]
                .into_iter()
                .chain([HoldRule::Off, HoldRule::WithoutSignals, HoldRule::On].map(|rule| measure(&both, rule, seeds)))
                .map(|m| format!("{:.1} / {:.2} / {:.0}, {:.0}", m.goodput, m.loss, m.p50, m.p99));
            let row: Vec<_> = cells.collect();
            println!(
                "| {}/{} ms, {}/{} % | {congestion} | {} |",
                rtts[0],
                rtts[1],
                losses[0],
                losses[1],
                row.join(" | ")
            );
        }
    }
}
