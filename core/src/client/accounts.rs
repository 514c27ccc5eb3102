//! Counts what every network carries, and tells the session what each may do.
//!
//! The decisions are [`tandem_proto::networks`]'; here is what they need of the world: meters at the sockets, the local date,
//! a file that outlives the process. A meter calls when as much has been carried as the book wants to be looked at after, so
//! nothing is asked in short intervals; once a minute the date is.

mod store;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tandem_proto::networks::{Bar, Book, InterfaceKind, Kept, Ruling, SettingError, Settings};
use tandem_proto::path::order::PathOrder;
use tandem_proto::stats::NetworkStats;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

pub use self::store::StateError;
use self::store::Store;
use crate::platform::{Bound, Platform};
use crate::transport::meter::{self, Meter};

/// How often the date is looked at though nothing is carried.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What networks may do; those that are not named may be used as fast as they can.
pub(super) type Rulings = BTreeMap<String, Ruling>;

/// The accounts of a client's networks.
pub(super) struct Accounts {
    platform: Arc<dyn Platform>,
    state: Mutex<State>,
    rulings: watch::Sender<Rulings>,
    /// Something was carried or said that is to be looked at.
    wake: Arc<Notify>,
}

struct State {
    book: Book,
    /// By network; with what was charged of what it has counted.
    meters: BTreeMap<String, (Arc<Meter>, u64)>,
    /// What kinds the networks are that there are now.
    kinds: BTreeMap<String, InterfaceKind>,
    store: Option<Store>,
}

impl Accounts {
    /// The accounts of these networks, going on from what is kept at `path`; without one nothing is kept.
    ///
    /// # Errors
    /// [`StateError`]: caps are not forgotten because of a damaged file.
    pub(super) fn open(
        configured: Vec<(String, Settings)>,
        path: Option<&Path>,
        platform: Arc<dyn Platform>,
    ) -> Result<Arc<Self>, StateError> {
        let (store, kept) = match path {
            Some(path) => Store::open(path)?,
            None => (None, Kept::default()),
        };
        Self::new(configured, kept, store, platform).map_err(|error| StateError::wrong(path, error))
    }

