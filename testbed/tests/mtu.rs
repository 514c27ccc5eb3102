//! Paths that carry less than others, or less than they did: what that costs a transfer, and what it may not cost.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::time::Duration;

use tandem_netem::{Bitrate, Direction, LinkConfig, Outages, Window};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::stats::PathStats;
use tandem_testbed::{Amount, Bed, Download, EcnMark, Line, PathLinks, Scenario, download, virtual_time};
use tokio::time::{sleep, timeout};

const BICAST: Mode = Mode::Bicast(Sides::Both);
const SECOND: Duration = Duration::from_secs(1);

/// Paths of 20 ms and queues of 50 ms with these MTUs, the first of 50 Mbit/s, the others a little wider: what is lost
/// there is not lost in their queues.
fn scenario(mode: Mode, congestion: Algorithm, mtus: &[u32], seed: u64) -> Scenario {
    let path = |(index, mtu): (usize, &u32)| {
        let rate = Some(Bitrate::from_mbit(if index == 0 { 50 } else { 55 }));
        let link = LinkConfig { rate, delay: Duration::from_millis(10), mtu: Some(*mtu), ..LinkConfig::default() }
            .with_queue_time(Duration::from_millis(50));
        PathLinks { up: link.clone(), down: link }
    };
    Scenario { paths: mtus.iter().enumerate().map(path).collect(), congestion, mode, seed }
}

fn narrow(line: &Line, mtu: u32) {
    line.set_mtu(Direction::Up, Some(mtu)).unwrap();
    line.set_mtu(Direction::Down, Some(mtu)).unwrap();
}

async fn transfer(bed: &Bed, time: Duration) -> Download {
    download(&bed.client, Amount::Time(time)).await.unwrap()
}

/// PATH-1
#[test]
fn a_path_that_begins_to_swallow_large_packets_is_used_on_within_three_seconds() {
    for (mode, congestion, seed) in [
        (Mode::Single, Algorithm::Cubic, 1),
        (Mode::Single, Algorithm::Bbr1, 2),
        (BICAST, Algorithm::Cubic, 3),
        (BICAST, Algorithm::Bbr1, 4),
    ] {
        let paths: &[u32] = if mode == Mode::Single { &[1_500] } else { &[1_500, 1_500] };
        let (before, at, after, mtu) = virtual_time::run(async {
            let bed = scenario(mode, congestion, paths, seed).connect().await.unwrap();
            transfer(&bed, 2 * SECOND).await;
            let before = transfer(&bed, 4 * SECOND).await;
            let narrowing = async {
                sleep(SECOND).await;
                bed.lines.iter().for_each(|line| narrow(line, 1_300));
            };
            let (at, ()) = tokio::join!(biased; transfer(&bed, 4 * SECOND), narrowing);
            (before, at, transfer(&bed, 6 * SECOND).await, bed.relay.stats())
        });
        eprintln!(
            "{congestion} {}: {:.1} Mbit/s before, gap {:?}, {:.1} after; QUIC MTU {}, {:?}",
            mode.scheme(),
            before.goodput_mbps(),
            at.longest_gap,
            after.goodput_mbps(),
            mtu.mtu_bytes,
            mtu.link.paths.iter().map(|path| path.mtu_bytes).collect::<Vec<_>>(),
        );
        assert!(at.longest_gap <= 3 * SECOND, "{congestion} {}: {:?}", mode.scheme(), at.longest_gap);
        assert!(after.goodput_mbps() >= 0.85 * before.goodput_mbps(), "{after:?} against {before:?}");
    }
}

/// Datagrams from the relay, each once, and how many of them arrived on each path, so far.
fn arrivals(bed: &Bed) -> (f64, Vec<f64>) {
    let link = bed.relay.stats().link;
    let arrived = |path: &PathStats| path.down.datagrams as f64 * (1.0 - path.down.total_loss_percent / 100.0);
    (link.down.datagrams as f64, link.paths.iter().map(arrived).collect())
}

/// Downloads, and tells which share of the datagrams arrived on each path meanwhile.
async fn shares(bed: &Bed, time: Duration) -> (Download, Vec<f64>) {
    let (sent, before) = arrivals(bed);
    let seen = transfer(bed, time).await;
    let (sent, after) = (arrivals(bed).0 - sent, arrivals(bed).1);
    (seen, after.iter().zip(before).map(|(after, before)| (after - before) / sent).collect())
}

