//! The in-order hold on unequal paths: what it gains, what it costs, and that others on the path keep their share.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::time::Duration;

use tandem_core::transport::congestion::HoldRule;
use tandem_netem::{Bitrate, Direction, Jitter, LinkConfig, Order, Reorder};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::{Amount, Bed, Measured, PathLinks, Pings, Scenario, download, virtual_time};

const DOWNLOAD: Amount = Amount::Bytes(20_000_000);

fn scenario(congestion: Algorithm, rtts_ms: [u64; 2], loss: f64, seed: u64) -> Scenario {
    let path = |ms| PathLinks::symmetric(Bitrate::from_mbit(100), Duration::from_millis(ms), loss);
    Scenario { paths: rtts_ms.map(path).to_vec(), congestion, mode: Mode::Bicast(Sides::Both), seed }
}

async fn bed(scenario: &Scenario, rule: HoldRule) -> Bed {
    let bed = scenario.connect().await.unwrap();
    bed.client.set_hold_rule(rule);
    bed.relay.set_hold_rule(rule);
    bed
}

fn measure(scenario: &Scenario, rule: HoldRule) -> Measured {
    let measured = virtual_time::run(async { bed(scenario, rule).await.measure_download(DOWNLOAD).await.unwrap() });
    eprintln!(
        "{} {rule:?}: {:.1} Mbit/s, {:.2} % lost to QUIC, p50 {:.1} ms, p99 {:.1} ms",
        scenario.congestion,
        measured.download.goodput_mbps(),
        measured.quic_loss_percent,
        measured.pings.p50_ms(),
        measured.pings.p99_ms()
    );
    measured
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<_> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn cubic_gains_five_times_without_rule_q_and_three_times_with_it() {
    let goodput = |rule| {
        mean((1..=3).map(|seed| {
            let measured = measure(&scenario(Algorithm::Cubic, [20, 60], 0.01, seed), rule);
            measured.download.goodput_mbps()
        }))
    };
    let (off, unsignalled, on) = (goodput(HoldRule::Off), goodput(HoldRule::WithoutSignals), goodput(HoldRule::On));
    assert!(unsignalled >= 5.0 * off, "{unsignalled} against {off}");
    assert!(on >= 3.0 * off, "{on} against {off}");
}

#[test]
fn what_the_copies_repair_is_no_loss_to_quic() {
    let measured = measure(&scenario(Algorithm::Cubic, [20, 60], 0.01, 2), HoldRule::On);
    // Lost on both: 0.01 %.
    assert!(measured.quic_loss_percent <= 0.01 + 0.1, "{}", measured.quic_loss_percent);
}

#[test]
fn a_cubic_flow_on_the_reference_path_keeps_seven_tenths() {
    let alone_and_beside = |seed| {
        let scenario = scenario(Algorithm::Cubic, [20, 60], 0.001, seed);
        virtual_time::run(async move {
            let bed = bed(&scenario, HoldRule::On).await;
            let rival = bed.rival(0, Algorithm::Cubic).await.unwrap();
            // Slow start is over by then; what is compared is the steady state.
            let (start, time) = (Amount::Time(Duration::from_secs(3)), Amount::Time(Duration::from_secs(15)));
            let ours = bed.client.clone();
            download(&rival.client, start).await.unwrap();
            let alone = download(&rival.client, time).await.unwrap().goodput_mbps();
            let (warm, _) = tokio::join!(biased; download(&ours, start), download(&rival.client, start));
            warm.unwrap();
            let (ours, beside) = tokio::join!(biased; download(&ours, time), download(&rival.client, time));
            (alone, beside.unwrap().goodput_mbps(), ours.unwrap().goodput_mbps())
        })
    };
    let runs: Vec<_> = (1..=3).map(alone_and_beside).collect();
    eprintln!("alone, beside, ours: {runs:.1?}");
    let kept = mean(runs.iter().map(|run| run.1)) / mean(runs.iter().map(|run| run.0));
    assert!(kept >= 0.7, "the rival keeps {kept:.2}");
}

#[test]
fn a_paced_controller_loses_nothing_to_a_long_lag() {
    let goodput = |rule| measure(&scenario(Algorithm::Bbr1, [20, 120], 0.01, 1), rule).download.goodput_mbps();
    let (off, on) = (goodput(HoldRule::Off), goodput(HoldRule::On));
    assert!((on / off - 1.0).abs() < 0.03, "{on} against {off}");
}

#[test]
fn small_requests_alone_are_not_held() {
    let p99 = |rule| {
        let scenario = scenario(Algorithm::Cubic, [20, 120], 0.02, 1);
        virtual_time::run(async move {
            let bed = bed(&scenario, rule).await;
            let pings = Pings::start(bed.client.clone(), Duration::from_millis(10));
            tokio::time::sleep(Duration::from_secs(10)).await;
            pings.stop().await.unwrap().p99_ms()
        })
    };
    let (off, on) = (p99(HoldRule::Off), p99(HoldRule::On));
    assert!(on <= off + 10.0, "p99 {on} ms against {off} ms");
}

#[test]
fn a_path_that_falls_silent_costs_one_stall_of_its_lag() {
    let longest_gap = |cut: bool| {
        let scenario = scenario(Algorithm::Cubic, [20, 60], 0.0, 1);
        virtual_time::run(async move {
            let bed = bed(&scenario, HoldRule::On).await;
            download(&bed.client, Amount::Time(Duration::from_secs(2))).await.unwrap();
            let silence = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if cut {
                    bed.lines[1].cut(Direction::Down);
                    bed.lines[1].cut(Direction::Up);
                }
            };
            let bulk = download(&bed.client, Amount::Time(Duration::from_secs(5)));
            tokio::join!(biased; bulk, silence).0.unwrap().longest_gap
        })
    };
    let (whole, cut) = (longest_gap(false), longest_gap(true));
    // The lag of 20 ms and 10 ms; a second stall would be as long again.
    assert!(cut <= whole + Duration::from_millis(30), "{cut:?} against {whole:?}");
}

