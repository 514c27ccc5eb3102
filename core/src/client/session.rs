//! Keeps a session to a relay: finds one, follows the machine's networks, and finds another when it ends or should be left.
//!
//! What others may know of it is its [`Phase`]. A relay that says no to this client is asked no more, and when all do the trying
//! ends; everything else is tried again, at once when the networks change, else after a growing wait.
//!
//! A session without a path that answers may be cut off for a while, its relay may be out of reach, or may have forgotten it
//! in a restart or while this machine slept. So while it is silent another one is sought ([`tandem_proto::relays::patience`]);
//! if a new session comes first, the old one has a moment left for a sign of life, as its flows would be lost with it. When a
//! relay tells that it goes away, new flows move to another one, and the old session stays for those that are open
//! ([`super::leftovers`]).

use std::error::Error;
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tandem_proto::mode::Mode;
use tandem_proto::relays::{patience, sign_of_life};
use tandem_proto::stats::PathState;
use tandem_proto::wire::flow::CloseCode;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::handshake::{self, SessionError};
use super::leftovers::Leftovers;
use super::maker::Established;
use super::networks::Networks;
use super::relays::{Found, News, Relays};
use super::ways::wait;
use crate::transport::Connection;

/// A session that lived this long was a success: the next try comes soon.
const SUCCESS: Duration = Duration::from_secs(10);
/// The relay is told of a stop by a datagram that must leave before the process does.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// A silent session that could be replaced by one with the same relay is waited for so long: while no path is up, its paths
/// ask to join every 400 ms.
pub(super) const LAST_CHANCE: Duration = Duration::from_millis(700);
/// While other relays are asked, a silent session's own relay is asked for a new one only after so long.
const SAME_AGAIN: Duration = Duration::from_millis(1500);

/// Where the session stands.
#[derive(Clone)]
pub(super) enum Phase {
    /// Being made; with what went wrong before.
    Connecting { problem: Option<String> },
    /// Accepted by the relay.
    Connected(Connected),
    /// Over for good: refused by the relay (with its words), or stopped.
    Ended { problem: Option<String> },
}

/// An accepted session.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) connection: Connection,
    pub(super) since: Instant,
    /// Which relay.
    pub(super) relay: usize,
    /// Why the relay goes away, once it has said so.
    pub(super) leaving: Option<String>,
    /// Whether another session is sought for new flows, which should wait for it.
    pub(super) moving: bool,
}

/// What the session's task works with.
pub(super) struct Session {
    pub(super) relays: Arc<Relays>,
    pub(super) networks: Arc<Networks>,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) mode: watch::Receiver<Mode>,
    pub(super) stop: CancellationToken,
}

/// Why a session is no longer attended to.
enum Ended {
    Stopped,
    Replaced(Found),
    Lost(SessionError),
}

