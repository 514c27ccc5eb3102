//! How much memory the relay uses, and whether it may take on more.
//!
//! What a session may have on its way is bounded, but not all sessions at once could have that much: windows that were
//! granted cannot be taken back, and small ones would let one stalled connection stop all others of its session. So when the
//! memory in use is above the limit, nothing new is taken on until it is below. What is counted is the process's, so a relay
//! that shares its process with others, as in tests, is not held to the limit.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a figure holds: asking takes some microseconds.
const HOLDS_FOR: Duration = Duration::from_millis(50);

/// The memory of this process against its limit.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    /// The process is this relay's alone.
    counts: AtomicBool,
    last: Mutex<Option<(Instant, u64)>>,
}

impl Memory {
    /// With a limit in bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, counts: AtomicBool::new(false), last: Mutex::default() }
    }

    /// From now on the process's memory is the relay's.
    pub(crate) fn count_process(&self) {
        self.counts.store(true, Relaxed);
    }

    /// Bytes in use; 0 where the system does not tell.
    pub(crate) fn in_use(&self) -> u64 {
        let mut last = self.last.lock();
        let now = Instant::now();
        match *last {
            Some((at, bytes)) if now - at < HOLDS_FOR => bytes,
            _ => {
                let bytes = heap_bytes();
                *last = Some((now, bytes));
                bytes
            }
        }
    }

    /// Whether more may be taken on.
    pub(crate) fn has_room(&self) -> bool {
        !self.counts.load(Relaxed) || self.in_use() < self.limit
    }
}

/// What is allocated now. The resident size would also count what was freed and is kept for later.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn heap_bytes() -> u64 {
    // SAFETY: takes nothing and returns plain numbers.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn heap_bytes() -> u64 {
    0
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_allocated_counts_until_it_is_freed() {
        let memory = Memory::new(heap_bytes() + (200 << 20));
        memory.count_process();
        assert!(memory.has_room());
        let much = vec![1_u8; 400 << 20];
        assert!(memory.has_room(), "for a moment");
        tokio::time::advance(HOLDS_FOR).await;
        assert!(!memory.has_room());
        drop(much);
        tokio::time::advance(HOLDS_FOR).await;
        assert!(memory.has_room());
    }
}
