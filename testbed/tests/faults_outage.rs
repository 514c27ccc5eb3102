//! Every network is gone for a while, and comes back: bulk flows go on soon, at a rate worth the name.
//!
//! In virtual time, with a few seeds each, or with as many as the environment's `TANDEM_SEEDS` says; distributions are printed.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::time::Duration;

use tandem_core::transport::Connection;
use tandem_netem::{Direction, Loss};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Amount, Bed, Scenario, download, upload, virtual_time};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const BICAST: Mode = Mode::Bicast(Sides::Both);

/// Flows move within this time of the return.
const ALLOWED: Duration = Duration::from_secs(3);

fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=std::env::var("TANDEM_SEEDS").map_or(1, |seeds| seeds.parse().unwrap())
}

fn cut(bed: &Bed) {
    for line in &bed.lines {
        line.cut(Direction::Up);
        line.cut(Direction::Down);
    }
}

fn restore(bed: &Bed) {
    for line in &bed.lines {
        line.restore(Direction::Up);
        line.restore(Direction::Down);
    }
}

/// The longest time without a byte until `span` has passed.
async fn longest_gap(receiver: &Connection, received: fn(&Connection) -> u64, span: Duration) -> Duration {
    let end = Instant::now() + span;
    let (mut bytes, mut since, mut longest) = (received(receiver), Instant::now(), Duration::ZERO);
    while Instant::now() < end {
        sleep(MS).await;
        let now_received = received(receiver);
        if now_received != bytes {
            longest = longest.max(since.elapsed());
            (bytes, since) = (now_received, Instant::now());
        }
    }
    longest.max(since.elapsed())
}

/// Runs a bulk flow on the standard bed through outages, and answers the longest gap after each return.
fn gaps(scenario: &Scenario, is_upload: bool, loss: f64, outages: &[Duration]) -> Vec<Duration> {
    virtual_time::run(async {
        let bed = scenario.connect().await.unwrap();
        for line in &bed.lines {
            line.set_loss(Direction::Up, Loss::Random(loss)).unwrap();
            line.set_loss(Direction::Down, Loss::Random(loss)).unwrap();
        }
        let (receiver, received): (_, fn(&Connection) -> u64) = if is_upload {
            (bed.relay.clone(), |relay| relay.stats().link.up.flow_bytes)
        } else {
            (bed.client.clone(), |client| client.stats().link.down.flow_bytes)
        };
        let trouble = async {
            let mut gaps = Vec::new();
            sleep(2 * SECOND + Duration::from_millis(scenario.seed * 37 % 100)).await;
            for outage in outages {
                cut(&bed);
                sleep(*outage).await;
                restore(&bed);
                gaps.push(longest_gap(&receiver, received, 8 * SECOND).await);
            }
            gaps
        };
        let bulk = async {
            if is_upload {
                upload(&bed.client, 1 << 40).await.map(drop)
            } else {
                download(&bed.client, Amount::Bytes(1 << 40)).await.map(drop)
            }
        };
        tokio::select! {
            biased;
            ended = bulk => panic!("an endless flow ended: {ended:?}"),
            gaps = trouble => gaps,
        }
    })
}

fn too_long(name: &str, outages: &[Duration]) -> Vec<String> {
    let mut failures = Vec::new();
    for congestion in [Algorithm::Bbr3, Algorithm::Cubic] {
        for mode in [Mode::Single, BICAST] {
            for (is_upload, loss) in [(false, 0.0), (true, 0.0), (false, 0.02)] {
                let mut all = Vec::new();
                for seed in seeds() {
                    let scenario = Scenario::standard_bed(congestion, mode, seed);
                    all.extend(gaps(&scenario, is_upload, loss, outages));
                }
                all.sort_unstable();
                let at = |percent: usize| all[(all.len() - 1) * percent / 100];
                let traffic = if is_upload { "upload" } else { "download" };
                let case = format!("{name}, {congestion}, {mode:?}, {traffic}, {} % loss", 100.0 * loss);
                println!("{case}: {} runs, median {:?}, p90 {:?}, most {:?}", all.len(), at(50), at(90), at(100));
                if at(100) > ALLOWED {
                    failures.push(format!("{case}: {:?}", at(100)));
                }
            }
        }
    }
    failures
}

/// PATH-5, MULTI-12
#[test]
fn after_twenty_seconds_without_any_network_bulk_flows_move_within_three() {
    assert_eq!(too_long("20 s", &[20 * SECOND]), [""; 0]);
}

/// MULTI-12
#[test]
fn after_each_of_many_outages_bulk_flows_move_within_three_seconds() {
    assert_eq!(too_long("3 s, three times", &[3 * SECOND; 3]), [""; 0]);
}
