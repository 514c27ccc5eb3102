//! Control sockets elsewhere: a named pipe, which Windows opens to its creator (and administrators) alone.

use std::io;
use std::path::{Path, PathBuf};

use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::{GenericFilePath, ListenerOptions, Name, ToFsName};

pub(super) fn default_path() -> Option<PathBuf> {
    let user = std::env::var("USERNAME").ok()?;
    Some(PathBuf::from(format!(r"\\.\pipe\tandem-{user}")))
}

pub(super) fn name(path: &Path) -> io::Result<Name<'_>> {
    path.to_fs_name::<GenericFilePath>()
}

pub(super) fn listen(path: &Path) -> io::Result<Listener> {
    ListenerOptions::new().name(name(path)?).create_tokio()
}

/// A pipe goes with its process.
pub(super) fn remove_stale(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// The system has checked that already.
pub(super) fn is_same_user(_stream: &Stream, _path: &Path) -> bool {
    true
}
