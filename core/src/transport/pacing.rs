//! What a connection's congestion controller tells the sockets below: when the next transmit may leave, how large a
//! burst may be, and whether the far side shall hold datagrams in order.
//!
//! The QUIC library knows no pacing rate, so a gate in the socket's poller paces. The controller, called under the
//! connection's lock, writes into a [`PacingHandle`]; the poller, asked right after in the same task on the same thread,
//! reads it. The library makes one poller per connection but tells it nothing, so the handle itself is handed over
//! through a thread-local slot: `publish` when a transmit was built, [`take`] in the poller. It is taken, not read,
//! hence never stale; a poller that finds the slot empty keeps the handle it has.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tandem_proto::congestion::pacer::SLACK;
use tandem_proto::wire::header::HoldClass;

/// How much longer than one round trip a connection counts as window-limited after it last was.
const LIMITED_FOR: Duration = Duration::from_millis(100);

/// One connection's pacing as its poller sees it; clones share it.
#[derive(Debug, Clone)]
pub struct PacingHandle(Arc<Shared>);

/// Times are nanoseconds after `epoch`; 0 means never set.
#[derive(Debug)]
struct Shared {
    epoch: Instant,
    release_at: AtomicU64,
    /// The same for the rate of the path that carries everything.
    capped_until: AtomicU64,
    limited_until: AtomicU64,
    send_quantum: AtomicU64,
    segment: AtomicU64,
    hold: AtomicU8,
}

impl PacingHandle {
    /// A handle with an open gate; times before `epoch` cannot be told from it.
    pub fn new(epoch: Instant) -> Self {
        PacingHandle(Arc::new(Shared {
            epoch,
            release_at: AtomicU64::new(0),
            capped_until: AtomicU64::new(0),
            limited_until: AtomicU64::new(0),
            send_quantum: AtomicU64::new(u64::MAX),
            segment: AtomicU64::new(1),
            hold: AtomicU8::new(HoldClass::None as u8),
        }))
    }

    /// The time until which the gate stays shut, or `None` if a transmit may leave now.
    pub fn shut_until(&self, now: Instant) -> Option<Instant> {
        let release = self.0.release_at.load(Relaxed).max(self.0.capped_until.load(Relaxed));
        let release = self.0.epoch + Duration::from_nanos(release);
        (now + SLACK < release).then_some(release)
    }

    /// How many datagrams one batch for segmentation offload may hold: 1 to `most`.
    pub fn max_segments(&self, most: usize) -> usize {
        let segments = self.0.send_quantum.load(Relaxed) / self.0.segment.load(Relaxed).max(1);
        usize::try_from(segments).unwrap_or(most).clamp(1, most)
    }

    /// What the far side shall do about gaps in what is sent now.
    pub fn hold_class(&self, now: Instant) -> HoldClass {
        if self.nanos(now) >= self.0.limited_until.load(Relaxed) {
            return HoldClass::None;
        }
        match self.0.hold.load(Relaxed) {
            hold if hold == HoldClass::Full as u8 => HoldClass::Full,
            hold if hold == HoldClass::Short as u8 => HoldClass::Short,
            _ => HoldClass::None,
        }
    }

    /// Shuts the gate until `at`.
    pub(super) fn set_release(&self, at: Instant) {
        self.0.release_at.store(self.nanos(at), Relaxed);
    }

    /// Shuts the gate until `at` for the sake of a path's rate, whatever the controller says; `None` if that has none.
    pub(super) fn set_cap(&self, at: Option<Instant>) {
        self.0.capped_until.store(at.map_or(0, |at| self.nanos(at)), Relaxed);
    }

    /// Opens the gate, and keeps it open: something else paces.
    pub(super) fn open(&self) {
        self.0.release_at.store(0, Relaxed);
        self.0.send_quantum.store(u64::MAX, Relaxed);
    }

