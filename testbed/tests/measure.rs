//! What an engine measures for its user, over emulated networks in virtual time.

mod bed;

use bed::{link, paths_up, scenario, until};
use tandem_core::client::{Engine, EngineConfig, Measurement};
use tandem_netem::{Bitrate, LinkConfig, Loss};
use tandem_proto::measure::{Event, Kind, SpeedReport};
use tandem_proto::mode::{Mode, Sides};

/// Wi-Fi of 40 Mbit/s that loses 1 % each way, cellular of 30 Mbit/s, which can carry copies of more than half of that; round trip 20 ms.
fn network(seed: u64) -> LinkConfig {
    let wifi = seed <= 2;
    let rate = Bitrate::from_mbit(if wifi { 40 } else { 30 });
    let loss = if wifi { Loss::Random(0.01) } else { Loss::default() };
    LinkConfig { rate: Some(rate), loss, ..link(10, seed) }
}

async fn connected(bed: &bed::Bed) -> Engine {
    let engine = bed.engine(EngineConfig { mode: Mode::Bicast(Sides::Both), ..bed.config() }).await;
    until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
    engine
}

/// What it tells until its end: how often how far it is, and the last.
async fn outcome(mut measurement: Measurement) -> (u32, Event) {
    let mut told = 0;
    loop {
        match measurement.next().await.expect("a measurement ends with a report or a failure") {
            Event::Progress(progress) => {
                assert!((1..=progress.of).contains(&progress.number) && progress.left_s >= 0.0, "{progress:?}");
                told += 1;
            }
            last => {
                assert!(measurement.next().await.is_none());
                return (told, last);
            }
        }
    }
}

#[test]
fn speed_is_that_of_each_network_and_of_all_of_them() {
    scenario(network, async |bed| {
        let engine = connected(&bed).await;
        let (told, last) = outcome(engine.handle().measure(Kind::Speed, 4)).await;
        assert!(told >= 6 * 10, "{told}");
        let Event::Speed(SpeedReport { rows, seconds: 4, .. }) = last else { panic!("{last:?}") };
        let [wifi, cell, all] = &rows[..] else { panic!("{rows:#?}") };
        assert_eq!((&wifi.networks[..], wifi.mode), (&["wifi0".to_owned()][..], Mode::Single));
        assert_eq!((all.networks.len(), all.mode), (2, Mode::Bicast(Sides::Both)));
        for (row, link) in [(wifi, 40.0), (cell, 30.0), (all, 40.0)] {
            for load in [row.down, row.up] {
                let load = load.unwrap_or_else(|| panic!("{row:#?}"));
                assert!(load.mbps > 0.7 * link && load.mbps < 1.02 * link, "{row:#?}");
                assert!((20.0..100.0).contains(&load.rtt_ms), "{row:#?}");
            }
            let idle = row.idle_rtt_ms.unwrap();
            assert!((19.0..40.0).contains(&idle), "{row:#?}");
        }
        let loss = |row: &tandem_proto::measure::SpeedRow| row.down.unwrap().loss_percent;
        assert!(loss(wifi) > 0.6 && loss(all) < 0.5 * loss(wifi), "{rows:#?}");
        engine.stop().await;
    });
}

#[test]
fn one_thing_is_measured_at_a_time_and_nothing_without_a_session() {
    scenario(network, async |bed| {
        let lonely = bed.engine(EngineConfig { interfaces: vec!["none".to_owned()], ..bed.config() }).await;
        let (_, last) = outcome(lonely.handle().measure(Kind::Speed, 1)).await;
        assert!(matches!(&last, Event::Failed(why) if why.contains("there is no connection to a relay")), "{last:?}");
        lonely.stop().await;

        let engine = connected(&bed).await;
        let (_, last) = outcome(engine.handle().measure(Kind::Speed, 0)).await;
        assert_eq!(last, Event::Failed("seconds is 0; 1 to 60 are allowed".to_owned()));
        let mut first = engine.handle().measure(Kind::Speed, 60);
        assert!(matches!(first.next().await, Some(Event::Progress(_))));
        let (_, last) = outcome(engine.handle().measure(Kind::Fairness, 1)).await;
        assert_eq!(last, Event::Failed("a measurement is running already".to_owned()));
        // Dropped, it ends, and the next one may run.
        drop(first);
        let (_, last) = outcome(engine.handle().measure(Kind::Speed, 1)).await;
        assert!(matches!(last, Event::Speed(_)), "{last:?}");
        engine.stop().await;
    });
}

#[test]
fn a_relay_without_tcp_says_so_where_fairness_is_measured() {
    scenario(network, async |bed| {
        let engine = connected(&bed).await;
        let (_, last) = outcome(engine.handle().measure(Kind::Fairness, 1)).await;
        let Event::Fairness(report) = last else { panic!("{last:?}") };
        assert!(report.tunnel_mbps > 1.0, "{report:?}");
        for row in &report.rows {
            let problem = row.problem.as_deref().unwrap_or_default();
            assert!(problem.contains("does not measure TCP") && row.tcp_alone_mbps.is_none(), "{row:?}");
        }
        engine.stop().await;
    });
}
