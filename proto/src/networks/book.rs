//! Every network's account, and what is kept of them over restarts.
//!
//! Nothing that a network has carried may be forgotten in a crash. So what is kept says more than was carried: a *reserve* is
//! counted beforehand. Once half of it is used, the book wants to be kept anew; a crash costs the user what is left of the
//! reserve, a 200th of the smallest cap at most. Reserves grow while keeping is wanted more often than every [`CALM`], and are
//! small again after a quiet time. A good stop keeps what is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::account::{Account, LEAST_RESERVE, Period, Ruling};
use super::calendar::Date;
use super::settings::{SettingError, Settings};
use crate::stats::NetworkStats;

/// Keeping more often than this is too often, if the caps allow less.
const CALM: Duration = Duration::from_secs(3);
/// A reserve that lasts this long is too large, and gives way to the least.
const LONG: Duration = Duration::from_secs(30);

/// The version of what is kept.
const VERSION: u32 = 1;

/// All accounts of a client.
#[derive(Debug)]
pub struct Book {
    accounts: BTreeMap<String, Account>,
    today: Date,
    kept_at: Option<Instant>,
    /// Something was said that is to be kept at once.
    changed: bool,
}

/// What is kept of a book.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    version: u32,
    networks: BTreeMap<String, KeptNetwork>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptNetwork {
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    set: Settings,
    day: Period,
    month: Period,
    /// On which day its months begin.
    month_day: u8,
}

/// What was kept cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is of version {0}; this program knows version {VERSION}")]
pub struct KeptError(u32);

impl Default for Kept {
    fn default() -> Self {
        Self { version: VERSION, networks: BTreeMap::new() }
    }
}

impl Book {
    /// The accounts of the configured networks and those of which something was kept.
    ///
    /// # Errors
    /// When what was kept is of another version.
    pub fn new(
        configured: impl IntoIterator<Item = (String, Settings)>,
        kept: Kept,
        today: Date,
    ) -> Result<Self, KeptError> {
        if kept.version != VERSION {
            return Err(KeptError(kept.version));
        }
        let mut accounts: BTreeMap<_, _> =
            configured.into_iter().map(|(name, settings)| (name, Account::new(settings, today))).collect();
        for (name, KeptNetwork { set, day, month, month_day }) in kept.networks {
            let account = accounts.entry(name).or_insert_with(|| Account::new(Settings::default(), today));
            account.restore(set, day, month, month_day);
        }
        Ok(Self { accounts, today, kept_at: None, changed: false })
    }

