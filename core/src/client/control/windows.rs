//! Control sockets on Windows: a named pipe that its owner alone can open.

use std::io;
use std::path::{Path, PathBuf};

use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::{GenericFilePath, ListenerOptions, Name, ToFsName};
use interprocess::os::windows::local_socket::ListenerOptionsExt;
use interprocess::os::windows::security_descriptor::SecurityDescriptor;
use widestring::u16cstr;

pub(super) fn default_path() -> Option<PathBuf> {
    let user = std::env::var("USERNAME").ok()?;
    Some(PathBuf::from(format!(r"\\.\pipe\tandem-{user}")))
}

pub(super) fn name(path: &Path) -> io::Result<Name<'_>> {
    path.to_fs_name::<GenericFilePath>()
}

/// Fails if the name is taken. Connections from other machines are refused.
pub(super) fn listen(path: &Path) -> io::Result<Listener> {
    // Protected from inheritance; everything for the owner (OW), nothing for anybody else, administrators included.
    let owner_alone = SecurityDescriptor::deserialize(u16cstr!("D:P(A;;GA;;;OW)"))?;
    ListenerOptions::new().name(name(path)?).security_descriptor(owner_alone).create_tokio()
}

/// Pipes lie in no folder, and go with their process.
pub(super) fn make_way(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// The system has checked that already.
pub(super) fn is_same_user(_stream: &Stream, _path: &Path) -> bool {
    true
}
