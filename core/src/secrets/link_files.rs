//! Links in files that the user gives: what a relay changes of a link is changed there.
//!
//! A file holds one or more links, with white space between. Only the changed link's text is replaced; who may read the file
//! stays as it is. A file that cannot be written leaves the client with what it has until its token expires.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tandem_proto::pairing::{PairingLink, Pairings, Secret};

use super::file::{read_secret, write_private};
use super::{Keeper, Kept, SecretError};

/// The files that the links of a client came from.
#[derive(Debug, Clone)]
pub struct LinkFiles(Vec<PathBuf>);

impl LinkFiles {
    /// These files.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self(paths)
    }

    /// The links in them, each called by its first address.
    ///
    /// # Errors
    /// When a file cannot be read, or holds something else than links, or none.
    pub fn load(&self) -> Result<Pairings, SecretError> {
        let mut all = Pairings::default();
        for path in &self.0 {
            let text = read(path)?;
            let place = || Kept::File(path.clone());
            let found = Pairings::from_links(text.expose());
            let found = found.map_err(|source| SecretError::Text { place: place(), source })?;
            for pairing in found.list() {
                all.add(pairing.link.clone(), None)?;
            }
        }
        Ok(all)
    }
}

impl Keeper for LinkFiles {
    fn keep(&self, link: &PairingLink) -> Result<(), SecretError> {
        for path in &self.0 {
            let text = read(path)?;
            let mut changed = text.expose().to_owned();
            for word in text.expose().split_whitespace() {
                if let Ok(mut known) = word.parse::<PairingLink>()
                    && known.renew(link)
                {
                    changed = changed.replace(word, &known.expose());
                }
            }
            if changed != text.expose() {
                return write(path, &Secret::new(changed)).map_err(|source| failed(path, source));
            }
        }
        Err(SecretError::NotKept)
    }
}

/// Replaces a file, or what a link in its place leads to, with the rights that it had.
fn write(path: &Path, text: &Secret) -> std::io::Result<()> {
    let path = fs::canonicalize(path)?;
    let permissions = fs::metadata(&path)?.permissions();
    write_private(&path, text)?;
    fs::set_permissions(&path, permissions)
}

fn read(path: &Path) -> Result<Secret, SecretError> {
    File::open(path).and_then(read_secret).map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: std::io::Error) -> SecretError {
    SecretError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(pin: u8) -> PairingLink {
        PairingLink {
            relays: vec![format!("relay{pin}.example:4433").parse().unwrap()],
            pins: vec![[pin; 32]],
            token: Secret::new(format!("v4.public.{pin}")),
            name: "phone".to_owned(),
        }
    }

    #[test]
    fn a_renewed_token_is_changed_in_its_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| directory.path().join(name));
        fs::write(&paths[0], format!("{}\n", link(1).expose())).unwrap();
        fs::write(&paths[1], format!("{}\n\n{}\n", link(2).expose(), link(3).expose())).unwrap();
        let files = LinkFiles::new(paths.to_vec());
        let names: Vec<_> = files.load().unwrap().list().iter().map(|pairing| pairing.name.clone()).collect();
        assert_eq!(names, ["relay1.example", "relay2.example", "relay3.example"]);

        let renewed = PairingLink { token: Secret::new("v4.public.new".to_owned()), ..link(3) };
        files.keep(&renewed).unwrap();
        let expected = format!("{}\n\n{}\n", link(2).expose(), renewed.expose());
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), expected);
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), format!("{}\n", link(1).expose()));
        assert!(matches!(files.keep(&link(9)), Err(SecretError::NotKept)));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_keeps_its_rights_and_a_link_to_it_stays_one() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let directory = tempfile::tempdir().unwrap();
        let (path, alias) = (directory.path().join("link"), directory.path().join("alias"));
        fs::write(&path, link(1).expose()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &alias).unwrap();
        let renewed = PairingLink { token: Secret::new("v4.public.new".to_owned()), ..link(1) };
        LinkFiles::new(vec![alias.clone()]).keep(&renewed).unwrap();
        assert!(fs::symlink_metadata(&alias).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_to_string(&path).unwrap(), renewed.expose());
    }
}