    /// The networks that exist now.
    pub fn see<'n>(&mut self, present: impl Iterator<Item = &'n str>) {
        self.accounts.values_mut().for_each(|account| account.set_present(false));
        present.for_each(|name| self.account(name).set_present(true));
    }

    /// Counts what a network carried.
    pub fn charge(&mut self, name: &str, bytes: u64) {
        if bytes > 0 {
            self.account(name).charge(bytes);
        }
    }

    /// It is this day now.
    pub fn turn(&mut self, today: Date) {
        self.today = today;
        self.accounts.values_mut().for_each(|account| account.turn(today));
    }

    /// Takes a setting by its name.
    ///
    /// # Errors
    /// [`SettingError`]; nothing is changed then.
    pub fn set(&mut self, name: &str, setting: &str, value: &str) -> Result<(), SettingError> {
        // A network that is not there yet may be spoken of; a setting that does not exist makes no account.
        Settings::default().set(setting, value)?;
        let today = self.today;
        let account = self.account(name);
        account.command_mut().set(setting, value)?;
        account.turn(today);
        self.changed = true;
        Ok(())
    }

    /// Forgets what was said of a network by command; whether anything had been.
    pub fn reset(&mut self, name: &str) -> bool {
        let said = self.accounts.get_mut(name).map(|account| std::mem::take(account.command_mut()));
        let had = said.is_some_and(|said| !said.is_empty());
        self.changed |= had;
        had
    }

    /// What a network may do.
    pub fn ruling(&self, name: &str) -> Ruling {
        self.accounts.get(name).map(Account::ruling).unwrap_or_default()
    }

    /// The networks that may not simply be used as fast as they can.
    pub fn rulings(&self) -> BTreeMap<String, Ruling> {
        let all = self.accounts.iter().map(|(name, account)| (name.clone(), account.ruling()));
        all.filter(|(_, ruling)| *ruling != Ruling::default()).collect()
    }

    /// After how many bytes more of a network the book wants to be looked at.
    pub fn look_after(&self, name: &str) -> u64 {
        let Some(account) = self.accounts.get(name) else { return 1 };
        let (left, reserve) = account.reserve();
        account.next_ruling_after().min((left.saturating_sub(reserve / 2)).max(1))
    }

    /// What a network's socket may still send.
    pub fn left(&self, name: &str) -> u64 {
        self.accounts.get(name).map_or(u64::MAX, Account::left)
    }

    /// Whether it is time to keep the book.
    pub fn wants_keeping(&self, now: Instant) -> bool {
        let is_long_ago = self.kept_at.is_some_and(|at| now.saturating_duration_since(at) >= LONG);
        let runs_out = |account: &Account| {
            let (left, reserve) = account.reserve();
            account.is_worth_keeping() && (left <= reserve / 2 || (is_long_ago && reserve > LEAST_RESERVE))
        };
        self.changed || self.accounts.values().any(runs_out)
    }

    /// What is to be kept while the client runs.
    pub fn keep(&mut self, now: Instant) -> Kept {
        let since = self.kept_at.replace(now).map(|at| now.saturating_duration_since(at));
        self.changed = false;
        for account in self.accounts.values_mut() {
            let (left, reserve) = account.reserve();
            let wished = match since {
                // Only a reserve that was used tells of its size.
                Some(since) if since < CALM && left <= reserve / 2 => reserve.saturating_mul(2),
                Some(since) if since >= LONG => LEAST_RESERVE,
                _ => reserve,
            };
            account.set_reserve(wished);
        }
        self.kept(|account| account.reserve().1)
    }

    /// What is to be kept at a good stop: what was carried, and nothing beforehand.
    pub fn keep_at_the_end(&self) -> Kept {
        self.kept(|_| 0)
    }

    /// Every network as the surfaces show it.
    pub fn stats(&self) -> Vec<NetworkStats> {
        self.accounts.iter().filter_map(|(name, account)| account.stats(name)).collect()
    }

    fn account(&mut self, name: &str) -> &mut Account {
        if !self.accounts.contains_key(name) {
            self.accounts.insert(name.to_owned(), Account::new(Settings::default(), self.today));
        }
        self.accounts.get_mut(name).expect("it was just made")
    }

    fn kept(&self, reserve: impl Fn(&Account) -> u64) -> Kept {
        let worth = self.accounts.iter().filter(|(_, account)| account.is_worth_keeping());
        let networks = worth.map(|(name, account)| {
            let (set, day, month) = account.kept(reserve(account));
            (name.clone(), KeptNetwork { set, day, month, month_day: account.month_day() })
        });
        Kept { version: VERSION, networks: networks.collect() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::networks::{CapState, NetworkRole};

    const MB: u64 = 1_000_000;

    fn today() -> Date {
        "2026-12-01".parse().expect("a date")
    }

    fn book(kept: Kept) -> Book {
        Book::new([], kept, today()).expect("this version")
    }

    fn used(book: &Book, name: &str) -> u64 {
        book.stats().iter().find(|stats| stats.name == name).map_or(0, |stats| stats.used_today_bytes)
    }

    #[test]
    fn what_was_said_by_command_and_what_was_carried_outlives_a_restart() {
        let mut before = book(Kept::default());
        before.see(["cell0", "wifi0"].into_iter());
        before.set("cell0", "role", "backup").expect("in order");
        before.charge("cell0", 5 * MB);
        assert!(before.wants_keeping(crate::testing::start()));
        let text = serde_json::to_string(&before.keep_at_the_end()).expect("plain data");
        let mut after = book(serde_json::from_str(&text).expect("it was just written"));
        after.see(["cell0"].into_iter());
        let stats = after.stats();
        assert_eq!(stats.len(), 1, "a network of which nothing is known is not shown");
        assert_eq!((stats[0].role, stats[0].used_month_bytes), (NetworkRole::Backup, 5 * MB));
        assert!(after.reset("cell0") && !after.reset("cell0") && !after.reset("wifi0"));
        assert_eq!(after.stats()[0].role, NetworkRole::Use);
    }

    #[test]
    fn what_is_wrong_changes_nothing_and_another_version_is_refused() {
        let mut book = book(Kept::default());
        assert!(book.set("cell0", "role", "always").is_err() && book.set("cell0", "roll", "use").is_err());
        assert!(book.stats().is_empty() && !book.wants_keeping(crate::testing::start()));
        let kept = Kept { version: 2, ..Kept::default() };
        let error = Book::new([], kept, today()).expect_err("version 2").to_string();
        assert!(error.contains("version 2") && error.contains("version 1"), "{error}");
    }

    /// MULTI-11: a crash at any moment.
    #[test]
    fn a_crash_forgets_nothing_and_costs_less_than_a_hundredth_of_the_cap() {
        let mut carried = 0;
        let mut book = book(Kept::default());
        book.see(["cell0"].into_iter());
        book.set("cell0", "cap-daily", "20 MB").expect("in order");
        let mut now = crate::testing::start();
        let mut kept = book.keep(now);
        for step in 0..10_000u64 {
            let bytes = 1_240 * (1 + step % 10);
            carried += bytes;
            book.charge("cell0", bytes);
            now += Duration::from_millis(4);
            if book.wants_keeping(now) {
                kept = book.keep(now);
            }
            let known = used(&super::tests::book(kept.clone()), "cell0");
            assert!(known >= carried && known <= carried + 20 * MB / 100, "{known} of {carried}");
            if carried > 20 * MB {
                break;
            }
        }
        assert_eq!(book.stats()[0].cap, CapState::Reached);
    }

    #[test]
    fn a_fast_network_without_a_cap_is_kept_every_few_seconds_and_an_idle_one_with_a_small_reserve() {
        let mut book = book(Kept::default());
        book.see(["wifi0"].into_iter());
        let start = crate::testing::start();
        let mut run = |rate: u64, ms: std::ops::Range<u64>| {
            let (mut keepings, mut reserve) = (Vec::new(), 0);
            for ms in ms {
                book.charge("wifi0", rate / 1_000);
                let now = start + Duration::from_millis(ms);
                if book.wants_keeping(now) {
                    let kept = book.keep(now);
                    let known = kept.networks.values().map(|network| network.day.bytes).sum::<u64>();
                    keepings.push(ms);
                    reserve = known - used(&book, "wifi0");
                }
            }
            (keepings, reserve)
        };
        let (fast, _) = run(12_500_000, 0..60_000);
        let late = fast.windows(2).filter(|pair| pair[0] > 10_000).map(|pair| pair[1] - pair[0]);
        assert!(late.clone().min().is_some_and(|least| least >= 3_000), "{fast:?}");
        let (idle, reserve) = run(1_000, 60_000..300_000);
        assert_eq!((idle.len() < 12, reserve), (true, LEAST_RESERVE), "{idle:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_book_or_refused(text in ".{0,200}", network in "[ -~]{0,12}", bytes in any::<u64>()) {
            let _ = serde_json::from_str::<Kept>(&text);
            let period = format!("{{\"since\":\"2026-12-01\",\"bytes\":{bytes}}}");
            let network = serde_json::to_string(&network).expect("a text");
            let text = format!("{{\"version\":1,\"networks\":{{{network}:{{\"day\":{period},\"month\":{period},\"month_day\":1}}}}}}");
            let kept: Kept = serde_json::from_str(&text).expect("it is in order");
            let mut book = book(kept);
            book.turn("2027-01-01".parse().expect("a date"));
            book.keep(crate::testing::start());
            prop_assert!(serde_json::to_string(&book.keep_at_the_end()).is_ok());
        }
    }
}
