//! The client's engine against a relay over emulated networks, in virtual time.

mod bed;

use std::sync::Arc;
use std::time::Duration;

use bed::{PATIENCE, RELAY_TOO, card, download, link, mirror, open, paths_up, pattern, read_all, scenario, until};
use tandem_core::client::EngineConfig;
use tandem_core::dial::DialError;
use tandem_core::pump::PumpEnd;
use tandem_netem::{Bitrate, Direction, LinkConfig, Loss, Reorder};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::pairing::Secret;
use tandem_proto::stats::{SessionState, Snapshot};
use tandem_proto::wire::flow::OpenError;
use tandem_relay::tokens::Authority;
use tandem_testbed::Line;
use tandem_testbed::virtual_time::elapsed;
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

#[test]
fn a_session_comes_up_over_every_network_and_flows_travel_in_both_modes() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            // Asked for before there is a session: it waits.
            download(&dial, 100_000).await;
            let snapshot = until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
            assert_eq!(snapshot.state, SessionState::Connected);
            assert_eq!(paths_up(&snapshot), ["wifi0", "cell0"]);
            assert!(snapshot.down.flow_bytes >= 100_000 && snapshot.down.copies == 0, "{snapshot:#?}");

            engine.handle().set_mode(Mode::Bicast(Sides::Both));
            sleep(Duration::from_secs(1)).await;
            download(&dial, 100_000).await;
            let copied = |snapshot: &Snapshot| snapshot.down.copies >= 70 && snapshot.up.copies > 0;
            until(&engine, "datagrams are copied both ways", copied).await;
            engine.stop().await;
        },
    );
}

/// SOCKS-6 (the way of the relay's answer)
#[test]
fn the_relays_reason_reaches_whoever_dialled() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            let error = async |target| open(&dial, target).await.err().unwrap();
            assert_eq!(error("closed:80").await, DialError::Open(OpenError::Refused));
            assert_eq!(error("unknown:80").await, DialError::Open(OpenError::NameNotFound));
        },
    );
}

/// FLOWS-2
#[test]
fn a_thousand_flows_at_once_wait_for_their_turn_and_all_succeed() {
    scenario(
        |seed| link(30, seed),
        async |bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            download(&dial, 1).await;
            let mut flows = JoinSet::new();
            let start = Instant::now();
            for _ in 0..1000 {
                let dial = Arc::clone(&dial);
                flows.spawn(async move {
                    download(&dial, 10_000).await;
                    start.elapsed()
                });
            }
            let mut took = timeout(PATIENCE, flows.join_all()).await.unwrap();
            took.sort();
            assert!(took[989] < Duration::from_secs(5), "p99 {:?}", took[989]);
        },
    );
}

/// TCP-3
#[test]
fn two_thousand_short_flows_in_a_row_lose_nothing_on_a_bad_link() {
    let bad = |seed| LinkConfig {
        loss: Loss::Random(0.05),
        reorder: Reorder { share: 0.05, least: Duration::from_millis(1), most: Duration::from_millis(5) },
        ..link(5, seed)
    };
    scenario(bad, async |bed| {
        let engine = bed.engine(bed.config()).await;
        let dial = engine.handle().dial();
        for round in 0..2000 {
            mirror(&dial, &pattern(1 + round * 37 % 20_000)).await;
        }
    });
}

#[test]
fn networks_that_come_and_go_change_the_paths_and_no_flow() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let (wifi, cell) = (card(&bed.network, &bed.lines[0], 0), card(&bed.network, &bed.lines[1], 1));
            bed.platform.set(vec![wifi.clone(), cell.clone()]);
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
            let (mut app, _) = open(&dial, "mirror:80").await.unwrap();
            app.write_all(b"before ").await.unwrap();

            bed.platform.set(vec![cell.clone()]);
            until(&engine, "wifi0's path is gone", |snapshot| paths_up(snapshot) == ["cell0"]).await;
            app.write_all(b"between ").await.unwrap();

            bed.platform.set(vec![wifi, cell]);
            until(&engine, "wifi0's path is back", |snapshot| paths_up(snapshot).len() == 2).await;
            app.write_all(b"after").await.unwrap();
            app.shutdown().await.unwrap();
            assert_eq!(read_all(&mut app).await, b"before between after");
            assert_eq!(engine.handle().snapshot().state, SessionState::Connected);
        },
    );
}

