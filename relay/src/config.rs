//! `relay.toml`: what the operator decides, checked as it is read.

use std::net::SocketAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tandem_proto::pairing::MAX_RELAYS;
use tandem_proto::wire::flow::Target;

use crate::limits::{LimitError, Limits};

/// The version of the file that this program reads and writes.
const VERSION: u32 = 1;
/// Where a relay listens when nothing else is said.
pub const DEFAULT_LISTEN: &str = "[::]:4433";
/// Where it may tell metrics and health.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:9433";

/// The relay's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// UDP addresses to listen on, 1 or more; `[::]` takes IPv4 as well.
    pub listen: Vec<SocketAddr>,
    /// Addresses under which clients reach the relay, as they stand in pairing links; 1 to [`MAX_RELAYS`].
    pub public: Vec<Target>,
    /// Networks that clients may reach although they are not global.
    pub allow: Vec<IpNet>,
    /// Where metrics and health are told, a loopback address; `None` for nowhere.
    pub admin: Option<SocketAddr>,
    /// Whether clients may measure their networks against the relay, in sessions and by TCP at the ports of `listen`.
    pub measure: bool,
    /// How much the relay takes on.
    pub limits: Limits,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    listen: Vec<SocketAddr>,
    public: Vec<String>,
    #[serde(default)]
    allow: Vec<IpNet>,
    admin: Option<SocketAddr>,
    #[serde(default = "on")]
    measure: bool,
    #[serde(default)]
    limits: Limits,
}

/// Files that say nothing of a service that came later have it.
fn on() -> bool {
    true
}

/// Why a text is no configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Not TOML, an unknown key, or a value of a wrong kind; the message shows the line.
    #[error(transparent)]
    Form(#[from] toml::de::Error),
    /// Of another version of the program.
    #[error("version is {0}; this program reads version {VERSION}")]
    Version(u32),
    /// Nothing to listen on.
    #[error("listen is empty; it must name at least one address, such as {DEFAULT_LISTEN:?}")]
    Listen,
    /// A public address is wrong.
    #[error("public address is wrong")]
    Public(#[from] tandem_proto::wire::flow::TargetError),
    /// No public address, or too many for a link.
    #[error("public holds {0} addresses; 1 to {MAX_RELAYS} are allowed")]
    PublicCount(usize),
    /// Metrics and health would be told to everyone.
    #[error(
        "admin is {0}; it must be a loopback address, such as {DEFAULT_ADMIN:?}: whoever asks there needs no password"
    )]
    Admin(SocketAddr),
    /// A limit is out of its range.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl Config {
    /// Reads the file's text.
    ///
    /// # Errors
    /// [`ConfigError`] with the key, what was found and what is allowed.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text)?;
        if file.version != VERSION {
            return Err(ConfigError::Version(file.version));
        }
        let public = file.public.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        let File { listen, allow, admin, measure, limits, .. } = file;
        let config = Config { listen, public, allow, admin, measure, limits };
        config.check()?;
        Ok(config)
    }

    /// Checks what [`Config::parse`] checks.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.listen.is_empty() {
            return Err(ConfigError::Listen);
        }
        if !(1..=MAX_RELAYS).contains(&self.public.len()) {
            return Err(ConfigError::PublicCount(self.public.len()));
        }
        if let Some(admin) = self.admin.filter(|admin| !admin.ip().is_loopback()) {
            return Err(ConfigError::Admin(admin));
        }
        Ok(self.limits.check()?)
    }

    /// The file's text, with a line of explanation for each key.
    pub fn to_text(&self) -> String {
        let list = |items: Vec<String>| items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ");
        let listen = list(self.listen.iter().map(SocketAddr::to_string).collect());
        let public = list(self.public.iter().map(Target::to_string).collect());
        let allow = list(self.allow.iter().map(IpNet::to_string).collect());
        let admin = match self.admin {
            Some(admin) => format!("admin = \"{admin}\""),
            None => format!("# admin = {DEFAULT_ADMIN:?}"),
        };
        let measure = self.measure;
        let limits = self.limits_text();
        format!(
            "# Settings of a Tandem relay.\n\
             version = {VERSION}\n\
             # UDP addresses to listen on; \"[::]\" takes IPv4 as well.\n\
             listen = [{listen}]\n\
             # Addresses under which clients reach this relay; they go into pairing links.\n\
             public = [{public}]\n\
             # Networks that clients may reach although they are private or this machine's own, such as \"10.1.0.0/16\".\n\
             allow = [{allow}]\n\
             # Loopback address where metrics (/metrics) and health (/healthz, /readyz) are told over HTTP.\n\
             {admin}\n\
             # Whether clients may measure throughput and fairness against this relay, in sessions and, with a ticket from there,\n\
             # by TCP at the ports of listen.\n\
             measure = {measure}\n\
             \n\
             # How much the relay takes on; docs/RELAY.md explains each.\n\
             [limits]\n\
             {limits}"
        )
    }

    /// A line for each limit; those that are the default stand in comments, so that they follow it.
    fn limits_text(&self) -> String {
        let (own, default) = (lines(self.limits), lines(Limits::default()));
        let line = |(own, default): (&String, &String)| match own == default {
            true => format!("# {own}\n"),
            false => format!("{own}\n"),
        };
        own.iter().zip(&default).map(line).collect()
    }
}

fn lines(limits: Limits) -> Vec<String> {
    toml::to_string(&limits).expect("numbers are TOML").lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            listen: vec!["[::]:4433".parse().unwrap(), "192.0.2.1:443".parse().unwrap()],
            public: vec!["relay.example.org:4433".parse().unwrap(), "[2001:db8::1]:4433".parse().unwrap()],
            allow: vec!["10.1.0.0/16".parse().unwrap()],
            admin: Some("127.0.0.1:9433".parse().unwrap()),
            measure: true,
            limits: Limits { sessions_per_device: 3, ..Limits::default() },
        }
    }

    #[test]
    fn a_configuration_reads_back() {
        assert_eq!(Config::parse(&config().to_text()), Ok(config()));
        let no_exceptions =
            Config { allow: Vec::new(), admin: None, measure: false, limits: Limits::default(), ..config() };
        assert_eq!(Config::parse(&no_exceptions.to_text()), Ok(no_exceptions));
    }

    #[test]
    fn a_wrong_configuration_is_refused_with_the_key_and_what_was_found() {
        let text = config().to_text();
        let error = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            Config::parse(&text.replace(from, to)).unwrap_err().to_string()
        };
        assert!(error("version = 1", "version = 2").contains("version is 2"));
        let unknown = error("allow =", "alow =");
        assert!(unknown.contains("alow") && unknown.contains("allow") && unknown.contains("line 8"), "{unknown}");
        assert!(error("[::]:4433", "[::]").contains("listen"));
        assert!(error("\"[::]:4433\", \"192.0.2.1:443\"", "").contains("listen is empty"));
        assert!(
            error("relay.example.org:4433\", \"[2001:db8::1]:4433", "relay.example.org").contains("public address")
        );
        assert!(
            error("127.0.0.1:9433", "0.0.0.0:9433").contains("admin is 0.0.0.0:9433; it must be a loopback address")
        );
        let error_of = error("sessions_per_device = 3", "sessions_per_device = 0");
        assert!(error_of.contains("limits.sessions_per_device is 0; 1 to 100000"), "{error_of}");
        let unknown = error("sessions_per_device = 3", "session_per_device = 3");
        assert!(unknown.contains("session_per_device") && unknown.contains("sessions_per_device"), "{unknown}");
        assert!(error("10.1.0.0/16", "10.1.0.0/99").contains("10.1.0.0/99"));
    }
}
