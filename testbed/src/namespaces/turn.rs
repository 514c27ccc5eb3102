//! One measurement at a time on a machine: each would measure the other.

use std::fs::File;
use std::time::Duration;

use anyhow::{Context, Result};

/// What makes runs wait for each other.
const LOCK: &str = "/run/tandem-cases.lock";
/// How often a run that waits looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The nice value of a run that measures.
const PRIORITY: libc::c_int = -10;

/// The right to measure; it passes on when this is dropped.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits until no other run on this machine measures; says so on behalf of `who` if it has to.
    ///
    /// # Errors
    /// When the lock's file cannot be opened.
    pub async fn wait(who: &str) -> Result<Self> {
        let lock = File::create(LOCK).with_context(|| format!("opening {LOCK}"))?;
        let mut told = false;
        while lock.try_lock().is_err() {
            if !std::mem::replace(&mut told, true) {
                eprintln!("{who}: waiting for another run that measures on this machine");
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(Self { _lock: lock })
    }
}

/// Makes this process, and what it starts, go before others, so that other work on the machine disturbs less.
pub fn go_first() {
    // SAFETY: changes nothing but the process's nice value; without the right to it that stays as it is.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PRIORITY) };
}
