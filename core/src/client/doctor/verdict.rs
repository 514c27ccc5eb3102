//! What facts mean: pure, and in the order in which a person would fix things.
//!
//! A *problem* keeps the client from working and is to be solved; a *warning* leaves it working, less well than it could.
//! A way that fails is a problem only if no other works: it is compared with the others, which tells a dead relay from a
//! network that lets no UDP through.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use tandem_proto::networks::Bar;
use tandem_proto::stats::{PathState, SessionState};
use tandem_proto::wire::flow::RefusedReason;

use super::port::Holder;
use super::{Facts, Knock, Outcome, PortState, Reached, Way};
use crate::platform::Interface;

/// A way that loses more than this, in percent, is worth a word: three of the burst's fifty.
const LOSSY_PERCENT: f64 = 5.0;
/// A token that ends sooner is to be replaced.
const TOKEN_SOON: Duration = Duration::from_secs(7 * 24 * 3600);
/// Clocks that differ by less are not worth a word; relays allow ten minutes.
const CLOCKS_AGREE: Duration = Duration::from_secs(120);
const RELAY_ALLOWS: Duration = Duration::from_secs(600);
/// No clock that is right is before this, the beginning of 2026.
const CERTAINLY_PAST: Duration = Duration::from_secs(1_767_225_600);
/// The least silence that is examined; shorter ones than an idle client's do not matter.
const IDLE_PING: u64 = tandem_proto::path::IDLE_PING_INTERVAL.as_secs() + 1;

/// How good or bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The client works, less well than it could.
    Warning,
    /// Something must be done.
    Problem,
}

/// One thing that was examined, and how it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// How good or bad it is.
    pub verdict: Verdict,
    /// What it is.
    #[serde(flatten)]
    pub matter: Matter,
}

/// What was found. Times are in seconds unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields say what they are; the surfaces have the words")]
pub enum Matter {
    /// The configuration file can be read and says nothing wrong.
    Config { path: PathBuf },
    /// It cannot, or does.
    ConfigWrong { problem: String },
    /// There is a pairing with a relay at these addresses.
    Pairing { relays: Vec<String> },
    /// There is none that can be used.
    NoPairing { problem: String },
    /// The keychain answers.
    Keychain { holds_pairing: bool },
    /// It does not; a private file serves instead.
    NoKeychain { problem: String },
    /// No client runs.
    NoEngine,
    /// The running client is connected.
    EngineConnected { networks_up: usize, networks: usize },
    /// The running client is not connected.
    EngineTrying { problem: Option<String> },
    /// Something at its control socket does not answer as a client.
    EngineSilent { problem: String },
    /// Nobody listens there.
    PortFree { address: SocketAddr },
    /// The running client listens there.
    PortOurs { address: SocketAddr },
    /// Another process listens there.
    PortTaken { address: SocketAddr, by: Option<String>, pid: Option<u32> },
    /// The system lets nobody listen there.
    PortRefused { address: SocketAddr, problem: String },
    /// The system does not tell its networks.
    NetworksUnknown { problem: String },
    /// A network that the client would use.
    Network { interface: String, kind: String, addresses: Vec<String> },
    /// A network that it would not use.
    NetworkUnused { interface: String, kind: String, why: Unused },
    /// A network that must not be used, by a role or a cap.
    NetworkBarred { interface: String, kind: String, why: String },
    /// What is kept of networks cannot be used.
    StateWrong { problem: String },
    /// A network that was asked for does not exist.
    NetworkMissing { interface: String },
    /// There is no network to use.
    NoNetwork,
    /// A name of the relay resolves.
    NameFound { name: String, addresses: Vec<IpAddr>, took_ms: u64 },
    /// It does not.
    NameNotFound { name: String, problem: String },
    /// A way works.
    Way {
        interface: String,
        remote: SocketAddr,
        joined: bool,
        rtt_ms: Option<f64>,
        min_rtt_ms: Option<f64>,
        jitter_ms: f64,
        up_datagrams: u64,
        up_loss_percent: f64,
        down_datagrams: u64,
        down_loss_percent: f64,
        mtu_bytes: u16,
        /// Largest IP packet that passed.
        packet_bytes: u16,
    },
    /// The relay answers by this way and refuses the client, see [`Matter::Refused`].
    WayAnswers { interface: String, remote: SocketAddr },
    /// No socket could be opened on the network.
    WayNoSocket { interface: String, remote: SocketAddr, problem: String },
    /// The machine has no route.
    WayNoRoute { interface: String, remote: SocketAddr },
    /// Nothing answers.
    WaySilent { interface: String, remote: SocketAddr, hint: Hint },
    /// Someone else answers, with another key.
    WayWrongPin { interface: String, remote: SocketAddr },
    /// Something else answers.
    WayWrongProtocol { interface: String, remote: SocketAddr },
    /// The handshake fails otherwise.
    WayFailed { interface: String, remote: SocketAddr, problem: String },
    /// How long the way stays open in silence.
    Silence { interface: String, remote: SocketAddr, open_s: Option<u64>, closed_s: Option<u64> },
    /// The relay takes the token.
    Token { relay: String, expires_unix: u64, expires_in_s: u64 },
    /// The relay refuses the client.
    Refused { problem: String },
    /// Nothing says that this machine's clock is wrong.
    Clock,
    /// It is; ahead if positive.
    ClockWrong { ahead_s: i64 },
}

