//! The relay's directory: its keys, settings and tokens as files.
//!
//! | file | |
//! | --- | --- |
//! | `relay.toml` | settings ([`Config`]) |
//! | `identity-key.pem` | the key that clients pin |
//! | `next-identity-key.pem` | if there: the key to come, announced to clients ([`Directory::prepare_key`]) |
//! | `identity-key.until-TIME.pem` | keys that were used until then, in seconds since the Unix epoch |
//! | `token-secret.key`, `token-public.key` | what signs and what verifies tokens; serving needs the second alone |
//! | `tokens.jsonl` | the tokens issued, a line each, without the tokens themselves; one that was renewed has a line for each time |
//! | `revoked.txt` | ids of those taken back |
//!
//! Files are readable by their owner alone, who is the directory's, and nothing is ever overwritten: lists grow by appending.

mod keys;

pub use keys::Pin;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tandem_proto::pairing::{LinkError, PairingLink};
use time::OffsetDateTime;

use crate::config::{Config, ConfigError};
use crate::identity::{Identity, IdentityError};
use crate::tokens::{Authority, Claims, IssueError, KeyError, Renewer, Revoked, RevokedError, Verifier};

const CONFIG: &str = "relay.toml";
const IDENTITY: &str = "identity-key.pem";
const NEXT_IDENTITY: &str = "next-identity-key.pem";
const TOKEN_SECRET: &str = "token-secret.key";
const TOKEN_PUBLIC: &str = "token-public.key";
const TOKENS: &str = "tokens.jsonl";
const REVOKED: &str = "revoked.txt";

/// A relay's directory.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

/// What went wrong with the directory, with the file.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A file could not be read or written.
    #[error("{path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory already holds a relay.
    #[error("{0} exists already; a relay's files are never overwritten: choose another directory")]
    Exists(PathBuf),
    /// The directory holds no relay.
    #[error("{0} is missing; \"tandem-relay init\" makes a relay's directory")]
    Missing(PathBuf),
    /// The settings are wrong.
    #[error("{path}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
    /// The identity key is wrong.
    #[error("{path}")]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: IdentityError,
    },
    /// A token key is wrong.
    #[error("{path}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: KeyError,
    },
    /// A line of the tokens issued is wrong.
    #[error("line {line} of {path} is not the record of a token")]
    Record {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The list of revoked tokens is wrong.
    #[error("{path}")]
    Revoked {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: RevokedError,
    },
    /// The token cannot be issued.
    #[error("no token was issued")]
    Issue(#[from] IssueError),
    /// The token does not fit a link.
    #[error("no pairing link can be made")]
    Link(#[from] LinkError),
    /// A key is prepared already.
    #[error("{0} exists already: the next key is prepared, \"tandem-relay key switch\" makes it the present one")]
    Prepared(PathBuf),
    /// No key is prepared.
    #[error("{0} is missing: \"tandem-relay key prepare\" makes the next key")]
    NotPrepared(PathBuf),
    /// No token to revoke.
    #[error("no token that could be revoked has the id or name {0:?}; \"tandem-relay token list\" shows them")]
    NoSuchToken(String),
}

/// A token that was issued, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// What the token says.
    pub claims: Claims,
    /// Where it stands.
    pub state: TokenState,
}

/// Where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// It is taken.
    Valid,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
}

impl fmt::Display for TokenState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenState::Valid => "valid",
            TokenState::Expired => "expired",
            TokenState::Revoked => "revoked",
        })
    }
}

impl Directory {
    /// The directory at `path`, which must hold a relay.
    ///
    /// # Errors
    /// [`DirectoryError::Missing`], or what the system says to looking at it.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let directory = Directory { path: path.to_owned() };
        let config = directory.file(CONFIG);
        match fs::metadata(&config) {
            Ok(_) => Ok(directory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(DirectoryError::Missing(config)),
            Err(source) => Err(DirectoryError::File { path: config, source }),
        }
    }

