//! What one network has carried, and what it may still carry.
//!
//! A network slows down before its cap, so that hardly anything is on its way when it stops: from the soft limit on it goes
//! at [`SLOW_RATE`], and wherever that is, never so fast that what is left would be gone within [`LANDING`]. It stops
//! [`LAST_BYTES`] early, for what is on its way then and for the words that end a session.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::calendar::Date;
use super::kind::InterfaceKind;
use super::settings::{NetworkRole, Rules, Settings};
use super::size::DataSize;
use crate::path::order::{PathOrder, PathRole};
use crate::stats::NetworkStats;

/// How fast a network may go each way beyond its soft limit, in bytes per second: 1 Mbit/s.
pub const SLOW_RATE: u32 = 125_000;

/// What is left of a cap must last this long at least, in seconds, except at [`SLOW_RATE`].
const LANDING: u64 = 2;

/// What is left when a network stops, in bytes: a quarter of a second at [`SLOW_RATE`].
const LAST_BYTES: u64 = 32_000;

/// So many times [`SLOW_RATE`] is doubled to reach a rate that no longer limits anything: 8 Gbit/s.
const MOST_DOUBLINGS: u32 = 13;

/// What may be lost in a crash is counted beforehand: at least so much, in bytes,
pub(super) const LEAST_RESERVE: u64 = 64_000;
/// and at most this part of the smallest cap,
const RESERVE_PART: u64 = 200;
/// or so much, in bytes.
const MOST_RESERVE: u64 = 256_000_000;

/// What a network carried since a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// Its first day.
    pub since: Date,
    /// IP packets in both directions, in bytes.
    pub bytes: u64,
}

/// One network's settings and use.
#[derive(Debug, Clone)]
pub struct Account {
    config: Settings,
    /// By command; kept.
    command: Settings,
    /// It exists now.
    present: bool,
    today: Date,
    day: Period,
    month: Period,
    /// The day on which its months began when it was last looked at.
    month_day: u8,
    /// What the last keeping counted beforehand, and what is left of it.
    reserve: u64,
    reserve_left: u64,
}

/// Why a network carries no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bar {
    /// Its user wants it so.
    Never,
    /// It has carried its day's share.
    DailyCap {
        /// The cap, in bytes.
        bytes: u64,
        /// The day on which it may carry again.
        until: Date,
    },
    /// It has carried its month's share.
    MonthlyCap {
        /// The cap, in bytes.
        bytes: u64,
        /// The day on which it may carry again.
        until: Date,
    },
}

/// What a network may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// It carries a path, used like this.
    Carries(PathOrder),
    /// It carries none.
    Barred(Bar),
}

/// How near a network's nearest cap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CapState {
    /// There is none, or it is not near.
    #[default]
    Free,
    /// The soft limit is reached: the network is slowed.
    Near,
    /// The network is used no more.
    Reached,
}

impl Default for Ruling {
    fn default() -> Self {
        Self::Carries(PathOrder::default())
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: &u64| DataSize { bytes: *bytes };
        match self {
            Self::Never => f.write_str("never used, as set"),
            Self::DailyCap { bytes, until } => {
                write!(f, "its cap of {} a day is reached: not used until {until}", size(bytes))
            }
            Self::MonthlyCap { bytes, until } => {
                write!(f, "its cap of {} a month is reached: not used until {until}", size(bytes))
            }
        }
    }
}

impl Account {
    /// A network that has carried nothing.
    pub fn new(config: Settings, today: Date) -> Self {
        let nothing = Period { since: today, bytes: 0 };
        Self {
            config,
            command: Settings::default(),
            present: false,
            today,
            day: nothing,
            month: nothing,
            month_day: config.rules().reset_day,
            reserve: 0,
            reserve_left: 0,
        }
    }

    /// Goes on from what was kept.
    pub(super) fn restore(&mut self, command: Settings, day: Period, month: Period, month_day: u8) {
        (self.command, self.day, self.month, self.month_day) = (command, day, month, month_day);
        let today = self.today;
        self.turn(today);
    }

