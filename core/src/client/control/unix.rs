//! Control sockets on Unix: a socket file of mode 0600.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::traits::StreamCommon;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, Name, ToFsName};
use interprocess::os::unix::local_socket::ListenerOptionsExt;

/// The socket is its owner's alone.
const MODE: u32 = 0o600;

pub(super) fn default_path() -> Option<PathBuf> {
    let runtime = dirs::runtime_dir().map(|directory| directory.join("tandem"));
    runtime.or_else(|| dirs::cache_dir().map(|directory| directory.join("tandem"))).map(|dir| dir.join("control.sock"))
}

pub(super) fn name(path: &Path) -> io::Result<Name<'_>> {
    path.to_fs_name::<GenericFilePath>()
}

pub(super) fn listen(path: &Path) -> io::Result<Listener> {
    let options = || Ok::<_, io::Error>(ListenerOptions::new().name(name(path)?));
    match options()?.mode(MODE as libc::mode_t).create_tokio() {
        // macOS sets no mode before the socket has a name. Who slips in before it is set is turned away as another user.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            let listener = options()?.create_tokio()?;
            fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
            Ok(listener)
        }
        done => done,
    }
}

/// Makes the socket's directory, and removes a socket that nobody listens on; anything else that is in the way is not ours
/// to remove.
pub(super) fn make_way(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// Whether the peer runs as the user who owns the socket, or as root, who could do anything to the engine anyway.
pub(super) fn is_same_user(stream: &Stream, path: &Path) -> bool {
    let owner = fs::metadata(path).ok().map(|found| found.uid());
    let peer = stream.peer_creds().ok().and_then(|peer| peer.euid());
    peer.is_some() && (peer == owner || peer == Some(0))
}
