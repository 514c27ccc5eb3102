//! How many flows are open, and the wait for them when an engine or a relay stops.
//!
//! A flow is *finishing* once one of its halves has ended, or once it carries the answer to a request that was sent whole:
//! what is under way there should still arrive. Any other flow could last for ever, so a stop waits for it only a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long a stop waits for flows of which neither half has ended. Covers a last request or close that is still in a
/// socket's buffer.
const OPEN_FLOWS_GRACE: Duration = Duration::from_millis(300);

/// Counts flows; shared by everything that opens them.
#[derive(Debug, Default)]
pub struct FlowGauge {
    open: AtomicU64,
    finishing: AtomicU64,
    total: AtomicU64,
    changed: Notify,
}

impl FlowGauge {
    /// Counts a flow as open until the answer is dropped.
    pub fn count(self: &Arc<Self>) -> CountedFlow {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
        CountedFlow { gauge: Arc::clone(self), finishing: false }
    }

    /// Flows open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Flows opened so far.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Waits for finishing flows until `limit` has passed, and for others a moment; answers with how many are left.
    pub async fn drain(&self, limit: Duration) -> u64 {
        let start = Instant::now();
        let grace = start + OPEN_FLOWS_GRACE.min(limit);
        self.wait(grace, &self.open).await;
        self.wait(start + limit, &self.finishing).await;
        self.open()
    }

    async fn wait(&self, deadline: Instant, count: &AtomicU64) {
        loop {
            let changed = self.changed.notified();
            if count.load(Ordering::Relaxed) == 0 || timeout_at(deadline, changed).await.is_err() {
                return;
            }
        }
    }
}

/// One open flow in a [`FlowGauge`].
#[derive(Debug)]
pub struct CountedFlow {
    gauge: Arc<FlowGauge>,
    finishing: bool,
}

impl CountedFlow {
    /// Tells whether what is left to do is bounded, so that a stop should wait for it: one half has ended, or a request
    /// is wholly sent and its answer under way.
    pub(crate) fn set_finishing(&mut self, finishing: bool) {
        if self.finishing == finishing {
            return;
        }
        self.finishing = finishing;
        if finishing {
            self.gauge.finishing.fetch_add(1, Ordering::Relaxed);
        } else {
            self.gauge.finishing.fetch_sub(1, Ordering::Relaxed);
            self.gauge.changed.notify_waiters();
        }
    }
}

impl Drop for CountedFlow {
    fn drop(&mut self) {
        self.gauge.open.fetch_sub(1, Ordering::Relaxed);
        self.set_finishing(false);
        self.gauge.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TCP-3
    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_finishing_flows_and_only_briefly_for_others() {
        let gauge = Arc::new(FlowGauge::default());
        let open = gauge.count();
        let mut finishing = gauge.count();
        finishing.set_finishing(true);
        let start = Instant::now();
        let drained = tokio::spawn({
            let gauge = Arc::clone(&gauge);
            async move { gauge.drain(Duration::from_secs(5)).await }
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!drained.is_finished());
        drop(finishing);
        assert_eq!(drained.await.unwrap(), 1);
        assert_eq!(start.elapsed(), Duration::from_secs(2));

        let start = Instant::now();
        assert_eq!(gauge.drain(Duration::from_secs(5)).await, 1);
        assert_eq!(start.elapsed(), OPEN_FLOWS_GRACE);
        drop(open);
        assert_eq!(gauge.drain(Duration::from_secs(5)).await, 0);
        assert_eq!(gauge.total(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_gives_up_at_its_limit() {
        let gauge = Arc::new(FlowGauge::default());
        let mut finishing = gauge.count();
        finishing.set_finishing(true);
        let start = Instant::now();
        assert_eq!(gauge.drain(Duration::from_secs(5)).await, 1);
        assert_eq!(start.elapsed(), Duration::from_secs(5));
    }
}
