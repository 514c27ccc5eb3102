//! The list of revoked tokens, and the watch that brings its changes to live sessions.
//!
//! The list is a text file with one token id a line; what follows a `#` is for people. It only grows, so that relays which share it
//! through whatever copies files need no order between them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

/// How often the file is looked at; a revoked session ends this much later.
const POLL: Duration = Duration::from_secs(1);

/// Ids of tokens that are no longer taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revoked {
    ids: BTreeSet<String>,
}

/// A line that is not a token's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the list of revoked tokens is {found:?}; it must be an id of 16 hexadecimal digits")]
pub struct RevokedError {
    /// The line, from 1.
    pub line: usize,
    /// What is there.
    pub found: String,
}

impl Revoked {
    /// Whether the token with this id was revoked.
    pub fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }
}

impl FromStr for Revoked {
    type Err = RevokedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut ids = BTreeSet::new();
        for (index, line) in text.lines().enumerate() {
            let id = line.split('#').next().unwrap_or_default().trim();
            if id.is_empty() {
                continue;
            }
            if id.len() != 16 || !id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
                return Err(RevokedError { line: index + 1, found: id.to_owned() });
            }
            ids.insert(id.to_owned());
        }
        Ok(Revoked { ids })
    }
}

impl FromIterator<String> for Revoked {
    fn from_iter<I: IntoIterator<Item = String>>(ids: I) -> Self {
        Revoked { ids: ids.into_iter().collect() }
    }
}

/// Reads the list and keeps reading it when it changes; the task ends when nobody listens any more.
///
/// A list that became unreadable is reported and the last good one stays in force: a slip of an editor must neither let
/// revoked devices back in nor lock everyone out.
///
/// # Errors
/// When the list cannot be read at the start. A missing file is an empty list.
pub fn watch_revoked(path: PathBuf) -> io::Result<watch::Receiver<Arc<Revoked>>> {
    // The stamps of the list in force, and of one that could not be read, which is told once but tried again.
    let mut seen = stamp(&path);
    let mut unreadable = None;
    let (sender, receiver) = watch::channel(Arc::new(read(&path)?));
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = sender.closed() => return,
            }
            let now = stamp(&path);
            if now == seen {
                continue;
            }
            match read(&path) {
                Ok(revoked) => {
                    seen = now;
                    sender.send_replace(Arc::new(revoked));
                }
                Err(error) if unreadable != Some(now) => {
                    unreadable = Some(now);
                    tracing::warn!(%error, "the list of revoked tokens cannot be read; the last one stays in force");
                }
                Err(_) => {}
            }
        }
    });
    Ok(receiver)
}

/// What changes when the file does; `None` while there is none.
fn stamp(path: &Path) -> Option<(u64, Option<SystemTime>)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()))
}

fn read(path: &Path) -> io::Result<Revoked> {
    match fs::read_to_string(path) {
        Ok(text) => text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Revoked::default()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_ids_and_comments() {
        let revoked: Revoked = "# lost phones\n0123456789abcdef # Ann's\n\n  fedcba9876543210\n".parse().unwrap();
        assert!(revoked.contains("0123456789abcdef") && revoked.contains("fedcba9876543210"));
        assert!(!revoked.contains(""));
        let error = "0123456789abcdef\nphone".parse::<Revoked>().unwrap_err();
        assert_eq!(error, RevokedError { line: 2, found: "phone".to_owned() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_file_arrives_and_a_damaged_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("revoked.txt");
        let mut revoked = watch_revoked(path.clone()).unwrap();
        assert_eq!(**revoked.borrow_and_update(), Revoked::default());

        fs::write(&path, "0123456789abcdef\n").unwrap();
        tokio::time::timeout(POLL * 2, revoked.changed()).await.unwrap().unwrap();
        assert!(revoked.borrow_and_update().contains("0123456789abcdef"));

        fs::write(&path, "no id\n").unwrap();
        assert!(tokio::time::timeout(POLL * 3, revoked.changed()).await.is_err());
        assert!(revoked.borrow().contains("0123456789abcdef"));

        fs::write(&path, "0123456789abcdef\nfedcba9876543210\n").unwrap();
        tokio::time::timeout(POLL * 2, revoked.changed()).await.unwrap().unwrap();
        assert!(revoked.borrow().contains("fedcba9876543210"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_could_not_be_read_is_tried_again_although_its_file_does_not_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("revoked.txt");
        let mut revoked = watch_revoked(path.clone()).unwrap();
        // Unreadable and then readable under one stamp, as when a network's file system fails for a moment.
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
        };
        write("?123456789abcdef\n");
        assert!(tokio::time::timeout(POLL * 3, revoked.changed()).await.is_err());
        write("0123456789abcdef\n");
        tokio::time::timeout(POLL * 2, revoked.changed()).await.unwrap().unwrap();
        assert!(revoked.borrow().contains("0123456789abcdef"));
    }
}
