//! Networks of every kind under a client's engine, in virtual time: dead families and addresses, NAT64, new addresses,
//! sleeps.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod bed;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use bed::{Bed, RELAY, card, download, link, open, paths_up, read_all, scenario, until};
use tandem_core::platform::{Asker, Binder, Bound, Interface, InterfaceKind, Resolver};
use tandem_netem::Direction;
use tandem_proto::stats::{SessionState, Snapshot};
use tandem_testbed::Line;
use tandem_testbed::virtual_time::elapsed;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

/// An address of the relay at which nothing answers.
const DEAD_V6: &str = "[2001:db8::1]:4433";
const SECOND: Duration = Duration::from_secs(1);

/// A card on one of the bed's lines with these addresses. What it sends to one of `alive` comes to the relay, anything else
/// nowhere.
fn card_with(bed: &Bed, index: usize, addresses: &[&str], alive: &[&str]) -> (Interface, Binder) {
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let interface = Interface {
        name: ["wifi0", "cell0"][index].to_owned(),
        index: index as u32 + 1,
        kind: InterfaceKind::Other,
        addresses,
        up: true,
        external: true,
    };
    let alive: Vec<SocketAddr> = alive.iter().map(|text| text.parse().unwrap()).collect();
    let (network, line) = (bed.network.clone(), bed.lines[index].clone());
    let (ports, own) = (AtomicU16::new(20_000), interface.clone());
    let bind = move |remote: SocketAddr| {
        let source = own.source(remote.ip()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let local = SocketAddr::new(source, ports.fetch_add(1, Ordering::Relaxed));
        let relay: SocketAddr = RELAY.parse().unwrap();
        let remote = if alive.contains(&remote) { relay } else { remote };
        if remote == relay {
            line.share(local, relay);
        }
        Ok(Bound { socket: network.socket(local), remote })
    };
    (interface, Arc::new(bind))
}

/// A resolver that knows what the function says.
fn resolver(answer: fn(&str, Option<&str>) -> Vec<&'static str>) -> Resolver {
    Arc::new(move |name, network| {
        let found = answer(name, network);
        Box::pin(async move {
            let found: Vec<IpAddr> = found.iter().map(|text| text.parse().unwrap()).collect();
            if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
        })
    })
}

fn all_up(count: usize) -> impl Fn(&Snapshot) -> bool {
    move |snapshot| paths_up(snapshot).len() == count
}

/// MULTI-10
#[test]
fn dead_ipv6_on_every_network_delays_neither_the_session_nor_its_paths() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let wifi = card_with(&bed, 0, &["10.1.0.2", "2001:db8:1::2"], &[RELAY]);
            let cell = card_with(&bed, 1, &["10.2.0.2", "2001:db8:2::2"], &[RELAY]);
            bed.platform.set(vec![wifi, cell]);
            let mut config = bed.config();
            config.relays[0].link.relays = vec![DEAD_V6.parse().unwrap(), RELAY.parse().unwrap()];
            let engine = bed.engine(config).await;
            let up = until(&engine, "both paths are up", all_up(2)).await;
            assert!(elapsed() < Duration::from_millis(700), "{:?}", elapsed());
            assert_eq!(up.paths.len(), 2, "the losers are gone: {up:#?}");
            assert!(up.paths.iter().all(|path| path.remote == RELAY), "{up:#?}");
            download(&engine.handle().dial(), 100_000).await;
        },
    );
}

/// MULTI-10
#[test]
fn dead_ipv6_on_a_network_that_joins_later_delays_its_path_by_a_quarter_of_a_second() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let wifi = card_with(&bed, 0, &["2001:db8:1::2"], &["[2001:db8::9]:4433"]);
            let cell = card_with(&bed, 1, &["10.2.0.2", "2001:db8:2::2"], &[RELAY]);
            bed.platform.set(vec![wifi.clone()]);
            let mut config = bed.config();
            config.relays[0].link.relays = vec!["[2001:db8::9]:4433".parse().unwrap(), RELAY.parse().unwrap()];
            let engine = bed.engine(config).await;
            until(&engine, "the first path is up", all_up(1)).await;
            sleep(SECOND).await;
            let added = elapsed();
            bed.platform.set(vec![wifi, cell]);
            until(&engine, "the second path is up", all_up(2)).await;
            assert!(elapsed() - added < SECOND, "{:?}", elapsed() - added);
        },
    );
}

