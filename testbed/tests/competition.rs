//! BBRv3 beside other people's CUBIC flows: what these keep, and that what they leave is used.
//!
//! Paths are of 100 Mbit/s and RTT 10 ms with a queue of one bandwidth-delay product and lose before the queue, as in the paper's
//! figures 14 and 15; one TCP flow with CUBIC on each. Everything runs in virtual time. A flow's luck spreads by several points from
//! seed to seed, so means are asserted, a little below what they are.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::time::Duration;

use tandem_netem::Bitrate;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Competition, PathLinks, Scenario, Shares, virtual_time};

const BOTH: Mode = Mode::Bicast(Sides::Both);

fn path(mbit: u32, rtt_ms: u64, loss: f64) -> PathLinks {
    PathLinks::symmetric(Bitrate::from_mbit(mbit), Duration::from_millis(rtt_ms), loss)
}

/// What TCP gets alone, and both beside each other.
fn compete(paths: [PathLinks; 2], mode: Mode) -> (Shares, Shares) {
    let run = |seed| {
        let scenario = Scenario { paths: paths.to_vec(), congestion: Algorithm::Bbr3, mode, seed };
        let competition = Competition { time: Duration::from_secs(16), ..Competition::new(scenario) };
        let alone = virtual_time::run(async { competition.alone().await.unwrap() });
        (alone, virtual_time::run(async { competition.beside().await.unwrap() }))
    };
    let (alone, beside): (Vec<_>, Vec<_>) = (1..=2).map(run).unzip();
    let (alone, beside) = (Shares::mean(&alone), Shares::mean(&beside));
    eprintln!("{}: alone {alone:.1?}, beside {beside:.1?}, kept {:.2?}", mode.scheme(), beside.kept(&alone));
    (alone, beside)
}

#[test]
fn over_bicast_cubic_keeps_four_fifths_on_both_paths_and_the_link_is_used() {
    for loss in [0.001, 0.01] {
        let (alone, beside) = compete([path(100, 10, loss), path(100, 10, loss)], BOTH);
        let kept = beside.kept(&alone);
        assert!(kept.iter().all(|kept| *kept >= 0.75), "{loss}: {kept:.2?}");
        assert!(beside.sum(0) >= 86.0, "{loss}: {:.1}", beside.sum(0));
    }
}

#[test]
fn on_one_path_cubic_keeps_four_fifths_and_the_link_is_used() {
    for loss in [0.001, 0.01] {
        let (alone, beside) = compete([path(100, 10, loss), path(100, 10, loss)], Mode::Single);
        let kept = beside.kept(&alone)[0];
        assert!(kept >= 0.75, "{loss}: {kept:.2}");
        assert!(beside.ours >= 42.0 && beside.sum(0) >= 86.0, "{loss}: {beside:?}");
    }
}

#[test]
fn without_loss_nobody_starves() {
    let (_, beside) = compete([path(100, 10, 0.0), path(100, 10, 0.0)], Mode::Single);
    assert!((25.0..=65.0).contains(&beside.ours) && beside.sum(0) >= 90.0, "{beside:?}");
}

#[test]
fn on_a_slower_second_path_cubic_keeps_nearly_all() {
    for loss in [0.001, 0.01] {
        let (alone, beside) = compete([path(100, 10, loss), path(20, 20, loss)], BOTH);
        let kept = beside.kept(&alone)[1];
        assert!(kept >= 0.8, "{loss}: {kept:.2}");
    }
}
