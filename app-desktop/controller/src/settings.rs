//! What the user of the app has chosen, kept in `tandem/desktop.json` in the user's configuration directory.
//!
//! What concerns the engine alone stands in its configuration file (`docs/CLIENT.md`), which the app reads as `tandem run`
//! does; settings of networks are kept by the engine.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tandem_proto::mode::Mode;

/// The version of the file that this program reads and writes.
const VERSION: u32 = 1;

/// The user's choices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Whether the app connects when it starts.
    pub connect_at_start: bool,
    /// Whether the desktop's proxy settings lead to Tandem while it is on.
    pub system_proxy: bool,
    /// Whether notifications tell of networks lost and back, and of caps.
    pub notify: bool,
    /// The mode chosen last; `None` leaves it to the configuration file.
    pub mode: Option<Chosen>,
}

/// A mode; an object of its own in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The mode.
    #[serde(flatten)]
    pub mode: Mode,
}

impl Default for Settings {
    fn default() -> Self {
        Self { connect_at_start: true, system_proxy: false, notify: true, mode: None }
    }
}

/// Why settings cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read or written.
    #[error("{path} cannot be read or written")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{path} holds no settings of this version")]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The file is of another version.
    #[error("{path} is of version {found}; this program reads version {VERSION}")]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: u32,
    },
}

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    #[serde(flatten)]
    settings: Settings,
}

/// Where settings are kept.
#[derive(Debug, Clone)]
pub struct SettingsFile(PathBuf);

impl SettingsFile {
    /// This file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// What is kept; the defaults if nothing is.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn load(&self) -> Result<Settings, SettingsError> {
        let path = || self.0.clone();
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Settings::default()),
            read => read.map_err(|source| SettingsError::File { path: path(), source })?,
        };
        let file: File = serde_json::from_str(&text).map_err(|source| SettingsError::Text { path: path(), source })?;
        if file.version != VERSION {
            return Err(SettingsError::Version { path: path(), found: file.version });
        }
        Ok(file.settings)
    }

    /// Keeps these.
    ///
    /// # Errors
    /// [`SettingsError::File`].
    pub fn save(&self, settings: &Settings) -> Result<(), SettingsError> {
        let file = File { version: VERSION, settings: settings.clone() };
        let done = serde_json::to_vec_pretty(&file).map_err(io::Error::other).and_then(|text| replace(&self.0, &text));
        done.map_err(|source| SettingsError::File { path: self.0.clone(), source })
    }
}

/// Writes a file that is complete before it takes an old one's place, and on the disk when this returns.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tandem_proto::mode::Sides;

    use super::*;

    #[test]
    fn settings_are_kept_and_read_back_and_other_versions_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep").join("desktop.json");
        let file = SettingsFile::new(&path);
        assert_eq!(file.load().unwrap(), Settings::default());
        for mode in [Mode::Single, Mode::Bicast(Sides::Server)] {
            let settings = Settings { system_proxy: true, mode: Some(Chosen { mode }), ..Settings::default() };
            file.save(&settings).unwrap();
            assert_eq!(file.load().unwrap(), settings);
        }
        fs::write(&path, "{\"version\":1}").unwrap();
        assert_eq!(file.load().unwrap(), Settings::default());
        for text in ["{\"version\":2}", "{}", "[", ""] {
            fs::write(&path, text).unwrap();
            let error = file.load().unwrap_err().to_string();
            assert!(error.contains("desktop.json"), "{error}");
        }
    }
}
