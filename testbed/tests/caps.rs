//! What networks may carry, and what happens at their caps: engines over emulated networks, in virtual time.
//!
//! What a network carried is counted by the emulated line, apart from the product.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod bed;

use std::sync::Arc;
use std::time::Duration;

use bed::{Bed, download, link, open, paths_up, scenario, until};
use tandem_core::client::{Engine, EngineConfig};
use tandem_core::dial::Dial;
use tandem_netem::{Bitrate, Direction, LinkConfig};
use tandem_proto::events::{Event, Watcher};
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::networks::{CapState, Settings};
use tandem_proto::stats::{NetworkStats, SessionState, Snapshot};
use tandem_testbed::Line;
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const CAP: u64 = 20_000_000;
/// A cap is kept to within a hundredth.
const OFF: u64 = CAP / 100;

/// Twenty megabits and 20 ms, with a queue of 50 ms.
fn wire(seed: u64) -> LinkConfig {
    let config = LinkConfig { rate: Some(Bitrate::from_mbit(20)), ..link(10, seed) };
    config.with_queue_time(Duration::from_millis(50))
}

fn settings(list: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::default();
    list.iter().for_each(|(name, value)| settings.set(name, value).unwrap());
    settings
}

fn config(bed: &Bed, mode: Mode, networks: &[(&str, &[(&str, &str)])]) -> EngineConfig {
    let networks = networks.iter().map(|(name, list)| ((*name).to_owned(), settings(list))).collect();
    EngineConfig { mode, networks, ..bed.config() }
}

/// IP packets that a line has carried, both ways, in bytes.
fn carried(line: &Line) -> u64 {
    let of = |direction| {
        let counters = line.counters(direction);
        counters.offered_bytes + 28 * counters.offered
    };
    of(Direction::Up) + of(Direction::Down)
}

fn network<'s>(snapshot: &'s Snapshot, name: &str) -> &'s NetworkStats {
    snapshot.networks.iter().find(|network| network.name == name).unwrap()
}

fn reached(name: &str) -> impl Fn(&Snapshot) -> bool {
    move |snapshot| network(snapshot, name).cap == CapState::Reached
}

/// A download without end, anew whenever it ends.
fn bulk(dial: Arc<dyn Dial>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if let Ok((mut app, _)) = open(&dial, "endless:80").await {
                while matches!(app.read(&mut buffer).await, Ok(1..)) {}
            }
            sleep(Duration::from_millis(100)).await;
        }
    })
}

async fn wait(engine: &Engine, what: &str, seconds: u64, condition: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let mut snapshots = engine.handle().subscribe();
    let found = timeout(Duration::from_secs(seconds), snapshots.wait_for(condition)).await;
    found.map(|found| found.unwrap().clone()).unwrap_or_else(|_| panic!("{what}: {:#?}", engine.handle().snapshot()))
}

/// MULTI-11
#[test]
fn in_bicast_a_cap_ends_the_use_of_its_network_to_within_a_hundredth_and_the_other_goes_on() {
    scenario(wire, async |bed| {
        let caps: &[(&str, &str)] = &[("cap-daily", "20 MB")];
        let engine = bed.engine(config(&bed, Mode::Bicast(Sides::Both), &[("wifi0", caps)])).await;
        let dial = engine.handle().dial();
        let going = bulk(Arc::clone(&dial));
        wait(&engine, "near", 60, |snapshot| network(snapshot, "wifi0").cap == CapState::Near).await;
        let near = Instant::now();
        let snapshot = wait(&engine, "reached", 120, reached("wifi0")).await;
        assert!(near.elapsed() > Duration::from_secs(15), "slowed: {:?}", near.elapsed());
        // Whatever was on its way.
        sleep(Duration::from_secs(2)).await;
        let total = carried(&bed.lines[0]);
        println!("cap {CAP}, carried {total}, counted {}", network(&snapshot, "wifi0").used_today_bytes);
        assert!(total.abs_diff(CAP) <= OFF, "{total}");
        let snapshot = engine.handle().snapshot();
        // Two or three datagrams around the end are carried, but not counted.
        assert!(network(&snapshot, "wifi0").used_today_bytes.abs_diff(total) < 5_000, "{snapshot:#?}");
        assert_eq!((paths_up(&snapshot), snapshot.state), (vec!["cell0"], SessionState::Connected));
        assert!(network(&snapshot, "wifi0").problem.as_ref().unwrap().contains("20 MB a day is reached"));
        let before = carried(&bed.lines[1]);
        sleep(Duration::from_secs(10)).await;
        assert!(carried(&bed.lines[1]) - before > 10_000_000, "the flow goes on by the other network");
        assert_eq!(carried(&bed.lines[0]), total, "not a byte more");
        going.abort();

        bed.platform.set_today("1970-01-02".parse().unwrap());
        wait(&engine, "a new day", 120, |snapshot| paths_up(snapshot).len() == 2).await;
        download(&dial, 100_000).await;
        assert!(carried(&bed.lines[0]) > total + 100_000);
        engine.stop().await;
    });
}

