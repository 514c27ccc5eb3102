//! How paths begin, end, degrade and come back, as flows see it: in virtual time, with a few seeds each, or with as many as
//! the environment's `TANDEM_SEEDS` says; distributions are printed.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::time::Duration;

use tandem_core::transport::Connection;
use tandem_netem::{Bitrate, Direction, LinkConfig, Loss, Outages, Window};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::stats::PathState;
use tandem_testbed::{Amount, PathLinks, Pings, Scenario, download, virtual_time};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const BICAST: Mode = Mode::Bicast(Sides::Both);
const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];

fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=std::env::var("TANDEM_SEEDS").map_or(3, |seeds| seeds.parse().unwrap())
}

fn path(mbit: u32, rtt_ms: u32) -> PathLinks {
    let link = LinkConfig { rate: Some(Bitrate::from_mbit(mbit)), delay: rtt_ms * MS / 2, ..LinkConfig::default() }
        .with_queue_time(50 * MS);
    PathLinks { up: link.clone(), down: link }
}

/// Something like Wi-Fi, and something like cellular.
fn scenario(mode: Mode, seed: u64) -> Scenario {
    Scenario { paths: vec![path(50, 20), path(20, 60)], congestion: Algorithm::Bbr1, mode, seed }
}

/// The path preferred by an end.
fn preferred(end: &Connection) -> Option<usize> {
    end.stats().link.paths.iter().find(|path| path.preferred).map(|path| path.id.into())
}

/// Waits until something holds, and says for how long.
async fn until(patience: Duration, mut condition: impl FnMut() -> bool) -> Option<Duration> {
    let start = Instant::now();
    let wait = async {
        while !condition() {
            sleep(5 * MS).await;
        }
    };
    timeout(patience, wait).await.ok().map(|()| start.elapsed())
}

fn print(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{what}: {} runs, least {:?}, median {:?}, p90 {:?}, most {:?}",
        times.len(),
        at(0),
        at(50),
        at(90),
        at(100)
    );
    at(100)
}

/// MULTI-1: the path named first, or the other, is dead from the start or dies at any moment of the handshake.
#[test]
fn a_session_begins_within_a_second_whichever_path_is_dead_and_survives_the_death_of_either_in_the_handshake() {
    for directions in [&BOTH[..], &BOTH[..1], &BOTH[1..]] {
        let mut times = Vec::new();
        for seed in seeds() {
            for dead in [0, 1] {
                for death_ms in [0, 5, 12, 19, 21, 25, 31, 35, 41, 50, 70, 100, 300] {
                    let mut scenario = scenario(Mode::Single, seed);
                    let window = Window { from: death_ms * MS, to: 600 * SECOND };
                    for direction in directions {
                        let link = match direction {
                            Direction::Up => &mut scenario.paths[dead].up,
                            Direction::Down => &mut scenario.paths[dead].down,
                        };
                        link.outages = Outages::Windows(vec![window]);
                    }
                    let (connected, answered) = virtual_time::run(async {
                        let bed = scenario.connect().await.unwrap();
                        let connected = virtual_time::elapsed();
                        download(&bed.client, Amount::Bytes(10_000)).await.unwrap();
                        (connected, virtual_time::elapsed())
                    });
                    let case = format!("seed {seed}, path {dead}, {directions:?} dead from {death_ms} ms");
                    assert!(connected <= SECOND, "{case}: connected after {connected:?}");
                    assert!(answered <= 2 * SECOND, "{case}: answered after {answered:?}");
                    times.push(answered);
                }
            }
        }
        print(&format!("first answer with one path dead ({directions:?})"), times);
    }
}

/// MULTI-2
#[test]
fn a_path_that_loses_a_fifth_is_left_within_seconds_and_taken_again_once_it_has_been_clean_for_a_while() {
    for bulk in [false, true] {
        let (mut left, mut back) = (Vec::new(), Vec::new());
        for seed in seeds() {
            virtual_time::run(async {
                let bed = scenario(Mode::Single, seed).connect().await.unwrap();
                let pings = Pings::start(bed.client.clone(), 20 * MS);
                let fetching = bed.client.clone();
                let load = tokio::spawn(async move {
                    if bulk {
                        download(&fetching, Amount::Bytes(u64::MAX)).await.unwrap();
                    }
                });
                sleep(8 * SECOND).await;
                assert_eq!([preferred(&bed.client), preferred(&bed.relay)], [Some(0); 2]);
                let set = |loss| BOTH.iter().for_each(|way| bed.lines[0].set_loss(*way, Loss::Random(loss)).unwrap());
                set(0.2);
                let moved = |path| {
                    let bed = &bed;
                    move || [preferred(&bed.client), preferred(&bed.relay)] == [Some(path); 2]
                };
                left.push(until(10 * SECOND, moved(1)).await.unwrap_or_else(|| panic!("seed {seed}: not left")));
                let stays = until(30 * SECOND, || !moved(1)()).await;
                assert_eq!(stays, None, "seed {seed}: back on a bad path");
                set(0.0);
                let clean = Instant::now();
                until(60 * SECOND, moved(0)).await.unwrap_or_else(|| panic!("seed {seed}: never back"));
                assert!(clean.elapsed() >= 5 * SECOND, "seed {seed}: back after {:?}", clean.elapsed());
                back.push(clean.elapsed());
                load.abort();
                pings.stop().await.unwrap();
            });
        }
        print(&format!("a path of 20 % loss is left, bulk: {bulk}"), left);
        print("and preferred again after", back);
    }
}

