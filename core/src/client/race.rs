//! Which of the relay's addresses each network reaches it by: tried one after the other, soon overlapping; the first that
//! answers stays (happy eyeballs, after RFC 8305, for every network by itself).
//!
//! A network begins with the first address that it has a family for. While nothing answers, the next one is tried beside it
//! after [`ATTEMPT_DELAY`]; one that was heard in the handshake is given [`HEARD_DELAY`] to join. Once a path is up the
//! others of its network are dropped. When it later falls silent for [`RETHINK`], the other addresses are tried beside it. At
//! most [`MOST_TRIES`] tries of a network run at a time; where the relay has more addresses, they take turns.
//!
//! Nothing here opens a socket: [`Race::step`] says what is to be opened and dropped. A path whose source address the
//! interface has lost goes once the network has another try; one whose interface is gone goes at once.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tandem_proto::link::PathSigns;
use tandem_proto::stats::PathState;
use tandem_proto::wire::control::MAX_PATHS;
use tokio::time::Instant;

use crate::platform::Interface;
use crate::transport::PathId;

/// How long a try may be alone: RFC 8305, section 5, "Connection Attempt Delay".
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// How long an address that answered the handshake may take to join.
const HEARD_DELAY: Duration = Duration::from_secs(1);
/// How long a path that was up may be down before other addresses are tried beside it.
const RETHINK: Duration = Duration::from_secs(1);
/// Tries of one network at a time.
const MOST_TRIES: usize = 3;
/// How long a silent try stays when others wait for its place; doubles each time.
const TURN: Duration = Duration::from_secs(2);
/// The longest such time.
const LONGEST_TURN: Duration = Duration::from_secs(32);
/// When a socket that could not be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_secs(2);

/// A network and the relay's address that a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) interface: Interface,
    pub(super) remote: SocketAddr,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Open a path; the outcome is told by [`Race::opened`] or [`Race::failed`].
    Open(Way),
    /// Drop a path.
    Drop(PathId),
}

/// The tries of every network.
#[derive(Debug, Default)]
pub(super) struct Race {
    networks: Vec<Network>,
}

#[derive(Debug)]
struct Network {
    interface: Interface,
    /// In the order in which they are to be tried, of the interface's families.
    remotes: Vec<SocketAddr>,
    tries: Vec<Try>,
    /// Addresses not tried yet in this round.
    waiting: VecDeque<SocketAddr>,
    turn: Duration,
    /// When addresses whose socket could not be opened wait again.
    refill_at: Option<Instant>,
    wanted: bool,
}

#[derive(Debug)]
struct Try {
    path: PathId,
    remote: SocketAddr,
    /// The interface's address when it was opened.
    source: Option<IpAddr>,
    /// The interface's number then: one that comes again under its name has another.
    index: u32,
    began: Instant,
    heard: bool,
    state: PathState,
    changed: Instant,
}

impl Race {
    /// The networks to be used now, each with the relay's addresses in the order in which they are to be tried.
    pub(super) fn set_networks(&mut self, wanted: Vec<(Interface, Vec<SocketAddr>)>) {
        for network in &mut self.networks {
            network.wanted = false;
        }
        for (interface, mut remotes) in wanted {
            remotes.retain(|remote| interface.source(remote.ip()).is_some());
            match self.networks.iter_mut().find(|network| network.interface.name == interface.name) {
                Some(network) => network.update(interface, remotes),
                None => self.networks.push(Network::new(interface, remotes)),
            }
        }
    }

    /// Networks that must not be used any more, whether or not there are others.
    pub(super) fn bar(&mut self, is_barred: impl Fn(&str) -> bool) {
        for network in self.networks.iter_mut().filter(|network| is_barred(&network.interface.name)) {
            network.wanted = false;
        }
    }

    /// What the paths have shown of themselves since.
    pub(super) fn see(&mut self, signs: &[PathSigns], now: Instant) {
        for attempt in self.networks.iter_mut().flat_map(|network| &mut network.tries) {
            let Some(sign) = signs.iter().find(|sign| sign.path == attempt.path) else { continue };
            attempt.heard |= sign.heard;
            if attempt.state != sign.state {
                (attempt.state, attempt.changed) = (sign.state, now);
            }
        }
    }

    /// What is to be done next; `None` until [`Self::poll_timeout`].
    pub(super) fn step(&mut self, now: Instant) -> Option<Step> {
        for network in &mut self.networks {
            if network.refill_at.is_some_and(|at| at <= now) {
                network.refill_at = None;
                network.refill();
            }
        }
        if self.has_room() {
            let ready = |network: &&mut Network| network.opens_at(now).is_some_and(|at| at <= now);
            // Networks without any try come first: there may be no room for second tries.
            let first = self.networks.iter_mut().filter(|network| network.is_idle()).find(ready);
            let next = match first {
                Some(network) => Some(network),
                None => self.networks.iter_mut().find(ready),
            };
            if let Some(network) = next
                && let Some(remote) = network.waiting.pop_front()
            {
                return Some(Step::Open(Way { interface: network.interface.clone(), remote }));
            }
        }
        let dropped = self.networks.iter_mut().find_map(|network| network.drop_one(now));
        self.networks.retain(|network| network.wanted || !network.tries.is_empty());
        dropped.map(Step::Drop)
    }