    /// What is to be kept, with `reserve` bytes counted beforehand.
    pub(super) fn kept(&self, reserve: u64) -> (Settings, Period, Period) {
        let add = |period: Period| Period { bytes: period.bytes.saturating_add(reserve), ..period };
        (self.command, add(self.day), add(self.month))
    }

    /// Whether there is anything to be kept.
    pub(super) fn is_worth_keeping(&self) -> bool {
        !self.command.is_empty() || self.month.bytes > 0 || self.day.bytes > 0
    }

    /// The rules that hold for it.
    pub fn rules(&self) -> Rules {
        self.command.before(self.config).rules()
    }

    pub(super) fn command_mut(&mut self) -> &mut Settings {
        &mut self.command
    }

    pub(super) fn set_present(&mut self, present: bool) {
        self.present = present;
    }

    /// Counts what the network carried.
    pub fn charge(&mut self, bytes: u64) {
        self.day.bytes = self.day.bytes.saturating_add(bytes);
        self.month.bytes = self.month.bytes.saturating_add(bytes);
        self.reserve_left = self.reserve_left.saturating_sub(bytes);
    }

    /// The day on which its months begin, as its use is counted.
    pub(super) fn month_day(&self) -> u8 {
        self.month_day
    }

    /// It is this day now. A clock that is put back gives nothing back, nor does another beginning of months.
    pub fn turn(&mut self, today: Date) {
        self.today = today;
        if today > self.day.since {
            self.day = Period { since: today, bytes: 0 };
        }
        let reset_day = self.rules().reset_day;
        if self.month_day != reset_day {
            self.month_day = reset_day;
            self.month.since = self.month.since.max(today);
        }
        if today >= self.month.since.next_month_start(reset_day) {
            self.month = Period { since: today.month_start(reset_day), bytes: 0 };
        }
    }

    /// What may be done with the network now.
    pub fn ruling(&self) -> Ruling {
        let rules = self.rules();
        let role = match rules.role {
            NetworkRole::Use => PathRole::Use,
            NetworkRole::Backup => PathRole::Backup,
            NetworkRole::Never => return Ruling::Barred(Bar::Never),
        };
        if let Some(bytes) = rules.cap_monthly.filter(|cap| is_reached(*cap, self.month)) {
            let until = self.month.since.next_month_start(rules.reset_day);
            return Ruling::Barred(Bar::MonthlyCap { bytes, until });
        }
        if let Some(bytes) = rules.cap_daily.filter(|cap| is_reached(*cap, self.day)) {
            return Ruling::Barred(Bar::DailyCap { bytes, until: self.day.since.next_day() });
        }
        let rates = self.caps(&rules).filter_map(|(cap, period)| rate(cap, period, rules.soft_percent));
        Ruling::Carries(PathOrder { role, rate: rates.min() })
    }

    /// After how many bytes more the ruling may be another.
    pub fn next_ruling_after(&self) -> u64 {
        let rules = self.rules();
        let next = |(cap, period): (u64, Period)| {
            let left = cap.saturating_sub(period.bytes);
            let to_soft = soft_limit(cap, rules.soft_percent).saturating_sub(period.bytes);
            let to_stop = left.saturating_sub(LAST_BYTES);
            let to_step = doublings(left).map(|k| left - ((LANDING * u64::from(SLOW_RATE)) << k) + 1);
            [Some(to_soft), Some(to_stop), to_step].into_iter().flatten().filter(|bytes| *bytes > 0).min()
        };
        self.caps(&rules).filter_map(next).min().unwrap_or(u64::MAX)
    }

    /// What its socket may still send before it takes nothing more: the caps to the last byte.
    pub fn left(&self) -> u64 {
        let rules = self.rules();
        self.caps(&rules).map(|(cap, period)| cap.saturating_sub(period.bytes)).min().unwrap_or(u64::MAX)
    }

    /// How near the nearest cap is.
    pub fn cap_state(&self) -> CapState {
        let rules = self.rules();
        let state = |(cap, period)| {
            if is_reached(cap, period) {
                CapState::Reached
            } else if rules.soft_percent < 100 && period.bytes >= soft_limit(cap, rules.soft_percent) {
                CapState::Near
            } else {
                CapState::Free
            }
        };
        self.caps(&rules).map(state).max().unwrap_or_default()
    }

