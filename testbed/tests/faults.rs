//! Paths that fail in mid-download: sends that give errors, sockets that stay full, links that fall silent.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::time::Duration;

use tandem_netem::{Bitrate, Direction};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::stats::{PathState, PathStats};
use tandem_testbed::{Amount, Bed, Measured, PathLinks, Pings, Scenario, SendFault, download, upload, virtual_time};
use tokio::time::{sleep, timeout};

const BICAST: Mode = Mode::Bicast(Sides::Both);
const GAP_LIMIT: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that take some two seconds over [`twins`].
const TRANSFER: u64 = 20_000_000;

/// Two networks of 100 Mbit/s and 10 ms with a little loss.
fn twins(mode: Mode, seed: u64) -> Scenario {
    let path = PathLinks::symmetric(Bitrate::from_mbit(100), Duration::from_millis(10), 0.005);
    Scenario { paths: vec![path.clone(), path], congestion: Algorithm::Cubic, mode, seed }
}

/// Downloads for `span`, and a second into it does something to the bed.
async fn disturbed(bed: &Bed, span: Duration, disturb: impl FnOnce()) -> Measured {
    let disturbance = async {
        sleep(Duration::from_secs(1)).await;
        disturb();
    };
    let (measured, ()) = tokio::join!(biased; bed.measure_download(Amount::Time(span)), disturbance);
    measured.unwrap()
}

fn path(bed: &Bed, index: usize) -> PathStats {
    bed.client.stats().link.paths.into_iter().find(|path| usize::from(path.id) == index).unwrap()
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("not so within {PATIENCE:?}: {what}"));
}

/// MULTI-1
#[test]
fn in_bicast_losing_either_network_leaves_no_gap_in_a_download() {
    for (seed, lost, interface_down) in losses() {
        let measured = virtual_time::run(async {
            let bed = twins(BICAST, seed).connect().await.unwrap();
            let span = Duration::from_millis(1_600);
            disturbed(&bed, span, || lose(&bed, lost, interface_down)).await
        });
        let case = format!("seed {seed}, path {lost} lost, interface down: {interface_down}");
        assert!(measured.download.longest_gap <= GAP_LIMIT, "{case}: {:?}", measured.download);
        // Those sent while it happened were answered like all others: none is missing, or there would be no latencies.
        assert!(measured.pings.percentile(100.0) <= GAP_LIMIT, "{case}: {:?}", measured.pings.percentile(100.0));
    }
}

/// MULTI-1, on networks that differ: what does not fill the slower one feels nothing but its delay.
#[test]
fn in_bicast_over_unequal_networks_losing_either_leaves_no_gap_in_small_traffic() {
    for (seed, lost, interface_down) in losses() {
        let latencies = virtual_time::run(async {
            let bed = Scenario::standard_bed(Algorithm::Cubic, BICAST, seed).connect().await.unwrap();
            let pings = Pings::start(bed.client.clone(), Duration::from_millis(10));
            sleep(Duration::from_secs(1)).await;
            lose(&bed, lost, interface_down);
            sleep(Duration::from_millis(600)).await;
            pings.stop().await.unwrap()
        });
        let case = format!("seed {seed}, path {lost} lost, interface down: {interface_down}");
        assert!(latencies.count() >= 160, "{case}: {}", latencies.count());
        assert!(latencies.percentile(100.0) <= GAP_LIMIT, "{case}: {:?}", latencies.percentile(100.0));
    }
}

/// MULTI-1, on networks that differ, while a download fills both. Beyond 100 ms only where more than 129 datagrams stood in
/// the lost network as it died: QUIC's receivers take what is sent again for duplicates then, and QUIC must find out itself.
#[test]
fn in_bicast_over_unequal_networks_losing_either_leaves_a_short_gap_in_a_download() {
    let mut gaps = Vec::new();
    for (seed, lost, interface_down) in losses() {
        let gap = virtual_time::run(async {
            let bed = Scenario::standard_bed(Algorithm::Bbr3, BICAST, seed).connect().await.unwrap();
            // What startup overfills is not what is looked for.
            download(&bed.client, Amount::Time(Duration::from_secs(2))).await.unwrap();
            let span = Duration::from_millis(1_600);
            disturbed(&bed, span, || lose(&bed, lost, interface_down)).await.download.longest_gap
        });
        eprintln!("seed {seed}, path {lost} lost, interface down: {interface_down}: {gap:?}");
        assert!(lost == 0 || gap <= GAP_LIMIT, "seed {seed}: the slower one's death is felt");
        if lost == 0 {
            gaps.push(gap);
        }
    }
    gaps.sort();
    assert!(gaps[gaps.len() * 3 / 4 - 1] <= GAP_LIMIT, "{gaps:?}");
    assert!(gaps[gaps.len() - 1] <= GAP_LIMIT * 3 / 2, "{gaps:?}");
}

/// Eight seeds, either path, and both ways to lose it.
fn losses() -> impl Iterator<Item = (u64, usize, bool)> {
    (1..=8).flat_map(|seed| [0, 1].into_iter().flat_map(move |lost| [false, true].map(|down| (seed, lost, down))))
}

