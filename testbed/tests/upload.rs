//! A large upload over a slow uplink: it uses the link, arrives whole, and the client keeps little of it.

use std::time::Duration;

use tandem_netem::{Bitrate, LinkConfig};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::stats::PathState;
use tandem_testbed::{Bed, PathLinks, Scenario, upload, virtual_time};
use tokio::time::sleep;

/// A fifth of what the case asks for, 40 s of its 200: what a client keeps does not grow after the first.
const BYTES: u64 = 100_000_000;
const MOST_KEPT: u64 = 64 << 20;

/// 20 Mbit/s up and 50 down, 20 ms, queues of 100 ms, twice.
fn scenario(congestion: Algorithm, mode: Mode) -> Scenario {
    let link = |mbit| {
        let rate = Some(Bitrate::from_mbit(mbit));
        LinkConfig { rate, delay: Duration::from_millis(10), ..LinkConfig::default() }
            .with_queue_time(Duration::from_millis(100))
    };
    let path = PathLinks { up: link(20), down: link(50) };
    Scenario { paths: vec![path; 2], congestion, mode, seed: 1 }
}

/// What the client has taken from the application and the relay not handed on yet; panics if a path is not up.
fn kept(bed: &Bed) -> u64 {
    let (sent, received) = (bed.client.stats().link, bed.relay.stats().link);
    for path in &sent.paths {
        assert_eq!(path.state, PathState::Up, "{:?}", path.problem);
    }
    sent.up.flow_bytes - received.up.flow_bytes
}

/// TCP-5
#[test]
fn a_large_upload_uses_its_uplink_and_adds_bounded_memory() {
    for congestion in Algorithm::ALL {
        for mode in [Mode::Single, Mode::Bicast(Sides::Both)] {
            let (took, most) = virtual_time::run(async {
                let bed = scenario(congestion, mode).connect().await.unwrap();
                let mut most = 0;
                let watch = async {
                    loop {
                        most = kept(&bed).max(most);
                        sleep(Duration::from_millis(100)).await;
                    }
                };
                tokio::select! {
                    biased;
                    took = upload(&bed.client, BYTES) => (took.unwrap(), most),
                    () = watch => unreachable!("it watches for ever"),
                }
            });
            let goodput = BYTES as f64 * 8e-6 / took.as_secs_f64();
            eprintln!("{congestion} {}: {goodput:.1} Mbit/s, {most} bytes kept at most", mode.scheme());
            assert!(goodput >= 0.85 * 20.0, "{congestion} {}: {goodput} Mbit/s", mode.scheme());
            assert!(most <= MOST_KEPT, "{congestion} {}: {most} bytes", mode.scheme());
        }
    }
}