/// Why a network is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unused {
    /// It is switched off or not connected.
    Down,
    /// It has no address that reaches beyond the link.
    NoAddress,
    /// It has none of a kind that the relay has.
    NoFittingAddress,
    /// Others were asked for by name.
    NotNamed,
    /// It does not look like a way to the internet.
    Inside,
}

/// What silence probably means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// The relay's machine says that nothing listens on the port.
    PortClosed,
    /// A firewall on the way says no.
    Filtered,
    /// Other networks reach the relay, and this one lets TCP through: it blocks UDP.
    NoUdpHere,
    /// Other networks reach the relay, this one carries nothing to it.
    NothingHere,
    /// No network reaches the relay, but its machine answers TCP.
    NoUdpAnywhere,
    /// No network gets any answer of the relay's machine.
    NothingAnywhere,
}

/// What the facts mean, in the order in which they were looked for.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Findings(Vec::new());
    setup(facts, &mut found);
    networks(facts, &mut found);
    for name in &facts.names {
        match &name.found {
            Ok(addresses) => found.ok(Matter::NameFound {
                name: name.name.clone(),
                addresses: addresses.clone(),
                took_ms: name.took.as_millis() as u64,
            }),
            Err(problem) => {
                let verdict = failed(facts.ways.iter().any(works));
                found.add(verdict, Matter::NameNotFound { name: name.name.clone(), problem: problem.clone() });
            }
        }
    }
    for way in &facts.ways {
        judge_way(way, &facts.ways, &mut found);
    }
    token_and_clock(facts, &mut found);
    found.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, verdict: Verdict, matter: Matter) {
        self.0.push(Finding { verdict, matter });
    }

    fn ok(&mut self, matter: Matter) {
        self.add(Verdict::Ok, matter);
    }
}

/// The verdict on what failed while something else works, or nothing does.
fn failed(something_works: bool) -> Verdict {
    if something_works { Verdict::Warning } else { Verdict::Problem }
}

fn setup(facts: &Facts, found: &mut Findings) {
    match &facts.config {
        Some(Ok(path)) => found.ok(Matter::Config { path: path.clone() }),
        Some(Err(problem)) => found.add(Verdict::Problem, Matter::ConfigWrong { problem: problem.clone() }),
        None => {}
    }
    match &facts.link {
        Ok(relays) => found.ok(Matter::Pairing { relays: relays.clone() }),
        Err(problem) => found.add(Verdict::Problem, Matter::NoPairing { problem: problem.clone() }),
    }
    match &facts.keychain {
        Ok(holds_pairing) => found.ok(Matter::Keychain { holds_pairing: *holds_pairing }),
        // Whoever has a pairing has found another place for it.
        Err(problem) => {
            let verdict = if facts.link.is_ok() { Verdict::Ok } else { Verdict::Warning };
            found.add(verdict, Matter::NoKeychain { problem: problem.clone() });
        }
    }
    match &facts.engine {
        Ok(None) => found.ok(Matter::NoEngine),
        Ok(Some(snapshot)) if snapshot.state == SessionState::Connected => {
            let networks_up = snapshot.paths.iter().filter(|path| path.state == PathState::Up).count();
            let networks = snapshot.paths.len();
            let verdict = if networks_up < networks { Verdict::Warning } else { Verdict::Ok };
            found.add(verdict, Matter::EngineConnected { networks_up, networks });
        }
        Ok(Some(snapshot)) => {
            found.add(Verdict::Warning, Matter::EngineTrying { problem: snapshot.problem.clone() });
        }
        Err(problem) => found.add(Verdict::Warning, Matter::EngineSilent { problem: problem.clone() }),
    }
    let engine_runs = matches!(facts.engine, Ok(Some(_)));
    for (address, state) in &facts.listen {
        let address = *address;
        match state {
            PortState::Free => found.ok(Matter::PortFree { address }),
            PortState::Taken { by: Some(holder) } if engine_runs && holder.name == "tandem" => {
                found.ok(Matter::PortOurs { address });
            }
            PortState::Taken { by } => {
                let (by, pid) = by.clone().map(|Holder { name, pid }| (name, pid)).unzip();
                // A running client listens somewhere else then, and works.
                found.add(failed(engine_runs), Matter::PortTaken { address, by, pid });
            }
            PortState::Refused(problem) => {
                found.add(failed(engine_runs), Matter::PortRefused { address, problem: problem.clone() });
            }
        }
    }
}

