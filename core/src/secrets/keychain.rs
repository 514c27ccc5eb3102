//! The system's keychain: Secret Service on Linux, Keychain on Apple's systems, Credential Manager on Windows.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use keyring::Entry;
use tandem_proto::pairing::{PairingLink, Secret};

use super::{Kept, SecretError, SecretStore};

/// How long the keychain may take to answer; together with the rest of a start this stays under 3 s.
pub const KEYCHAIN_LIMIT: Duration = Duration::from_secs(2);

/// The name under which the link is kept.
const SERVICE: &str = "tandem";
const USER: &str = "pairing";

/// A keychain entry of this user.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keychain(());

impl SecretStore for Keychain {
    fn load(&self) -> Result<Option<PairingLink>, SecretError> {
        let found = ask(|entry| match entry.get_password() {
            Ok(text) => Ok(Some(Secret::new(text))),
            Err(keyring::Error::NoEntry) => Ok(None),
            Err(error) => Err(error),
        })?;
        let parse = |text: Secret| text.expose().parse();
        found.map(parse).transpose().map_err(|source| SecretError::Link { place: Kept::Keychain, source })
    }

    fn save(&self, link: &PairingLink) -> Result<Kept, SecretError> {
        let text = Secret::new(link.expose());
        ask(move |entry| entry.set_password(text.expose()))?;
        Ok(Kept::Keychain)
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
