//! Rotation of the key that clients pin: prepare, announce, switch.
//!
//! A prepared key is announced to every client that connects, and to those that are connected; they pin it beside the present
//! one. After the switch and a restart the relay proves the new key: clients that saw the announcement connect as before, others
//! need a new link. The old key's file is kept under another name.

use std::fs;
use std::io;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;

use super::{Directory, DirectoryError, IDENTITY, NEXT_IDENTITY};
use crate::identity::Identity;

/// How often the files are looked at.
const POLL: Duration = Duration::from_secs(1);

/// SHA-256 of a key's SubjectPublicKeyInfo.
pub type Pin = [u8; 32];

impl Directory {
    /// Makes the key to come.
    ///
    /// # Errors
    /// [`DirectoryError::Prepared`] if there is one, and what the system says.
    pub fn prepare_key(&self) -> Result<Pin, DirectoryError> {
        if self.file(NEXT_IDENTITY).exists() {
            return Err(DirectoryError::Prepared(self.file(NEXT_IDENTITY)));
        }
        let identity = Identity::generate()
            .map_err(|source| DirectoryError::Identity { path: self.file(NEXT_IDENTITY), source })?;
        self.append(NEXT_IDENTITY, identity.to_pem().expose())?;
        Ok(identity.pin())
    }

    /// Makes the key to come the present one, which counts from the relay's next start on.
    ///
    /// # Errors
    /// [`DirectoryError::NotPrepared`] if there is none, and what the system says.
    pub fn switch_key(&self, now: OffsetDateTime) -> Result<Pin, DirectoryError> {
        let pin = self.next_pin()?.ok_or_else(|| DirectoryError::NotPrepared(self.file(NEXT_IDENTITY)))?;
        let (present, next) = (self.file(IDENTITY), self.file(NEXT_IDENTITY));
        let rename = |from: &std::path::Path, to: &std::path::Path| {
            fs::rename(from, to).map_err(|source| DirectoryError::File { path: from.to_owned(), source })
        };
        let old = self.file(&format!("identity-key.until-{}.pem", now.unix_timestamp()));
        match rename(&present, &old) {
            // A switch that was interrupted here before goes on.
            Err(DirectoryError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
        rename(&next, &present)?;
        Ok(pin)
    }

    /// The pin that a relay which proves `in_use` has to announce: that of the key with which it will start next.
    ///
    /// # Errors
    /// When a file is there but wrong.
    pub fn pin_to_announce(&self, in_use: Pin) -> Result<Option<Pin>, DirectoryError> {
        // After a switch the relay goes on with the old key until it is restarted.
        let switched = if self.file(IDENTITY).exists() { Some(self.identity()?.pin()) } else { None };
        match switched.filter(|pin| *pin != in_use) {
            Some(pin) => Ok(Some(pin)),
            None => self.next_pin(),
        }
    }

    /// Keeps looking what is to be announced; the task ends when nobody listens any more. Must be called within a runtime.
    ///
    /// # Errors
    /// When a file is wrong at the start. Later that is reported, and the last announcement stays.
    pub fn watch_next_pin(&self, in_use: Pin) -> Result<watch::Receiver<Option<Pin>>, DirectoryError> {
        let directory = self.clone();
        // Before the files are read: a change in between is looked at again.
        let mut seen = directory.key_stamps();
        let (sender, receiver) = watch::channel(directory.pin_to_announce(in_use)?);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(POLL) => {}
                    () = sender.closed() => return,
                }
                let now = directory.key_stamps();
                if now == seen {
                    continue;
                }
                seen = now;
                match directory.pin_to_announce(in_use) {
                    Ok(pin) => {
                        sender.send_if_modified(|known| std::mem::replace(known, pin) != pin);
                    }
                    Err(error) => tracing::warn!(%error, "the next key cannot be read; what was announced stays"),
                }
            }
        });
        Ok(receiver)
    }

    /// What changes when a key's file does.
    fn key_stamps(&self) -> [Option<(u64, Option<std::time::SystemTime>)>; 2] {
        [IDENTITY, NEXT_IDENTITY].map(|name| {
            let metadata = fs::metadata(self.file(name)).ok()?;
            Some((metadata.len(), metadata.modified().ok()))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    use super::*;

    fn directory(path: &std::path::Path) -> Directory {
        let config = Config {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            public: vec!["127.0.0.1:4433".parse().unwrap()],
            allow: Vec::new(),
            admin: None,
            measure: true,
            limits: crate::limits::Limits::default(),
        };
        Directory::create(&path.join("relay"), &config).unwrap()
    }

    #[test]
    fn a_key_is_prepared_once_and_switched_to_and_the_old_one_is_kept() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = directory(temporary.path());
        let old = directory.identity().unwrap().pin();
        assert!(matches!(directory.switch_key(OffsetDateTime::UNIX_EPOCH), Err(DirectoryError::NotPrepared(_))));
        let new = directory.prepare_key().unwrap();
        assert!(matches!(directory.prepare_key(), Err(DirectoryError::Prepared(_))));
        assert_eq!((directory.identity().unwrap().pin(), directory.next_pin().unwrap()), (old, Some(new)));
        assert_eq!(directory.switch_key(OffsetDateTime::UNIX_EPOCH).unwrap(), new);
        assert_eq!((directory.identity().unwrap().pin(), directory.next_pin().unwrap()), (new, None));
        assert!(directory.file("identity-key.until-0.pem").exists());
    }

    #[test]
    fn a_switch_that_was_interrupted_is_finished_by_the_next() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = directory(temporary.path());
        let new = directory.prepare_key().unwrap();
        fs::rename(directory.file(IDENTITY), directory.file("identity-key.until-7.pem")).unwrap();
        assert_eq!(directory.switch_key(OffsetDateTime::UNIX_EPOCH).unwrap(), new);
        assert_eq!(directory.identity().unwrap().pin(), new);
    }

    #[tokio::test(start_paused = true)]
    async fn the_key_of_the_next_start_is_announced_before_and_after_the_switch() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = directory(temporary.path());
        let in_use = directory.identity().unwrap().pin();
        let mut announced = directory.watch_next_pin(in_use).unwrap();
        assert_eq!(*announced.borrow_and_update(), None);
        let new = directory.prepare_key().unwrap();
        announced.changed().await.unwrap();
        assert_eq!(*announced.borrow_and_update(), Some(new));
        // Until its restart the relay proves the old key, and clients must not forget the new one.
        directory.switch_key(OffsetDateTime::UNIX_EPOCH).unwrap();
        assert!(tokio::time::timeout(POLL * 3, announced.changed()).await.is_err());
        assert_eq!(directory.pin_to_announce(in_use).unwrap(), Some(new));
        assert_eq!(directory.pin_to_announce(new).unwrap(), None);
    }
}
