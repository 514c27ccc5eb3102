//! A pair of links that many lines share, such as the one that a relay hangs on.

use std::sync::Arc;

use tandem_netem::{ConfigError, Counters, Direction, Link, LinkConfig};
use tokio::time::Instant;

use super::{Datagram, Shared};

/// A trunk of a [`VirtualNetwork`](super::VirtualNetwork), to be watched.
#[derive(Clone, Debug)]
pub struct Trunk {
    shared: Arc<Shared>,
    index: usize,
}

impl Trunk {
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { shared, index }
    }

    /// What has happened to the datagrams of one direction.
    pub fn counters(&self, direction: Direction) -> Counters {
        let state = self.shared.state.lock();
        let trunk = &state.trunks[self.index];
        match direction {
            Direction::Up => trunk.up.counters(),
            Direction::Down => trunk.down.counters(),
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }
}

/// The trunk itself; up is towards the relays.
#[derive(Debug)]
pub(super) struct TrunkState {
    up: Link<Datagram>,
    down: Link<Datagram>,
}

impl TrunkState {
    pub(super) fn new(up: LinkConfig, down: LinkConfig, now: Instant) -> Result<Self, ConfigError> {
        Ok(Self { up: Link::new(up, now.into_std())?, down: Link::new(down, now.into_std())? })
    }

    /// Puts a datagram on the trunk; says when it wants to be looked at next.
    pub(super) fn enqueue(&mut self, now: Instant, direction: Direction, datagram: Datagram) -> Option<Instant> {
        match direction {
            Direction::Up => self.up.enqueue(now.into_std(), datagram),
            Direction::Down => self.down.enqueue(now.into_std(), datagram),
        }
        self.poll_timeout()
    }

    /// The next datagram that has come through.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(Direction, Datagram)> {
        let up = self.up.poll(now.into_std()).map(|datagram| (Direction::Up, datagram));
        up.or_else(|| self.down.poll(now.into_std()).map(|datagram| (Direction::Down, datagram)))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.up.poll_timeout(), self.down.poll_timeout()].into_iter().flatten();
        due.min().map(Instant::from_std)
    }
}