    /// Makes the directory with new keys and the settings.
    ///
    /// # Errors
    /// [`DirectoryError::Exists`] when any of a relay's files is there; wrong settings; what the system says.
    pub fn create(path: &Path, config: &Config) -> Result<Self, DirectoryError> {
        let directory = Directory { path: path.to_owned() };
        config.check().map_err(|source| DirectoryError::Config { path: directory.file(CONFIG), source })?;
        for name in [CONFIG, IDENTITY, NEXT_IDENTITY, TOKEN_SECRET, TOKEN_PUBLIC, TOKENS, REVOKED] {
            let file = directory.file(name);
            if file.exists() {
                return Err(DirectoryError::Exists(file));
            }
        }
        create_directory(path).map_err(|source| DirectoryError::File { path: path.to_owned(), source })?;
        let identity = Identity::generate()
            .map_err(|source| DirectoryError::Identity { path: directory.file(IDENTITY), source })?;
        let authority = Authority::generate()
            .map_err(|source| DirectoryError::Key { path: directory.file(TOKEN_SECRET), source })?;
        directory.append(IDENTITY, identity.to_pem().expose())?;
        directory.append(TOKEN_SECRET, &format!("{}\n", authority.to_text().expose()))?;
        directory.append(TOKEN_PUBLIC, &format!("{}\n", authority.verifier().to_text()))?;
        directory.append(TOKENS, "")?;
        directory.append(REVOKED, "# Ids of tokens that are no longer taken, one a line.\n")?;
        // Last: a directory with settings is a whole one.
        directory.append(CONFIG, &config.to_text())?;
        Ok(directory)
    }

    /// The settings.
    ///
    /// # Errors
    /// When the file is missing or wrong.
    pub fn config(&self) -> Result<Config, DirectoryError> {
        let (path, text) = self.read(CONFIG)?;
        Config::parse(&text).map_err(|source| DirectoryError::Config { path, source })
    }

    /// The relay's key.
    ///
    /// # Errors
    /// When the file is missing or wrong.
    pub fn identity(&self) -> Result<Identity, DirectoryError> {
        let (path, text) = self.read(IDENTITY)?;
        Identity::from_pem(&text).map_err(|source| DirectoryError::Identity { path, source })
    }

    /// The pin of the key to come; `None` while there is none.
    ///
    /// # Errors
    /// When the file is there but wrong.
    pub fn next_pin(&self) -> Result<Option<[u8; 32]>, DirectoryError> {
        if !self.file(NEXT_IDENTITY).exists() {
            return Ok(None);
        }
        let (path, text) = self.read(NEXT_IDENTITY)?;
        let identity = Identity::from_pem(&text).map_err(|source| DirectoryError::Identity { path, source })?;
        Ok(Some(identity.pin()))
    }

    /// What verifies tokens.
    ///
    /// # Errors
    /// When the file is missing or wrong.
    pub fn verifier(&self) -> Result<Verifier, DirectoryError> {
        let (path, text) = self.read(TOKEN_PUBLIC)?;
        Verifier::from_text(&text).map_err(|source| DirectoryError::Key { path, source })
    }

    /// Where the list of revoked tokens is.
    pub fn revoked_path(&self) -> PathBuf {
        self.file(REVOKED)
    }

