//! Pairings in a file that only its owner can read, for machines without a keychain.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tandem_proto::pairing::{MAX_LINK, MAX_PAIRINGS, Pairings, Secret};

use super::{Kept, SecretError, SecretStore};

/// The most that is read: each pairing is a link and a name.
const LONGEST: u64 = (MAX_PAIRINGS * (MAX_LINK + 256)) as u64;

/// A private file with pairings.
#[derive(Debug, Clone)]
pub struct SecretFile {
    path: PathBuf,
}

impl SecretFile {
    /// The store in this file, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub(super) fn place(&self) -> Kept {
        Kept::File(self.path.clone())
    }

    pub(super) fn remove(&self) -> Result<(), SecretError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, source: io::Error) -> SecretError {
        SecretError::File { path: self.path.clone(), source }
    }
}

impl SecretStore for SecretFile {
    fn load(&self) -> Result<Pairings, SecretError> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pairings::default()),
            opened => opened.map_err(|error| self.failed(error))?,
        };
        if readable_by_others(&file).map_err(|error| self.failed(error))? {
            return Err(SecretError::Exposed(self.path.clone()));
        }
        let text = read_secret(file).map_err(|error| self.failed(error))?;
        let place = || Kept::File(self.path.clone());
        Pairings::from_text(text.expose()).map_err(|source| SecretError::Text { place: place(), source })
    }

    fn save(&self, pairings: &Pairings) -> Result<Kept, SecretError> {
        if pairings.is_empty() {
            self.remove()?;
        } else {
            write_private(&self.path, &pairings.to_text()).map_err(|error| self.failed(error))?;
        }
        Ok(self.place())
    }
}

/// The whole of a file that is no longer than pairings can be.
pub(super) fn read_secret(file: File) -> io::Result<Secret> {
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(Secret::new(text))
}

/// Writes a file that is made private by its maker, and complete before it takes an old one's place.
pub(super) fn write_private(path: &Path, text: &Secret) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.expose().as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(unix)]
fn readable_by_others(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(file.metadata()?.permissions().mode() & 0o077 != 0)
}

/// Elsewhere the user's directory is what keeps others out.
#[cfg(not(unix))]
fn readable_by_others(_file: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tandem_proto::pairing::PairingLink;

    use super::*;

    fn pairings(names: &[&str]) -> Pairings {
        let mut pairings = Pairings::default();
        for (pin, name) in names.iter().enumerate() {
            let link = PairingLink {
                relays: vec!["relay.example.org:4433".parse().unwrap()],
                pins: vec![[pin as u8; 32]],
                token: Secret::new("v4.public.abc".to_owned()),
                name: String::new(),
            };
            pairings.add(link, Some(name)).unwrap();
        }
        pairings
    }

    #[test]
    fn saved_pairings_are_private_and_read_back_and_the_last_takes_the_file_along() {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretFile::new(directory.path().join("deep").join("pairing"));
        assert!(file.load().unwrap().is_empty());
        for names in [&["first"][..], &["first", "second"]] {
            file.save(&pairings(names)).unwrap();
            assert_eq!(file.load().unwrap(), pairings(names));
            assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        file.save(&Pairings::default()).unwrap();
        assert!(!file.path.exists());
        file.remove().unwrap();
    }

    #[test]
    fn the_one_link_of_an_earlier_version_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretFile::new(directory.path().join("pairing"));
        let link = pairings(&["x"]).list()[0].link.expose();
        write_private(&file.path, &Secret::new(format!("{link}\n"))).unwrap();
        assert_eq!(file.load().unwrap().list()[0].name, "relay.example.org");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretFile::new(directory.path().join("pairing"));
        file.save(&pairings(&["home"])).unwrap();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(file.load(), Err(SecretError::Exposed(_))));
    }

    /// SEC-5
    #[test]
    fn a_file_with_something_else_is_refused_without_repeating_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretFile::new(directory.path().join("pairing"));
        let mangled = pairings(&["home"]).to_text().expose().replace("tandem:", "tundem:");
        write_private(&file.path, &Secret::new(mangled)).unwrap();
        let error = file.load().unwrap_err();
        let text = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
        assert!(text.contains("pair again"), "{text}");
        assert!(!text.contains("v4.public"), "{text}");
    }
}