/// MULTI-10
#[test]
fn a_dead_first_address_costs_no_more_than_a_dead_family_and_is_not_the_first_choice_again() {
    scenario(
        |seed| link(10, seed),
        async |mut bed| {
            bed.platform.set(vec![card_with(&bed, 0, &["10.1.0.2"], &[RELAY])]);
            bed.platform.set_resolver(resolver(|_, network| match network {
                None => vec!["203.0.113.66", "203.0.113.1"],
                Some(_) => vec![],
            }));
            let mut config = bed.config();
            config.relays[0].link.relays = vec!["relay.example:4433".parse().unwrap()];
            let engine = bed.engine(config).await;
            until(&engine, "the path is up", all_up(1)).await;
            assert!(elapsed() < Duration::from_millis(700), "{:?}", elapsed());
            let dial = engine.handle().dial();
            download(&dial, 1000).await;
            bed.crash_and_restart_relay();
            let crashed = elapsed();
            // The first datagram for a relay that is no more ends the session.
            timeout(10 * SECOND, download(&dial, 1000)).await.unwrap();
            assert!(elapsed() - crashed < SECOND, "{:?}", elapsed() - crashed);
        },
    );
}

/// MULTI-9
#[test]
fn on_an_ipv6_only_network_a_relay_with_ipv4_only_is_reached_by_name_through_its_dns64() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let wifi = card_with(&bed, 0, &["10.1.0.2"], &[RELAY]);
            let cell = card_with(&bed, 1, &["2001:db8:2::2"], &["[2001:db8:64::cb00:7101]:4433"]);
            bed.platform.set(vec![wifi, cell]);
            bed.platform.set_resolver(resolver(|name, network| match (name, network) {
                ("relay.example", Some("cell0")) => vec!["2001:db8:64::cb00:7101"],
                ("relay.example", None) => vec!["203.0.113.1"],
                _ => vec![],
            }));
            let mut config = bed.config();
            config.relays[0].link.relays = vec!["relay.example:4433".parse().unwrap()];
            let engine = bed.engine(config).await;
            until(&engine, "both paths are up", all_up(2)).await;
            assert!(elapsed() < SECOND, "{:?}", elapsed());
        },
    );
}

/// MULTI-9
#[test]
fn on_an_ipv6_only_network_a_relay_given_by_its_ipv4_address_is_reached_through_the_nat64() {
    // With a prefix that the network tells of, and with the well-known one where no DNS64 answers.
    for (tells, entrance) in [(true, "[2001:db8:64::cb00:7101]:4433"), (false, "[64:ff9b::cb00:7101]:4433")] {
        scenario(
            |seed| link(10, seed),
            async |bed| {
                bed.platform.set(vec![card_with(&bed, 1, &["2001:db8:2::2"], &[entrance])]);
                if tells {
                    bed.platform.set_resolver(resolver(|name, network| match (name, network) {
                        ("ipv4only.arpa", Some("cell0")) => vec!["2001:db8:64::c000:aa", "2001:db8:64::c000:ab"],
                        _ => vec![],
                    }));
                }
                let engine = bed.engine(bed.config()).await;
                until(&engine, "the path is up", all_up(1)).await;
                assert!(elapsed() < SECOND, "{:?}", elapsed());
                download(&engine.handle().dial(), 10_000).await;
            },
        );
    }
}

/// A system's resolver that never answers, and networks' own that say what the function does.
fn dead_system(answer: fn(&str) -> Vec<&'static str>) -> Resolver {
    Arc::new(move |_, network| {
        let found = network.map(answer);
        Box::pin(async move {
            match found {
                None => std::future::pending().await,
                Some(found) if found.is_empty() => Err(io::ErrorKind::TimedOut.into()),
                Some(found) => Ok(found.iter().map(|text| text.parse().unwrap()).collect()),
            }
        })
    })
}

/// DNS-3
#[test]
fn a_relay_is_found_where_it_was_before_though_no_resolver_answers() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("addresses.json");
    std::fs::write(&file, r#"{"version":1,"names":{"relay.example":["203.0.113.66","203.0.113.1"]}}"#).unwrap();
    scenario(
        |seed| link(10, seed),
        async |bed| {
            bed.platform.set(vec![card_with(&bed, 0, &["10.1.0.2"], &[RELAY])]);
            bed.platform.set_resolver(dead_system(|_| vec![]));
            let mut config = bed.config();
            config.relays[0].link.relays = vec!["relay.example:4433".parse().unwrap()];
            config.addresses = Some(file);
            let engine = bed.engine(config).await;
            until(&engine, "the path is up", all_up(1)).await;
            // The first of the two is somebody else's by now.
            assert!(elapsed() < SECOND, "{:?}", elapsed());
            download(&engine.handle().dial(), 1000).await;
        },
    );
}

