//! Finds out why networks on which the relay is silent do not lead to it, and says so; see [`super::captive`] for what is asked
//! and what it means.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tandem_proto::stats::{PathState, PathStats};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::captive::{self, Finding, Outcome, Silent, Suspicions};
use super::maker::Maker;
use super::relays::Relays;
use super::session::Phase;
use crate::platform::{Interface, Platform};
use crate::transport::Connection;

/// For how long an answer is waited for: longer than the three seconds after which a system finds that nobody answers to an
/// address on the link.
const LOOK_LIMIT: Duration = Duration::from_secs(4);

/// What was found, by network.
pub(super) type Findings = BTreeMap<String, Finding>;

/// Looks at silent networks until the session ends for good.
pub(super) async fn diagnose(
    relays: Arc<Relays>,
    mut phase: watch::Receiver<Phase>,
    findings: watch::Sender<Findings>,
) {
    let mut suspicions = Suspicions::default();
    let mut looks = JoinSet::new();
    // While there is no session, the networks are looked at for the relay that was used last.
    let mut present = 0;
    let mut machine = relays.maker(present).networks.subscribe();
    machine.mark_unchanged();
    loop {
        let connection = match &*phase.borrow_and_update() {
            Phase::Connected(connected) => {
                present = connected.relay;
                Some(connected.connection.clone())
            }
            Phase::Connecting { .. } => None,
            Phase::Ended { .. } => return,
        };
        let maker = relays.maker(present);
        let mut names = maker.names.subscribe();
        let mut path_changes = connection.as_ref().map(Connection::path_changes);
        let paths = connection.map(|connection| connection.stats().link.paths);
        let networks = maker.networks.chosen();
        let now = Instant::now();
        suspicions.see(&silent(maker, &networks, paths.as_deref()), now);
        while let Some(due) = suspicions.due(now) {
            let find = |name: &str| networks.iter().find(|interface| interface.name == name).cloned();
            let working = paths.iter().flatten().find(|path| path.state == PathState::Up);
            let working = working.and_then(|path| find(&path.interface));
            if let Some(interface) = find(&due.network) {
                // What is known at once is told at once: the look takes a while.
                if let Some(obstacle) = maker.networks.platform().obstacle(&interface, due.relay.ip()) {
                    suspicions.suspect(&due.network, Finding::NoAnswer(Some(obstacle)));
                }
                looks.spawn(look(Arc::clone(maker.networks.platform()), interface, due.relay.ip(), working));
            }
        }
        findings.send_if_modified(|known| {
            let found = suspicions.findings();
            let news = *known != found;
            *known = found;
            news
        });
        let due = suspicions.poll_timeout();
        tokio::select! {
            biased;
            Some(looked) = looks.join_next() => {
                if let Ok((network, finding)) = looked {
                    tracing::debug!(network, %finding, "the relay is silent on a network");
                    suspicions.found(&network, finding);
                }
            }
            Ok(()) = phase.changed() => {}
            Ok(()) = machine.changed() => {}
            Ok(()) = names.changed() => {}
            Some(Ok(())) = async { Some(path_changes.as_mut()?.changed().await) } => {}
            () = sleep_until(due.unwrap_or(now)), if due.is_some() => {}
            else => return,
        }
    }
}

/// The networks without a path that is up, each with an address at which the relay should be.
fn silent(maker: &Maker, networks: &[Interface], paths: Option<&[PathStats]>) -> Vec<Silent> {
    let is_up = |network: &Interface| {
        let of_network = |path: &&PathStats| path.interface == network.name && path.state == PathState::Up;
        paths.unwrap_or_default().iter().find(of_network).is_some()
    };
    let silent = networks.iter().filter(|network| !is_up(network));
    let with_address = silent.filter_map(|network| {
        let mut addresses = maker.names.addresses(network);
        addresses.retain(|address| network.source(address.ip()).is_some());
        // Captive networks are found by IPv4 more often than by IPv6.
        addresses.sort_by_key(SocketAddr::is_ipv6);
        Some(Silent { network: network.name.clone(), relay: *addresses.first()? })
    });
    with_address.collect()
}

/// Looks at one network, and compares with one that works if it answers.
async fn look(
    platform: Arc<dyn Platform>,
    network: Interface,
    relay: IpAddr,
    working: Option<Interface>,
) -> (String, Finding) {
    let ask = async |interface: &Interface| {
        let answer = platform.ask(interface, SocketAddr::new(relay, captive::PORT), captive::request(relay));
        let answer = timeout(LOOK_LIMIT, answer).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        Outcome::of(&answer)
    };
    let outcome = ask(&network).await;
    let elsewhere = match (&outcome, &working) {
        (Outcome::Http { .. }, Some(working)) if working.source(relay).is_some() => Some(ask(working).await),
        _ => None,
    };
    let obstacle = platform.obstacle(&network, relay);
    let finding = outcome.finding(relay, elsewhere.as_ref(), obstacle);
    (network.name, finding)
}