    /// How much of what was counted beforehand is left, and how much that was.
    pub(super) fn reserve(&self) -> (u64, u64) {
        (self.reserve_left, self.reserve)
    }

    /// Counts so much beforehand from now on, within the limits; how much that is.
    pub(super) fn set_reserve(&mut self, wished: u64) -> u64 {
        let rules = self.rules();
        let most = self.caps(&rules).map(|(cap, _)| cap / RESERVE_PART).min().unwrap_or(MOST_RESERVE);
        self.reserve = wished.clamp(LEAST_RESERVE.min(most), most.min(MOST_RESERVE));
        self.reserve_left = self.reserve;
        self.reserve
    }

    /// The network as every surface shows it; `None` if there is nothing to show.
    pub fn stats(&self, name: &str) -> Option<NetworkStats> {
        let rules = self.rules();
        let said = !self.command.before(self.config).is_empty();
        let ruling = self.ruling();
        (self.present || said).then(|| NetworkStats {
            name: name.to_owned(),
            // The shell knows.
            kind: InterfaceKind::default(),
            present: self.present,
            role: rules.role,
            metered: rules.metered,
            used_today_bytes: self.day.bytes,
            used_month_bytes: self.month.bytes,
            cap_daily_bytes: rules.cap_daily,
            cap_monthly_bytes: rules.cap_monthly,
            reset_day: rules.reset_day,
            soft_percent: rules.soft_percent,
            cap: self.cap_state(),
            limit_mbps: match ruling {
                Ruling::Carries(order) => order.rate.map(|rate| f64::from(rate) * 8.0 / 1e6),
                Ruling::Barred(_) => None,
            },
            problem: match ruling {
                Ruling::Carries(_) => None,
                Ruling::Barred(bar) => Some(bar.to_string()),
            },
        })
    }

    fn caps(&self, rules: &Rules) -> impl Iterator<Item = (u64, Period)> {
        let both = [(rules.cap_daily, self.day), (rules.cap_monthly, self.month)];
        both.into_iter().filter_map(|(cap, period)| Some((cap?, period)))
    }
}

fn is_reached(cap: u64, period: Period) -> bool {
    cap.saturating_sub(period.bytes) <= LAST_BYTES
}

fn soft_limit(cap: u64, percent: u8) -> u64 {
    (u128::from(cap) * u128::from(percent) / 100) as u64
}

/// How fast a network may go that has carried so much of a cap; `None` as fast as it can.
fn rate(cap: u64, period: Period, soft_percent: u8) -> Option<u32> {
    if soft_percent < 100 && period.bytes >= soft_limit(cap, soft_percent) {
        return Some(SLOW_RATE);
    }
    match doublings(cap.saturating_sub(period.bytes)) {
        Some(k) if k >= MOST_DOUBLINGS => None,
        k => Some(SLOW_RATE << k.unwrap_or(0)),
    }
}