    /// The same, to be looked at only: nothing is kept, and another client may have them.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn peek(
        configured: Vec<(String, Settings)>,
        path: Option<&Path>,
        platform: Arc<dyn Platform>,
    ) -> Result<Arc<Self>, StateError> {
        let kept = path.map(Store::load).transpose()?.unwrap_or_default();
        Self::new(configured, kept, None, platform).map_err(|error| StateError::wrong(path, error))
    }

    /// Accounts of which nothing is known and nothing kept.
    pub(super) fn unknown(platform: Arc<dyn Platform>) -> Arc<Self> {
        Self::new(Vec::new(), Kept::default(), None, platform).expect("nothing was kept by another version")
    }

    fn new(
        configured: Vec<(String, Settings)>,
        kept: Kept,
        store: Option<Store>,
        platform: Arc<dyn Platform>,
    ) -> Result<Arc<Self>, tandem_proto::networks::KeptError> {
        let book = Book::new(configured, kept, platform.today())?;
        let rulings = watch::Sender::new(book.rulings());
        let state = Mutex::new(State { book, meters: BTreeMap::new(), kinds: BTreeMap::new(), store });
        Ok(Arc::new(Self { platform, state, rulings, wake: Arc::default() }))
    }

    /// Looks at the accounts whenever that is due; never ends.
    pub(super) async fn attend(self: Arc<Self>) {
        loop {
            self.settle();
            // Waking late is no error: the date is looked at.
            let _ = timeout(LOOK_AGAIN, self.wake.notified()).await;
        }
    }

    /// Tells of changes of what networks may do.
    pub(super) fn rulings(&self) -> watch::Receiver<Rulings> {
        self.rulings.subscribe()
    }

    /// Why a network carries no path, if it is so.
    pub(super) fn bar(&self, network: &str) -> Option<Bar> {
        match self.rulings.borrow().get(network) {
            Some(Ruling::Barred(bar)) => Some(*bar),
            _ => None,
        }
    }

    /// Every network that carries no path, and why.
    pub(super) fn bars(&self) -> BTreeMap<String, Bar> {
        let rulings = self.rulings.borrow();
        let bar = |(name, ruling): (&String, &Ruling)| match ruling {
            Ruling::Barred(bar) => Some((name.clone(), *bar)),
            Ruling::Carries(_) => None,
        };
        rulings.iter().filter_map(bar).collect()
    }

    /// How a network's path is to be used.
    pub(super) fn order(&self, network: &str) -> PathOrder {
        match self.rulings.borrow().get(network) {
            Some(Ruling::Carries(order)) => *order,
            _ => PathOrder::default(),
        }
    }

    /// These are the networks that there are now.
    pub(super) fn see<'n>(&self, networks: impl Iterator<Item = (&'n str, InterfaceKind)>) {
        let kinds: BTreeMap<_, _> = networks.map(|(name, kind)| (name.to_owned(), kind)).collect();
        let mut state = self.state.lock();
        state.book.see(kinds.keys().map(String::as_str));
        state.kinds = kinds;
        drop(state);
        self.settle();
    }

    /// A socket whose datagrams are charged to its network.
    pub(super) fn measure(&self, network: &str, bound: Bound) -> Bound {
        let mut state = self.state.lock();
        let new = || (Arc::new(Meter::new(Arc::clone(&self.wake))), 0);
        let (meter, _) = state.meters.entry(network.to_owned()).or_insert_with(new);
        let socket = meter::measure(Arc::clone(meter), bound.socket, bound.remote.ip());
        drop(state);
        self.settle();
        Bound { socket, ..bound }
    }

    /// Takes what a user says of a network.
    ///
    /// # Errors
    /// [`SettingError`]; nothing is changed then.
    pub(super) fn set(&self, network: &str, setting: &str, value: &str) -> Result<(), SettingError> {
        self.state.lock().book.set(network, setting, value)?;
        self.settle();
        Ok(())
    }

    /// Forgets what was said of a network; whether anything had been.
    pub(super) fn reset(&self, network: &str) -> bool {
        let had = self.state.lock().book.reset(network);
        self.settle();
        had
    }

    /// Counts IP packets, in bytes, that a network carried by other sockets than those of [`Self::measure`].
    pub(super) fn charge(&self, network: &str, bytes: u64) {
        self.state.lock().book.charge(network, bytes);
        self.settle();
    }

    /// Every network as the surfaces show it.
    pub(super) fn stats(&self) -> Vec<NetworkStats> {
        let mut state = self.state.lock();
        state.charge();
        let mut stats = state.book.stats();
        for network in &mut stats {
            network.kind = state.kinds.get(&network.name).copied().unwrap_or_default();
        }
        stats
    }

    /// Keeps what was carried to the last byte: the client ends well.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.charge();
        let kept = state.book.keep_at_the_end();
        if let Some(store) = &mut state.store {
            store.save(&kept);
        }
    }

    /// Charges what was carried, keeps the accounts if it is time, and tells what networks may do.
    fn settle(&self) {
        let today = self.platform.today();
        let mut state = self.state.lock();
        state.charge();
        state.book.turn(today);
        let now = Instant::now().into_std();
        if state.book.wants_keeping(now) {
            let kept = state.book.keep(now);
            if let Some(store) = &mut state.store {
                store.save(&kept);
            }
        }
        for (name, (meter, charged)) in &state.meters {
            let after = |bytes: u64| charged.saturating_add(bytes);
            meter.set_limits(after(state.book.look_after(name)), after(state.book.left(name)));
        }
        let rulings = state.book.rulings();
        drop(state);
        self.rulings.send_if_modified(|known| {
            let news = *known != rulings;
            *known = rulings;
            news
        });
    }
}

impl State {
    fn charge(&mut self) {
        for (name, (meter, charged)) in &mut self.meters {
            let total = meter.total();
            self.book.charge(name, total - *charged);
            *charged = total;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Scripted;

    fn accounts(path: &Path) -> Result<Arc<Accounts>, StateError> {
        Accounts::open(Vec::new(), Some(path), Arc::new(Scripted::new(Vec::new())))
    }

    fn used(accounts: &Accounts) -> u64 {
        accounts.stats().iter().map(|stats| stats.used_today_bytes).sum()
    }

    #[tokio::test]
    async fn what_was_said_and_carried_is_there_after_a_stop_and_after_a_crash() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep").join("networks.json");
        let before = accounts(&path).unwrap();
        before.set("cell0", "cap-daily", "20 MB").unwrap();
        assert!(matches!(accounts(&path), Err(StateError::InUse(_))), "one client at a time");
        before.charge("cell0", 5_000_000);
        // Dropped without a word, as in a crash.
        drop(before);
        let after = accounts(&path).unwrap();
        assert!((5_000_000..5_200_000).contains(&used(&after)), "{}", used(&after));
        let before = used(&after);
        after.close();
        drop(after);
        let again = accounts(&path).unwrap();
        assert_eq!((used(&again), again.stats()[0].cap_daily_bytes), (before, Some(20_000_000)));
    }

    #[tokio::test]
    async fn a_damaged_file_is_told_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("networks.json");
        for text in ["", "{}", "{\"version\":7,\"networks\":{}}", "[1, 2"] {
            std::fs::write(&path, text).unwrap();
            let error = accounts(&path).err().unwrap();
            assert!(error.to_string().contains("networks.json"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
