//! The signals that ask the program to stop.

#[cfg_attr(unix, path = "shutdown/unix.rs")]
#[cfg_attr(not(unix), path = "shutdown/other.rs")]
mod system;

pub(crate) use system::Signals;
