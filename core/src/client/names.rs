//! Where the relay is: its addresses as each network knows them.
//!
//! A name may mean something else on every network: on one that carries IPv6 only, a DNS64 makes addresses for a relay with
//! IPv4 only. So every network's own resolvers are asked, where the system can, and the system's as well; all at once, each
//! answer counting as it comes. Addresses known before are kept when a resolver fails, so that a session that has addresses
//! waits for no resolver; those of earlier runs are tried last ([`Addresses`]), once the resolvers have had [`HEAD_START`]. Networks without IPv4 get made-up addresses for IPv4 ones (`nat64`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tandem_proto::pairing::PairingLink;
use tandem_proto::wire::flow::{Host, Target};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::addresses::Addresses;
use super::handshake::SessionError;
use super::nat64::{self, Prefix};
use crate::platform::{Interface, Platform};

/// How long a lookup may take.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// How long resolvers may take before addresses of earlier runs count.
const HEAD_START: Duration = Duration::from_millis(250);
/// Lookups that may be under way, those given up but not ended included: a system's resolver cannot be interrupted.
const MOST_LOOKUPS: usize = 32;
/// Addresses kept of one name on one network.
const MOST_ADDRESSES: usize = 16;

/// The relay's names and what they were found to mean.
pub(super) struct Names {
    relays: Vec<Target>,
    platform: Arc<dyn Platform>,
    known: Arc<watch::Sender<Known>>,
    /// Where the names were reached, in earlier runs too.
    reached: Arc<Addresses>,
    permits: Arc<Semaphore>,
    looking: Mutex<Option<(Vec<Interface>, AbortOnDropHandle<()>)>>,
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By name and by network; the network without name is the system's idea for all.
    addresses: BTreeMap<(String, String), Vec<IpAddr>>,
    /// By network.
    prefixes: BTreeMap<String, Vec<Prefix>>,
    /// Why lookups of this round failed, by name.
    problems: BTreeMap<String, String>,
    /// Lookups of this round that have not ended.
    open: usize,
    /// Whether the resolvers have had their head start.
    late: bool,
    /// Counts the rounds: what comes of an earlier one is no longer waited for.
    round: u64,
}

/// One question.
#[derive(Debug, Clone)]
enum Question {
    Relay { name: String, network: Option<Interface> },
    Nat64 { network: Interface },
}

impl Names {
    pub(super) fn new(relays: Vec<Target>, platform: Arc<dyn Platform>, reached: Arc<Addresses>) -> Self {
        let permits = Arc::new(Semaphore::new(MOST_LOOKUPS));
        Self { relays, platform, known: Arc::default(), reached, permits, looking: Mutex::default() }
    }

    /// The names of another session's relays, on the same machine.
    pub(super) fn beside(&self, link: &PairingLink) -> Self {
        Self::new(link.relays.clone(), Arc::clone(&self.platform), Arc::clone(&self.reached))
    }

    /// The relay was reached at this address.
    pub(super) fn reached(&self, address: SocketAddr) {
        let known = self.known.borrow();
        for relay in self.relays.iter().filter(|relay| relay.port == address.port()) {
            let Host::Name(name) = &relay.host else { continue };
            // Not what a NAT64 makes of it on one network.
            let mut resolved = known.addresses.iter().filter(|((of, _), _)| of == name).flat_map(|(_, found)| found);
            if resolved.any(|ip| *ip == address.ip()) || self.reached.of(name).contains(&address.ip()) {
                self.reached.reached(name, address.ip());
            }
        }
    }

