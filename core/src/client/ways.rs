//! The paths of one session: carries out what the race over the relay's addresses decides.
//!
//! The same from the first datagram of the handshake to the session's end: networks that come get a path, those that go lose
//! theirs, and on each the first address that answers wins.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;

use tandem_proto::link::PathSigns;
use tandem_proto::path::order::PathOrder;
use tandem_proto::stats::PathState;
use tandem_proto::wire::flow::CloseCode;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use super::handshake::SessionError;
use super::maker::Maker;
use super::race::{Race, Step};
use crate::transport::{Connecting, Connection, PathId, PathSpec};

/// How long a new session waits for its paths before it is used: what is sent before they have joined is easily lost.
const JOIN_TIMEOUT: Duration = Duration::from_millis(500);
/// For how long the first paths that joined wait for the others.
const JOIN_PATIENCE: Duration = Duration::from_millis(250);

/// Something that takes paths: a session, or a handshake.
pub(super) trait TakesPaths {
    fn add(&mut self, spec: PathSpec) -> Option<PathId>;
    fn remove(&mut self, id: PathId);
    fn order(&mut self, id: PathId, order: PathOrder);
    fn signs(&self) -> Vec<PathSigns>;
}

impl TakesPaths for Connecting {
    fn add(&mut self, spec: PathSpec) -> Option<PathId> {
        self.add_path(spec)
    }

    fn order(&mut self, id: PathId, order: PathOrder) {
        self.set_order(id, order);
    }

    fn remove(&mut self, id: PathId) {
        self.remove_path(id);
    }

    fn signs(&self) -> Vec<PathSigns> {
        Connecting::signs(self)
    }
}

impl TakesPaths for Connection {
    fn add(&mut self, spec: PathSpec) -> Option<PathId> {
        self.add_path(spec)
    }

    fn order(&mut self, id: PathId, order: PathOrder) {
        self.set_order(id, order);
    }

    fn remove(&mut self, id: PathId) {
        self.remove_path(id);
    }

    fn signs(&self) -> Vec<PathSigns> {
        Connection::signs(self)
    }
}

/// The paths of one session.
pub(super) struct Ways {
    race: Race,
    /// The attempt that the session came of, which tells where among the relay's addresses it starts.
    pub(super) attempt: usize,
    /// Why no socket could be opened, by interface.
    problems: BTreeMap<String, String>,
    /// All paths that are left must not be used any more. They stay for the words that end the session.
    is_over: bool,
}

impl Ways {
    pub(super) fn new(attempt: usize) -> Self {
        Self { race: Race::default(), attempt, problems: BTreeMap::new(), is_over: false }
    }

    /// Takes note of the networks and addresses that there are now. With none at all the old paths stay: one of them may
    /// come back as it was.
    pub(super) fn look(&mut self, maker: &Maker) {
        let heard_at: Vec<_> =
            self.race.paths().filter(|(.., state)| *state == PathState::Up).map(|(_, _, remote, _)| remote).collect();
        let wanted = maker.wanted(self.attempt, &heard_at);
        let usable =
            wanted.iter().any(|(interface, remotes)| remotes.iter().any(|r| interface.source(r.ip()).is_some()));
        if usable {
            self.race.set_networks(wanted);
        }
        let all_barred = self.race.paths().all(|(_, name, ..)| maker.networks.is_barred(name));
        self.is_over = !usable && all_barred && !self.is_empty();
        if !self.is_over {
            self.race.bar(|name| maker.networks.is_barred(name));
        }
    }

    /// Opens and drops paths as is due; says when to come again, if nothing happens before.
    pub(super) fn advance(&mut self, maker: &Maker, session: &mut impl TakesPaths) -> Option<Instant> {
        let now = Instant::now();
        self.race.see(&session.signs(), now);
        while let Some(step) = self.race.step(now) {
            match step {
                Step::Open(way) => match maker.networks.open(&way) {
                    Ok(spec) => match session.add(spec) {
                        Some(path) => {
                            tracing::info!(%path, interface = way.interface.name, "path added");
                            self.problems.remove(&way.interface.name);
                            self.race.opened(&way, path, now);
                        }
                        None => self.race.failed(&way, now),
                    },
                    Err(error) => {
                        tracing::debug!(interface = way.interface.name, %error, "no socket on this network");
                        self.problems.insert(way.interface.name.clone(), error.to_string());
                        self.race.failed(&way, now);
                    }
                },
                Step::Drop(path) => {
                    tracing::info!(%path, "path removed");
                    session.remove(path);
                }
            }
        }
        for (path, network, ..) in self.race.paths() {
            session.order(path, maker.networks.accounts().order(network));
        }
        maker.remember(self.race.paths());
        self.race.poll_timeout(now)
    }

    /// Whether there is any path, up or not.
    pub(super) fn is_empty(&self) -> bool {
        self.race.paths().next().is_none()
    }

    /// Whether the relay was heard on any path.
    pub(super) fn is_heard(&self) -> bool {
        self.race.is_heard()
    }

    /// Why there is no path.
    pub(super) fn nothing(&self, maker: &Maker) -> SessionError {
        if self.problems.is_empty() {
            return maker.networks.nothing();
        }
        let problems: Vec<_> = self.problems.iter().map(|(name, problem)| format!("{name}: {problem}")).collect();
        SessionError::NoNetwork(problems.join("; "))
    }

    /// Waits a moment for the paths of a new session. A relay that does not speak our headers never lets one join; the
    /// session works all the same.
    pub(super) async fn join(&mut self, maker: &Maker, connection: &Connection) {
        let start = Instant::now();
        let mut changes = connection.path_changes();
        let joining = async {
            loop {
                let next = self.advance(maker, &mut connection.clone());
                let some_up = self.race.paths().any(|(.., state)| state == PathState::Up);
                if self.race.all_up() || (some_up && start.elapsed() >= JOIN_PATIENCE) {
                    return;
                }
                let patience = (start + JOIN_PATIENCE).max(Instant::now());
                let patience = some_up.then_some(patience);
                wait(next.into_iter().chain(patience).min(), changes.changed()).await;
            }
        };
        // Running out of time is an answer too.
        let _ = timeout(JOIN_TIMEOUT, joining).await;
    }

    /// Keeps the paths of a session what they should be, as answers and silence, networks and addresses come; never ends.
    ///
    /// # Cancel safety
    /// May be dropped and called again at any time.
    pub(super) async fn keep(&mut self, maker: &Maker, connection: &Connection) -> Infallible {
        let mut paths = connection.path_changes();
        let mut names = maker.names.subscribe();
        let mut machine = maker.networks.subscribe();
        machine.mark_unchanged();
        let mut rulings = maker.networks.accounts().rulings();
        loop {
            rulings.mark_unchanged();
            self.look(maker);
            if self.is_over {
                tracing::info!("no network may be used any more");
                connection.close(CloseCode::Done.code(), "no network may be used");
                return std::future::pending().await;
            }
            let next = self.advance(maker, &mut connection.clone());
            let news = async {
                tokio::select! {
                    biased;
                    _ = paths.changed() => {}
                    _ = names.changed() => {}
                    _ = machine.changed() => {}
                    _ = rulings.changed() => {}
                }
            };
            wait(next, news).await;
        }
    }
}

/// Waits for `news`, at most until `deadline`.
pub(super) async fn wait<T>(deadline: Option<Instant>, news: impl Future<Output = T>) {
    match deadline {
        Some(deadline) => tokio::select! {
            biased;
            _ = news => {}
            () = sleep_until(deadline) => {}
        },
        None => {
            news.await;
        }
    }
}
