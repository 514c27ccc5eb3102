//! Tests of the race between addresses, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::*;

/// What connecting to an address does, and after how many milliseconds.
#[derive(Clone, Copy)]
enum Origin {
    Answers(u64),
    Fails(u64, io::ErrorKind),
    Dead,
}
use Origin::{Answers, Dead, Fails};

#[derive(Clone, Default)]
struct Network {
    origins: BTreeMap<IpAddr, Origin>,
    tried: Arc<Mutex<Vec<(u64, String)>>>,
}

impl Network {
    fn new(origins: &[(&str, Origin)]) -> Self {
        let origins = origins.iter().map(|(address, origin)| (address.parse().unwrap(), *origin)).collect();
        Network { origins, tried: Arc::default() }
    }

    async fn race(&self, ipv6: Lookup, ipv4: Lookup) -> (Result<SocketAddr, OpenError>, u64) {
        let start = Instant::now();
        let connect = |address: SocketAddr| {
            let origin = self.origins.get(&address.ip()).copied().expect("only permitted addresses are tried");
            self.tried.lock().push((start.elapsed().as_millis() as u64, address.ip().to_string()));
            async move {
                match origin {
                    Answers(after) => {
                        sleep(Duration::from_millis(after)).await;
                        Ok(address)
                    }
                    Fails(after, kind) => {
                        sleep(Duration::from_millis(after)).await;
                        Err(kind.into())
                    }
                    Dead => std::future::pending().await,
                }
            }
        };
        let permit = |address: IpAddr| self.origins.contains_key(&address);
        let lookups = Lookups { ipv6: ipv6.answer(), ipv4: ipv4.answer() };
        let result = race(lookups, 80, permit, connect).await;
        (result, start.elapsed().as_millis() as u64)
    }

    fn tried(&self) -> Vec<(u64, String)> {
        self.tried.lock().clone()
    }
}

/// A family's answer, and after how many milliseconds it comes.
struct Lookup(u64, Result<Vec<IpAddr>, OpenError>);

impl Lookup {
    fn found(after: u64, addresses: &[&str]) -> Self {
        Lookup(after, Ok(addresses.iter().map(|address| address.parse().unwrap()).collect()))
    }

    async fn answer(self) -> Result<Vec<IpAddr>, OpenError> {
        sleep(Duration::from_millis(self.0)).await;
        self.1
    }
}

fn tried(list: &[(u64, &str)]) -> Vec<(u64, String)> {
    list.iter().map(|(at, address)| (*at, (*address).to_owned())).collect()
}

/// DNS-1
#[tokio::test(start_paused = true)]
async fn a_dead_ipv6_address_costs_a_quarter_of_a_second() {
    let network = Network::new(&[("2600::1", Dead), ("1.0.0.1", Answers(20))]);
    let (result, took) = network.race(Lookup::found(5, &["2600::1"]), Lookup::found(5, &["1.0.0.1"])).await;
    assert_eq!(result, Ok("1.0.0.1:80".parse().unwrap()));
    assert!((250..=280).contains(&took), "{took} ms");
}

#[tokio::test(start_paused = true)]
async fn attempts_alternate_between_families_and_stay_in_the_race() {
    let network = Network::new(&[("2600::1", Answers(700)), ("2600::2", Dead), ("1.0.0.1", Dead), ("1.0.0.2", Dead)]);
    let ipv6 = Lookup::found(0, &["2600::1", "2600::2"]);
    let (result, took) = network.race(ipv6, Lookup::found(0, &["1.0.0.1", "1.0.0.2"])).await;
    assert_eq!(result, Ok("[2600::1]:80".parse().unwrap()));
    assert!((700..=705).contains(&took), "{took} ms");
    let order: Vec<_> = network.tried().into_iter().map(|(_, address)| address).collect();
    assert_eq!(order, ["2600::1", "1.0.0.1", "2600::2"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_brings_the_next_one_at_once() {
    let refused = io::ErrorKind::ConnectionRefused;
    let network = Network::new(&[("2600::1", Fails(10, refused)), ("1.0.0.1", Answers(10))]);
    let (result, took) = network.race(Lookup::found(0, &["2600::1"]), Lookup::found(0, &["1.0.0.1"])).await;
    assert_eq!(result, Ok("1.0.0.1:80".parse().unwrap()));
    assert!(took <= 30, "{took} ms");
}

#[tokio::test(start_paused = true)]
async fn an_ipv4_answer_waits_for_the_ipv6_one_but_not_long() {
    let network = Network::new(&[("2600::1", Answers(1)), ("1.0.0.1", Answers(100))]);
    let (result, _) = network.race(Lookup::found(30, &["2600::1"]), Lookup::found(0, &["1.0.0.1"])).await;
    assert_eq!(result, Ok("[2600::1]:80".parse().unwrap()));

    let network = Network::new(&[("2600::1", Answers(1)), ("1.0.0.1", Answers(100))]);
    let (result, took) = network.race(Lookup::found(5000, &["2600::1"]), Lookup::found(0, &["1.0.0.1"])).await;
    assert_eq!(result, Ok("1.0.0.1:80".parse().unwrap()));
    assert!((150..=160).contains(&took), "{took} ms");
    assert_eq!(network.tried().len(), 1);
}

/// SEC-1
#[tokio::test(start_paused = true)]
async fn addresses_that_are_not_permitted_are_never_tried() {
    let network = Network::new(&[("1.0.0.1", Answers(1))]);
    let (result, _) =
        network.race(Lookup::found(0, &["::1", "fd00::1"]), Lookup::found(0, &["10.0.0.1", "1.0.0.1"])).await;
    assert_eq!(result, Ok("1.0.0.1:80".parse().unwrap()));
    assert_eq!(network.tried(), tried(&[(0, "1.0.0.1")]));

    let network = Network::new(&[]);
    let (result, _) = network.race(Lookup::found(0, &["::1"]), Lookup(0, Err(OpenError::NameNotFound))).await;
    assert_eq!(result, Err(OpenError::Forbidden));
    assert_eq!(network.tried(), tried(&[]));
}

/// SOCKS-6
#[tokio::test(start_paused = true)]
async fn the_error_is_the_most_telling_one() {
    use io::ErrorKind::{ConnectionRefused, NetworkUnreachable};
    let network = Network::new(&[("2600::1", Fails(0, NetworkUnreachable)), ("1.0.0.1", Fails(5, ConnectionRefused))]);
    let both = || (Lookup::found(0, &["2600::1"]), Lookup::found(0, &["1.0.0.1"]));
    let (ipv6, ipv4) = both();
    assert_eq!(network.race(ipv6, ipv4).await.0, Err(OpenError::Refused));
    assert_eq!(network.race(both().0, Lookup(0, Err(OpenError::NameNotFound))).await.0, Err(OpenError::NoRoute));

    let nothing = |error| Lookup(0, Err(error));
    let (missing, silent) = (OpenError::NameNotFound, OpenError::TimedOut);
    assert_eq!(network.race(nothing(missing), nothing(missing)).await.0, Err(missing));
    assert_eq!(network.race(nothing(silent), nothing(missing)).await.0, Err(silent));
    assert_eq!(network.race(nothing(missing), nothing(silent)).await.0, Err(silent));
    assert_eq!(network.race(Lookup::found(0, &[]), Lookup::found(0, &[])).await.0, Err(missing));
}
