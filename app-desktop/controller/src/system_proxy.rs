//! The desktop's proxy settings: led to Tandem while it is on, and put back as they were, after a crash too.
//!
//! Before anything is changed, what was there is written to a journal; whoever finds a journal at the next start puts it
//! back. A setting that someone else has changed in the meantime is theirs, and left alone.
//!
//! A [`Desktop`] reads and writes settings by name and decides nothing; [`SystemProxy`] decides.

mod commands;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use self::commands::find as find_desktop;

/// A setting's value as its desktop writes it; `None` where it is not set.
pub type Value = Option<String>;

/// The proxy settings of one kind of desktop.
pub trait Desktop: Send + Sync {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// What every setting would be that leads to a proxy which speaks HTTP and SOCKS5, in the order in which they are
    /// changed: what makes the others count comes last, so that no program meets a half of them. They are put back in the
    /// opposite order.
    fn leading_to(&self, proxy: SocketAddr) -> Vec<(String, Value)>;

    /// What a setting is.
    ///
    /// # Errors
    /// When the desktop does not tell.
    fn read(&self, setting: &str) -> io::Result<Value>;

    /// What these settings are, in their order: at once where that is quicker.
    ///
    /// # Errors
    /// When the desktop does not tell, with the setting.
    fn read_all(&self, settings: &[&str]) -> Result<Vec<Value>, (String, io::Error)> {
        let read = |setting: &&str| self.read(setting).map_err(|error| ((*setting).to_owned(), error));
        settings.iter().map(read).collect()
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// When the desktop does not take it.
    fn write(&self, setting: &str, value: &Value) -> io::Result<()>;

    /// Tells programs that run that settings have changed.
    fn tell(&self) {}
}

/// Sets and restores the proxy settings of the user's desktop.
pub struct SystemProxy {
    desktop: Option<Box<dyn Desktop>>,
    journal: PathBuf,
}

/// Why settings could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum SystemProxyError {
    /// There is nothing that could be set.
    #[error("this desktop has no proxy settings that Tandem knows: set them by hand")]
    NoDesktop,
    /// What was there cannot be written down, so nothing was changed.
    #[error("what the settings were cannot be kept in {path}")]
    Journal {
        /// The journal.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// A setting cannot be read or written.
    #[error("the desktop's proxy setting {setting} cannot be read or changed")]
    Setting {
        /// Which.
        setting: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A setting before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    setting: String,
    before: Value,
    set: Value,
}

/// What is to be put back.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Journal {
    desktop: String,
    changes: Vec<Change>,
}

impl SystemProxy {
    /// The settings of this desktop, with a journal in this file.
    pub fn new(desktop: Option<Box<dyn Desktop>>, journal: impl Into<PathBuf>) -> Self {
        Self { desktop, journal: journal.into() }
    }

    /// Whose settings they are; `None` where there is nothing to set.
    pub fn desktop(&self) -> Option<&'static str> {
        self.desktop.as_ref().map(|desktop| desktop.name())
    }

    /// Leads the settings to a proxy.
    ///
    /// # Errors
    /// [`SystemProxyError`]; what was changed up to then is put back.
    pub fn set(&self, proxy: SocketAddr) -> Result<(), SystemProxyError> {
        let desktop = self.desktop.as_deref().ok_or(SystemProxyError::NoDesktop)?;
        self.restore()?;
        let failed = |setting: &str, source| SystemProxyError::Setting { setting: setting.to_owned(), source };
        let leading = desktop.leading_to(proxy);
        let names: Vec<_> = leading.iter().map(|(setting, _)| setting.as_str()).collect();
        let before = desktop.read_all(&names).map_err(|(setting, source)| failed(&setting, source))?;
        let change = |((setting, set), before)| Change { setting, before, set };
        let changes = leading.into_iter().zip(before).map(change).collect();
        let journal = Journal { desktop: desktop.name().to_owned(), changes };
        let text = serde_json::to_vec_pretty(&journal).map_err(io::Error::other);
        let kept = text.and_then(|text| crate::settings::replace(&self.journal, &text));
        kept.map_err(|source| SystemProxyError::Journal { path: self.journal.clone(), source })?;
        for change in &journal.changes {
            if let Err(source) = desktop.write(&change.setting, &change.set) {
                // The first error is the one to tell.
                let _ = self.restore();
                return Err(failed(&change.setting, source));
            }
        }
        desktop.tell();
        Ok(())
    }

    /// Puts back what was there, if anything was changed and is not put back yet: by this process or by one that crashed.
    ///
    /// # Errors
    /// [`SystemProxyError`]; the journal stays, to be tried again.
    pub fn restore(&self) -> Result<(), SystemProxyError> {
        let failed = |source| SystemProxyError::Journal { path: self.journal.clone(), source };
        let journal: Journal = match fs::read(&self.journal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => serde_json::from_slice(&read.map_err(failed)?).map_err(|error| failed(error.into()))?,
        };
        let desktop = self.desktop.as_deref().ok_or(SystemProxyError::NoDesktop)?;
        // Of another desktop, whose settings cannot be reached now; its next session finds the journal.
        if journal.desktop != desktop.name() {
            return Ok(());
        }
        let of = |setting: &str, source| SystemProxyError::Setting { setting: setting.to_owned(), source };
        let names: Vec<_> = journal.changes.iter().map(|change| change.setting.as_str()).collect();
        let now = desktop.read_all(&names).map_err(|(setting, source)| of(&setting, source))?;
        for (Change { setting, before, set }, now) in journal.changes.iter().zip(now).rev() {
            if now == *set && before != set {
                desktop.write(setting, before).map_err(|source| of(setting, source))?;
            }
        }
        desktop.tell();
        fs::remove_file(&self.journal).map_err(failed)
    }
}

#[cfg(test)]
mod tests;
