//! What stands between this machine and its relay: facts that are looked for, and what they mean.
//!
//! [`examine`] looks at the machine (configuration, keychain, the listening ports, a running engine, the networks) and at
//! every *way* to the relay, a network and an address of the relay that fit: it makes a session of its own over that way
//! alone, with the pinned key checked and the token shown, sends a short burst and probes sizes. Where nothing answers it
//! knocks, to tell a closed port from a network without UDP. A running engine is not disturbed.
//!
//! What comes out are [`Facts`]; [`judge`] makes [`Finding`]s of them, and is pure. The words are the surface's.

mod knock;
mod mapping;
mod port;
mod verdict;
mod way;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tandem_proto::networks::{Bar, Settings};
use tandem_proto::pairing::PairingLink;
use tandem_proto::stats::Snapshot;
use tandem_proto::wire::flow::Host;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::accounts::Accounts;
use super::addresses::Addresses;
use super::control::{self, ControlError, Request};
use super::names::Names;
use super::networks::Networks;
use crate::platform::{Interface, Platform};
use crate::secrets::{Keychain, SecretStore as _};

pub use knock::Knock;
pub use mapping::Mapping;
pub use port::PortState;
pub use verdict::{Finding, Hint, Matter, Unused, Verdict, judge};
pub use way::{Outcome, Reached, Way};

/// How long a name may take to resolve.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// How long the networks' answers may take to come together after that.
const ANSWERS_SETTLE: Duration = Duration::from_secs(1);
/// The relay's addresses that are tried on each network; the first ones, families in turn.
const MAX_ADDRESSES: usize = 4;
/// Ways that are examined at a time; more wait. Each is a session at the relay.
const MAX_SESSIONS: usize = 8;

/// What is to be examined.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The configuration file, if there is one, and what is wrong with it.
    pub config: Option<Result<PathBuf, String>>,
    /// The pairings, or why there are none.
    pub links: Result<Vec<PairingLink>, String>,
    /// Where the client would listen.
    pub listen: Vec<SocketAddr>,
    /// Names of the interfaces to use; empty for every way to the internet.
    pub interfaces: Vec<String>,
    /// What the configuration says of networks, and where what they carry is kept.
    pub networks: Vec<(String, Settings)>,
    /// See `networks`.
    pub state: Option<PathBuf>,
    /// The running engine's control socket; `None` where there is no place for one.
    pub control: Option<PathBuf>,
    /// Also find out how long idle ways stay open, which takes a minute.
    pub full: bool,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Facts {
    /// See [`Plan::config`].
    pub config: Option<Result<PathBuf, String>>,
    /// The relays' addresses as paired, or why there is no pairing.
    pub link: Result<Vec<String>, String>,
    /// Whether the keychain holds a pairing, or why it cannot be asked.
    pub keychain: Result<bool, String>,
    /// The running engine's snapshot, `None` if none runs, or why it does not answer.
    pub engine: Result<Option<Box<Snapshot>>, String>,
    /// Every address that the client would listen on.
    pub listen: Vec<(SocketAddr, PortState)>,
    /// Every network of the machine, and whether the client would use it; or why the system does not tell.
    pub networks: Result<Vec<(Interface, bool)>, String>,
    /// Networks that carry no path, and why; or why that is not known.
    pub barred: Result<BTreeMap<String, Bar>, String>,
    /// The networks that were asked for by name.
    pub named: Vec<String>,
    /// The relay's names and what they resolved to; addresses need no resolver.
    pub names: Vec<Name>,
    /// Every way that was examined.
    pub ways: Vec<Way>,
    /// This machine's clock, when all was done.
    pub now: SystemTime,
}

/// One of the relay's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// As in the pairing link.
    pub name: String,
    /// Its addresses, or why there are none.
    pub found: Result<Vec<IpAddr>, String>,
    /// How long it took.
    pub took: Duration,
}

/// What is being done, for someone who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Looking at the machine.
    Machine,
    /// Resolving the relay's names.
    Names,
    /// Reaching the relay by so many ways.
    Ways(usize),
    /// Waiting in silence to see whether the ways stay open, for so long yet.
    Silence(Duration),
}

/// Told of every step.
pub type Progress = Arc<dyn Fn(Step) + Send + Sync>;