/// PATH-2: on two paths of different MTUs from the beginning, either may be lost.
///
/// A probe of BBR's for more, or one less, is a few percent of four seconds: so the middle of some seeds counts.
#[test]
fn with_paths_of_different_mtus_copies_arrive_on_both_and_losing_either_costs_nothing() {
    let cases = [
        (Algorithm::Bbr3, 0, &[2, 4, 6, 8, 10][..]),
        (Algorithm::Bbr3, 1, &[1, 3, 5, 7, 9]),
        (Algorithm::Bbr1, 0, &[3]),
    ];
    for (congestion, lost, seeds) in cases {
        let (mut arrived, mut kept) = ([Vec::new(), Vec::new()], Vec::new());
        for &seed in seeds {
            let (whole, shares, at_loss) = virtual_time::run(async {
                let bed = scenario(BICAST, congestion, &[1_500, 1_380], seed).connect().await.unwrap();
                transfer(&bed, 2 * SECOND).await;
                let (whole, shares) = shares(&bed, 4 * SECOND).await;
                let losing = async {
                    sleep(SECOND).await;
                    bed.lines[lost].cut(Direction::Up);
                    bed.lines[lost].cut(Direction::Down);
                };
                let (at_loss, ()) = tokio::join!(biased; transfer(&bed, 4 * SECOND), losing);
                (whole, shares, at_loss)
            });
            assert!(at_loss.longest_gap <= Duration::from_millis(100), "{congestion}, seed {seed}: {at_loss:?}");
            shares.into_iter().zip(&mut arrived).for_each(|(share, of_path)| of_path.push(share));
            kept.push(at_loss.goodput_mbps() / whole.goodput_mbps());
        }
        eprintln!("{congestion}: {arrived:.3?} arrive; with path {lost} lost {kept:.3?} of the goodput");
        // BBR probes beyond the wider path; of what its queue would drop, some copies are held back.
        assert!(middle(&mut arrived[0]) > 0.92 && middle(&mut arrived[1]) > 0.95, "{congestion}: {arrived:?}");
        assert!(middle(&mut kept) >= 0.95, "{congestion}: {kept:?}");
    }
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// PATH-2: a narrow network joins in mid-download, or one of two becomes narrow.
#[test]
fn a_path_that_turns_out_narrow_in_mid_download_carries_copies_and_stops_nothing() {
    for (congestion, joins, seed) in [
        (Algorithm::Cubic, true, 1),
        (Algorithm::Bbr1, true, 2),
        (Algorithm::Cubic, false, 3),
        (Algorithm::Bbr1, false, 4),
    ] {
        let (at, shares) = virtual_time::run(async {
            let mut scenario = scenario(BICAST, congestion, &[1_500, 1_500], seed);
            if joins {
                let dark = Window { from: Duration::ZERO, to: 3 * SECOND };
                let PathLinks { up, down } = &mut scenario.paths[1];
                for link in [up, down] {
                    (link.mtu, link.outages) = (Some(1_380), Outages::Windows(vec![dark]));
                }
            }
            let bed = scenario.connect().await.unwrap();
            transfer(&bed, 2 * SECOND).await;
            let narrowing = async {
                sleep(SECOND).await;
                narrow(&bed.lines[1], 1_380);
            };
            let (at, ()) = tokio::join!(biased; transfer(&bed, 6 * SECOND), narrowing);
            let (_, shares) = shares(&bed, 4 * SECOND).await;
            (at, shares)
        });
        eprintln!("{congestion}, joins: {joins}: gap {:?}, {shares:.3?} arrive", at.longest_gap);
        assert!(at.longest_gap <= Duration::from_millis(100), "{congestion}, joins: {joins}: {at:?}");
        assert!(shares[0] > 0.93 && shares[1] > 0.95, "{congestion}, joins: {joins}: {shares:?}");
    }
}

/// Random loss is no black hole to QUIC: what it knows of the MTU stays.
#[test]
fn at_any_loss_quics_datagrams_keep_their_size() {
    for (mode, loss, congestion, seed) in [
        (BICAST, 0.4, Algorithm::Cubic, 1),
        (BICAST, 0.4, Algorithm::Bbr1, 2),
        (Mode::Single, 0.2, Algorithm::Cubic, 3),
        (Mode::Single, 0.2, Algorithm::Bbr1, 4),
    ] {
        let smallest = virtual_time::run(async {
            let path = PathLinks::symmetric(Bitrate::from_mbit(10), Duration::from_millis(20), loss);
            let bed = Scenario { paths: vec![path; 2], congestion, mode, seed }.connect().await.unwrap();
            until_mtu_is_known(&bed).await;
            let watch = async {
                let mut smallest = u16::MAX;
                for _ in 0..6_000 {
                    sleep(Duration::from_millis(10)).await;
                    smallest = smallest.min(bed.relay.stats().mtu_bytes);
                }
                smallest
            };
            tokio::join!(biased; transfer(&bed, 60 * SECOND), watch).1
        });
        assert_eq!(smallest, 1_440, "{congestion} {} at {loss}", mode.scheme());
    }
}

async fn until_mtu_is_known(bed: &Bed) {
    let known = async {
        while bed.relay.stats().mtu_bytes < 1_440 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(10 * SECOND, known).await.unwrap();
}

/// PATH-6: ECN is not used, so marks and their absence mean nothing, on all paths or on one of two.
#[test]
fn what_networks_do_to_ecn_marks_makes_no_difference() {
    let goodput = |mode, congestion, marks: &[Option<EcnMark>]| {
        virtual_time::run(async {
            let bed = scenario(mode, congestion, &vec![1_500; marks.len()], 1).connect().await.unwrap();
            for (line, mark) in bed.lines.iter().zip(marks) {
                line.set_ecn(Direction::Up, *mark);
                line.set_ecn(Direction::Down, *mark);
            }
            transfer(&bed, 2 * SECOND).await.goodput_mbps()
        })
    };
    for congestion in [Algorithm::Cubic, Algorithm::Bbr1] {
        for mode in [Mode::Single, BICAST] {
            let untouched = goodput(mode, congestion, &[None, None]);
            for mark in [EcnMark::Cleared, EcnMark::Capable, EcnMark::Congestion] {
                for marks in [[Some(mark), Some(mark)], [Some(mark), None]] {
                    let marked = goodput(mode, congestion, &marks);
                    let difference = (marked / untouched - 1.0).abs();
                    assert!(difference <= 0.05, "{congestion} {} {marks:?}: {marked} of {untouched}", mode.scheme());
                }
            }
        }
    }
}
