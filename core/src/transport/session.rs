//! One session below QUIC: its link, its congestion control, and the task that keeps its clock.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tandem_proto::link::{Link, LinkEvent};
use tandem_proto::path::PathAddress;
use tokio::sync::{Notify, watch};

use super::bicast::BicastSocket;
use super::congestion::{CongestionHandle, ReportedLoss};

/// The address under which QUIC knows a session: one peer, whatever its paths. It lies in the discard-only prefix of RFC
/// 6666, so that nothing can leave for it by mistake.
pub(super) fn session_address(id: u64) -> SocketAddr {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (id >> shift) as u16);
    SocketAddr::from((Ipv6Addr::new(0x100, 0, 0, 0, a, b, c, d), 1))
}

/// The number of the session that QUIC knows under `address`.
pub(super) fn session_number(address: SocketAddr) -> Option<u64> {
    match address {
        SocketAddr::V6(v6) => {
            let bits = u128::from(*v6.ip());
            (bits >> 64 == 0x0100 << 48).then_some(bits as u64)
        }
        SocketAddr::V4(_) => None,
    }
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    /// Its number, see [`session_address`].
    pub(super) number: u64,
    /// Seeds its decisions.
    pub(super) seed: u64,
    /// Its paths.
    pub(super) link: Mutex<Link>,
    /// Its congestion control.
    pub(super) congestion: CongestionHandle,
    /// Wakes the clock's task.
    pub(super) changed: Notify,
    /// Counts the changes of paths between carrying traffic and not.
    pub(super) path_changes: watch::Sender<u64>,
    /// Bytes of flows written and read, for the goodput.
    pub(super) flow_bytes_sent: AtomicU64,
    pub(super) flow_bytes_received: AtomicU64,
    /// Streams whose sending half is still in someone's hands.
    pub(super) streams_open: AtomicUsize,
    last_sent: AtomicU64,
    /// Since when the preferred path's socket takes nothing, in milliseconds from the epoch, plus one; 0 if it does.
    full_since: AtomicU64,
    claimed: AtomicBool,
    epoch: Instant,
}

impl Session {
    pub(super) fn new(number: u64, seed: u64, link: Link, congestion: CongestionHandle, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            number,
            seed,
            link: Mutex::new(link),
            congestion,
            changed: Notify::new(),
            path_changes: watch::Sender::new(0),
            flow_bytes_sent: AtomicU64::new(0),
            flow_bytes_received: AtomicU64::new(0),
            streams_open: AtomicUsize::new(0),
            last_sent: AtomicU64::new(0),
            full_since: AtomicU64::new(0),
            claimed: AtomicBool::new(false),
            epoch: now,
        })
    }

    /// Takes the session for a handshake; `false` if another has it.
    pub(super) fn claim(&self) -> bool {
        !self.claimed.swap(true, Relaxed)
    }

    /// Whether a handshake has it.
    pub(super) fn is_claimed(&self) -> bool {
        self.claimed.load(Relaxed)
    }

    /// Notes that QUIC sent something.
    pub(super) fn on_sent(&self, now: Instant) {
        self.last_sent.store(self.millis(now), Relaxed);
    }

    /// Whether QUIC sent something within the last 100 ms.
    pub(super) fn is_sending(&self, now: Instant) -> bool {
        self.millis(now).saturating_sub(self.last_sent.load(Relaxed)) < 100
    }

    /// Notes that the preferred path's socket took something.
    pub(super) fn on_room(&self) {
        if self.full_since.load(Relaxed) != 0 {
            self.full_since.store(0, Relaxed);
        }
    }

    /// Notes that the preferred path's socket is full, and says for how long it has been.
    pub(super) fn full_for(&self, now: Instant) -> Duration {
        let now = self.millis(now);
        let since = self.full_since.load(Relaxed).checked_sub(1).unwrap_or_else(|| {
            self.full_since.store(now + 1, Relaxed);
            now
        });
        Duration::from_millis(now.saturating_sub(since))
    }

    fn millis(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis() as u64
    }

    /// Passes on what the link has to tell: address changes go to `addresses`, signals to the controller.
    pub(super) fn drain_events(&self, link: &mut Link, mut addresses: impl FnMut(AddressChange)) {
        while let Some(event) = link.poll_event() {
            match event {
                LinkEvent::AddressAdded(address) => addresses(AddressChange::Added(address)),
                LinkEvent::AddressRemoved(address) => addresses(AddressChange::Removed(address)),
                LinkEvent::ReferenceLoss { number, bytes, sent_at, queue_exceeded } => {
                    let loss = ReportedLoss { number, bytes: bytes.into(), sent_at, queue_exceeded };
                    self.congestion.report_loss(loss);
                }
                LinkEvent::ReferenceReport(report) => self.congestion.report_reference(report),
                LinkEvent::Reported => self.congestion.set_hold(link.hold_lag(), link.fast_rtt()),
                LinkEvent::PathChanged(path, state) => {
                    tracing::info!(session = self.number, path = path.0, ?state, "path changed");
                    self.path_changes.send_modify(|count| *count += 1);
                }
            }
        }
    }
}

/// An address that begins or ceases to carry a session.
pub(super) enum AddressChange {
    Added(PathAddress),
    Removed(PathAddress),
}

/// Never sleep shorter than this: tokio's timers count milliseconds.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// Keeps a session's clock: does what is due and sends the control datagrams, until the session leaves the socket.
pub(super) async fn keep_clock(socket: Arc<BicastSocket>, session: Arc<Session>) {
    loop {
        let changed = session.changed.notified();
        let now = tokio::time::Instant::now();
        let deadline = {
            let mut link = session.link.lock();
            link.handle_timeout(now.into_std());
            link.take_wake();
            socket.after(&session, &mut link, now.into_std());
            link.poll_timeout(now.into_std())
        };
        if !socket.has(&session) {
            return;
        }
        match deadline {
            Some(deadline) => {
                let deadline = tokio::time::Instant::from_std(deadline).max(now + SHORTEST_SLEEP);
                tokio::select! {
                    () = tokio::time::sleep_until(deadline) => {}
                    () = changed => {}
                }
            }
            None => changed.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_again_by_its_address() {
        for number in [0, 1, 70_000, u64::MAX] {
            assert_eq!(session_number(session_address(number)), Some(number));
        }
        assert_eq!(session_number(([192, 0, 2, 1], 1).into()), None);
        assert_eq!(session_number("[2001:db8::1]:1".parse().expect("an address")), None);
    }
}