fn networks(facts: &Facts, found: &mut Findings) {
    let networks = match &facts.networks {
        Ok(networks) => networks,
        Err(problem) => return found.add(Verdict::Problem, Matter::NetworksUnknown { problem: problem.clone() }),
    };
    let none_barred = BTreeMap::new();
    let barred = match &facts.barred {
        Ok(barred) => barred,
        Err(problem) => {
            found.add(Verdict::Problem, Matter::StateWrong { problem: problem.clone() });
            &none_barred
        }
    };
    let resolved = facts.link.is_ok() && facts.names.iter().all(|name| name.found.is_ok());
    let mut used = 0;
    for (network, chosen) in networks {
        let (interface, kind) = (network.name.clone(), network.kind.to_string());
        if let Some(bar) = barred.get(&network.name).filter(|_| *chosen) {
            let others = networks.iter().any(|(other, chosen)| *chosen && !barred.contains_key(&other.name));
            let verdict = if *bar == Bar::Never { Verdict::Ok } else { failed(others) };
            found.add(verdict, Matter::NetworkBarred { interface, kind, why: bar.to_string() });
            continue;
        }
        let has_way = facts.ways.iter().any(|way| way.interface == network.name);
        let named = facts.named.contains(&network.name);
        let why = match *chosen {
            false => Some(unused(network, &facts.named)),
            true if network.addresses.is_empty() => Some(Unused::NoAddress),
            true if resolved && !has_way => Some(Unused::NoFittingAddress),
            true => None,
        };
        match why {
            None => {
                used += 1;
                let addresses = network.addresses.iter().map(ToString::to_string).collect();
                found.ok(Matter::Network { interface, kind, addresses });
            }
            Some(why) => {
                let verdict = if *chosen || named { Verdict::Warning } else { Verdict::Ok };
                found.add(verdict, Matter::NetworkUnused { interface, kind, why });
            }
        }
    }
    for name in &facts.named {
        if !networks.iter().any(|(network, _)| network.name == *name) {
            found.add(Verdict::Problem, Matter::NetworkMissing { interface: name.clone() });
        }
    }
    if used == 0 {
        found.add(Verdict::Problem, Matter::NoNetwork);
    }
}

fn unused(network: &Interface, named: &[String]) -> Unused {
    if !named.is_empty() && !named.contains(&network.name) {
        Unused::NotNamed
    } else if !network.up {
        Unused::Down
    } else {
        Unused::Inside
    }
}

/// Whether the relay itself answers by this way.
fn works(way: &Way) -> bool {
    matches!(way.outcome, Outcome::Reached(_) | Outcome::Refused { .. })
}

fn judge_way(way: &Way, all: &[Way], found: &mut Findings) {
    let (interface, remote) = (way.interface.clone(), way.remote);
    let reached_here = all.iter().any(|other| works(other) && other.interface == way.interface);
    let reached = all.iter().any(works);
    match &way.outcome {
        Outcome::Reached(reached) => found.add(quality(reached), describe(way, reached)),
        Outcome::Refused { .. } => found.ok(Matter::WayAnswers { interface, remote }),
        Outcome::NoSocket(problem) => {
            found.add(failed(reached), Matter::WayNoSocket { interface, remote, problem: problem.clone() });
        }
        // Addresses of both families are common, routes for both are not.
        Outcome::NoRoute(_) => {
            let verdict = if reached_here { Verdict::Ok } else { failed(reached) };
            found.add(verdict, Matter::WayNoRoute { interface, remote });
        }
        Outcome::Silent(knock) => {
            let hint = hint(*knock, reached);
            found.add(failed(reached), Matter::WaySilent { interface, remote, hint });
        }
        Outcome::WrongPin => found.add(Verdict::Problem, Matter::WayWrongPin { interface, remote }),
        Outcome::WrongProtocol => found.add(failed(reached), Matter::WayWrongProtocol { interface, remote }),
        Outcome::Failed(problem) => {
            found.add(failed(reached), Matter::WayFailed { interface, remote, problem: problem.clone() });
        }
    }
    if let Some(mapping) = way.mapping {
        let (open_s, closed_s) = (mapping.open_s, mapping.closed_s);
        let verdict = if closed_s.is_some_and(|closed| closed <= IDLE_PING) { Verdict::Warning } else { Verdict::Ok };
        found.add(verdict, Matter::Silence { interface: way.interface.clone(), remote, open_s, closed_s });
    }
}