/// Finds out everything that is planned.
///
/// # Cancel safety
/// Dropping the future ends what is under way.
pub async fn examine(plan: Plan, platform: Arc<dyn Platform>, progress: Progress) -> Facts {
    progress(Step::Machine);
    let keychain = tokio::task::spawn_blocking(|| Keychain::default().load());
    let engine = match &plan.control {
        Some(path) => ask(path).await,
        None => Ok(None),
    };
    let mut listen = Vec::new();
    for address in &plan.listen {
        listen.push((*address, port::state(*address).await));
    }
    let accounts = Accounts::peek(plan.networks, plan.state.as_deref(), Arc::clone(&platform));
    let (accounts, state) = match accounts {
        Ok(accounts) => (accounts, Ok(())),
        Err(error) => (Accounts::unknown(Arc::clone(&platform)), Err(chain(&error))),
    };
    let networks = Networks::new(Arc::clone(&platform), plan.interfaces.clone(), Arc::clone(&accounts));
    let mut found = networks.all().map_err(|error| error.to_string());
    if let Ok(found) = &mut found {
        found.sort_by_key(|(interface, _)| interface.index);
    }
    let keychain = match keychain.await {
        Ok(loaded) => loaded.map(|pairings| !pairings.is_empty()).map_err(|error| chain(&error)),
        Err(_) => Err("asking it failed".to_owned()),
    };
    let (mut names, mut ways) = (Vec::new(), Vec::new());
    for link in plan.links.iter().flatten() {
        let (platform, progress) = (Arc::clone(&platform), Arc::clone(&progress));
        let (found, examined) = examine_relay(link, &networks, platform, plan.full, progress).await;
        names.extend(found);
        ways.extend(examined);
    }
    let relays = |links: Vec<PairingLink>| {
        links.iter().flat_map(|link| &link.relays).map(ToString::to_string).collect::<Vec<_>>()
    };
    Facts {
        config: plan.config,
        link: plan.links.map(relays),
        keychain,
        engine,
        listen,
        networks: found,
        barred: state.map(|()| accounts.bars()),
        named: plan.interfaces,
        names,
        ways,
        now: SystemTime::now(),
    }
}

/// The part of [`examine`] that leaves the machine: names, and every way over the networks with these names, or all that
/// lead outside.
pub async fn examine_ways(
    link: &PairingLink,
    interfaces: Vec<String>,
    platform: Arc<dyn Platform>,
    full: bool,
    progress: Progress,
) -> (Vec<Name>, Vec<Way>) {
    let networks = Networks::new(Arc::clone(&platform), interfaces, Accounts::unknown(Arc::clone(&platform)));
    examine_relay(link, &networks, platform, full, progress).await
}

async fn examine_relay(
    link: &PairingLink,
    networks: &Networks,
    platform: Arc<dyn Platform>,
    full: bool,
    progress: Progress,
) -> (Vec<Name>, Vec<Way>) {
    progress(Step::Names);
    let mut chosen = networks.chosen();
    chosen.sort_by_key(|interface| interface.index);
    // As a session would know them: every network's own answers, and what a NAT64 makes of them.
    let addresses = Names::new(link.relays.clone(), Arc::clone(&platform), Arc::new(Addresses::load(None)));
    addresses.refresh(&chosen);
    let names = look_up(link, &*platform).await;
    let mut answers = addresses.subscribe();
    let all = async { while addresses.failure().is_none() && answers.changed().await.is_ok() {} };
    // Every lookup has a limit of its own; should one get lost, what is known by then has to do.
    let _ = timeout(LOOKUP_LIMIT + ANSWERS_SETTLE, all).await;
    let mut planned = Vec::new();
    for interface in chosen {
        let all = addresses.addresses(&interface);
        let fitting = all.into_iter().filter(|address| interface.source(address.ip()).is_some());
        planned.extend(fitting.take(MAX_ADDRESSES).map(|address| (interface.clone(), address)));
    }
    progress(Step::Ways(planned.len()));
    let (places, link) = (Arc::new(Semaphore::new(MAX_SESSIONS)), Arc::new(link.clone()));
    let mut tasks = JoinSet::new();
    for (index, (interface, remote)) in planned.into_iter().enumerate() {
        let (places, link, platform) = (Arc::clone(&places), Arc::clone(&link), Arc::clone(&platform));
        tasks.spawn(async move {
            let _place = places.acquire_owned().await;
            let way = way::examine(&link, &*platform, &interface, remote).await;
            (index, interface, way)
        });
    }
    let mut done = tasks.join_all().await;
    done.sort_by_key(|(index, ..)| *index);
    if full {
        mapping::examine(&link, &platform, done.iter_mut().map(|(_, interface, way)| (&*interface, way)), progress)
            .await;
    }
    (names, done.into_iter().map(|(.., way)| way).collect())
}

/// What the system's resolver makes of the relay's names.
async fn look_up(link: &PairingLink, platform: &dyn Platform) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    for relay in &link.relays {
        let Host::Name(name) = &relay.host else { continue };
        if names.iter().any(|known| known.name == *name) {
            continue;
        }
        let start = Instant::now();
        let found = match timeout(LOOKUP_LIMIT, platform.resolve(name, None)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the resolver did not answer within {} s", LOOKUP_LIMIT.as_secs())),
        };
        names.push(Name { name: name.clone(), found, took: start.elapsed() });
    }
    names
}

async fn ask(path: &std::path::Path) -> Result<Option<Box<Snapshot>>, String> {
    match control::ask(path, &Request::Status).await {
        Ok(Some(snapshot)) => Ok(Some(Box::new(snapshot))),
        Ok(None) => Err("it sent no snapshot: it is of another version".to_owned()),
        Err(ControlError::NotRunning(_)) => Ok(None),
        Err(error) => Err(chain(&error)),
    }
}

/// An error with its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    super::session::chain(error)
}

#[cfg(test)]
mod tests;
