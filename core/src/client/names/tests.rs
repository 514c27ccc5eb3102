//! What names mean on networks of different kinds.

use std::io;

use super::*;
use crate::platform::{InterfaceKind, Resolver, Scripted};

fn interface(name: &str, addresses: &[&str]) -> Interface {
    let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    Interface { name: name.to_owned(), index: 1, kind: InterfaceKind::Other, addresses, up: true, external: true }
}

fn wifi() -> Interface {
    interface("wifi0", &["198.51.100.7"])
}

fn cell() -> Interface {
    interface("cell0", &["2001:db8:7::7"])
}

fn names(relays: &[&str], resolver: fn(&str, Option<&str>) -> Option<Vec<&'static str>>) -> Names {
    let platform = Scripted::new(Vec::new());
    let resolver: Resolver = Arc::new(move |name, network| {
        let answer = resolver(name, network);
        Box::pin(async move {
            let found = answer.ok_or(io::Error::other("no such name"))?;
            Ok(found.iter().map(|text| text.parse().unwrap()).collect())
        })
    });
    platform.set_resolver(resolver);
    Names::new(relays.iter().map(|relay| relay.parse().unwrap()).collect(), Arc::new(platform), nowhere())
}

/// Addresses of no earlier run.
fn nowhere() -> Arc<Addresses> {
    Arc::new(Addresses::load(None))
}

async fn settled(names: &Names) {
    let mut news = names.subscribe();
    news.wait_for(|known| known.open == 0).await.unwrap();
}