    /// When [`Self::step`] may have something to do though nothing else happens; `now` is when it had nothing to do.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let opens = self.networks.iter().filter(|_| self.has_room()).filter_map(|network| network.opens_at(now));
        let turns = self.networks.iter().filter_map(Network::turn_ends);
        opens.chain(turns).chain(self.networks.iter().filter_map(|network| network.refill_at)).min()
    }

    /// The path of a step was opened.
    pub(super) fn opened(&mut self, way: &Way, path: PathId, now: Instant) {
        let Some(network) = self.network(&way.interface.name) else { return };
        network.tries.push(Try {
            path,
            remote: way.remote,
            source: way.interface.source(way.remote.ip()),
            index: way.interface.index,
            began: now,
            heard: false,
            state: PathState::Joining,
            changed: now,
        });
    }

    /// It could not be opened; it is tried again, after the others.
    pub(super) fn failed(&mut self, way: &Way, now: Instant) {
        if let Some(network) = self.network(&way.interface.name) {
            network.refill_at = Some(now + OPEN_AGAIN);
        }
    }

    /// The paths there are: number, interface, the relay's address and state.
    pub(super) fn paths(&self) -> impl Iterator<Item = (PathId, &str, SocketAddr, PathState)> {
        self.networks.iter().flat_map(|network| {
            let name = network.interface.name.as_str();
            network.tries.iter().map(move |attempt| (attempt.path, name, attempt.remote, attempt.state))
        })
    }

    /// Whether anything was heard of the relay on any of them.
    pub(super) fn is_heard(&self) -> bool {
        self.tries().any(|attempt| attempt.heard || attempt.state == PathState::Up)
    }

    /// Whether every network that has a try has a path up.
    pub(super) fn all_up(&self) -> bool {
        self.networks.iter().filter(|network| !network.tries.is_empty()).all(|network| network.up().is_some())
    }

    fn has_room(&self) -> bool {
        self.tries().count() < MAX_PATHS
    }

    fn tries(&self) -> impl Iterator<Item = &Try> {
        self.networks.iter().flat_map(|network| &network.tries)
    }

    fn network(&mut self, name: &str) -> Option<&mut Network> {
        self.networks.iter_mut().find(|network| network.interface.name == name)
    }
}

impl Network {
    fn new(interface: Interface, remotes: Vec<SocketAddr>) -> Self {
        let waiting = remotes.iter().copied().collect();
        Self { interface, remotes, tries: Vec::new(), waiting, turn: TURN, refill_at: None, wanted: true }
    }

    fn update(&mut self, interface: Interface, remotes: Vec<SocketAddr>) {
        let same = self.interface.addresses == interface.addresses && self.interface.index == interface.index;
        let news = !same || remotes.iter().any(|remote| !self.remotes.contains(remote));
        (self.interface, self.remotes, self.wanted) = (interface, remotes, true);
        if news {
            self.turn = TURN;
            self.refill();
        }
        self.waiting.retain(|remote| self.remotes.contains(remote));
    }

    /// A new round: every address that has no try.
    fn refill(&mut self) {
        let tried =
            |remote: &SocketAddr| self.tries.iter().any(|attempt| attempt.remote == *remote && self.is_sound(attempt));
        self.waiting = self.remotes.iter().copied().filter(|remote| !tried(remote)).collect();
    }

    /// Whether the interface is still as it was for this try.
    fn is_sound(&self, attempt: &Try) -> bool {
        let has = |source: IpAddr| self.interface.addresses.contains(&source);
        attempt.index == self.interface.index && attempt.source.is_some_and(has)
    }

    fn sound(&self) -> impl Iterator<Item = &Try> {
        self.tries.iter().filter(|attempt| self.is_sound(attempt))
    }

    fn is_idle(&self) -> bool {
        self.wanted && self.sound().next().is_none()
    }

    /// The try whose path is up; of several the one that was first.
    fn up(&self) -> Option<&Try> {
        self.sound().filter(|attempt| attempt.state == PathState::Up).min_by_key(|attempt| attempt.changed)
    }

    /// When the next try may begin.
    fn opens_at(&self, now: Instant) -> Option<Instant> {
        if !self.wanted || self.waiting.is_empty() || self.up().is_some() || self.sound().count() >= MOST_TRIES {
            return None;
        }
        let patience = |attempt: &Try| match attempt.state {
            PathState::Down => attempt.changed + RETHINK,
            _ if attempt.heard => attempt.began + HEARD_DELAY,
            _ => attempt.began + ATTEMPT_DELAY,
        };
        Some(self.sound().map(patience).max().unwrap_or(now))
    }

    /// When the oldest silent try has to make room for an address that waits.
    fn turn_ends(&self) -> Option<Instant> {
        let full = self.sound().count() >= MOST_TRIES && !self.waiting.is_empty() && self.up().is_none();
        let newest = self.sound().map(|attempt| attempt.began).max()?;
        (full && self.wanted).then(|| newest + self.turn)
    }

    /// Drops what is no longer of use, one at a time.
    fn drop_one(&mut self, now: Instant) -> Option<PathId> {
        let up = self.up().map(|attempt| attempt.path);
        let replaced = self.sound().next().is_some() || self.waiting.is_empty();
        let superfluous = |attempt: &Try| {
            let stray = up.is_some_and(|up| up != attempt.path);
            !self.wanted || stray || (replaced && !self.is_sound(attempt))
        };
        let mut at = self.tries.iter().position(superfluous);
        if up.is_some() {
            // Should this path fall silent, every other address is worth a try.
            self.turn = TURN;
            if at.is_none() && self.waiting.len() + 1 < self.remotes.len() {
                self.refill();
            }
        }
        if at.is_none() && self.turn_ends().is_some_and(|end| end <= now) {
            at = self.tries.iter().enumerate().min_by_key(|(_, attempt)| attempt.began).map(|(at, _)| at);
            let remote = self.tries[at?].remote;
            self.waiting.push_back(remote);
            self.turn = (self.turn * 2).min(LONGEST_TURN);
        }
        at.map(|at| self.tries.remove(at).path)
    }
}

#[cfg(test)]
mod tests;
