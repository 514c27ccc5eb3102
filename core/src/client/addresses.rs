//! Addresses at which relays were reached, kept across restarts: so that a relay is found again while no resolver answers, as
//! when the system's leads into a tunnel that is dead.
//!
//! They are tried besides what the resolvers say, and last: an old address may be somebody else's by now, who cannot prove the
//! relay's key. The file can be lost without harm; it is written when something new is learnt, and never waited for.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Addresses kept of a name.
const MOST_ADDRESSES: usize = 4;
/// Names kept.
const MOST_NAMES: usize = 128;
/// The version of the file.
const VERSION: u32 = 1;
/// A file that is longer is not read, in bytes.
const LONGEST: u64 = 256 * 1024;

/// Where the relays of all names were last reached.
#[derive(Debug)]
pub(super) struct Addresses {
    path: Option<PathBuf>,
    known: Arc<Mutex<BTreeMap<String, Vec<IpAddr>>>>,
    /// One file is written at a time, with what is known when its turn has come: the last has everything.
    writing: Arc<Mutex<()>>,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    names: BTreeMap<String, Vec<IpAddr>>,
}

impl Addresses {
    /// Those of the file, if it can be read; without one they live as long as this process.
    pub(super) fn load(path: Option<PathBuf>) -> Self {
        let known = path.as_deref().map(read).unwrap_or_default();
        Self { path, known: Arc::new(Mutex::new(known)), writing: Arc::default() }
    }

    /// Where a name was reached, the last place first.
    pub(super) fn of(&self, name: &str) -> Vec<IpAddr> {
        self.known.lock().get(name).cloned().unwrap_or_default()
    }

    /// A name was reached there. To be called within a runtime.
    pub(super) fn reached(&self, name: &str, address: IpAddr) {
        {
            let mut known = self.known.lock();
            if known.len() >= MOST_NAMES && !known.contains_key(name) {
                return;
            }
            let of_name = known.entry(name.to_owned()).or_default();
            if of_name.first() == Some(&address) {
                return;
            }
            of_name.retain(|other| *other != address);
            of_name.insert(0, address);
            of_name.truncate(MOST_ADDRESSES);
        }
        let Some(path) = self.path.clone() else { return };
        let (known, writing) = (Arc::clone(&self.known), Arc::clone(&self.writing));
        tokio::task::spawn_blocking(move || {
            let _one = writing.lock();
            let names = known.lock().clone();
            if let Err(error) = write(&path, names) {
                tracing::debug!(%error, "the relays' addresses are not kept");
            }
        });
    }
}

fn read(path: &Path) -> BTreeMap<String, Vec<IpAddr>> {
    let contents = || {
        let metadata = fs::metadata(path).ok().filter(|metadata| metadata.len() <= LONGEST)?;
        let text = metadata.is_file().then(|| fs::read(path).ok())??;
        serde_json::from_slice::<Contents>(&text).ok().filter(|contents| contents.version == VERSION)
    };
    let mut names = contents().map(|contents| contents.names).unwrap_or_default();
    names.values_mut().for_each(|addresses| addresses.truncate(MOST_ADDRESSES));
    names
}

fn write(path: &Path, names: BTreeMap<String, Vec<IpAddr>>) -> io::Result<()> {
    let text = serde_json::to_vec(&Contents { version: VERSION, names })?;
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&text)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// DNS-3
    #[tokio::test]
    async fn what_was_reached_is_known_after_a_restart_the_last_first_and_only_a_few() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep").join("addresses.json");
        let addresses = Addresses::load(Some(path.clone()));
        for last in [1, 2, 1, 3, 4, 5] {
            addresses.reached("relay.example", ip(last));
        }
        let expected = [5, 4, 3, 1].map(ip);
        assert_eq!(addresses.of("relay.example"), expected);
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        while Addresses::load(Some(path.clone())).of("relay.example") != expected {
            assert!(tokio::time::Instant::now() < deadline, "it is not written");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(addresses.of("other.example").is_empty());
    }

    #[test]
    fn a_damaged_file_is_as_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("addresses.json");
        for text in
            ["", "{", "{\"version\":2,\"names\":{\"a\":[\"192.0.2.1\"]}}", "{\"version\":1,\"names\":{\"a\":[\"x\"]}}"]
        {
            fs::write(&path, text).unwrap();
            assert!(Addresses::load(Some(path.clone())).of("a").is_empty(), "{text}");
        }
        assert!(Addresses::load(Some(directory.path().to_owned())).of("a").is_empty());
    }
}