    /// Sets the largest burst and the datagram size, both in bytes.
    pub(super) fn set_burst(&self, send_quantum: u64, segment: u64) {
        self.0.send_quantum.store(send_quantum, Relaxed);
        self.0.segment.store(segment, Relaxed);
    }

    /// Sets what the running controller wants held while it is limited by its window.
    pub(super) fn set_hold(&self, hold: HoldClass) {
        self.0.hold.store(hold as u8, Relaxed);
    }

    /// Notes that the connection, whose round trip takes `rtt`, could have sent more than the controller let it.
    pub(super) fn limited(&self, now: Instant, rtt: Duration) {
        self.0.limited_until.fetch_max(self.nanos(now + rtt + LIMITED_FOR), Relaxed);
    }

    fn nanos(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.0.epoch).as_nanos().try_into().unwrap_or(u64::MAX)
    }
}

thread_local! {
    static HANDED_OVER: Cell<Option<PacingHandle>> = const { Cell::new(None) };
}

/// Leaves the handle of the connection that just built a transmit for its poller.
pub(super) fn publish(handle: &PacingHandle) {
    HANDED_OVER.set(Some(handle.clone()));
}

/// Takes the handle of the connection that built a transmit on this thread since the last call, if one did.
pub fn take() -> Option<PacingHandle> {
    HANDED_OVER.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> (PacingHandle, Instant) {
        let now = tokio::time::Instant::now().into_std();
        (PacingHandle::new(now), now)
    }

    #[test]
    fn the_gate_is_shut_until_its_release_less_the_slack() {
        let (pacing, now) = handle();
        assert_eq!(pacing.shut_until(now), None);
        let release = now + Duration::from_millis(3);
        pacing.set_release(release);
        assert_eq!(pacing.shut_until(now), Some(release));
        assert_eq!(pacing.shut_until(release - SLACK), None);
        pacing.open();
        assert_eq!(pacing.shut_until(now), None);
    }

    #[test]
    fn a_paths_rate_shuts_the_gate_whatever_the_controller_says() {
        let (pacing, now) = handle();
        let ms = Duration::from_millis;
        pacing.set_release(now + ms(3));
        pacing.set_cap(Some(now + ms(9)));
        assert_eq!(pacing.shut_until(now), Some(now + ms(9)));
        pacing.open();
        assert_eq!(pacing.shut_until(now), Some(now + ms(9)));
        pacing.set_cap(None);
        assert_eq!(pacing.shut_until(now), None);
    }

    #[test]
    fn a_hold_is_wished_for_only_while_the_window_limits() {
        let (pacing, now) = handle();
        pacing.set_hold(HoldClass::Full);
        assert_eq!(pacing.hold_class(now), HoldClass::None);
        let rtt = Duration::from_millis(40);
        pacing.limited(now, rtt);
        assert_eq!(pacing.hold_class(now + Duration::from_millis(139)), HoldClass::Full);
        assert_eq!(pacing.hold_class(now + Duration::from_millis(140)), HoldClass::None);
        pacing.set_hold(HoldClass::Short);
        assert_eq!(pacing.hold_class(now), HoldClass::Short);
    }

    #[test]
    fn a_batch_holds_as_many_datagrams_as_the_quantum_and_at_least_one() {
        let (pacing, _) = handle();
        assert_eq!(pacing.max_segments(10), 10);
        pacing.set_burst(3_000, 1_200);
        assert_eq!(pacing.max_segments(10), 2);
        pacing.set_burst(100, 1_200);
        assert_eq!(pacing.max_segments(10), 1);
    }

    #[test]
    fn a_handle_is_handed_over_once_and_only_on_its_thread() {
        let (pacing, now) = handle();
        publish(&pacing);
        assert!(std::thread::spawn(|| take().is_none()).join().unwrap());
        let taken = take().unwrap();
        pacing.set_release(now + Duration::from_secs(1));
        assert!(taken.shut_until(now).is_some());
        assert!(take().is_none());
    }
}