#[test]
fn a_lag_that_jumps_makes_few_copies_late() {
    let scenario = scenario(Algorithm::Cubic, [20, 30], 0.01, 1);
    let late = virtual_time::run(async move {
        let bed = bed(&scenario, HoldRule::On).await;
        let line = &bed.lines[1];
        let longer = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before = bed.client.stats().hold.late;
            line.set_delay(Direction::Down, Duration::from_millis(15 + 60)).unwrap();
            before
        };
        let (seen, before) = tokio::join!(biased; download(&bed.client, Amount::Time(Duration::from_secs(4))), longer);
        seen.unwrap();
        bed.client.stats().hold.late - before
    });
    assert!(late <= 20, "{late} copies came after their gap was given up");
}

#[test]
fn reordering_inside_a_path_is_no_loss() {
    let path = |seed| {
        let link = LinkConfig {
            rate: Some(Bitrate::from_mbit(100)),
            delay: Duration::from_millis(20),
            jitter: Jitter { sd: Duration::from_millis(2), order: Order::Free, ..Jitter::default() },
            seed,
            ..LinkConfig::default()
        }
        .with_queue_bdp(1.0, Duration::from_millis(40));
        PathLinks { up: link.clone(), down: link }
    };
    let scenario = Scenario { paths: vec![path(1), path(2)], ..scenario(Algorithm::Cubic, [40, 40], 0.0, 1) };
    // What is handed on late counts as lost to QUIC; what the queues dropped when they first filled, is.
    let late = virtual_time::run(async move {
        let bed = bed(&scenario, HoldRule::On).await;
        download(&bed.client, DOWNLOAD).await.unwrap();
        bed.client.stats().hold.late as f64 / bed.relay.stats().packets_sent as f64
    });
    assert!(late <= 0.005, "{late}");
}

/// PATH-9
#[test]
fn a_path_that_reorders_a_fifth_keeps_its_goodput() {
    let goodput = |congestion, mode, share| {
        let reorder = Reorder { share, least: Duration::from_millis(3), most: Duration::from_millis(8) };
        let link = LinkConfig {
            rate: Some(Bitrate::from_mbit(50)),
            delay: Duration::from_millis(20),
            reorder,
            ..LinkConfig::default()
        }
        .with_queue_bdp(1.0, Duration::from_millis(40));
        let path = PathLinks { up: link.clone(), down: link };
        let scenario = Scenario { paths: vec![path; 2], congestion, mode, seed: 1 };
        virtual_time::run(async move {
            let bed = scenario.connect().await.unwrap();
            download(&bed.client, Amount::Time(Duration::from_secs(8))).await.unwrap().goodput_mbps()
        })
    };
    for congestion in Algorithm::ALL {
        for mode in [Mode::Single, Mode::Bicast(Sides::Both)] {
            let (calm, reordered) = (goodput(congestion, mode, 0.0), goodput(congestion, mode, 0.2));
            eprintln!("{congestion} {}: {reordered:.1} of {calm:.1} Mbit/s", mode.scheme());
            assert!(reordered >= 0.7 * calm, "{congestion} {}: {reordered} of {calm}", mode.scheme());
        }
    }
}
