//! The pairings as the app changes them, and the choice that a user has where there is no keychain.

use parking_lot::Mutex;
use tandem_core::secrets::{Fallback, Kept, SecretError, SystemStore};
use tandem_proto::pairing::{Pairings, PairingsError};

/// A change of the pairings.
pub type Change = Box<dyn FnOnce(&mut Pairings) -> Result<(), PairingsError> + Send>;

/// Where pairings are kept. Everything here may block.
pub trait Links: Send + Sync + 'static {
    /// What is kept, and where.
    ///
    /// # Errors
    /// [`SecretError`].
    fn load(&self) -> Result<(Pairings, Option<Kept>), SecretError>;

    /// Changes what is kept; where the keychain does not take it, in the private file if that is allowed.
    ///
    /// # Errors
    /// [`SecretError`]; that of the keychain if the file is not allowed.
    fn change(&self, allow_file: bool, change: Change) -> Result<(), SecretError>;
}

/// Those of the user whose process this is.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLinks;

impl Links for SystemLinks {
    fn load(&self) -> Result<(Pairings, Option<Kept>), SecretError> {
        SystemStore::new()?.look()
    }

    fn change(&self, allow_file: bool, change: Change) -> Result<(), SecretError> {
        let fallback = if allow_file { Fallback::File } else { Fallback::Refuse };
        SystemStore::new()?.with_fallback(fallback).update(change).map(drop)
    }
}

/// Those of a test or a script; with a keychain or without.
#[derive(Debug, Default)]
pub struct MemoryLinks {
    pairings: Mutex<Pairings>,
    /// Whether there is no keychain, so that the file is asked for.
    pub without_keychain: bool,
}

impl Links for MemoryLinks {
    fn load(&self) -> Result<(Pairings, Option<Kept>), SecretError> {
        let pairings = self.pairings.lock().clone();
        let kept = (!pairings.is_empty()).then_some(Kept::Memory);
        Ok((pairings, kept))
    }

    fn change(&self, allow_file: bool, change: Change) -> Result<(), SecretError> {
        if self.without_keychain && !allow_file {
            return Err(SecretError::KeychainSilent);
        }
        let mut pairings = self.pairings.lock();
        let mut changed = pairings.clone();
        change(&mut changed)?;
        *pairings = changed;
        Ok(())
    }
}
