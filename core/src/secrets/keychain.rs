//! The system's keychain: Secret Service on Linux, Keychain on Apple's systems, Credential Manager on Windows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use keyring::Entry;
use tandem_proto::pairing::{Pairings, Secret};

use super::{Kept, SecretError, SecretStore};

/// How long the keychain may take to answer; together with the rest of a start this stays under 3 s.
pub const KEYCHAIN_LIMIT: Duration = Duration::from_secs(2);

/// The name under which the pairings are kept.
const SERVICE: &str = "tandem";
const USER: &str = "pairing";

/// A keychain entry of this user, with all pairings. (Windows takes 2,560 bytes there, some three pairings; more go to the
/// private file.)
#[derive(Debug, Default)]
pub struct Keychain {
    /// Whether it was asked and did not answer.
    silent: AtomicBool,
}

impl SecretStore for Keychain {
    fn load(&self) -> Result<Pairings, SecretError> {
        let found = self.ask(|entry| match entry.get_password() {
            Ok(text) => Ok(Some(Secret::new(text))),
            Err(keyring::Error::NoEntry) => Ok(None),
            Err(error) => Err(error),
        })?;
        let parse = |text: Secret| Pairings::from_text(text.expose());
        let read = found.map_or(Ok(Pairings::default()), parse);
        read.map_err(|source| SecretError::Text { place: Kept::Keychain, source })
    }

    fn save(&self, pairings: &Pairings) -> Result<Kept, SecretError> {
        let text = (!pairings.is_empty()).then(|| pairings.to_text());
        self.ask(move |entry| match text {
            Some(text) => entry.set_password(text.expose()),
            None => match entry.delete_credential() {
                Err(keyring::Error::NoEntry) => Ok(()),
                done => done,
            },
        })?;
        Ok(Kept::Keychain)
    }
}

impl Keychain {
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(Entry) -> Result<T, keyring::Error> + Send + 'static,
    ) -> Result<T, SecretError> {
        if self.silent.load(Ordering::Relaxed) {
            return Err(SecretError::KeychainSilent);
        }
        let answer = ask(question);
        if let Err(SecretError::KeychainSilent) = answer {
            self.silent.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// Asks on a thread of its own, since the question can neither be cancelled nor be asked inside a runtime. A thread whose
/// keychain never answers is left to the end of the process.
fn ask<T: Send + 'static>(
    question: impl FnOnce(Entry) -> Result<T, keyring::Error> + Send + 'static,
) -> Result<T, SecretError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let spawned = thread::Builder::new().name("keychain".to_owned()).spawn(move || {
        // Nobody listens any more after the limit.
        let _ = sender.send(Entry::new(SERVICE, USER).and_then(question));
    });
    if spawned.is_err() {
        return Err(SecretError::KeychainSilent);
    }
    match receiver.recv_timeout(KEYCHAIN_LIMIT) {
        Ok(answer) => answer.map_err(SecretError::Keychain),
        // A keychain library that panics has not answered either.
        Err(_) => Err(SecretError::KeychainSilent),
    }
}
