//! Signals: the first one drains, the second one ends.

use tokio_util::sync::CancellationToken;

/// Cancels `drain` at the first SIGTERM or SIGINT (Ctrl-C) and resolves at the second.
pub(crate) async fn stopped_twice(drain: CancellationToken) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    signals.next().await?;
    drain.cancel();
    signals.next().await
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        Ok(())
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> anyhow::Result<()> {
        Ok(tokio::signal::ctrl_c().await?)
    }
}
