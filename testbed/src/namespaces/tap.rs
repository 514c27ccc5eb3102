//! TAP devices: a network card whose cable ends in this process.
//!
//! Opened by hand rather than with a crate: the device must be made by a thread inside a namespace, without offload (the
//! link model counts packets, not bundles of them) and read without blocking from a loop of our own; that is one `open` and one
//! `ioctl`. TAP rather than TUN, as the product takes a point-to-point device for a tunnel and leaves it alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};

use super::frame::Frame;
use super::netns::Namespace;

/// A device, there as long as this is.
#[derive(Debug)]
pub(super) struct Tap {
    file: File,
}

impl Tap {
    /// Makes the device in a namespace, down and without addresses.
    pub(super) fn create(namespace: &Namespace, name: &str) -> Result<Self> {
        let file = namespace.enter(|| open(name))?.with_context(|| format!("making the device {name}"))?;
        Ok(Self { file })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The next frame that the host has sent; `None` if there is none now, or the device is down.
    pub(super) fn receive(&self) -> Option<Frame> {
        let mut frame = Frame::take();
        let length = (&self.file).read(frame.space()).ok().filter(|length| *length > 0)?;
        frame.set_length(length);
        Some(frame)
    }

    /// Hands a frame to the host. Returns whether it took it: it does not while the device is down.
    pub(super) fn send(&self, frame: &Frame) -> bool {
        (&self.file).write(frame.ethernet()).is_ok()
    }
}

fn open(name: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    // SAFETY: ifreq is plain old data, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    assert!(name.len() < request.ifr_name.len(), "device names are short");
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an ifreq, which lives until after the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}
