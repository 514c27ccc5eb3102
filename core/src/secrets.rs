//! Where pairing links are kept between runs: the system's keychain, or a private file where there is none.
//!
//! A keychain may hang (a service that waits for a screen nobody looks at), so every question to it has
//! [`KEYCHAIN_LIMIT`], and one that was silent is not asked again. A link that the user gives by flag or environment never
//! touches a store; one given in a file is kept up to date there ([`LinkFiles`]).

mod file;
mod keychain;
mod link_files;

pub use file::SecretFile;
pub use keychain::{KEYCHAIN_LIMIT, Keychain};
pub use link_files::LinkFiles;

use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use parking_lot::Mutex;
use tandem_proto::pairing::{PairingLink, Pairings, PairingsError};

/// Keeps the pairings of one user.
pub trait SecretStore: Send + Sync {
    /// The pairings kept here; none if nothing is.
    ///
    /// # Errors
    /// When the store cannot be asked, or what it holds are no pairings.
    fn load(&self) -> Result<Pairings, SecretError>;

    /// Keeps these in place of any others.
    ///
    /// # Errors
    /// When the store cannot take them.
    fn save(&self, pairings: &Pairings) -> Result<Kept, SecretError>;
}

/// Keeps what a relay changes of a link while a session lives: a renewed token, the pin of its next key.
pub trait Keeper: fmt::Debug + Send + Sync + 'static {
    /// Takes over token and pins of this link; may block.
    ///
    /// # Errors
    /// When that fails, or the pairing is not kept here any more.
    fn keep(&self, link: &PairingLink) -> Result<(), SecretError>;
}

/// Where pairings were put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// In the system's keychain.
    Keychain,
    /// In a file that only its owner can read.
    File(PathBuf),
    /// In this process.
    Memory,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::Keychain => f.write_str("the keychain"),
            Kept::File(path) => write!(f, "{} (readable by you alone)", path.display()),
            Kept::Memory => f.write_str("memory"),
        }
    }
}

/// Why a store failed. No variant repeats a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The keychain refused or is not there.
    #[error("the keychain cannot be used")]
    Keychain(#[source] keyring::Error),
    /// The keychain did not answer.
    #[error("the keychain did not answer within {} s", KEYCHAIN_LIMIT.as_secs())]
    KeychainSilent,
    /// A file could not be read or written.
    #[error("{path} cannot be read or written")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: std::io::Error,
    },
    /// Others than the owner may read the file.
    #[error("{0} can be read by others: make it private (chmod 600)")]
    Exposed(PathBuf),
    /// What is stored are not pairings.
    #[error("{place}: this holds no pairing links; pair again, or give the right file")]
    Text {
        /// Where it was found.
        place: Kept,
        /// What is wrong with it.
        #[source]
        source: PairingsError,
    },
    /// The change that was asked for cannot be made.
    #[error(transparent)]
    Change(#[from] PairingsError),
    /// A changed link belongs to no pairing that is kept here.
    #[error("the pairing is not kept here any more")]
    NotKept,
    /// The machine names no place for a user's files.
    #[error("there is no home directory to keep the pairing in")]
    NoHome,
}

/// What is done with pairings that the keychain does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// They go to the private file.
    #[default]
    File,
    /// They are not kept, and the keychain's error is told, unless the file has been chosen before: it holds pairings.
    Refuse,
}

/// The keychain where there is one, else a private file in the user's configuration directory.
#[derive(Debug)]
pub struct SystemStore {
    keychain: Keychain,
    file: SecretFile,
    lock: PathBuf,
    fallback: Fallback,
}

impl SystemStore {
    /// The store of this user.
    ///
    /// # Errors
    /// [`SecretError::NoHome`].
    pub fn new() -> Result<Self, SecretError> {
        let directory = dirs::config_dir().ok_or(SecretError::NoHome)?.join("tandem");
        let (file, lock) = (SecretFile::new(directory.join("pairing")), directory.join("pairing.lock"));
        Ok(Self { keychain: Keychain::default(), file, lock, fallback: Fallback::default() })
    }

    /// The same, with this done where the keychain fails.
    #[must_use]
    pub fn with_fallback(self, fallback: Fallback) -> Self {
        Self { fallback, ..self }
    }

    /// What is kept, and where; `None` while nothing is.
    ///
    /// # Errors
    /// As [`SecretStore::load`].
    pub fn look(&self) -> Result<(Pairings, Option<Kept>), SecretError> {
        // The file first: it is quick, and holds something only if the keychain could not take it.
        let pairings = self.file.load()?;
        if !pairings.is_empty() {
            return Ok((pairings, Some(self.file.place())));
        }
        match self.keychain.load() {
            Err(error @ (SecretError::Keychain(_) | SecretError::KeychainSilent)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no keychain, and no pairing file");
                Ok((Pairings::default(), None))
            }
            Ok(pairings) => {
                let kept = (!pairings.is_empty()).then_some(Kept::Keychain);
                Ok((pairings, kept))
            }
            Err(error) => Err(error),
        }
    }

    /// Changes what is kept, while no other process does; answers with where it is kept now, `None` if nothing changed.
    ///
    /// # Errors
    /// The change's own, and those of loading and saving.
    pub fn update<T>(
        &self,
        change: impl FnOnce(&mut Pairings) -> Result<T, PairingsError>,
    ) -> Result<(T, Option<Kept>), SecretError> {
        let _locked = self.lock().map_err(|source| SecretError::File { path: self.lock.clone(), source })?;
        let before = self.load()?;
        let mut pairings = before.clone();
        let done = change(&mut pairings)?;
        let kept = if pairings == before { None } else { Some(self.save(&pairings)?) };
        Ok((done, kept))
    }

    /// Held until the file is dropped.
    fn lock(&self) -> std::io::Result<File> {
        if let Some(directory) = self.lock.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let file = File::create(&self.lock)?;
        file.lock()?;
        Ok(file)
    }
}

impl SecretStore for SystemStore {
    fn load(&self) -> Result<Pairings, SecretError> {
        self.look().map(|(pairings, _)| pairings)
    }

    fn save(&self, pairings: &Pairings) -> Result<Kept, SecretError> {
        match self.keychain.save(pairings) {
            Ok(kept) => {
                self.file.remove()?;
                Ok(kept)
            }
            Err(error) if self.fallback == Fallback::Refuse && self.file.load()?.is_empty() => Err(error),
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "no keychain: keeping the pairings in a file"
                );
                self.file.save(pairings)
            }
        }
    }
}

/// The store of the user whose process this is.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemKeeper;

impl Keeper for SystemKeeper {
    fn keep(&self, link: &PairingLink) -> Result<(), SecretError> {
        let (known, _) = SystemStore::new()?.update(|pairings| Ok(pairings.renew(link)))?;
        if known { Ok(()) } else { Err(SecretError::NotKept) }
    }
}

/// A store that lives as long as the process, for tests and scripted runs.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Pairings>);

impl SecretStore for MemoryStore {
    fn load(&self) -> Result<Pairings, SecretError> {
        Ok(self.0.lock().clone())
    }

    fn save(&self, pairings: &Pairings) -> Result<Kept, SecretError> {
        *self.0.lock() = pairings.clone();
        Ok(Kept::Memory)
    }
}

impl Keeper for MemoryStore {
    fn keep(&self, link: &PairingLink) -> Result<(), SecretError> {
        if self.0.lock().renew(link) { Ok(()) } else { Err(SecretError::NotKept) }
    }
}