/// DNS-3
#[test]
fn a_relay_is_found_at_a_new_address_by_a_networks_own_resolver_though_the_systems_is_dead() {
    scenario(
        |seed| link(10, seed),
        async |mut bed| {
            let old = "203.0.113.66:4433";
            bed.platform.set(vec![card_with(&bed, 0, &["10.1.0.2"], &[old])]);
            bed.platform.set_resolver(dead_system(|_| vec!["203.0.113.66"]));
            let mut config = bed.config();
            config.relays[0].link.relays = vec!["relay.example:4433".parse().unwrap()];
            let engine = bed.engine(config).await;
            until(&engine, "the path is up", all_up(1)).await;
            let dial = engine.handle().dial();
            download(&dial, 1000).await;
            // The relay moves, and its name with it; what is sent to the old address comes nowhere.
            bed.platform.set_resolver(dead_system(|_| vec!["203.0.113.1"]));
            bed.platform.set(vec![card_with(&bed, 0, &["10.1.0.3"], &[RELAY])]);
            bed.each_direction(Line::cut);
            bed.crash_and_restart_relay();
            sleep(SECOND).await;
            bed.each_direction(Line::restore);
            let moved = elapsed();
            timeout(30 * SECOND, download(&dial, 1000)).await.unwrap();
            assert!(elapsed() - moved < 8 * SECOND, "{:?}", elapsed() - moved);
        },
    );
}

/// What a login page in between answers, on one network until the login.
fn login_page(captive: &'static str, logged_in: Arc<AtomicBool>) -> Asker {
    Arc::new(move |network, to, request| {
        assert!(
            to.port() == 80 && request.starts_with("GET /generate_204 HTTP/1.1\r\nHost: 203.0.113.1\r\n"),
            "{to} {request}"
        );
        let answers = network == captive && !logged_in.load(Ordering::Relaxed);
        Box::pin(async move {
            let page = b"HTTP/1.1 302 Found\r\nLocation: http://login.example/\r\n\r\n".to_vec();
            if answers { Ok(page) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
        })
    })
}

/// MULTI-5
#[test]
fn a_network_with_only_a_login_page_is_told_as_such_and_used_soon_after_the_login() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let logged_in = Arc::new(AtomicBool::new(false));
            bed.platform.set_asker(login_page("wifi0", Arc::clone(&logged_in)));
            bed.lines[0].cut(Direction::Up);
            let engine = bed.engine(bed.config()).await;
            download(&engine.handle().dial(), 1000).await;
            assert!(elapsed() < SECOND, "it goes by the other network: {:?}", elapsed());
            let told = |snapshot: &Snapshot| {
                let wifi = snapshot.paths.iter().find(|path| path.interface == "wifi0");
                wifi.is_some_and(|path| path.problem.as_deref() == Some("captive: sign in to the network"))
            };
            let captive = until(&engine, "it is told", told).await;
            assert_eq!((captive.state, paths_up(&captive)), (SessionState::Connected, vec!["cell0"]));
            sleep(60 * SECOND).await;
            assert!(told(&engine.handle().snapshot()));

            bed.lines[0].restore(Direction::Up);
            logged_in.store(true, Ordering::Relaxed);
            let login = elapsed();
            let both = until(&engine, "both paths are up", all_up(2)).await;
            assert!(elapsed() - login < 10 * SECOND, "{:?}", elapsed() - login);
            assert!(both.paths.iter().all(|path| path.problem.is_none()), "{both:#?}");
        },
    );
}

/// MULTI-5
#[test]
fn with_nothing_but_a_login_page_the_session_comes_up_soon_after_the_login() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let logged_in = Arc::new(AtomicBool::new(false));
            bed.platform.set_asker(login_page("wifi0", Arc::clone(&logged_in)));
            bed.platform.set(vec![card(&bed.network, &bed.lines[0], 0)]);
            bed.lines[0].cut(Direction::Up);
            let engine = bed.engine(bed.config()).await;
            let told = |snapshot: &Snapshot| {
                let problem = snapshot.problem.as_deref().unwrap_or_default();
                snapshot.state == SessionState::Connecting && problem.contains("wifi0: captive: sign in")
            };
            until(&engine, "it is told", told).await;
            // However the login falls among the attempts.
            for minutes in 1..=5 {
                bed.lines[0].cut(Direction::Up);
                until(&engine, "it is not connected", |snapshot| snapshot.state == SessionState::Connecting).await;
                sleep(Duration::from_millis(minutes * 61_700)).await;
                bed.lines[0].restore(Direction::Up);
                let login = elapsed();
                until(&engine, "the path is up", all_up(1)).await;
                assert!(elapsed() - login < 10 * SECOND, "{:?}", elapsed() - login);
            }
        },
    );
}