/// MULTI-11
#[test]
fn at_full_speed_to_the_end_a_cap_is_kept_too() {
    for (mode, soft) in [(Mode::Single, "100"), (Mode::Bicast(Sides::Both), "100"), (Mode::Single, "95")] {
        scenario(wire, async |bed| {
            let caps: &[(&str, &str)] = &[("cap-monthly", "20 MB"), ("soft-percent", soft)];
            let backup: &[(&str, &str)] = &[("role", "backup")];
            let engine = bed.engine(config(&bed, mode, &[("wifi0", caps), ("cell0", backup)])).await;
            let dial = engine.handle().dial();
            let going = bulk(Arc::clone(&dial));
            let snapshot = wait(&engine, "reached", 200, reached("wifi0")).await;
            assert!(carried(&bed.lines[1]) < 300_000, "the backup waited: {}", carried(&bed.lines[1]));
            sleep(Duration::from_secs(2)).await;
            let total = carried(&bed.lines[0]);
            println!("{mode}, soft {soft}: cap {CAP}, carried {total}");
            assert!(total.abs_diff(CAP) <= OFF, "{mode}, {soft}: {total}; {snapshot:#?}");
            let before = carried(&bed.lines[1]);
            sleep(Duration::from_secs(5)).await;
            assert!(carried(&bed.lines[1]) - before > 5_000_000, "the backup took over");
            going.abort();
            engine.stop().await;
        });
    }
}

/// MULTI-11
#[test]
fn the_only_network_stops_at_its_cap_too_and_that_is_said() {
    scenario(wire, async |bed| {
        let caps: &[(&str, &str)] = &[("cap-daily", "20 MB"), ("soft-percent", "95")];
        let never: &[(&str, &str)] = &[("role", "never")];
        let engine = bed.engine(config(&bed, Mode::Single, &[("wifi0", caps), ("cell0", never)])).await;
        let handle = engine.handle();
        let going = bulk(handle.dial());
        wait(&engine, "reached", 200, reached("wifi0")).await;
        let ended = wait(&engine, "over", 10, |snapshot| snapshot.state == SessionState::Connecting).await;
        sleep(Duration::from_secs(5)).await;
        let total = carried(&bed.lines[0]);
        println!("cap {CAP}, carried {total}");
        assert!(total.abs_diff(CAP) <= OFF, "{total}");
        assert_eq!(carried(&bed.lines[1]), 0, "never is never");
        let problem = handle.snapshot().problem.or(ended.problem).unwrap();
        let both =
            problem.contains("wifi0: its cap of 20 MB a day is reached") && problem.contains("cell0: never used");
        assert!(both, "{problem}");
        sleep(Duration::from_secs(60)).await;
        assert_eq!(carried(&bed.lines[0]), total, "not a byte more");
        // Whoever pays may say so.
        handle.set_network("wifi0", "cap-daily", "1 GB").unwrap();
        wait(&engine, "connected again", 10, |snapshot| snapshot.state == SessionState::Connected).await;
        going.abort();
        engine.stop().await;
    });
}

#[test]
fn a_network_that_is_near_its_cap_lost_and_back_is_told_of() {
    scenario(wire, async |bed| {
        let caps: &[(&str, &str)] = &[("cap-daily", "20 MB"), ("soft-percent", "90")];
        let engine = bed.engine(config(&bed, Mode::Bicast(Sides::Both), &[("wifi0", caps)])).await;
        until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
        let mut snapshots = engine.handle().subscribe();
        let events = tokio::spawn(async move {
            let (mut watcher, mut events) = (Watcher::default(), Vec::new());
            let end = Instant::now() + Duration::from_secs(80);
            while Instant::now() < end {
                events.extend(watcher.see(&snapshots.borrow_and_update().clone(), Instant::now().into_std()));
                snapshots.changed().await.unwrap();
            }
            events
        });
        let going = bulk(engine.handle().dial());
        sleep(Duration::from_secs(2)).await;
        let both = [Direction::Up, Direction::Down];
        both.iter().for_each(|direction| bed.lines[1].cut(*direction));
        sleep(Duration::from_secs(4)).await;
        both.iter().for_each(|direction| bed.lines[1].restore(*direction));
        let told = events.await.unwrap();
        let kinds: Vec<_> = told.iter().map(ToString::to_string).collect();
        let has = |event: &Event| told.contains(event);
        let (wifi, cell) = ("wifi0".to_owned(), "cell0".to_owned());
        assert!(
            told.iter().any(|event| matches!(event, Event::Lost { network, .. } if *network == cell)),
            "{kinds:#?}"
        );
        assert!(has(&Event::Back { network: cell }) && has(&Event::CapNear { network: wifi }), "{kinds:#?}");
        let reached = |event: &&Event| matches!(event, Event::CapReached { network, .. } if network == "wifi0");
        assert_eq!(told.iter().filter(reached).count(), 1, "{kinds:#?}");
        going.abort();
        engine.stop().await;
    });
}
