//! The client's configuration file: TOML turned into checked values.
//!
//! ```toml
//! version = 1
//! mode = "bicast"             # single (default) or bicast
//! bicast = "both"             # client, server or both (default); alone it means mode = "bicast"
//! congestion = "bbr3"         # bbr3 (default), bbr3-draft, cubic, newreno, bbr1, bbr2 or bbr-cws
//! interfaces = ["wlan0"]      # default: every way to the internet
//! captive_check = true        # default; false: look for no login pages
//! link_file = "pairing-link"  # relative to this file
//!
//! [proxy]
//! listen = "127.0.0.1:1080"
//! user = "ann"                # user and password go together
//! password = "..."
//!
//! [[network]]                 # by the interface's name
//! name = "wwan0"
//! role = "backup"             # use (default), backup or never
//! metered = true              # a backup unless a role is set
//! cap_daily = "500 MB"        # none by default
//! cap_monthly = "10 GB"
//! reset_day = 15              # of the month; 1 by default
//! soft_percent = 80           # of a cap, from which on it is slowed; 100: it is not
//!
//! [[forward]]
//! listen = "127.0.0.1:8080"
//! target = "example.org:80"
//! ```
//!
//! Every error names the file, the line and the key; an unknown key also the nearest one that exists, and a misplaced one
//! where it belongs. The file's version says which keys it may have; this program reads version [`VERSION`].

mod reader;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::networks::{SettingError, Settings};
use tandem_proto::pairing::Secret;

use self::reader::{Document, Table};
use crate::inbound::{Credentials, Forward};

/// The version of configuration files that this program reads.
pub const VERSION: i64 = 1;

/// What a configuration file says; `None` and empty where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// How the session uses its paths.
    pub mode: Option<Mode>,
    /// The congestion controller, of both directions.
    pub congestion: Option<Algorithm>,
    /// Names of the interfaces to use; empty for every way to the internet.
    pub interfaces: Vec<String>,
    /// What is said of networks, by name.
    pub networks: Vec<(String, Settings)>,
    /// Whether silent networks are looked at for a login page.
    pub captive_check: Option<bool>,
    /// The file with the pairing link.
    pub link_file: Option<PathBuf>,
    /// Where the proxy listens.
    pub listen: Option<SocketAddr>,
    /// What its clients must give.
    pub credentials: Option<Credentials>,
    /// Static forwards.
    pub forwards: Vec<Forward>,
}

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The text is no TOML, or a key is unknown, misplaced, missing or has a wrong value.
    #[error("{path}:{line}: {problem}")]
    Text {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong, with the key.
        problem: String,
    },
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`], for the first thing that is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError::Text`], for the first thing that is wrong.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let document = Document::parse(path, text)?;
        let top = document.top()?;
        match top.integer("version", "1")? {
            Some(VERSION) => {}
            None => return Err(top.wrong("version", "is missing: write version = 1")),
            Some(_) => return Err(top.wrong("version", "must be 1, the version this program reads")),
        }
        let proxy = document.table("proxy")?;
        let forwards = document.tables("forward")?;
        let networks = document.tables("network")?;
        Ok(Self {
            mode: read_mode(&top)?,
            congestion: top.parsed("congestion")?,
            interfaces: top.strings("interfaces")?,
            networks: read_networks(&networks)?,
            captive_check: top.truth("captive_check")?,
            // Joining an absolute path gives that path.
            link_file: top.string("link_file")?.map(|file| path.parent().unwrap_or(Path::new("")).join(file)),
            listen: proxy.as_ref().map(|proxy| proxy.address("listen")).transpose()?.flatten(),
            credentials: proxy.as_ref().map(read_credentials).transpose()?.flatten(),
            forwards: forwards.iter().map(read_forward).collect::<Result<_, _>>()?,
        })
    }
}

fn read_mode(top: &Table<'_>) -> Result<Option<Mode>, ConfigError> {
    let sides = top.parsed::<Sides>("bicast")?;
    match (top.string("mode")?, sides) {
        (None, sides) => Ok(sides.map(Mode::Bicast)),
        (Some("bicast"), sides) => Ok(Some(Mode::Bicast(sides.unwrap_or_default()))),
        (Some("single"), None) => Ok(Some(Mode::Single)),
        (Some("single"), Some(_)) => Err(top.wrong("bicast", "needs mode = \"bicast\"")),
        (Some(_), _) => Err(top.wrong("mode", "must be \"single\" or \"bicast\"")),
    }
}

fn read_credentials(proxy: &Table<'_>) -> Result<Option<Credentials>, ConfigError> {
    let part = |key| match proxy.string(key)? {
        Some(text) if !(1..=255).contains(&text.len()) => Err(proxy.wrong(key, "must have 1 to 255 bytes")),
        text => Ok(text),
    };
    match (part("user")?, part("password")?) {
        (None, None) => Ok(None),
        (Some(user), Some(_)) if user.contains(':') => {
            Err(proxy.wrong("user", "must have no colon, which HTTP forbids"))
        }
        (Some(user), Some(password)) => {
            Ok(Some(Credentials { user: user.to_owned(), password: Secret::new(password.to_owned()) }))
        }
        (Some(_), None) => Err(proxy.wrong("user", "needs a password beside it")),
        (None, Some(_)) => Err(proxy.wrong("password", "needs a user beside it")),
    }
}

fn read_networks(tables: &[Table<'_>]) -> Result<Vec<(String, Settings)>, ConfigError> {
    let mut networks: Vec<(String, Settings)> = Vec::with_capacity(tables.len());
    for network in tables {
        let name = network.string("name")?.ok_or_else(|| network.missing("name"))?;
        if name.is_empty() || networks.iter().any(|(known, _)| known == name) {
            return Err(network.wrong("name", format_args!("is {name:?}; it must be another interface's name")));
        }
        networks.push((name.to_owned(), read_network(network)?));
    }
    Ok(networks)
}

fn read_network(network: &Table<'_>) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    let mut take = |key: &str, value: Option<String>| match value.map(|value| settings.set(key, &value)) {
        Some(Err(SettingError::Value { found, allowed, .. })) => {
            Err(network.wrong(key, format_args!("is {found:?}; it must be {allowed}")))
        }
        Some(Err(error)) => Err(network.wrong(key, error)),
        Some(Ok(())) | None => Ok(()),
    };
    for key in ["role", "cap_daily", "cap_monthly"] {
        take(key, network.string(key)?.map(str::to_owned))?;
    }
    take("metered", network.truth("metered")?.map(|metered| metered.to_string()))?;
    for (key, allowed) in [("reset_day", "a day of the month, 1 to 31"), ("soft_percent", "a percentage, 1 to 100")] {
        take(key, network.integer(key, allowed)?.map(|number| number.to_string()))?;
    }
    Ok(settings)
}

fn read_forward(forward: &Table<'_>) -> Result<Forward, ConfigError> {
    let listen = forward.address("listen")?.ok_or_else(|| forward.missing("listen"))?;
    let target = forward.parsed("target")?.ok_or_else(|| forward.missing("target"))?;
    Ok(Forward { listen, target })
}
