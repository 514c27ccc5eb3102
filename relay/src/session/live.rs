//! A session as the rest of the relay sees it while it is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tandem_core::transport::Connection;
use tandem_proto::wire::flow::CloseCode;

use crate::metrics::Metrics;
use crate::places::Occupant;

/// An open session.
pub(crate) struct Live {
    connection: Connection,
    /// Bytes sent and received that have been told.
    told: Mutex<(u64, u64)>,
    gave_way: AtomicBool,
}

impl Live {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, told: Mutex::default(), gave_way: AtomicBool::new(false) }
    }

    /// Tells what it has moved since it last did.
    pub(crate) fn tell(&self, metrics: &Metrics) {
        let mut told = self.told.lock();
        let (sent, received) = self.connection.stream_bytes();
        metrics.moved(sent - told.0, received - told.1);
        *told = (sent, received);
    }

    /// Whether another session of its device took its place.
    pub(super) fn gave_way(&self) -> bool {
        self.gave_way.load(Relaxed)
    }
}

impl Occupant for Arc<Live> {
    fn silent_for(&self) -> Duration {
        self.connection.silent_for()
    }

    fn give_way(&self) {
        self.gave_way.store(true, Relaxed);
        self.connection.close(CloseCode::Done.code(), "another session of this device took its place");
    }
}
