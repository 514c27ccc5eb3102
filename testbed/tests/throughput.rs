//! What bicasting is for: goodput over lossy paths, as the paper promises it. Two paths of 100 Mbit/s, RTT 10 ms, a queue of
//! one bandwidth-delay product, random loss before the queue on both and in both directions.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::time::Duration;

use tandem_netem::{Bitrate, Direction};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Amount, Hostility, Measured, PathLinks, Scenario, Vantage, virtual_time};

fn scenario(congestion: Algorithm, mode: Mode, loss: f64, seed: u64) -> Scenario {
    let path = PathLinks::symmetric(Bitrate::from_mbit(100), Duration::from_millis(10), loss);
    Scenario { paths: vec![path; 2], congestion, mode, seed }
}

fn run(scenario: &Scenario, hostile: bool) -> Measured {
    virtual_time::run(async {
        let bed = scenario.connect().await.unwrap();
        if hostile {
            for direction in [Direction::Up, Direction::Down] {
                // 8,333 datagrams a second: the line's rate in full datagrams.
                let hostility = Hostility { interval: Duration::from_micros(120), seed: 5, vantage: Vantage::Exit };
                bed.lines[0].set_hostility(direction, Some(hostility));
            }
        }
        bed.measure_download(Amount::Time(Duration::from_secs(6))).await.unwrap()
    })
}

/// The mean goodput of three seeds, in Mbit/s.
fn goodput(congestion: Algorithm, mode: Mode, loss: f64) -> f64 {
    let runs = (1..=3).map(|seed| run(&scenario(congestion, mode, loss, seed), false).download.goodput_mbps());
    let mean = runs.sum::<f64>() / 3.0;
    eprintln!("{congestion} {} at {:.1} %: {mean:.1} Mbit/s", mode.scheme(), 100.0 * loss);
    mean
}

const BOTH: Mode = Mode::Bicast(Sides::Both);

#[test]
fn bbr1_over_bidirectional_bicast_fills_the_link_at_5_and_40_percent() {
    assert!(goodput(Algorithm::Bbr1, BOTH, 0.05) >= 88.0);
    assert!(goodput(Algorithm::Bbr1, BOTH, 0.40) >= 60.0);
}

/// The paper's earlier study: stable up to 15 %.
#[test]
fn bbr1_unicast_is_stable_up_to_15_percent() {
    assert!(goodput(Algorithm::Bbr1, Mode::Single, 0.15) >= 68.0);
}

/// The paper, section 4.3: below 50 Mbit/s from 0.1 % on; abstract: about 13 at 1 %.
#[test]
fn cubic_unicast_is_as_poor_as_the_paper_says() {
    assert!(goodput(Algorithm::Cubic, Mode::Single, 0.0) >= 88.0);
    assert!(goodput(Algorithm::Cubic, Mode::Single, 0.001) <= 55.0);
    let one_percent = goodput(Algorithm::Cubic, Mode::Single, 0.01);
    assert!((8.0..=18.0).contains(&one_percent), "{one_percent}");
}

/// Garbage, replays and forged headers and control datagrams at line rate on one path, both ways.
#[test]
fn a_hostile_path_does_not_slow_the_other() {
    for (congestion, loss) in [(Algorithm::Cubic, 0.0), (Algorithm::Bbr1, 0.0), (Algorithm::Bbr1, 0.01)] {
        let scenario = scenario(congestion, BOTH, loss, 1);
        let (calm, hostile) = (run(&scenario, false), run(&scenario, true));
        let ratio = hostile.download.goodput_mbps() / calm.download.goodput_mbps();
        eprintln!("{congestion} at {loss}: {ratio:.3}");
        assert!(ratio >= 0.95, "{congestion} at {loss}: {ratio}");
        assert!(hostile.download.longest_gap <= Duration::from_millis(100), "{:?}", hostile.download.longest_gap);
    }
}