/// MULTI-4
#[test]
fn a_path_that_comes_and_goes_costs_the_steady_one_little_and_is_in_use_soon_after_it_stays() {
    let flaps: Vec<_> = (0..7).map(|n| Window { from: (3 + 4 * n) * SECOND, to: (5 + 4 * n) * SECOND }).collect();
    let steady_from = flaps.last().unwrap().to;
    for mode in [Mode::Single, BICAST] {
        let mut waits = Vec::new();
        for seed in seeds() {
            let run = |flapping: bool| {
                let mut scenario = scenario(mode, seed);
                let PathLinks { up, down } = &mut scenario.paths[0];
                for link in [up, down] {
                    let dead = vec![Window { from: 3 * SECOND, to: 600 * SECOND }];
                    link.outages = Outages::Windows(if flapping { flaps.clone() } else { dead });
                }
                virtual_time::run(async {
                    let bed = scenario.connect().await.unwrap();
                    sleep(4 * SECOND - virtual_time::elapsed()).await;
                    let span = steady_from - virtual_time::elapsed();
                    let goodput = download(&bed.client, Amount::Time(span)).await.unwrap().goodput_mbps();
                    if !flapping {
                        return (goodput, Duration::ZERO);
                    }
                    let pings = Pings::start(bed.client.clone(), 20 * MS);
                    let sent = |end: &Connection| end.stats().link.paths[0].down.datagrams;
                    let before = sent(&bed.relay);
                    let wait = until(12 * SECOND, || sent(&bed.relay) > before + 20).await;
                    pings.stop().await.unwrap();
                    (goodput, wait.unwrap_or(Duration::MAX))
                })
            };
            let ((alone, _), (beside, wait)) = (run(false), run(true));
            println!("{mode}, seed {seed}: {alone:.1} Mbit/s alone, {beside:.1} beside a flapping path");
            assert!(beside >= 0.85 * alone, "{mode}, seed {seed}: {beside:.1} of {alone:.1} Mbit/s");
            assert!(wait <= 10 * SECOND, "{mode}, seed {seed}: in use after {wait:?}");
            waits.push(wait);
        }
        print(&format!("{mode}: in use again after it became steady"), waits);
    }
}

/// A lossy path is no dead one.
#[test]
fn ten_minutes_of_loss_take_no_path_down_in_bicast() {
    for (seed, loss) in [(1, 0.2), (2, 0.3)] {
        virtual_time::run(async {
            let mut scenario = scenario(BICAST, seed);
            for path in &mut scenario.paths {
                (path.up.loss, path.down.loss) = (Loss::Random(loss), Loss::Random(loss));
            }
            let bed = scenario.connect().await.unwrap();
            sleep(2 * SECOND).await;
            let pings = Pings::start(bed.client.clone(), 50 * MS);
            let down = |end: &Connection| end.stats().link.paths.iter().any(|path| path.state != PathState::Up);
            let seen = until(600 * SECOND, || down(&bed.client) || down(&bed.relay)).await;
            assert_eq!(seen, None, "loss {loss}: a path was taken down");
            pings.stop().await.unwrap();
        });
    }
}

/// PATH-3
#[test]
fn a_nat_that_changes_the_port_every_five_seconds_makes_short_pauses_and_no_state() {
    // Not every datagram has a copy on the slower network: a pause shows in bicast too.
    for (mode, limit) in [(BICAST, 300 * MS), (Mode::Single, 300 * MS)] {
        let (mut bulk, mut small) = (Vec::new(), Vec::new());
        for seed in seeds() {
            virtual_time::run(async {
                let bed = scenario(mode, seed).connect().await.unwrap();
                let rebind = async {
                    for port in 0..12u16 {
                        sleep(5 * SECOND).await;
                        bed.lines[0].rebind(([203, 0, 113, 7], 20_000 + port).into());
                    }
                    sleep(2 * SECOND).await;
                };
                let (measured, ()) = tokio::join!(biased; bed.measure_download(Amount::Time(62 * SECOND)), rebind);
                let measured = measured.unwrap();
                bulk.push(measured.download.longest_gap);
                small.push(measured.pings.percentile(100.0) - measured.pings.percentile(50.0));
                assert_eq!(bed.relay.remote_addresses().len(), 2, "the relay's paths");
            });
        }
        let worst = print(&format!("{mode}, port changes: gaps of a download"), bulk);
        let worst = worst.max(print(&format!("{mode}, port changes: delays of pings"), small));
        assert!(worst <= limit, "{mode}: {worst:?}");
    }
}
