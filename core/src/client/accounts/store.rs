//! The file that keeps the accounts, and the lock that keeps it to one client.
//!
//! It is written whole beside the old one and takes its place at once, so that a crash leaves one of the two. Writing happens
//! where the accounts are looked at: it takes less than a millisecond, and half of what is counted beforehand is left for it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tandem_proto::networks::Kept;

/// The longest file that is read, in bytes: a thousand networks and more.
const LONGEST: u64 = 1024 * 1024;

/// Why what is kept of the networks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another client keeps its accounts there.
    #[error("another client keeps the networks' use in {0}: stop it, or give this one its own file (--state)")]
    InUse(PathBuf),
    /// The file cannot be read.
    #[error("{path}, where the networks' use is kept, cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// It holds something else.
    #[error(
        "{path}, where the networks' use is kept, is damaged: {problem}; correct it, or remove it and set roles and caps anew"
    )]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl StateError {
    pub(super) fn wrong(path: Option<&Path>, problem: impl ToString) -> Self {
        Self::Wrong { path: path.unwrap_or(Path::new("")).to_owned(), problem: problem.to_string() }
    }
}

/// A file that this client alone writes.
pub(super) struct Store {
    path: PathBuf,
    /// Locked for as long as it is open.
    _lock: File,
    failed: bool,
}

impl Store {
    /// Takes the file, which need not exist, and reads it; `None` for a place that cannot be written to.
    pub(super) fn open(path: &Path) -> Result<(Option<Self>, Kept), StateError> {
        let kept = Self::load(path)?;
        let lock = match lock(path) {
            Ok(lock) => lock,
            Err(TryLockError::WouldBlock) => return Err(StateError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(path = %path.display(), %error, "what networks carry cannot be kept over a restart");
                return Ok((None, kept));
            }
        };
        Ok((Some(Self { path: path.to_owned(), _lock: lock, failed: false }), kept))
    }

    /// Reads a file, which need not exist.
    pub(super) fn load(path: &Path) -> Result<Kept, StateError> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
            Err(source) => return Err(StateError::Read { path: path.to_owned(), source }),
            Ok(_) => {}
        }
        serde_json::from_str(&text).map_err(|error| StateError::wrong(Some(path), error))
    }

    /// Writes the file.
    pub(super) fn save(&mut self, kept: &Kept) {
        let saved = self.write(kept);
        if let Err(error) = &saved
            && !self.failed
        {
            tracing::warn!(path = %self.path.display(), %error, "what networks carry cannot be kept over a restart");
        }
        self.failed = saved.is_err();
    }

    fn write(&self, kept: &Kept) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        // Private by its maker, complete before it takes the old one's place.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        let mut text = serde_json::to_vec_pretty(kept)?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.persist(&self.path)?;
        Ok(())
    }
}

/// Beside the file, which is another one after every writing.
fn lock(path: &Path) -> Result<File, TryLockError> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(TryLockError::Error)?;
    }
    let file = File::create(path.with_extension("lock")).map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(file)
}
