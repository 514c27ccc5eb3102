//! What a user may say of a network, and what follows from it.
//!
//! Whatever is said by command goes before the configuration, and that before the defaults. Every setting has one name on
//! the command line and the control socket, and the same with `_` for `-` in the configuration.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::size::{DataSize, WrongSize};

/// The smallest cap: what is on its way when it is reached is less than a hundredth of it.
pub const MIN_CAP: DataSize = DataSize { bytes: 10_000_000 };

/// From this share of a cap on a network is slowed, unless told otherwise.
const SOFT_PERCENT: u8 = 80;

/// What a network is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkRole {
    /// It carries data.
    #[default]
    Use,
    /// It is joined and kept alive, and carries data only while no network for use works.
    Backup,
    /// It is left alone.
    Never,
}

/// A limit, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Cap {
    /// No limit.
    Unlimited,
    /// So much.
    At(DataSize),
}

/// What was said of a network; `None` where nothing was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Settings {
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<NetworkRole>,
    /// Whether its data costs money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered: Option<bool>,
    /// The most it may carry in a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_daily: Option<Cap>,
    /// The most it may carry in a month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_monthly: Option<Cap>,
    /// The day on which a month begins, 1 to 31.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_day: Option<u8>,
    /// The share of a cap from which on the network is slowed, in percent, 1 to 100; 100 means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_percent: Option<u8>,
}

/// What follows for a network from everything that was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// What it is for.
    pub role: NetworkRole,
    /// Whether its data costs money.
    pub metered: bool,
    /// The most it may carry in a day, in bytes.
    pub cap_daily: Option<u64>,
    /// The most it may carry in a month, in bytes.
    pub cap_monthly: Option<u64>,
    /// The day on which a month begins.
    pub reset_day: u8,
    /// The share of a cap from which on it is slowed, in percent.
    pub soft_percent: u8,
}

/// What is wrong with a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting.
    #[error("{0:?} is no setting of a network: there are {list}", list = Settings::NAMES.join(", "))]
    Name(String),
    /// The value does not fit.
    #[error("{setting} is {found:?}; it must be {allowed}")]
    Value {
        /// Which setting.
        setting: &'static str,
        /// What was found.
        found: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

impl Settings {
    /// The names of all settings.
    pub const NAMES: [&'static str; 6] = ["role", "metered", "cap-daily", "cap-monthly", "reset-day", "soft-percent"];

    /// Takes a setting by its name, with `-` or `_`.
    ///
    /// # Errors
    /// [`SettingError`]; nothing is changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let plain = name.replace('_', "-");
        let setting = Self::NAMES.into_iter().find(|known| *known == plain);
        let setting = setting.ok_or_else(|| SettingError::Name(name.to_owned()))?;
        let wrong = |allowed| SettingError::Value { setting, found: value.to_owned(), allowed };
        let percent_or_day = |most: u8, allowed| match value.parse() {
            Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
            _ => Err(wrong(allowed)),
        };
        let cap = || value.parse::<Cap>().map(Some).map_err(|_| wrong(Cap::ALLOWED));
        match setting {
            "role" => self.role = Some(value.parse().map_err(|()| wrong(NetworkRole::ALLOWED))?),
            "metered" => self.metered = Some(value.parse().map_err(|_| wrong("true or false"))?),
            "cap-daily" => self.cap_daily = cap()?,
            "cap-monthly" => self.cap_monthly = cap()?,
            "reset-day" => self.reset_day = percent_or_day(31, "a day of the month, 1 to 31")?,
            _ => self.soft_percent = percent_or_day(100, "a percentage from 1 to 100")?,
        }
        Ok(())
    }

    /// Whether anything was said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What was said here, and where nothing was, there.
    #[must_use]
    pub fn before(self, other: Self) -> Self {
        Self {
            role: self.role.or(other.role),
            metered: self.metered.or(other.metered),
            cap_daily: self.cap_daily.or(other.cap_daily),
            cap_monthly: self.cap_monthly.or(other.cap_monthly),
            reset_day: self.reset_day.or(other.reset_day),
            soft_percent: self.soft_percent.or(other.soft_percent),
        }
    }

    /// What follows. Data that costs money is used beside other networks only with its user's consent, which is a role.
    pub fn rules(self) -> Rules {
        let metered = self.metered.unwrap_or(false);
        let bytes = |cap: Option<Cap>| match cap {
            Some(Cap::At(size)) => Some(size.bytes),
            Some(Cap::Unlimited) | None => None,
        };
        Rules {
            role: self.role.unwrap_or(if metered { NetworkRole::Backup } else { NetworkRole::Use }),
            metered,
            cap_daily: bytes(self.cap_daily),
            cap_monthly: bytes(self.cap_monthly),
            reset_day: self.reset_day.unwrap_or(1),
            soft_percent: self.soft_percent.unwrap_or(SOFT_PERCENT),
        }
    }
}

impl NetworkRole {
    const ALLOWED: &'static str = "use, backup or never";
}

impl FromStr for NetworkRole {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "use" => Ok(Self::Use),
            "backup" => Ok(Self::Backup),
            "never" => Ok(Self::Never),
            _ => Err(()),
        }
    }
}