/// MULTI-8
#[test]
fn an_interface_that_gets_another_address_works_again_within_seconds_and_its_flows_live() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            bed.platform.set(vec![card_with(&bed, 0, &["10.1.0.2"], &[RELAY])]);
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            until(&engine, "the path is up", all_up(1)).await;
            let (mut app, _) = open(&dial, "mirror:80").await.unwrap();
            app.write_all(b"before ").await.unwrap();
            sleep(SECOND).await;
            let before = engine.handle().snapshot();

            // Another subnet: the old address is gone, and the card knows only the new one.
            bed.platform.set(vec![card_with(&bed, 0, &["10.77.0.9"], &[RELAY])]);
            let changed = elapsed();
            let moved = |snapshot: &Snapshot| {
                snapshot.paths.iter().any(|path| path.local.starts_with("10.77.0.9") && path.srtt_ms.is_some())
            };
            let snapshot = until(&engine, "the path has the new address", moved).await;
            assert!(elapsed() - changed < 3 * SECOND, "{:?}", elapsed() - changed);
            assert_eq!(snapshot.paths.len(), 1, "{snapshot:#?}");
            app.write_all(b"after").await.unwrap();
            app.shutdown().await.unwrap();
            assert_eq!(read_all(&mut app).await, b"before after");
            assert!(elapsed() - changed < 3 * SECOND, "{:?}", elapsed() - changed);
            let after = engine.handle().snapshot();
            assert!(after.uptime_s > before.uptime_s, "it is the same session: {after:#?}");
        },
    );
}

/// SLEEP-1
#[test]
fn after_a_sleep_in_which_everyone_forgot_the_client_a_new_flow_works_and_no_old_one_hangs() {
    scenario(
        |seed| link(10, seed),
        async |mut bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            until(&engine, "both paths are up", all_up(2)).await;
            let (_app, end) = open(&dial, "mirror:80").await.unwrap();
            sleep(SECOND).await;
            // The relay gave the session up meanwhile, and the NATs have other ports for the client.
            bed.crash_and_restart_relay();
            for (index, line) in bed.lines.iter().enumerate() {
                line.rebind(format!("198.51.100.{index}:7000").parse().unwrap());
            }
            bed.platform.suspend(180 * SECOND);
            let awake = elapsed();
            timeout(3 * SECOND, download(&dial, 1000)).await.expect("a new flow works within 3 s");
            timeout(10 * SECOND - (elapsed() - awake), end).await.expect("an old flow does not hang").unwrap();
        },
    );
}

/// SLEEP-1
#[test]
fn after_a_short_sleep_the_session_goes_on_with_its_flows() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            until(&engine, "both paths are up", all_up(2)).await;
            let (mut app, _) = open(&dial, "mirror:80").await.unwrap();
            app.write_all(b"before ").await.unwrap();
            sleep(SECOND).await;
            let before = engine.handle().snapshot();
            for (index, line) in bed.lines.iter().enumerate() {
                line.rebind(format!("198.51.100.{index}:7000").parse().unwrap());
            }
            // An idle path would not be asked for a sign of life before long: it is the sleep that makes it doubtful.
            bed.each_direction(Line::cut);
            let asleep = elapsed();
            bed.platform.suspend(20 * SECOND);
            until(&engine, "no path is believed", |snapshot| snapshot.state == SessionState::Connecting).await;
            assert!(elapsed() - asleep < 2 * SECOND, "{:?}", elapsed() - asleep);
            bed.each_direction(Line::restore);
            let back = elapsed();
            until(&engine, "both paths are up again", all_up(2)).await;
            assert!(elapsed() - back < SECOND, "{:?}", elapsed() - back);
            app.write_all(b"after").await.unwrap();
            app.shutdown().await.unwrap();
            assert_eq!(read_all(&mut app).await, b"before after");
            assert!(engine.handle().snapshot().uptime_s > before.uptime_s, "it is the same session");
        },
    );
}

/// MULTI-12 (the state that is shown)
#[test]
fn a_session_whose_networks_are_all_silent_is_not_shown_as_connected() {
    scenario(
        |seed| link(10, seed),
        async |bed| {
            bed.platform.set(vec![card(&bed.network, &bed.lines[0], 0)]);
            let engine = bed.engine(bed.config()).await;
            let dial = engine.handle().dial();
            until(&engine, "the path is up", all_up(1)).await;
            download(&dial, 1000).await;
            bed.each_direction(Line::cut);
            let asking = Arc::clone(&dial);
            let fetch = tokio::spawn(async move { download(&asking, 1000).await });
            let silent = until(&engine, "it says so", |snapshot| snapshot.state == SessionState::Connecting).await;
            assert!(silent.problem.as_deref().is_some_and(|problem| problem.contains("wifi0")), "{silent:#?}");
            bed.each_direction(Line::restore);
            let back = elapsed();
            until(&engine, "it is connected again", |snapshot| snapshot.state == SessionState::Connected).await;
            timeout(3 * SECOND, fetch).await.expect("what was asked for comes").unwrap();
            assert!(elapsed() - back < 3 * SECOND, "{:?}", elapsed() - back);
        },
    );
}