fn quality(reached: &Reached) -> Verdict {
    let lossy = reached.loss_percent.iter().any(|loss| *loss > LOSSY_PERCENT);
    if lossy || !reached.joined { Verdict::Warning } else { Verdict::Ok }
}

fn describe(way: &Way, reached: &Reached) -> Matter {
    let headers = if way.remote.is_ipv4() { 28 } else { 48 };
    Matter::Way {
        interface: way.interface.clone(),
        remote: way.remote,
        joined: reached.joined,
        rtt_ms: reached.rtt_ms,
        min_rtt_ms: reached.min_rtt_ms,
        jitter_ms: reached.jitter_ms,
        up_datagrams: reached.datagrams[0],
        up_loss_percent: reached.loss_percent[0],
        down_datagrams: reached.datagrams[1],
        down_loss_percent: reached.loss_percent[1],
        mtu_bytes: reached.mtu_bytes,
        packet_bytes: reached.mtu_bytes.saturating_add(headers),
    }
}

fn hint(knock: Knock, reached_elsewhere: bool) -> Hint {
    match (knock, reached_elsewhere) {
        (Knock { port_closed: true, .. }, _) => Hint::PortClosed,
        (Knock { filtered: true, .. }, _) => Hint::Filtered,
        (Knock { tcp_answers: true, .. }, true) => Hint::NoUdpHere,
        (Knock { tcp_answers: true, .. }, false) => Hint::NoUdpAnywhere,
        (_, true) => Hint::NothingHere,
        (_, false) => Hint::NothingAnywhere,
    }
}

fn token_and_clock(facts: &Facts, found: &mut Findings) {
    let now = facts.now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Ahead of a time that the relay told or implied.
    let mut ahead: Option<i64> = None;
    let accepted = facts.ways.iter().find_map(|way| match &way.outcome {
        Outcome::Reached(reached) => Some(reached),
        _ => None,
    });
    if let Some(reached) = accepted {
        let left = Duration::from_secs(reached.token_expires).saturating_sub(now);
        let verdict = if left < TOKEN_SOON { Verdict::Warning } else { Verdict::Ok };
        found.add(
            verdict,
            Matter::Token {
                relay: reached.relay.clone(),
                expires_unix: reached.token_expires,
                expires_in_s: left.as_secs(),
            },
        );
        // The relay took a token that by this clock is long over.
        let over = now.saturating_sub(Duration::from_secs(reached.token_expires));
        if over > RELAY_ALLOWS {
            ahead = Some((over - RELAY_ALLOWS).as_secs() as i64);
        }
    }
    let refusals = facts.ways.iter().filter_map(|way| match &way.outcome {
        Outcome::Refused { reason, relay_time, text } => Some((*reason, *relay_time, text)),
        _ => None,
    });
    let mut told = Vec::new();
    for (reason, relay_time, text) in refusals {
        if !told.contains(&text) {
            told.push(text);
            let passes = matches!(reason, RefusedReason::Full | RefusedReason::Other);
            found.add(failed(passes || accepted.is_some()), Matter::Refused { problem: text.clone() });
        }
        if let Some(relay_time) = relay_time {
            ahead = Some(now.as_secs() as i64 - i64::try_from(relay_time).unwrap_or(i64::MAX));
        }
    }
    match ahead {
        Some(ahead_s) if ahead_s.unsigned_abs() > CLOCKS_AGREE.as_secs() => {
            let verdict = failed(accepted.is_some());
            found.add(verdict, Matter::ClockWrong { ahead_s });
        }
        None if now < CERTAINLY_PAST => {
            let behind = (CERTAINLY_PAST - now).as_secs() as i64;
            found.add(failed(accepted.is_some()), Matter::ClockWrong { ahead_s: -behind });
        }
        _ => found.ok(Matter::Clock),
    }
}