#[test]
fn a_relay_that_crashed_and_came_back_is_used_again_within_seconds() {
    scenario(
        |seed| link(10, seed),
        async |mut bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            download(&dial, 1000).await;
            bed.crash_and_restart_relay();
            let back = elapsed();
            timeout(PATIENCE, download(&dial, 1000)).await.unwrap();
            assert!(elapsed() - back < Duration::from_secs(8), "{:?}", elapsed() - back);
        },
    );
}

#[test]
fn a_relay_out_of_reach_at_one_address_is_reached_at_another_within_seconds() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let mut config = bed.config();
            config.relays[0].link.relays.push(RELAY_TOO.parse().unwrap());
            let engine = bed.engine(config).await;
            let dial = engine.handle().dial();
            download(&dial, 1000).await;
            bed.each_direction(Line::cut);
            let cut = elapsed();
            let moved = |snapshot: &Snapshot| {
                !snapshot.paths.is_empty() && snapshot.paths.iter().all(|path| path.remote == RELAY_TOO)
            };
            until(&engine, "it has moved to the other address", moved).await;
            assert!(elapsed() - cut < Duration::from_secs(8), "{:?}", elapsed() - cut);
            timeout(PATIENCE, download(&dial, 1000)).await.unwrap();
        },
    );
}

#[test]
fn a_relay_out_of_reach_from_a_new_network_is_reached_at_another_address_within_seconds() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let (wifi, cell) = (card(&bed.network, &bed.lines[0], 0), card(&bed.network, &bed.lines[1], 1));
            bed.platform.set(vec![cell]);
            let mut config = bed.config();
            config.relays[0].link.relays.push(RELAY_TOO.parse().unwrap());
            let engine = bed.engine(config).await;
            let dial = engine.handle().dial();
            download(&dial, 1000).await;
            // The new path joins for ever.
            bed.lines[0].cut(Direction::Up);
            bed.platform.set(vec![wifi]);
            let changed = elapsed();
            let moved = |snapshot: &Snapshot| {
                paths_up(snapshot) == ["wifi0"] && snapshot.paths.iter().all(|path| path.remote == RELAY_TOO)
            };
            until(&engine, "it has moved to the other address", moved).await;
            assert!(elapsed() - changed < Duration::from_secs(8), "{:?}", elapsed() - changed);
            timeout(PATIENCE, download(&dial, 1000)).await.unwrap();
        },
    );
}

#[test]
fn a_new_network_joins_the_session_at_the_address_where_it_lives() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let (wifi, cell) = (card(&bed.network, &bed.lines[0], 0), card(&bed.network, &bed.lines[1], 1));
            bed.platform.set(vec![wifi.clone()]);
            bed.each_direction(Line::cut);
            let mut config = bed.config();
            config.relays[0].link.relays.push(RELAY_TOO.parse().unwrap());
            let engine = bed.engine(config).await;
            until(&engine, "a path at the second address is up", |snapshot| paths_up(snapshot) == ["wifi0"]).await;
            bed.platform.set(vec![wifi, cell]);
            let joined = until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
            assert!(joined.paths.iter().all(|path| path.remote == RELAY_TOO), "{:#?}", joined.paths);
        },
    );
}

/// PATH-5
#[test]
fn an_outage_of_every_network_ends_no_session_and_no_flow() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
            let (mut app, _) = open(&dial, "mirror:80").await.unwrap();
            app.write_all(b"before ").await.unwrap();
            bed.each_direction(Line::cut);
            sleep(Duration::from_secs(20)).await;
            bed.each_direction(Line::restore);
            let back = elapsed();
            app.write_all(b"after").await.unwrap();
            app.shutdown().await.unwrap();
            assert_eq!(read_all(&mut app).await, b"before after");
            assert!(elapsed() - back < Duration::from_secs(3), "{:?}", elapsed() - back);
        },
    );
}

#[test]
fn a_client_that_the_relay_does_not_know_is_told_so_and_tries_no_more() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let mut config = bed.config();
            let (foreign, _) = Authority::generate()
                .unwrap()
                .issue("foreign", OffsetDateTime::now_utc(), Duration::from_secs(3600))
                .unwrap();
            config.relays[0].link.token = Secret::new(foreign.expose().to_owned());
            let engine = bed.engine(config).await;
            let stopped = until(&engine, "it gives up", |snapshot| snapshot.state == SessionState::Stopped).await;
            assert!(stopped.problem.unwrap().contains("pair again with a new link"));
            let dial = engine.handle().dial();
            assert_eq!(open(&dial, "blob:80").await.err(), Some(DialError::NotConnected));
        },
    );
}