/// How often [`SLOW_RATE`] may be doubled for `left` bytes to last for [`LANDING`]; `None` if they do not even so.
fn doublings(left: u64) -> Option<u32> {
    (left / (LANDING * u64::from(SLOW_RATE))).checked_ilog2()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MB: u64 = 1_000_000;

    fn date(text: &str) -> Date {
        text.parse().expect("a date")
    }

    fn account(settings: &[(&str, &str)]) -> Account {
        let mut config = Settings::default();
        settings.iter().for_each(|(name, value)| config.set(name, value).expect("it is in order"));
        Account::new(config, date("2026-12-01"))
    }

    fn rate_of(account: &Account) -> Option<u32> {
        match account.ruling() {
            Ruling::Carries(order) => order.rate,
            Ruling::Barred(bar) => panic!("{bar}"),
        }
    }

    /// MULTI-11, in the accounts.
    #[test]
    fn a_network_is_slowed_at_the_soft_limit_and_stopped_at_the_cap() {
        let mut account = account(&[("cap-daily", "10 GB")]);
        account.charge(7_999 * MB);
        assert_eq!((rate_of(&account), account.cap_state()), (Some(SLOW_RATE << 12), CapState::Free));
        account.charge(MB);
        assert_eq!((rate_of(&account), account.cap_state()), (Some(SLOW_RATE), CapState::Near));
        account.charge(2_000 * MB - LAST_BYTES - 1);
        assert_eq!(account.cap_state(), CapState::Near);
        account.charge(1);
        let bar = Bar::DailyCap { bytes: 10_000 * MB, until: date("2026-12-02") };
        assert_eq!((account.ruling(), account.cap_state()), (Ruling::Barred(bar), CapState::Reached));
        assert_eq!(bar.to_string(), "its cap of 10 GB a day is reached: not used until 2026-12-02");
        account.turn(date("2026-12-02"));
        assert_eq!((rate_of(&account), account.cap_state()), (None, CapState::Free));
    }

    /// MULTI-11: whatever it could carry, it lands on the cap.
    #[test]
    fn without_a_soft_limit_a_network_still_lands_softly() {
        let mut account = account(&[("cap-monthly", "50 MB"), ("soft-percent", "100")]);
        let (mut flying, mut time_ms) = (std::collections::VecDeque::new(), 0);
        let mut carried = 0;
        // A gigabit, of which the accounts learn after 100 ms.
        while let Ruling::Carries(order) = account.ruling() {
            let rate = u64::from(order.rate.unwrap_or(u32::MAX)).min(125 * MB);
            flying.push_back(rate / 100);
            carried += rate / 100;
            time_ms += 10;
            if flying.len() > 10 {
                account.charge(flying.pop_front().expect("it has eleven"));
            }
        }
        assert!(carried.abs_diff(50 * MB) < 50 * MB / 100, "{carried} bytes in {time_ms} ms");
    }

    #[test]
    fn months_begin_on_their_day_and_a_clock_put_back_gives_nothing_back() {
        let mut account = account(&[("cap-monthly", "10 MB"), ("reset-day", "15")]);
        account.charge(10 * MB);
        for today in ["2026-12-14", "2026-11-20", "1970-01-01"] {
            account.turn(date(today));
            assert_eq!(account.cap_state(), CapState::Reached, "{today}");
        }
        account.turn(date("2026-12-15"));
        assert_eq!(account.cap_state(), CapState::Free);
        account.charge(10 * MB);
        account.turn(date("2027-01-14"));
        assert_eq!(account.cap_state(), CapState::Reached, "the month began on the 15th");
        account.command_mut().set("reset-day", "10").expect("in order");
        account.turn(date("2027-01-14"));
        assert_eq!(account.cap_state(), CapState::Reached, "it goes on until the next 10th");
        account.turn(date("2027-02-10"));
        assert_eq!(account.cap_state(), CapState::Free);
    }

    #[test]
    fn a_network_without_settings_goes_as_fast_as_it_can() {
        let mut account = account(&[]);
        account.charge(u64::MAX);
        account.charge(u64::MAX);
        assert_eq!(account.ruling(), Ruling::default());
        assert_eq!((account.next_ruling_after(), account.left()), (u64::MAX, u64::MAX));
    }

    proptest! {
        /// A ruling holds until as much as was said has been carried.
        #[test]
        fn no_ruling_changes_before_it_is_looked_at(
            cap in 10u64..100_000, soft in 1u8..=100, steps in prop::collection::vec(0.0..1.0f64, 1..60),
        ) {
            let mut account = account(&[("cap-daily", &format!("{cap} MB")), ("soft-percent", &soft.to_string())]);
            for part in steps {
                let (before, after) = (account.ruling(), account.next_ruling_after());
                if matches!(before, Ruling::Barred(_)) {
                    break;
                }
                prop_assert!(after > 0 && after <= account.left());
                let mut short = account.clone();
                short.charge(after - 1);
                prop_assert_eq!(short.ruling(), before);
                account.charge(if part < 0.9 { after } else { (after as f64 * part) as u64 });
            }
        }
    }
}