fn texts(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn families_take_turns_and_each_address_comes_once() {
    let resolver = |_: &str, network: Option<&str>| {
        network.is_none().then(|| vec!["2001:db8::1", "2001:db8::2", "192.0.2.1", "2001:db8::1"])
    };
    let names = names(&["192.0.2.9:1", "relay.example:2"], resolver);
    names.refresh(&[wifi()]);
    settled(&names).await;
    let expected = ["192.0.2.9:1", "[2001:db8::1]:2", "192.0.2.1:2", "[2001:db8::2]:2"];
    assert_eq!(texts(&names.addresses(&wifi())), expected);
}

/// MULTI-9
#[tokio::test(start_paused = true)]
async fn a_network_with_a_dns64_uses_its_own_answer_and_the_other_network_everyones() {
    let resolver = |_: &str, network: Option<&str>| match network {
        Some("cell0") => Some(vec!["2001:db8:64::c000:201"]),
        Some(_) => None,
        None => Some(vec!["192.0.2.1"]),
    };
    let names = names(&["relay.example:1"], resolver);
    names.refresh(&[wifi(), cell()]);
    settled(&names).await;
    assert_eq!(names.addresses(&cell())[0].to_string(), "[2001:db8:64::c000:201]:1");
    assert_eq!(texts(&names.addresses(&wifi())), ["192.0.2.1:1"]);
}

/// MULTI-9
#[tokio::test(start_paused = true)]
async fn an_ipv4_literal_gets_the_prefix_that_the_network_tells_of_and_the_well_known_one_last() {
    let resolver = |name: &str, network: Option<&str>| {
        (name == nat64::IPV4_ONLY && network == Some("cell0")).then(|| vec!["2001:db8:64::c000:aa"])
    };
    let names = names(&["192.0.2.1:1"], resolver);
    assert_eq!(texts(&names.addresses(&cell())), ["192.0.2.1:1", "[64:ff9b::c000:201]:1"], "before anything is known");
    names.refresh(&[wifi(), cell()]);
    settled(&names).await;
    let expected = ["192.0.2.1:1", "[2001:db8:64::c000:201]:1", "[64:ff9b::c000:201]:1"];
    assert_eq!(texts(&names.addresses(&cell())), expected);
    assert_eq!(texts(&names.addresses(&wifi())), ["192.0.2.1:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_fails_later_takes_nothing_away() {
    let platform = Scripted::new(Vec::new());
    platform.set_resolver(Arc::new(|_, _| Box::pin(async { Ok(vec!["192.0.2.1".parse().unwrap()]) })));
    let names = Names::new(vec!["relay.example:1".parse().unwrap()], Arc::new(platform.clone()), nowhere());
    names.refresh(&[wifi()]);
    settled(&names).await;
    platform.set_resolver(Arc::new(|_, _| Box::pin(async { Err(io::Error::other("no such name")) })));
    names.refresh(&[wifi()]);
    settled(&names).await;
    assert_eq!(texts(&names.addresses(&wifi())), ["192.0.2.1:1"]);
    let failure = names.failure().unwrap().to_string();
    assert!(failure.contains("relay.example: no such name"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_never_answers_holds_up_no_other_and_is_given_up() {
    let platform = Scripted::new(Vec::new());
    platform.set_resolver(Arc::new(|_, network| {
        let hangs = network.is_none();
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(vec!["192.0.2.1".parse().unwrap()])
        })
    }));
    let names = Names::new(vec!["relay.example:1".parse().unwrap()], Arc::new(platform), nowhere());
    let mut news = names.subscribe();
    names.refresh(&[wifi()]);
    news.wait_for(|known| known.open == 1).await.unwrap();
    assert_eq!(texts(&names.addresses(&wifi())), ["192.0.2.1:1"]);
    assert!(names.failure().is_none(), "one lookup is still open");
    settled(&names).await;
    assert!(names.failure().unwrap().to_string().contains("no answer from the resolver"));
    for _ in 0..2 * MOST_LOOKUPS {
        names.refresh(&[wifi()]);
        settled(&names).await;
    }
    assert!(names.failure().unwrap().to_string().contains("does not come back"), "hanging lookups are bounded");
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_dies_has_ended_and_names_are_looked_up_again() {
    let platform = Scripted::new(Vec::new());
    platform.set_resolver(Arc::new(|_, _| panic!("the resolver dies")));
    let names = Names::new(vec!["relay.example:1".parse().unwrap()], Arc::new(platform.clone()), nowhere());
    names.refresh(&[wifi()]);
    settled(&names).await;
    assert!(names.failure().unwrap().to_string().contains("given up"));
    platform.set_resolver(Arc::new(|_, _| Box::pin(async { Ok(vec!["192.0.2.1".parse().unwrap()]) })));
    names.refresh(&[wifi()]);
    settled(&names).await;
    assert_eq!(texts(&names.addresses(&wifi())), ["192.0.2.1:1"]);
}

/// DNS-3
#[tokio::test(start_paused = true)]
async fn without_any_answer_the_relay_is_sought_where_it_was_reached_before() {
    let platform = Scripted::new(Vec::new());
    platform.set_resolver(Arc::new(|_, _| Box::pin(std::future::pending())));
    let reached = nowhere();
    reached.reached("relay.example", "192.0.2.1".parse().unwrap());
    let names = Names::new(vec!["relay.example:1".parse().unwrap()], Arc::new(platform), reached);
    let mut news = names.subscribe();
    names.refresh(&[wifi()]);
    assert!(names.addresses(&wifi()).is_empty(), "resolvers have a head start");
    let start = tokio::time::Instant::now();
    news.wait_for(|known| known.late).await.unwrap();
    assert_eq!(start.elapsed(), HEAD_START);
    assert_eq!(texts(&names.addresses(&wifi())), ["192.0.2.1:1"]);
}

/// DNS-3
#[tokio::test(start_paused = true)]
async fn what_a_networks_own_resolver_says_comes_before_old_addresses() {
    let resolver = |_: &str, network: Option<&str>| network.map(|_| vec!["192.0.2.2"]);
    let names = names(&["relay.example:1"], resolver);
    names.reached.reached("relay.example", "192.0.2.1".parse().unwrap());
    names.refresh(&[wifi()]);
    settled(&names).await;
    assert_eq!(texts(&names.addresses(&wifi())), ["192.0.2.2:1", "192.0.2.1:1"]);
    names.reached("192.0.2.2:1".parse().unwrap());
    names.reached("203.0.113.9:1".parse().unwrap());
    assert_eq!(names.reached.of("relay.example").len(), 2, "an address that nobody gave the name is not kept");
}