    /// Issues a token and makes the pairing link for it.
    ///
    /// # Errors
    /// When a file is missing or wrong, or no token can have that name or lifetime.
    pub fn issue(
        &self,
        name: &str,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<(PairingLink, Claims), DirectoryError> {
        let (token, claims) = self.authority()?.issue(name, now, lifetime)?;
        let pins = [Some(self.identity()?.pin()), self.next_pin()?].into_iter().flatten().collect();
        let link = PairingLink { relays: self.config()?.public, pins, token, name: name.to_owned() };
        link.check()?;
        self.record(&claims)?;
        Ok((link, claims))
    }

    /// What renews tokens; `None` on a machine without the secret key.
    ///
    /// # Errors
    /// When a file is wrong.
    pub fn renewer(&self) -> Result<Option<Renewer>, DirectoryError> {
        if !self.file(TOKEN_SECRET).exists() {
            return Ok(None);
        }
        let directory = self.clone();
        let record = move |claims: &Claims| directory.record(claims).map_err(io::Error::other);
        Ok(Some(Renewer::new(self.authority()?, self.records()?, record)))
    }

    fn authority(&self) -> Result<Authority, DirectoryError> {
        let (path, text) = self.read(TOKEN_SECRET)?;
        Authority::from_text(&text).map_err(|source| DirectoryError::Key { path, source })
    }

    fn record(&self, claims: &Claims) -> Result<(), DirectoryError> {
        let record = serde_json::to_string(claims).map_err(|_| IssueError::Signature)?;
        self.append(TOKENS, &format!("{record}\n"))
    }

    /// Every record of a token, oldest first.
    fn records(&self) -> Result<Vec<Claims>, DirectoryError> {
        let (path, text) = self.read(TOKENS)?;
        let read = |(index, line): (usize, &str)| {
            let record = |source| DirectoryError::Record { path: path.clone(), line: index + 1, source };
            serde_json::from_str(line).map_err(record)
        };
        text.lines().enumerate().map(read).collect()
    }

    /// The tokens issued, oldest first, as they stand at `now`; one that was renewed with its newest expiry.
    ///
    /// # Errors
    /// When a file is wrong.
    pub fn tokens(&self, now: OffsetDateTime) -> Result<Vec<IssuedToken>, DirectoryError> {
        let (path, text) = self.read(REVOKED)?;
        let revoked: Revoked = text.parse().map_err(|source| DirectoryError::Revoked { path, source })?;
        let mut tokens: Vec<Claims> = Vec::new();
        let mut places = BTreeMap::new();
        for claims in self.records()? {
            match places.entry(claims.id.clone()) {
                Entry::Occupied(place) => {
                    let known: &mut Claims = &mut tokens[*place.get()];
                    known.expires = known.expires.max(claims.expires);
                }
                Entry::Vacant(place) => {
                    place.insert(tokens.len());
                    tokens.push(claims);
                }
            }
        }
        let state = |claims: &Claims| match revoked.contains(&claims.id) {
            true => TokenState::Revoked,
            false if now >= claims.expires => TokenState::Expired,
            false => TokenState::Valid,
        };
        Ok(tokens.into_iter().map(|claims| IssuedToken { state: state(&claims), claims }).collect())
    }

    /// Takes back the token with the id `which`, or every one with that name that was not taken back before. Relays that serve from
    /// this directory notice by themselves.
    ///
    /// # Errors
    /// [`DirectoryError::NoSuchToken`], or when a file is wrong.
    pub fn revoke(&self, which: &str, now: OffsetDateTime) -> Result<Vec<Claims>, DirectoryError> {
        let tokens = self.tokens(now)?;
        let by_id = tokens.iter().any(|token| token.claims.id == which);
        let matches = |claims: &Claims| if by_id { claims.id == which } else { claims.name == which };
        let revoked: Vec<Claims> = tokens
            .into_iter()
            .filter(|token| token.state != TokenState::Revoked && matches(&token.claims))
            .map(|token| token.claims)
            .collect();
        if revoked.is_empty() {
            return Err(DirectoryError::NoSuchToken(which.to_owned()));
        }
        let lines: String = revoked.iter().map(|claims| format!("{} # {}\n", claims.id, claims.name)).collect();
        self.append(REVOKED, &lines)?;
        Ok(revoked)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn read(&self, name: &str) -> Result<(PathBuf, String), DirectoryError> {
        let path = self.file(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((path, text)),
            Err(source) => Err(DirectoryError::File { path, source }),
        }
    }

    /// Appends to a file, which is made if it is not there.
    fn append(&self, name: &str, text: &str) -> Result<(), DirectoryError> {
        let path = self.file(name);
        let write = || {
            let mut file = open_private(&path)?;
            give_to_owner(&self.path, &file)?;
            // One write: lines of two commands at the same time do not mix.
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|source| DirectoryError::File { path: path.clone(), source })
    }
}

#[cfg(unix)]
fn create_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

#[cfg(unix)]
fn open_private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// A file that the administrator makes in the directory of the user that the relay runs as is that user's.
#[cfg(unix)]
fn give_to_owner(directory: &Path, file: &File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let (directory, own) = (fs::metadata(directory)?, file.metadata()?);
    if directory.uid() != own.uid() && own.uid() == 0 {
        fchown(file, Some(directory.uid()), Some(directory.gid()))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn give_to_owner(_: &Path, _: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}
