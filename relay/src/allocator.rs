//! The program's allocator: jemalloc, which gives freed memory back to the system.
//!
//! Sessions grow while they carry data and shrink when they idle. The system's allocator keeps pages of which any part is in
//! use, and after a busy hour that is most of them; this one keeps sizes apart, and a thread of its own gives back whole
//! pages that were free for a second, also while nothing else happens.

use std::sync::Once;

use tikv_jemalloc_ctl::{epoch, stats};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Read by jemalloc before `main`.
// SAFETY: nobody else defines this name, which is jemalloc's for a pointer to such text, ended by a null byte.
#[unsafe(export_name = "_rjem_malloc_conf")]
static OPTIONS: &[u8] = b"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

/// Bytes that are allocated now; the resident size would also count what was freed and not yet given back.
pub(crate) fn heap_bytes() -> u64 {
    static FAILED: Once = Once::new();
    let allocated = epoch::advance().and_then(|_| stats::allocated::read());
    allocated.map_or_else(
        |error| {
            FAILED.call_once(|| tracing::warn!(%error, "memory in use is not known: limits.memory_mib does not act"));
            0
        },
        |bytes| bytes as u64,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    fn resident_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1_024
    }

    #[tokio::test]
    async fn what_is_allocated_counts_until_it_is_freed_and_then_goes_back_to_the_system() {
        let (heap, resident) = (heap_bytes(), resident_bytes());
        let many: Vec<_> = (0..100_000).map(|_| vec![1_u8; 2_000]).collect();
        assert!(heap_bytes() > heap + 200_000_000);
        assert!(resident_bytes() > resident + 200_000_000);
        // Every hundredth stays, as sessions do.
        let kept: Vec<_> = many.into_iter().step_by(100).collect();
        assert!(heap_bytes() < heap + 10_000_000);
        let began = Instant::now();
        while resident_bytes() > resident + 50_000_000 {
            assert!(began.elapsed() < Duration::from_secs(60), "freed memory is kept");
            sleep(Duration::from_millis(50)).await;
        }
        drop(kept);
    }
}
