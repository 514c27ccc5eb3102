//! The desktops whose settings are changed by a command: GNOME and its relatives by `gsettings`, KDE by `kwriteconfig`.
//!
//! Other systems have none yet: a file for each belongs here.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::process::Command;

use super::{Desktop, Value};

/// The desktop of this session, if its settings can be changed here.
pub fn find() -> Option<Box<dyn Desktop>> {
    let desktop = env::var("XDG_CURRENT_DESKTOP").unwrap_or_default().to_ascii_uppercase();
    if desktop.split(':').any(|name| name == "KDE") {
        let version = |read, write| Kde { read, write };
        let versions = [version("kreadconfig6", "kwriteconfig6"), version("kreadconfig5", "kwriteconfig5")];
        let found = versions.into_iter().find(|kde| run(kde.read, ["--help"]).is_ok());
        return found.map(|kde| Box::new(kde) as Box<dyn Desktop>);
    }
    let has_schema = run("gsettings", ["get", SCHEMA, "mode"]).is_ok();
    has_schema.then(|| Box::new(Gnome) as Box<dyn Desktop>)
}

const SCHEMA: &str = "org.gnome.system.proxy";

/// GNOME, Cinnamon, Budgie, Unity, and programs elsewhere that read the same settings. A setting is named `SCHEMA KEY`.
struct Gnome;

impl Desktop for Gnome {
    fn name(&self) -> &'static str {
        "GNOME"
    }

    fn leading_to(&self, proxy: SocketAddr) -> Vec<(String, Value)> {
        let mut settings = Vec::new();
        for kind in ["http", "https", "socks"] {
            settings.push((format!("{SCHEMA}.{kind} host"), Some(format!("'{}'", proxy.ip()))));
            settings.push((format!("{SCHEMA}.{kind} port"), Some(proxy.port().to_string())));
        }
        settings.push((format!("{SCHEMA} mode"), Some("'manual'".to_owned())));
        settings
    }

    fn read(&self, setting: &str) -> io::Result<Value> {
        let (schema, key) = split(setting)?;
        run("gsettings", ["get", schema, key]).map(Some)
    }

    /// Each command costs a process, and quitting waits for them.
    fn read_all(&self, settings: &[&str]) -> Result<Vec<Value>, (String, io::Error)> {
        let list = run("gsettings", ["list-recursively", SCHEMA]).map_err(|error| (SCHEMA.to_owned(), error))?;
        settings.iter().map(|setting| listed(&list, setting)).collect()
    }

    fn write(&self, setting: &str, value: &Value) -> io::Result<()> {
        let (schema, key) = split(setting)?;
        match value {
            Some(value) => run("gsettings", ["set", schema, key, value]),
            None => run("gsettings", ["reset", schema, key]),
        }
        .map(drop)
    }
}

/// A setting's value in a list of them, a line each: schema, key, value.
fn listed(list: &str, setting: &str) -> Result<Value, (String, io::Error)> {
    let value = list.lines().find_map(|line| line.strip_prefix(setting)?.strip_prefix(' '));
    match value {
        Some(value) => Ok(Some(value.to_owned())),
        None => Err((setting.to_owned(), io::ErrorKind::NotFound.into())),
    }
}

fn split(setting: &str) -> io::Result<(&str, &str)> {
    setting.split_once(' ').ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// KDE's `kioslaverc`.
struct Kde {
    read: &'static str,
    write: &'static str,
}

const GROUP: [&str; 4] = ["--file", "kioslaverc", "--group", "Proxy Settings"];
/// What is not set: KDE has no word for it.
const UNSET: &str = "-tandem-unset-";

impl Desktop for Kde {
    fn name(&self) -> &'static str {
        "KDE"
    }

    fn leading_to(&self, proxy: SocketAddr) -> Vec<(String, Value)> {
        let url = |scheme: &str| Some(format!("{scheme}://{} {}", host(proxy), proxy.port()));
        let settings = [
            ("httpProxy", url("http")),
            ("httpsProxy", url("http")),
            ("socksProxy", url("socks")),
            ("ProxyType", Some("1".to_owned())),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn read(&self, setting: &str) -> io::Result<Value> {
        let arguments = GROUP.into_iter().chain(["--key", setting, "--default", UNSET]);
        run(self.read, arguments).map(|value| Some(value).filter(|value| value != UNSET))
    }

    fn write(&self, setting: &str, value: &Value) -> io::Result<()> {
        let arguments = GROUP.into_iter().chain(["--key", setting]);
        match value {
            Some(value) => run(self.write, arguments.chain([value.as_str()])),
            None => run(self.write, arguments.chain(["--delete", ""])),
        }
        .map(drop)
    }

    fn tell(&self) {
        // Programs that miss it read the file when they start.
        let signal = ["--type=signal", "/KIO/Scheduler", "org.kde.KIO.Scheduler.reparseSlaveConfiguration", "string:"];
        let _ = run("dbus-send", signal);
    }
}

fn host(proxy: SocketAddr) -> String {
    match proxy {
        SocketAddr::V4(proxy) => proxy.ip().to_string(),
        SocketAddr::V6(proxy) => format!("[{}]", proxy.ip()),
    }
}

/// What a command prints, without the line's end.
fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{program}: {}", said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_in_a_list_by_schema_and_key() {
        let list = "org.gnome.system.proxy mode 'none'\norg.gnome.system.proxy.http host 'a b'\n\
                    org.gnome.system.proxy.http host-2 'c'\norg.gnome.system.proxy.http port 8080";
        let found = |setting: &str| listed(list, setting).ok().flatten();
        assert_eq!(found("org.gnome.system.proxy mode").as_deref(), Some("'none'"));
        assert_eq!(found("org.gnome.system.proxy.http host").as_deref(), Some("'a b'"));
        assert_eq!(found("org.gnome.system.proxy.http port").as_deref(), Some("8080"));
        assert_eq!(
            listed(list, "org.gnome.system.proxy.socks port").unwrap_err().0,
            "org.gnome.system.proxy.socks port"
        );
    }
}