impl fmt::Display for NetworkRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Use => "use",
            Self::Backup => "backup",
            Self::Never => "never",
        })
    }
}

impl Cap {
    const ALLOWED: &'static str = "none, or at least 10 MB, such as \"2 GB\" (kB, MB, GB and TB are powers of 1,000)";
}

impl FromStr for Cap {
    type Err = WrongSize;

    fn from_str(text: &str) -> Result<Self, WrongSize> {
        if text == "none" {
            return Ok(Self::Unlimited);
        }
        let size: DataSize = text.parse()?;
        if size < MIN_CAP { Err(WrongSize(text.to_owned())) } else { Ok(Self::At(size)) }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("none"),
            Self::At(size) => size.fmt(f),
        }
    }
}

impl TryFrom<String> for Cap {
    type Error = WrongSize;

    fn try_from(text: String) -> Result<Self, WrongSize> {
        text.parse()
    }
}

impl From<Cap> for String {
    fn from(cap: Cap) -> Self {
        cap.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_taken_by_its_name_and_nothing_else_is() {
        let mut settings = Settings::default();
        for (name, value) in [
            ("role", "backup"),
            ("metered", "true"),
            ("cap-daily", "500 MB"),
            ("cap_monthly", "none"),
            ("reset-day", "31"),
            ("soft_percent", "100"),
        ] {
            settings.set(name, value).expect(name);
        }
        let text = serde_json::to_string(&settings).expect("plain data");
        assert_eq!(serde_json::from_str::<Settings>(&text).expect("it was just written"), settings);
        let rules = settings.rules();
        assert_eq!((rules.cap_daily, rules.cap_monthly), (Some(500_000_000), None));

        let before = settings;
        for (name, value, words) in [
            ("roll", "use", "role, metered, cap-daily, cap-monthly, reset-day, soft-percent"),
            ("role", "always", "role is \"always\"; it must be use, backup or never"),
            ("metered", "yes", "metered is \"yes\"; it must be true or false"),
            ("cap-daily", "5 MB", "at least 10 MB"),
            ("cap-monthly", "much", "such as \"2 GB\""),
            ("reset-day", "32", "1 to 31"),
            ("soft-percent", "0", "1 to 100"),
        ] {
            let error = settings.set(name, value).expect_err(name).to_string();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(settings, before);
    }

    #[test]
    fn a_metered_network_is_a_backup_unless_its_user_consents() {
        let metered = Settings { metered: Some(true), ..Settings::default() };
        assert_eq!(metered.rules().role, NetworkRole::Backup);
        let consented = Settings { role: Some(NetworkRole::Use), ..metered };
        assert_eq!(consented.rules().role, NetworkRole::Use);
        assert_eq!(Settings::default().rules().role, NetworkRole::Use);
    }

    #[test]
    fn commands_go_before_the_configuration_setting_by_setting() {
        let command = Settings { cap_daily: Some(Cap::Unlimited), ..Settings::default() };
        let config = Settings { cap_daily: Some(Cap::At(MIN_CAP)), reset_day: Some(5), ..Settings::default() };
        let rules = command.before(config).rules();
        assert_eq!((rules.cap_daily, rules.reset_day), (None, 5));
    }
}
