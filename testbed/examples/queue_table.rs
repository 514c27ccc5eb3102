//! Prints how a download of ours and somebody else's CUBIC flow share one link, by the length of its queue.
//!
//! One path of 50 Mbit/s and RTT 40 ms without random loss; what each gets over 60 s after 20 s, in Mbit/s at the application, Jain's
//! index of the two, and the packets that our sender took for lost, in percent of those it sent; means of the seeds.
//!
//! `cargo run -p tandem-testbed --example queue_table [SEEDS [CONTROLLER...]]`, 3 seeds and all controllers unless told.

use std::time::Duration;

use tandem_netem::Bitrate;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::Mode;
use tandem_testbed::{Competition, PathLinks, Scenario, Shares, virtual_time};

const RTT: Duration = Duration::from_millis(40);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    let named: Vec<Algorithm> = arguments.filter_map(|name| name.parse().ok()).collect();
    let controllers = if named.is_empty() { Algorithm::ALL.to_vec() } else { named };
    println!("| controller | queue (BDP) | ours | CUBIC | Jain | lost % |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for congestion in controllers {
        for queue in [0.5, 1.0, 2.0, 4.0, 8.0] {
            let runs: Vec<Shares> = (1..=seeds).map(|seed| run(congestion, queue, seed)).collect();
            let jain = runs.iter().map(|shares| shares.jain(0)).sum::<f64>() / runs.len() as f64;
            let Shares { ours, tcp, lost_percent } = Shares::mean(&runs);
            println!("| {congestion} | {queue} | {ours:.1} | {:.1} | {jain:.2} | {lost_percent:.2} |", tcp[0]);
        }
    }
}

fn run(congestion: Algorithm, queue: f64, seed: u64) -> Shares {
    let mut path = PathLinks::symmetric(Bitrate::from_mbit(50), RTT, 0.0);
    path.up = path.up.with_queue_bdp(queue, RTT);
    path.down = path.down.with_queue_bdp(queue, RTT);
    let scenario = Scenario { paths: vec![path], congestion, mode: Mode::Single, seed };
    let (settle, time) = (Duration::from_secs(20), Duration::from_secs(60));
    let competition = Competition { settle, time, ..Competition::new(scenario) };
    virtual_time::run(async { competition.beside().await.expect("a connection") })
}
