//! Ctrl-C alone.

use std::io;

/// Signals while one is waited for.
pub(crate) struct Signals(());

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(()))
    }

    /// Resolves at the next one.
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
