//! Prints how a download of ours and other people's CUBIC flows share two networks.
//!
//! Two paths of 100 Mbit/s and RTT 10 ms with a queue of one bandwidth-delay product, loss before the queue in both directions, one
//! CUBIC flow on each; what each gets over 24 s after 8 s, in Mbit/s at the application, means of the seeds; *kept* is the part
//! of what the flow gets without us, on the reference path and on the other one.
//!
//! `cargo run -p tandem-testbed --example competition_table [SEEDS [CONTROLLER...]]`, 3 seeds and `bbr3` unless told.

use std::time::Duration;

use tandem_netem::Bitrate;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Competition, PathLinks, Scenario, Shares, virtual_time};

const LOSSES: [f64; 4] = [0.0, 0.001, 0.003, 0.01];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    let named: Vec<Algorithm> = arguments.filter_map(|name| name.parse().ok()).collect();
    let controllers = if named.is_empty() { vec![Algorithm::Bbr3] } else { named };
    println!("| paths | loss % | CUBIC alone | controller, scheme | ours | sum | kept % |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let path = |mbit, rtt_ms, loss| PathLinks::symmetric(Bitrate::from_mbit(mbit), Duration::from_millis(rtt_ms), loss);
    for loss in LOSSES {
        let equal = vec![path(100, 10, loss), path(100, 10, loss)];
        row("100, 100", loss, &equal, &controllers, &[Mode::Single, Mode::Bicast(Sides::Both)], seeds);
        let unequal = vec![path(100, 10, loss), path(20, 20, loss)];
        row("100, 20", loss, &unequal, &controllers, &[Mode::Bicast(Sides::Both)], seeds);
    }
}

fn row(name: &str, loss: f64, paths: &[PathLinks], controllers: &[Algorithm], modes: &[Mode], seeds: u64) {
    let competition =
        |congestion, mode, seed| Competition::new(Scenario { paths: paths.to_vec(), congestion, mode, seed });
    let mean = |run: &dyn Fn(u64) -> Shares| Shares::mean(&(1..=seeds).map(run).collect::<Vec<_>>());
    let alone = mean(&|seed| {
        let competition = competition(Algorithm::Bbr3, Mode::Single, seed);
        virtual_time::run(async { competition.alone().await.expect("a connection") })
    });
    for congestion in controllers {
        for mode in modes {
            let shares = mean(&|seed| {
                let competition = competition(*congestion, *mode, seed);
                virtual_time::run(async { competition.beside().await.expect("a connection") })
            });
            let kept: Vec<String> = shares.kept(&alone).iter().map(|kept| format!("{:.0}", 100.0 * kept)).collect();
            let tcp: Vec<String> = alone.tcp.iter().map(|tcp| format!("{tcp:.1}")).collect();
            println!(
                "| {name} | {} | {} | {congestion} {} | {:.1} | {:.1} | {} |",
                100.0 * loss,
                tcp.join(", "),
                mode.scheme(),
                shares.ours,
                shares.sum(0),
                kept.join(", "),
            );
        }
    }
}
