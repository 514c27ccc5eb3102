//! BBRv2 and BBR-CWS end to end: on one path, over two, and beside somebody else's CUBIC flow. All in virtual time.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::time::Duration;

use tandem_netem::Bitrate;
use tandem_proto::congestion::Algorithm::{self, Bbr1, Bbr2, BbrCws};
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Amount, Competition, PathLinks, Scenario, Shares, virtual_time};

const BOTH: Mode = Mode::Bicast(Sides::Both);

/// Goodput of a download over two paths of 100 Mbit/s and RTT 10 ms, in Mbit/s.
fn goodput(congestion: Algorithm, mode: Mode, loss: f64) -> f64 {
    let path = PathLinks::symmetric(Bitrate::from_mbit(100), Duration::from_millis(10), loss);
    let scenario = Scenario { paths: vec![path; 2], congestion, mode, seed: 1 };
    let measured = virtual_time::run(async {
        let bed = scenario.connect().await.unwrap();
        bed.measure_download(Amount::Time(Duration::from_secs(6))).await.unwrap()
    });
    let rate = measured.download.goodput_mbps();
    eprintln!("{congestion} {} at {:.1} %: {rate:.1} Mbit/s", mode.scheme(), 100.0 * loss);
    rate
}

#[test]
fn both_fill_a_path_and_two_of_them() {
    for congestion in [Bbr2, BbrCws] {
        for mode in [Mode::Single, BOTH] {
            assert!(goodput(congestion, mode, 0.0) >= 85.0, "{congestion} {}", mode.scheme());
        }
    }
}

#[test]
fn over_bicast_a_loss_of_five_percent_on_each_path_is_hardly_felt() {
    for congestion in [Bbr2, BbrCws] {
        assert!(goodput(congestion, BOTH, 0.05) >= 80.0, "{congestion}");
    }
}

/// Shares beside a CUBIC flow at 50 Mbit/s and RTT 40 ms, before a queue of so many bandwidth-delay products; of two seeds.
fn beside_cubic(congestion: Algorithm, queue: f64) -> (Shares, f64) {
    let rtt = Duration::from_millis(40);
    let mut path = PathLinks::symmetric(Bitrate::from_mbit(50), rtt, 0.0);
    path.up = path.up.with_queue_bdp(queue, rtt);
    path.down = path.down.with_queue_bdp(queue, rtt);
    let run = |seed| {
        let scenario = Scenario { paths: vec![path.clone()], congestion, mode: Mode::Single, seed };
        let (settle, time) = (Duration::from_secs(20), Duration::from_secs(60));
        let competition = Competition { settle, time, ..Competition::new(scenario) };
        virtual_time::run(async { competition.beside().await.unwrap() })
    };
    let runs: Vec<Shares> = (1..=2).map(run).collect();
    let jain = runs.iter().map(|shares| shares.jain(0)).sum::<f64>() / runs.len() as f64;
    let mean = Shares::mean(&runs);
    eprintln!("{congestion}, queue of {queue} BDP: {mean:.2?}, Jain's index {jain:.2}");
    (mean, jain)
}

#[test]
fn bbr_cws_is_fair_before_four_of_five_queues() {
    let indices = [0.5, 1.0, 2.0, 4.0, 8.0].map(|queue| beside_cubic(BbrCws, queue).1);
    assert!(indices.iter().filter(|index| **index >= 0.85).count() >= 4, "{indices:.2?}");
}

#[test]
fn before_a_short_queue_bbr_cws_loses_a_quarter_of_what_version_1_does_at_most() {
    let (ours, _) = beside_cubic(BbrCws, 0.5);
    let (version_1, _) = beside_cubic(Bbr1, 0.5);
    assert!(ours.lost_percent <= version_1.lost_percent / 4.0, "{} of {}", ours.lost_percent, version_1.lost_percent);
}
