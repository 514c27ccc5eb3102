//! How much memory the relay uses, and whether it may take on more.
//!
//! What a session may have on its way is bounded, but not all sessions at once could have that much: windows that were
//! granted cannot be taken back, and small ones would let one stalled connection stop all others of its session. So when the
//! memory in use is above the limit, nothing new is taken on until it is below. What is in use only the program can say,
//! whose allocator it is; a relay that shares its process with others, as in tests, is not held to the limit.

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a figure holds: asking takes some microseconds.
const HOLDS_FOR: Duration = Duration::from_millis(50);

/// The memory of a relay against its limit.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    /// Tells the bytes in use, if the limit is to hold.
    source: OnceLock<fn() -> u64>,
    last: Mutex<Option<(Instant, u64)>>,
}

impl Memory {
    /// With a limit in bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, source: OnceLock::new(), last: Mutex::default() }
    }

    /// From now on what this tells is held to the limit.
    pub(crate) fn bound(&self, in_use: fn() -> u64) {
        self.source.get_or_init(|| in_use);
    }

    /// Bytes in use; 0 where nothing tells.
    pub(crate) fn in_use(&self) -> u64 {
        let Some(source) = self.source.get() else { return 0 };
        let mut last = self.last.lock();
        let now = Instant::now();
        match *last {
            Some((at, bytes)) if now - at < HOLDS_FOR => bytes,
            _ => {
                let bytes = source();
                *last = Some((now, bytes));
                bytes
            }
        }
    }

    /// Whether more may be taken on.
    pub(crate) fn has_room(&self) -> bool {
        self.source.get().is_none() || self.in_use() < self.limit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_in_use_is_looked_at_now_and_then_and_above_the_limit_there_is_no_room() {
        static IN_USE: AtomicU64 = AtomicU64::new(999);
        let memory = Memory::new(1_000);
        IN_USE.store(5_000, Relaxed);
        assert!(memory.has_room(), "not held to it");
        IN_USE.store(999, Relaxed);
        memory.bound(|| IN_USE.load(Relaxed));
        assert!(memory.has_room());
        IN_USE.store(1_000, Relaxed);
        assert!(memory.has_room(), "for a moment");
        tokio::time::advance(HOLDS_FOR).await;
        assert!(!memory.has_room());
        IN_USE.store(0, Relaxed);
        tokio::time::advance(HOLDS_FOR).await;
        assert!(memory.has_room());
    }
}
