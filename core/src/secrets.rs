//! Where a pairing link is kept between runs: the system's keychain, or a private file where there is none.
//!
//! A keychain may hang (a service that waits for a screen nobody looks at), so every question to it has
//! [`KEYCHAIN_LIMIT`]. A link that the user gives by flag, file or environment never touches a store.

mod file;
mod keychain;

pub use file::SecretFile;
pub use keychain::{KEYCHAIN_LIMIT, Keychain};

use std::fmt;
use std::path::PathBuf;

use parking_lot::Mutex;
use tandem_proto::pairing::{LinkError, PairingLink};

/// Keeps one pairing link.
pub trait SecretStore: Send + Sync {
    /// The link kept here, if any.
    ///
    /// # Errors
    /// When the store cannot be asked, or what it holds is no link.
    fn load(&self) -> Result<Option<PairingLink>, SecretError>;

    /// Keeps a link in place of any other.
    ///
    /// # Errors
    /// When the store cannot take it.
    fn save(&self, link: &PairingLink) -> Result<Kept, SecretError>;
}

/// Where a link was put.
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
    /// What is stored is not a pairing link.
    #[error("what is stored in {place} is no pairing link: pair again")]
    Link {
        /// Where it was found.
        place: Kept,
        /// What is wrong with it.
        #[source]
        source: LinkError,
    },
    /// The machine names no place for a user's files.
    #[error("there is no home directory to keep the pairing in")]
    NoHome,
}

/// The keychain where there is one, else a private file in the user's configuration directory.
pub struct SystemStore {
    keychain: Keychain,
    file: SecretFile,
}

impl SystemStore {
    /// The store of this user.
    ///
    /// # Errors
    /// [`SecretError::NoHome`].
    pub fn new() -> Result<Self, SecretError> {
        let directory = dirs::config_dir().ok_or(SecretError::NoHome)?;
        Ok(Self { keychain: Keychain::default(), file: SecretFile::new(directory.join("tandem").join("pairing")) })
    }
}

impl SecretStore for SystemStore {
    fn load(&self) -> Result<Option<PairingLink>, SecretError> {
        // The file first: it is quick, and holds a link only if the keychain could not take it.
        if let Some(link) = self.file.load()? {
            return Ok(Some(link));
        }
        match self.keychain.load() {
            Err(error @ (SecretError::Keychain(_) | SecretError::KeychainSilent)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no keychain, and no pairing file");
                Ok(None)
            }
            done => done,
        }
    }

    fn save(&self, link: &PairingLink) -> Result<Kept, SecretError> {
        match self.keychain.save(link) {
            Ok(kept) => {
                self.file.remove()?;
                Ok(kept)
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no keychain: keeping the pairing in a file");
                self.file.save(link)
            }
        }
    }
}

/// A store that lives as long as the process, for tests and scripted runs.
#[derive(Default)]
pub struct MemoryStore(Mutex<Option<PairingLink>>);

impl SecretStore for MemoryStore {
    fn load(&self) -> Result<Option<PairingLink>, SecretError> {
        Ok(self.0.lock().clone())
    }

    fn save(&self, link: &PairingLink) -> Result<Kept, SecretError> {
        *self.0.lock() = Some(link.clone());
        Ok(Kept::Memory)
    }
}
