//! The bed with both ends of Tandem: what the other tests rely on.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::time::Duration;

use tandem_netem::{Bitrate, Counters, Direction};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Amount, Measured, PathLinks, Scenario, virtual_time};

const MILLISECOND: Duration = Duration::from_millis(1);

fn scenario(mode: Mode, rtts_ms: [u32; 2], loss: f64, seed: u64) -> Scenario {
    let paths = rtts_ms.map(|rtt| PathLinks::symmetric(Bitrate::from_mbit(100), rtt * MILLISECOND, loss)).to_vec();
    Scenario { paths, congestion: Algorithm::Cubic, mode, seed }
}

/// Everything a run can be told by: what was measured, and what each link saw.
fn run(scenario: &Scenario, amount: Amount) -> (Measured, Vec<Counters>) {
    virtual_time::run(async {
        let bed = scenario.connect().await.unwrap();
        let measured = bed.measure_download(amount).await.unwrap();
        let counters =
            bed.lines.iter().flat_map(|line| [line.counters(Direction::Up), line.counters(Direction::Down)]).collect();
        (measured, counters)
    })
}

fn report(what: &str, (measured, counters): &(Measured, Vec<Counters>)) {
    eprintln!(
        "{what}: {:.1} Mbit/s, QUIC lost {:.2} %, ping p50 {:.1} ms, p99 {:.1} ms, longest gap {:?}, offered {:?}",
        measured.download.goodput_mbps(),
        measured.quic_loss_percent,
        measured.pings.p50_ms(),
        measured.pings.p99_ms(),
        measured.download.longest_gap,
        counters.iter().map(|link| link.offered).collect::<Vec<_>>(),
    );
}

#[test]
fn the_same_scenario_gives_identical_results_and_another_seed_others() {
    for mode in [Mode::Single, Mode::Bicast(Sides::Both)] {
        let once = |seed| run(&scenario(mode, [20, 60], 0.01, seed), Amount::Bytes(3_000_000));
        let first = once(1);
        report(mode.scheme(), &first);
        let again = once(1);
        assert_eq!(first, again, "{}", mode.scheme());
        assert_ne!(first, once(2), "{}", mode.scheme());
    }
}

#[test]
fn a_download_by_time_ends_with_the_time() {
    let time = Duration::from_secs(2);
    let run = run(&scenario(Mode::Single, [10, 10], 0.0, 1), Amount::Time(time));
    report("two seconds", &run);
    assert_eq!(run.0.download.took, time);
    assert!(run.0.download.bytes > 0);
}

#[test]
fn bidirectional_bicasting_sends_on_both_paths_both_ways() {
    let run = run(&scenario(Mode::Bicast(Sides::Both), [10, 10], 0.0, 1), Amount::Bytes(5_000_000));
    report("bicast", &run);
    let [first_up, first_down, second_up, second_down] = run.1.try_into().unwrap();
    let alike =
        |one: Counters, other: Counters| one.offered.min(other.offered) * 10 >= one.offered.max(other.offered) * 9;
    assert!(alike(first_up, second_up) && alike(first_down, second_down));
}

/// MULTI-1: a path that falls silent in mid-download leaves no gap over 100 ms in bicast.
#[test]
fn a_path_killed_silently_in_mid_download_leaves_no_gap() {
    for (congestion, killed) in [(Algorithm::Cubic, 0), (Algorithm::Cubic, 1), (Algorithm::Bbr1, 0)] {
        let scenario = Scenario { congestion, ..scenario(Mode::Bicast(Sides::Both), [10, 10], 0.0, 1) };
        let (measured, kept) = virtual_time::run(async {
            let bed = scenario.connect().await.unwrap();
            let line = bed.lines[killed].clone();
            let killer = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                line.cut(Direction::Up);
                line.cut(Direction::Down);
            });
            let measured = bed.measure_download(Amount::Time(Duration::from_secs(2))).await.unwrap();
            killer.await.unwrap();
            (measured, bed.lines[1 - killed].counters(Direction::Down).delivered)
        });
        assert!(kept > 1_000, "the other path carries on: {kept}");
        assert!(measured.download.longest_gap <= 100 * MILLISECOND, "{:?}", measured.download);
        assert!(measured.pings.percentile(100.0) <= 110 * MILLISECOND, "{:?}", measured.pings.percentile(100.0));
    }
}