/// A network dies: in silence, or with its interface, which the client's sends find out.
fn lose(bed: &Bed, path: usize, interface_down: bool) {
    bed.lines[path].cut(Direction::Up);
    bed.lines[path].cut(Direction::Down);
    if interface_down {
        bed.client_sockets[path].set_fault(Some(SendFault::NetworkUnreachable));
    }
}

/// PATH-7: the driver refuses offload with EIO, at once or after a while, at either end.
#[test]
fn when_segmentation_offload_fails_all_goes_on_without_it() {
    for mode in [BICAST, Mode::Single] {
        for at_relay in [false, true] {
            let undisturbed = offload_refused_after(None, mode, at_relay);
            for after in [Duration::ZERO, Duration::from_secs(1)] {
                let refused = offload_refused_after(Some(after), mode, at_relay);
                assert_eq!(refused, undisturbed, "{mode}, at the relay: {at_relay}, after {after:?}");
            }
        }
    }
}

/// How long a bulk transfer takes out of the relay or out of the client, whose offload fails on the way.
fn offload_refused_after(after: Option<Duration>, mode: Mode, at_relay: bool) -> Duration {
    virtual_time::run(async {
        let bed = twins(mode, 1).connect().await.unwrap();
        let sockets = if at_relay { vec![bed.relay_socket.clone()] } else { bed.client_sockets.clone() };
        let transfer = async {
            if at_relay {
                download(&bed.client, Amount::Bytes(TRANSFER)).await.unwrap().took
            } else {
                upload(&bed.client, TRANSFER).await.unwrap()
            }
        };
        let refusal = async {
            let Some(after) = after else { return };
            sleep(after).await;
            sockets.iter().for_each(|socket| socket.set_fault(Some(SendFault::SegmentationRefused)));
        };
        let (took, ()) = tokio::join!(biased; transfer, refusal);
        if after.is_some() {
            // Each socket was refused a batch once and then used without offload; in single mode one path carries them all.
            let refused: Vec<_> = sockets.iter().map(|socket| socket.failed_sends()).collect();
            let expected: &[u64] = match (at_relay, mode) {
                (true, _) => &[1],
                (false, Mode::Single) => &[1, 0],
                (false, Mode::Bicast(_)) => &[1, 1],
            };
            assert_eq!(refused, expected, "{mode}, at the relay: {at_relay}");
            assert!(after < Some(took), "the transfer was over too soon: {took:?}");
        }
        took
    })
}

/// PATH-8
#[test]
fn a_send_error_of_any_kind_leaves_the_other_path_and_all_flows_alone_and_passes() {
    for fault in [
        SendFault::NetworkUnreachable,
        SendFault::NotPermitted,
        SendFault::NoBuffers,
        SendFault::AddressGone,
        SendFault::BufferFull,
    ] {
        for (broken, mode) in [(0, BICAST), (1, BICAST), (0, Mode::Single), (1, Mode::Single)] {
            virtual_time::run(async {
                let bed = twins(mode, 1).connect().await.unwrap();
                let socket = bed.client_sockets[broken].clone();
                let measured = disturbed(&bed, Duration::from_secs(3), || socket.set_fault(Some(fault))).await;
                let case = format!("{fault:?} on path {broken}, {mode}");
                // A full buffer is no error; in single mode it takes the path's silence to tell.
                let limit = if fault == SendFault::BufferFull && mode == Mode::Single { 500 } else { 100 };
                assert!(
                    measured.download.longest_gap <= Duration::from_millis(limit),
                    "{case}: {:?}",
                    measured.download
                );
                assert_eq!(path(&bed, 1 - broken).state, PathState::Up, "{case}");
                let bad = path(&bed, broken);
                assert!(bad.state == PathState::Down && bad.problem.is_some(), "{case}: {bad:?}");
                socket.set_fault(None);
                until("the path is used again", || path(&bed, broken).state == PathState::Up).await;
            });
        }
    }
}

/// PATH-8, at the relay's only socket: an error of all paths for a while is a pause.
#[test]
fn errors_of_every_path_for_a_while_end_no_flow() {
    for fault in [SendFault::NetworkUnreachable, SendFault::NoBuffers, SendFault::BufferFull] {
        virtual_time::run(async {
            let bed = twins(BICAST, 1).connect().await.unwrap();
            let socket = bed.relay_socket.clone();
            let pause = async {
                sleep(Duration::from_secs(1)).await;
                socket.set_fault(Some(fault));
                sleep(Duration::from_millis(500)).await;
                socket.set_fault(None);
            };
            let download = bed.measure_download(Amount::Bytes(30_000_000));
            let (measured, ()) = tokio::join!(biased; download, pause);
            let gap = measured.unwrap().download.longest_gap;
            assert!(gap >= Duration::from_millis(400) && gap <= Duration::from_secs(2), "{fault:?}: {gap:?}");
        });
    }
}
