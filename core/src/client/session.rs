//! Keeps a session to the relay: makes it, follows the machine's networks, and makes it anew when it ends.
//!
//! What others may know of it is its [`Phase`]. A relay that says no to this client ends the trying; everything else is
//! tried again, at once when the networks change, else after a growing wait.
//!
//! A session without a path that answers may be cut off for a while, its relay may be out of reach, or may have forgotten it
//! in a restart or while this machine slept. So while it is silent another one is tried; if a new session comes first,
//! the old one has a moment left for a sign of life, as its flows would be lost with it.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

use tandem_proto::mode::Mode;
use tandem_proto::stats::PathState;
use tandem_proto::wire::flow::CloseCode;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::handshake::{self, SessionError};
use super::maker::{Established, Maker};
use super::networks::Machine;
use super::ways::wait;
use crate::transport::{ConnectError, Connection};

/// A session that lived this long was a success: the next try comes soon.
const SUCCESS: Duration = Duration::from_secs(10);
/// The relay is told of a stop by a datagram that must leave before the process does.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// A silent session that could be replaced is waited for so long: while no path is up, its paths ask to join every 400 ms.
const LAST_CHANCE: Duration = Duration::from_millis(700);
/// For how long no path may be up before another session is tried. A path is down only after it has itself been silent for
/// a while; one on a new network that is still joining after this time may do so for ever.
const SILENCE: Duration = Duration::from_millis(1500);
/// The same after a sleep, in which the relay may well have forgotten the session: a path answers in one round trip.
const SILENCE_AWAKE: Duration = Duration::from_millis(500);
/// How long the next attempt waits at most when the relay was not heard at all: trying again costs nobody much, and a network
/// that begins to work should be used within seconds.
const SILENT_WAIT: Duration = Duration::from_secs(4);

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
}

/// What the session's task works with.
pub(super) struct Session {
    pub(super) maker: Arc<Maker>,
    pub(super) machine: watch::Receiver<Machine>,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) mode: watch::Receiver<Mode>,
    pub(super) stop: CancellationToken,
}

/// Why a session is no longer attended to.
enum Ended {
    Stopped,
    Replaced(Established),
    Lost(SessionError),
}

impl Session {
    /// Runs until stopped, or refused by the relay.
    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        let maker = Arc::clone(&self.maker);
        let mut backoff = Backoff::new(self.jitter_seed());
        let mut attempt = 0;
        loop {
            let started = Instant::now();
            let established = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                established = maker.establish(attempt) => established,
                // A network that has just come up should not wait until a dead one is given up.
                () = self.other_networks() => continue,
            };
            let error = match established {
                Err(error) => {
                    attempt += 1;
                    error
                }
                Ok(established) => match self.attend(established).await {
                    Some(error) => error,
                    None => break,
                },
            };
            let problem = chain(&error);
            if error.is_final() {
                tracing::error!(problem, "no session: the relay refuses this client");
                self.phase.send_replace(Phase::Ended { problem: Some(problem) });
                return;
            }
            if started.elapsed() >= SUCCESS {
                backoff.reset();
            }
            let mut pause = backoff.next();
            if matches!(error, SessionError::Connect(ConnectError::Timeout)) {
                pause = pause.min(SILENT_WAIT);
            }
            tracing::warn!(problem, again_in_ms = pause.as_millis() as u64, "no session");
            self.phase.send_replace(Phase::Connecting { problem: Some(problem) });
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Ok(()) = self.machine.changed() => backoff.reset(),
                () = sleep(pause) => {}
            }
        }
        self.phase.send_replace(Phase::Ended { problem: None });
    }

    /// Resolves when the networks are no longer those of the call, or the machine has slept.
    async fn other_networks(&mut self) {
        let wakes = self.machine.borrow_and_update().wakes;
        let before = self.maker.networks.chosen();
        while self.maker.networks.chosen() == before && self.machine.borrow().wakes == wakes {
            // The sender lives as long as the networks.
            let _ = self.machine.changed().await;
        }
    }

    fn jitter_seed(&self) -> u64 {
        match self.maker.config.seed {
            Some(seed) => u64::from_le_bytes(*seed.first_chunk().expect("a seed has 32 bytes")),
            None => rand::random(),
        }
    }

    /// Stays with an accepted session and those that replace it; `None` when it was stopped from here.
    async fn attend(&mut self, mut session: Established) -> Option<SessionError> {
        loop {
            let connected = Connected { connection: session.connection.clone(), since: Instant::now() };
            self.phase.send_replace(Phase::Connected(connected));
            match self.live(&mut session).await {
                Ended::Stopped => {
                    session.connection.close(CloseCode::Done.code(), "stopped");
                    sleep(LAST_WORDS).await;
                    return None;
                }
                Ended::Replaced(new) => {
                    tracing::info!("a new session takes the place of one that fell silent");
                    session.connection.close(CloseCode::Done.code(), "replaced");
                    session = new;
                }
                Ended::Lost(error) => {
                    session.connection.close(CloseCode::Done.code(), "lost");
                    return Some(error);
                }
            }
        }
    }

    async fn live(&mut self, session: &mut Established) -> Ended {
        // Taken anew: the mode may have changed while the session was being made.
        session.connection.set_mode(*self.mode.borrow_and_update());
        let Established { connection, ways, notices } = session;
        let maker = Arc::clone(&self.maker);
        let mut replacement = std::pin::pin!(replace_silent(&maker, connection, ways.attempt));
        let mut wakes = self.machine.borrow_and_update().wakes;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ended::Stopped,
                closed = connection.closed() => return Ended::Lost(handshake::closed_error(closed)),
                ended = &mut *notices => {
                    let error = ended.unwrap_or(SessionError::ControlEnded);
                    return Ended::Lost(handshake::better_reason(error, connection).await);
                }
                new = &mut replacement => return Ended::Replaced(new),
                Ok(()) = self.mode.changed() => connection.set_mode(*self.mode.borrow_and_update()),
                Ok(()) = self.machine.changed() => {
                    let woken = self.machine.borrow_and_update().wakes != wakes;
                    wakes = self.machine.borrow().wakes;
                    maker.look_up();
                    if woken {
                        connection.suspect_paths("not heard since this device slept");
                    }
                }
                never = ways.keep(&maker, connection) => match never {},
            }
        }
    }
}

