//! A link in a file that only its owner can read, for machines without a keychain.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tandem_proto::pairing::{MAX_LINK, PairingLink, Secret};

use super::{Kept, SecretError, SecretStore};

/// A private file with one pairing link.
#[derive(Debug, Clone)]
pub struct SecretFile {
    path: PathBuf,
}

impl SecretFile {
    /// The store in this file, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
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

    fn write(&self, link: &PairingLink) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        // Made private by its maker, complete before it takes the old one's place.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(link.expose().as_bytes())?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }
}

impl SecretStore for SecretFile {
    fn load(&self) -> Result<Option<PairingLink>, SecretError> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| self.failed(error))?,
        };
        if readable_by_others(&file).map_err(|error| self.failed(error))? {
            return Err(SecretError::Exposed(self.path.clone()));
        }
        let mut text = String::new();
        let limit = MAX_LINK as u64 + 16;
        file.take(limit).read_to_string(&mut text).map_err(|error| self.failed(error))?;
        let text = Secret::new(text);
        let link = text.expose().parse();
        link.map(Some).map_err(|source| SecretError::Link { place: Kept::File(self.path.clone()), source })
    }

    fn save(&self, link: &PairingLink) -> Result<Kept, SecretError> {
        self.write(link).map_err(|error| self.failed(error))?;
        Ok(Kept::File(self.path.clone()))
    }
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

    use super::*;

    fn link(name: &str) -> PairingLink {
        PairingLink {
            relays: vec!["relay.example.org:4433".parse().unwrap()],
            pins: vec![[7; 32]],
            token: Secret::new("v4.public.abc".to_owned()),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_saved_link_is_private_and_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretFile::new(directory.path().join("deep").join("pairing"));
        assert_eq!(file.load().unwrap(), None);
        for name in ["first", "second"] {
            file.save(&link(name)).unwrap();
            assert_eq!(file.load().unwrap(), Some(link(name)));
            assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        file.remove().unwrap();
        file.remove().unwrap();
        assert_eq!(file.load().unwrap(), None);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretFile::new(directory.path().join("pairing"));
        file.save(&link("phone")).unwrap();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(file.load(), Err(SecretError::Exposed(_))));
    }

    /// SEC-5
    #[test]
    fn a_file_with_something_else_is_refused_without_repeating_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretFile::new(directory.path().join("pairing"));
        let mangled = link("phone").expose().replace("tandem:", "tundem:");
        fs::write(&file.path, mangled).unwrap();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = file.load().unwrap_err();
        let text = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
        assert!(text.contains("pair again"), "{text}");
        assert!(!text.contains("v4.public"), "{text}");
    }
}
