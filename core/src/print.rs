//! Standard output that may be closed at any time: `tandem status | head -1` is no failure, and a client whose terminal
//! has gone runs on.

use std::io::{self, Write as _};

/// Prints text as it is.
///
/// # Errors
/// Whatever is wrong with standard output, except that nobody reads it.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Prints a line of a program that goes on whether it is read or not.
pub fn say(line: &str) {
    let _ = print(&format!("{line}\n"));
}