    /// Tells of new answers.
    pub(super) fn subscribe(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// Looks everything up anew, on these networks, unless that is being done; what was being looked up for others is given
    /// up. To be called within a runtime.
    pub(super) fn refresh(&self, networks: &[Interface]) {
        let mut current = self.looking.lock();
        if self.known.borrow().open > 0 && current.as_ref().is_some_and(|(asked, _)| asked == networks) {
            return;
        }
        let questions = self.questions(networks);
        let mut round = 0;
        self.known.send_modify(|known| {
            known.problems.clear();
            known.open = questions.len();
            known.round += 1;
            round = known.round;
            let exists = |name: &String| name.is_empty() || networks.iter().any(|network| network.name == *name);
            known.addresses.retain(|(_, network), _| exists(network));
            known.prefixes.retain(|network, _| exists(network));
        });
        let mut lookups = JoinSet::new();
        for question in questions {
            lookups.spawn(look_up(question, Arc::clone(&self.platform), Arc::clone(&self.permits)));
        }
        let known = Arc::clone(&self.known);
        let looking = tokio::spawn(async move {
            let late = sleep(HEAD_START);
            tokio::pin!(late);
            loop {
                let ended = tokio::select! {
                    biased;
                    ended = lookups.join_next() => ended,
                    () = &mut late, if !known.borrow().late => {
                        known.send_modify(|known| known.late = true);
                        continue;
                    }
                };
                let Some(ended) = ended else { break };
                known.send_if_modified(|known| {
                    // Another round may begin while this task runs: it must not count as one of its lookups.
                    if known.round != round {
                        return false;
                    }
                    known.open = known.open.saturating_sub(1);
                    // One that died has ended as well.
                    if let Ok((question, answer)) = ended {
                        known.take(question, answer);
                    }
                    true
                });
            }
            known.send_if_modified(|known| !std::mem::replace(&mut known.late, true));
        });
        *current = Some((networks.to_vec(), AbortOnDropHandle::new(looking)));
    }

    /// The relay's addresses for a network, those of the first name first, families in turn, each once.
    pub(super) fn addresses(&self, network: &Interface) -> Vec<SocketAddr> {
        let known = self.known.borrow();
        let mut found: Vec<SocketAddr> = Vec::new();
        for relay in &self.relays {
            let addresses = match &relay.host {
                Host::Ip(ip) => vec![*ip],
                Host::Name(name) => {
                    let reached = if known.late { self.reached.of(name) } else { Vec::new() };
                    [known.of(name, network), reached].concat()
                }
            };
            for ip in in_turn(known.reachable(&addresses, network)) {
                let address = SocketAddr::new(ip, relay.port);
                if !found.contains(&address) {
                    found.push(address);
                }
            }
        }
        found
    }

    /// What went wrong, once every lookup has ended.
    pub(super) fn failure(&self) -> Option<SessionError> {
        let known = self.known.borrow();
        let problems = known.problems.iter().map(|(name, problem)| format!("{name}: {problem}"));
        (known.open == 0).then(|| SessionError::Lookup(problems.collect::<Vec<_>>().join("; ")))
    }

    fn questions(&self, networks: &[Interface]) -> Vec<Question> {
        let mut questions = Vec::new();
        for relay in &self.relays {
            let Host::Name(name) = &relay.host else { continue };
            let everywhere = std::iter::once(None).chain(networks.iter().cloned().map(Some));
            questions.extend(everywhere.map(|network| Question::Relay { name: name.clone(), network }));
        }
        let only_ipv6 = networks.iter().filter(|network| needs_nat64(network)).cloned();
        questions.extend(only_ipv6.map(|network| Question::Nat64 { network }));
        questions
    }
}

impl Known {
    fn take(&mut self, question: Question, answer: std::io::Result<Vec<IpAddr>>) {
        match (question, answer) {
            (Question::Relay { name, network }, Ok(mut addresses)) => {
                addresses.truncate(MOST_ADDRESSES);
                let network = network.map(|network| network.name).unwrap_or_default();
                if !addresses.is_empty() {
                    self.addresses.insert((name, network), addresses);
                }
            }
            (Question::Relay { name, network: None }, Err(error)) => {
                self.problems.insert(name, error.to_string());
            }
            (Question::Relay { name, network: Some(network) }, Err(error)) => {
                tracing::debug!(name, network = network.name, %error, "this network's resolvers do not tell");
            }
            (Question::Nat64 { network }, Ok(answers)) => {
                self.prefixes.insert(network.name, nat64::prefixes(&answers));
            }
            (Question::Nat64 { network }, Err(error)) => {
                tracing::debug!(network = network.name, %error, "no NAT64 prefix is known here");
            }
        }
    }

    /// A name's addresses, the network's own answer first.
    fn of(&self, name: &str, network: &Interface) -> Vec<IpAddr> {
        let from =
            |network: &str| self.addresses.get(&(name.to_owned(), network.to_owned())).cloned().unwrap_or_default();
        [from(&network.name), from("")].concat()
    }

    /// These addresses as the network can reach them.
    fn reachable(&self, addresses: &[IpAddr], network: &Interface) -> Vec<IpAddr> {
        let mut reachable = addresses.to_vec();
        if !needs_nat64(network) {
            return reachable;
        }
        let found = self.prefixes.get(&network.name).map(Vec::as_slice).unwrap_or_default();
        for prefix in found.iter().chain([&Prefix::WELL_KNOWN]) {
            for address in addresses {
                if let IpAddr::V4(address) = address {
                    reachable.extend(prefix.embed(*address).map(IpAddr::V6));
                }
            }
        }
        reachable
    }
}

fn needs_nat64(network: &Interface) -> bool {
    !network.addresses.is_empty() && network.addresses.iter().all(IpAddr::is_ipv6)
}

/// The families in turn, beginning with that of the first address (RFC 8305, section 4).
fn in_turn(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let first_family = addresses.first().map(IpAddr::is_ipv4);
    let (first, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|ip| Some(ip.is_ipv4()) == first_family);
    let mut other = other.into_iter();
    let mut mixed: Vec<_> = first.into_iter().flat_map(|ip| [Some(ip), other.next()]).flatten().collect();
    mixed.extend(other);
    mixed
}

async fn look_up(
    question: Question,
    platform: Arc<dyn Platform>,
    permits: Arc<Semaphore>,
) -> (Question, std::io::Result<Vec<IpAddr>>) {
    let asked = question.clone();
    let Ok(permit) = permits.try_acquire_owned() else {
        return (question, Err(std::io::Error::other("the system's resolver does not come back")));
    };
    // In a task of its own, so that it holds its permit until it has really ended.
    let lookup = tokio::spawn(async move {
        let _permit = permit;
        match asked {
            Question::Relay { name, network } => platform.resolve(&name, network.as_ref()).await,
            Question::Nat64 { network } => platform.resolve(nat64::IPV4_ONLY, Some(&network)).await,
        }
    });
    let answer = match timeout(LOOKUP_LIMIT, lookup).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(std::io::Error::other("the lookup was given up")),
        Err(_) => Err(std::io::Error::other("no answer from the resolver")),
    };
    (question, answer)
}

#[cfg(test)]
mod tests;