impl Session {
    /// Runs until stopped, or refused by every relay.
    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        let mut leftovers = Leftovers::default();
        loop {
            let found = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                found = self.find() => found,
            };
            let Some(found) = found else {
                self.phase.send_replace(Phase::Ended { problem: self.relays.problem() });
                leftovers.done().await;
                return;
            };
            if !self.attend(found, &mut leftovers).await {
                break;
            }
            self.phase.send_replace(Phase::Connecting { problem: self.relays.problem() });
        }
        leftovers.stop();
        self.phase.send_replace(Phase::Ended { problem: None });
    }

    /// Seeks a session with any relay; `None` once all of them refuse this client.
    async fn find(&self) -> Option<Found> {
        loop {
            let all = self.relays.willing();
            let tell = |news| {
                if let News::Failed = news {
                    self.phase.send_replace(Phase::Connecting { problem: self.relays.problem() });
                }
            };
            tokio::select! {
                biased;
                found = self.relays.search(&all, tell) => return found,
                // A network that has just come up should not wait until a dead one is given up.
                () = self.other_networks() => self.relays.hurry(),
            }
        }
    }

    /// Resolves when the networks are no longer those of the call, or the machine has slept.
    async fn other_networks(&self) {
        let mut machine = self.networks.subscribe();
        let wakes = machine.borrow_and_update().wakes;
        let before = self.networks.chosen();
        while self.networks.chosen() == before && machine.borrow().wakes == wakes {
            // The sender lives as long as the networks.
            let _ = machine.changed().await;
        }
    }

    /// Stays with an accepted session and those that replace it; `false` when it was stopped from here.
    async fn attend(&mut self, mut found: Found, leftovers: &mut Leftovers) -> bool {
        loop {
            let (relay, since) = (found.relay, Instant::now());
            self.relays.taken(relay);
            let connection = found.session.connection.clone();
            self.phase.send_replace(Phase::Connected(Connected {
                connection: connection.clone(),
                since,
                relay,
                leaving: None,
                moving: false,
            }));
            let ended = self.live(&mut found).await;
            if since.elapsed() >= SUCCESS {
                self.relays.maker(relay).succeeded();
            }
            match ended {
                Ended::Stopped => {
                    leftovers.stop();
                    connection.close(CloseCode::Done.code(), "stopped");
                    sleep(LAST_WORDS).await;
                    return false;
                }
                Ended::Replaced(new) => {
                    let (from, to) = (self.relays.maker(relay), self.relays.maker(new.relay));
                    tracing::info!(from = from.name(), to = to.name(), "another session takes this one's place");
                    let Found { session: old, .. } = std::mem::replace(&mut found, new);
                    leftovers.keep(Arc::clone(self.relays.maker(relay)), old, found.relay == relay);
                }
                Ended::Lost(error) => {
                    connection.close(CloseCode::Done.code(), "lost");
                    self.relays.ended(relay, &error);
                    return true;
                }
            }
        }
    }

    async fn live(&mut self, found: &mut Found) -> Ended {
        // Taken anew: the mode may have changed while the session was being made.
        found.session.connection.set_mode(*self.mode.borrow_and_update());
        let Found { relay, session: Established { connection, ways, notices, going_away, .. } } = found;
        let (maker, connection) = (Arc::clone(self.relays.maker(*relay)), connection.clone());
        let mut machine = self.networks.subscribe();
        let mut wakes = machine.borrow_and_update().wakes;
        let place = Place { relays: &self.relays, networks: &self.networks, phase: &self.phase };
        let mut successor = pin!(place.successor(*relay, &connection, going_away.clone()));
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ended::Stopped,
                closed = connection.closed() => return Ended::Lost(handshake::closed_error(closed)),
                ended = &mut *notices => {
                    let error = ended.unwrap_or(SessionError::ControlEnded);
                    return Ended::Lost(handshake::better_reason(error, &connection).await);
                }
                new = &mut successor => return Ended::Replaced(new),
                Ok(()) = self.mode.changed() => connection.set_mode(*self.mode.borrow_and_update()),
                Ok(()) = machine.changed() => {
                    let woken = machine.borrow_and_update().wakes != wakes;
                    wakes = machine.borrow().wakes;
                    maker.look_up();
                    if woken {
                        connection.suspect_paths("not heard since this device slept");
                    }
                }
                never = ways.keep(&maker, &connection) => match never {},
            }
        }
    }
}

/// Where a successor of a session is sought.
struct Place<'a> {
    relays: &'a Relays,
    networks: &'a Networks,
    phase: &'a watch::Sender<Phase>,
}