/// Makes another session once this one has fallen silent; resolves when there is one, never while this one lives.
async fn replace_silent(maker: &Maker, connection: &Connection, attempt: usize) -> Established {
    // At first no path may be up yet, but all that there is has just been heard.
    sign_of_life(connection).await;
    let mut attempt = attempt + 1;
    loop {
        silence(maker, connection).await;
        tracing::debug!(attempt, "no path answers: trying another session");
        tokio::select! {
            biased;
            established = maker.establish(attempt) => match established {
                // The relay is in reach again: if it still knows the old session, that one's flows live on.
                Ok(established) => match timeout(LAST_CHANCE, sign_of_life(connection)).await {
                    Err(_) => return established,
                    Ok(()) => established.connection.close(CloseCode::Done.code(), "not needed"),
                },
                Err(error) => tracing::debug!(error = &error as &dyn Error, "no other session either"),
            },
            () = sign_of_life(connection) => {}
        }
        attempt += 1;
    }
}

/// Resolves once a path is up.
async fn sign_of_life(connection: &Connection) {
    let mut changes = connection.path_changes();
    while connection.signs().iter().all(|path| path.state != PathState::Up) {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Resolves once no path has been up for a while.
async fn silence(maker: &Maker, connection: &Connection) {
    let machine = maker.networks.subscribe();
    let mut changes = connection.path_changes();
    loop {
        let wakes = machine.borrow().wakes;
        while connection.signs().iter().any(|path| path.state == PathState::Up) {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        let limit = if machine.borrow().wakes == wakes { SILENCE } else { SILENCE_AWAKE };
        let silent = Instant::now();
        while silent.elapsed() < limit && connection.signs().iter().all(|path| path.state != PathState::Up) {
            wait(Some(silent + limit), changes.changed()).await;
        }
        if silent.elapsed() >= limit {
            return;
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

    #[test]
    fn an_error_is_told_with_its_causes_and_leaves_the_terminal_alone() {
        let error = SessionError::from(ConnectError::Handshake("aborted: go\u{1b}[2J\naway".to_owned()));
        assert_eq!(
            chain(&error),
            "the relay cannot be reached: the handshake with the relay failed: aborted: go[2Jaway"
        );
    }
}