#[test]
fn a_wrong_key_is_no_relay() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let mut config = bed.config();
            config.relays[0].link.pins = vec![[1; 32]];
            let engine = bed.engine(config).await;
            let trying = until(&engine, "it says what is wrong", |snapshot| snapshot.problem.is_some()).await;
            assert_eq!(trying.state, SessionState::Connecting);
            assert!(trying.problem.unwrap().contains("key is not the one in the pairing link"));
        },
    );
}

#[test]
fn the_mode_changes_in_mid_download_without_a_byte_or_the_session_lost() {
    let link = |seed| {
        LinkConfig { rate: Some(Bitrate::from_mbit(50)), loss: Loss::Random(0.005), ..link(10, seed) }
            .with_queue_time(Duration::from_millis(40))
    };
    scenario(link, async |bed| {
        // Slow enough that the download outlasts the changes.
        let engine = bed.engine(EngineConfig { congestion: Algorithm::Cubic, ..bed.config() }).await;
        let dial = engine.handle().dial();
        until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
        let fetching = Arc::clone(&dial);
        let fetch = tokio::spawn(async move { download(&fetching, 20_000_000).await });
        let mut before = 0;
        for (mode, copies) in [
            (Mode::Single, false),
            (Mode::Bicast(Sides::Server), true),
            (Mode::Bicast(Sides::Client), false),
            (Mode::Bicast(Sides::Both), true),
        ] {
            engine.handle().set_mode(mode);
            sleep(Duration::from_millis(600)).await;
            assert!(!fetch.is_finished(), "{mode}: the download was over too soon");
            let snapshot = engine.handle().snapshot();
            // Some 1,700 datagrams take 400 ms; the change itself takes a round trip, and the tally up to a quarter second.
            let copied = snapshot.down.copies - before;
            assert!(if copies { copied > 100 } else { copied < 700 }, "{mode}: {copied} copies, {snapshot:#?}");
            sleep(Duration::from_millis(300)).await;
            before = engine.handle().snapshot().down.copies;
        }
        engine.handle().set_mode(Mode::Single);
        fetch.await.unwrap();
        let snapshot = engine.handle().snapshot();
        assert!(snapshot.uptime_s > 3.0 && snapshot.mode == Mode::Single, "{snapshot:#?}");
    });
}

/// TCP-3 (a stop of the relay drains what is finishing)
#[test]
fn a_relay_that_is_told_to_stop_delivers_what_is_under_way_over_a_bad_link() {
    let bad = |seed| LinkConfig { loss: Loss::Random(0.05), ..link(20, seed) };
    scenario(bad, async |bed| {
        let engine = bed.engine(bed.config()).await;
        let dial = engine.handle().dial();
        download(&dial, 1).await;
        let mut flows = JoinSet::new();
        for round in 0..50 {
            let dial = Arc::clone(&dial);
            flows.spawn(async move { mirror(&dial, &pattern(1_000 + round * 500)).await });
        }
        // Every flow is open by now, and hardly one is done.
        sleep(Duration::from_millis(150)).await;
        bed.drain.cancel();
        while let Some(done) = timeout(PATIENCE, flows.join_next()).await.unwrap() {
            done.unwrap();
        }
        timeout(PATIENCE, bed.relay).await.expect("the relay stops").unwrap();
    });
}

#[test]
fn a_relay_that_was_restarted_tells_a_sender_so_at_once() {
    scenario(
        |seed| link(10, seed),
        async |mut bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            until(&engine, "both paths are up", |snapshot| paths_up(snapshot).len() == 2).await;
            let (mut app, end) = open(&dial, "mirror:80").await.unwrap();
            bed.crash_and_restart_relay();
            let crashed = elapsed();
            app.write_all(b"for a relay that is no more").await.unwrap();
            // Not silence tells: QUIC's stateless reset does, one round trip later.
            assert_eq!(timeout(PATIENCE, end).await.unwrap().unwrap(), PumpEnd::FlowLost);
            assert!(elapsed() - crashed < Duration::from_millis(100), "{:?}", elapsed() - crashed);
            timeout(PATIENCE, download(&dial, 1000)).await.unwrap();
            assert!(elapsed() - crashed < Duration::from_secs(1), "{:?}", elapsed() - crashed);
        },
    );
}