impl Place<'_> {
    /// Finds another session once this one goes away or has fallen silent; never resolves while it lives.
    async fn successor(
        &self,
        relay: usize,
        connection: &Connection,
        mut going_away: watch::Receiver<Option<String>>,
    ) -> Found {
        let mut leaving = false;
        // At first no path may be up yet, but all that there is has just been heard.
        let mut came_up = false;
        loop {
            let silent = async {
                if !came_up {
                    sign_of_life_of(connection).await;
                }
                self.silence(relay, connection).await;
            };
            tokio::select! {
                biased;
                notice = told(&mut going_away), if !leaving => {
                    leaving = true;
                    if let Some(found) = self.leave(relay, connection, notice).await {
                        return found;
                    }
                }
                () = silent => {
                    came_up = true;
                    if let Some(found) = self.replace(relay, connection).await {
                        return found;
                    }
                }
            }
        }
    }

    /// Seeks another relay while this one goes away; `None` if there is no other, or this one falls silent.
    async fn leave(&self, relay: usize, connection: &Connection, notice: String) -> Option<Found> {
        let others = self.relays.others(relay);
        let mark = |leaving: Option<String>, moving| {
            self.phase.send_modify(|phase| {
                if let Phase::Connected(connected) = phase {
                    (connected.leaving, connected.moving) = (leaving, moving);
                }
            });
        };
        mark(Some(notice.clone()), !others.is_empty());
        let found = tokio::select! {
            biased;
            found = self.relays.search(&others, |_| ()), if !others.is_empty() => found,
            () = self.silence(relay, connection), if !others.is_empty() => None,
            else => None,
        };
        if found.is_none() {
            mark(Some(notice), false);
        }
        found
    }

    /// Seeks a session in the place of a silent one; `None` when that shows a sign of life.
    async fn replace(&self, relay: usize, connection: &Connection) -> Option<Found> {
        let all = self.relays.willing();
        tracing::debug!("no path answers: trying another session");
        let alone = all == [relay];
        self.relays.maker(relay).rest_for(if alone { Duration::ZERO } else { SAME_AGAIN });
        // When another relay answered first, which shows that the networks work.
        let elsewhere = OnceLock::new();
        let tell = |news| {
            if let News::Answered(other) = news
                && other != relay
                && elsewhere.set(Instant::now()).is_ok()
            {
                connection.suspect_paths("another relay answers, this one does not");
            }
        };
        let found = tokio::select! {
            biased;
            () = sign_of_life_of(connection) => return None,
            // All refuse: then the old session is all there is.
            found = self.relays.search(&all, tell) => match found {
                Some(found) => found,
                None => std::future::pending().await,
            },
        };
        let chance = match elsewhere.get() {
            Some(since) if found.relay != relay => *since + sign_of_life(connection.round_trip()),
            _ => Instant::now() + LAST_CHANCE,
        };
        // The relay is in reach again: if it still knows the old session, that one's flows live on.
        match timeout_at(chance, sign_of_life_of(connection)).await {
            Err(_) => Some(found),
            Ok(()) => {
                found.session.connection.close(CloseCode::Done.code(), "not needed");
                None
            }
        }
    }

    /// Resolves once no path has been up for a while.
    async fn silence(&self, relay: usize, connection: &Connection) {
        let machine = self.networks.subscribe();
        let mut changes = connection.path_changes();
        let states = || connection.signs().into_iter().map(|path| path.state).collect::<Vec<_>>();
        loop {
            let wakes = machine.borrow().wakes;
            while states().contains(&PathState::Up) {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            let silent = Instant::now();
            while !states().contains(&PathState::Up) {
                let fallen = states().contains(&PathState::Down);
                let woken = machine.borrow().wakes != wakes;
                let limit = patience(!self.relays.others(relay).is_empty(), fallen, woken);
                if silent.elapsed() >= limit {
                    return;
                }
                wait(Some(silent + limit), changes.changed()).await;
            }
        }
    }
}

/// Resolves once the relay has told that it goes away.
async fn told(going_away: &mut watch::Receiver<Option<String>>) -> String {
    let notice = going_away.wait_for(Option::is_some).await.ok().and_then(|notice| notice.clone());
    match notice {
        Some(notice) => notice,
        // The control stream has ended, and with it the session.
        None => std::future::pending().await,
    }
}

/// Resolves once a path is up.
async fn sign_of_life_of(connection: &Connection) {
    let mut changes = connection.path_changes();
    while connection.signs().iter().all(|path| path.state != PathState::Up) {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Resolves once no path has been up for so long.
pub(super) async fn silent_for(connection: &Connection, limit: Duration) {
    while timeout(limit, sign_of_life_of(connection)).await.is_ok() {
        let mut changes = connection.path_changes();
        while connection.signs().iter().any(|path| path.state == PathState::Up) {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// An error with its causes in one line; some repeat theirs already. Without control characters: part of it may be the words
/// of whoever answered the handshake, and it goes to terminals.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let cause_text = error.to_string();
        if !text.ends_with(&cause_text) {
            let _ = write!(text, ": {cause_text}");
        }
        cause = error.source();
    }
    text.retain(|c| !c.is_control());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ConnectError;

    #[test]
    fn an_error_is_told_with_its_causes_and_leaves_the_terminal_alone() {
        let error = SessionError::from(ConnectError::Handshake("aborted: go\u{1b}[2J\naway".to_owned()));
        assert_eq!(
            chain(&error),
            "the relay cannot be reached: the handshake with the relay failed: aborted: go[2Jaway"
        );
    }
}
