//! Hosts, sockets and lines in memory: what lies between a client and a relay in virtual time.
//!
//! A [`Line`] joins one client address and one relay address by two links of the model in `tandem_netem`, one for each
//! direction. At its client's end stands a NAT: the relay sees the line's public address, which [`Line::rebind`] changes.
//! Sockets are [`VirtualSocket`]s; a datagram between addresses that no line joins is dropped, as by a router. Lines may lead
//! to their relays through one [`Trunk`], a pair of links that they share.
//!
//! One task moves the datagrams, each at the nanosecond at which the model delivers it. Order is fixed: trunks before lines,
//! each in the order in which they were laid, up before down, arrivals before forgeries.

mod hostile;
mod line;
mod socket;
mod trunk;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use quinn::udp::EcnCodepoint;
use tandem_netem::{ConfigError, Direction, LinkConfig, Packet};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::virtual_time::{advance_to, tick_after, tick_at_or_before, when_idle};
pub use hostile::{Hostility, Vantage};
use line::LineState;
pub use line::{EcnMark, Line};
pub use socket::{SendFault, VirtualSocket};
pub use trunk::Trunk;
use trunk::TrunkState;

/// A network in memory; clones are the same network. It stands still once the last clone is gone.
#[derive(Clone, Debug)]
pub struct VirtualNetwork {
    shared: Arc<Shared>,
    _driver: Arc<Driver>,
}

/// The task that moves datagrams; it ends with the last [`VirtualNetwork`].
#[derive(Debug)]
struct Driver(tokio::task::AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when something is due earlier than planned.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct State {
    sockets: BTreeMap<SocketAddr, Weak<VirtualSocket>>,
    lines: Vec<LineState>,
    trunks: Vec<TrunkState>,
    /// Which line, and pair of addresses on it, carries what a client sends, by client and relay address.
    from_client: BTreeMap<(SocketAddr, SocketAddr), (usize, usize)>,
    /// The same for what a relay sends, by every public address the client ever had, and relay address.
    from_relay: BTreeMap<(SocketAddr, SocketAddr), (usize, usize)>,
    /// When the driver looks next, if it waits for a time at all.
    planned: Option<Instant>,
    unroutable: u64,
}

/// One datagram under way.
#[derive(Clone, Debug)]
struct Datagram {
    /// Its line, and which pair of addresses on it it travels between.
    line: usize,
    pair: usize,
    /// As the receiver sees it.
    source: SocketAddr,
    /// As the sender named it.
    destination: SocketAddr,
    ecn: Option<EcnCodepoint>,
    contents: Bytes,
}

impl Packet for Datagram {
    fn payload_bytes(&self) -> usize {
        self.contents.len()
    }
}

impl VirtualNetwork {
    /// Makes a network without hosts. To be called within [`virtual_time::run`](crate::virtual_time::run).
    #[expect(clippy::new_without_default, reason = "it starts a task, which a default value should not")]
    pub fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let driver = tokio::spawn(drive(shared.clone())).abort_handle();
        Self { shared, _driver: Arc::new(Driver(driver)) }
    }

    /// Makes a socket with one address.
    ///
    /// # Panics
    /// When another socket has the address.
    pub fn socket(&self, address: SocketAddr) -> Arc<VirtualSocket> {
        self.bind(address, &[address])
    }

    /// Makes a socket that is bound to a wildcard on a host with several addresses, all with the same port.
    ///
    /// It receives what is sent to any of them and says to which; what it sends leaves from the address that the sender
    /// names, else from the first.
    ///
    /// # Panics
    /// When there is no address, or another socket has one of them.
    pub fn wildcard_socket(&self, wildcard: SocketAddr, addresses: &[SocketAddr]) -> Arc<VirtualSocket> {
        self.bind(wildcard, addresses)
    }

    fn bind(&self, local: SocketAddr, addresses: &[SocketAddr]) -> Arc<VirtualSocket> {
        assert!(!addresses.is_empty(), "a socket needs an address");
        let socket = Arc::new(VirtualSocket::new(self.shared.clone(), local, addresses.to_vec()));
        let mut state = self.shared.state.lock();
        for address in addresses {
            let taken = state.sockets.insert(*address, Arc::downgrade(&socket));
            assert!(taken.is_none(), "{address} is in use");
        }
        drop(state);
        socket
    }

    /// Lays a line between a client's and a relay's address.
    ///
    /// # Errors
    /// Refuses a link that cannot be, and lays nothing.
    ///
    /// # Panics
    /// When the two are joined already.
    pub fn line(
        &self,
        client: SocketAddr,
        relay: SocketAddr,
        up: LinkConfig,
        down: LinkConfig,
    ) -> Result<Line, ConfigError> {
        let line = LineState::new(client, relay, up, down)?;
        let mut state = self.shared.state.lock();
        let index = state.lines.len();
        state.join(client, relay, (index, 0));
        state.lines.push(line);
        drop(state);
        Ok(Line::new(self.shared.clone(), index))
    }

    /// Lays a trunk that [lines can be led through](Line::lead_through).
    ///
    /// # Errors
    /// Refuses a link that cannot be, and lays nothing.
    pub fn trunk(&self, up: LinkConfig, down: LinkConfig) -> Result<Trunk, ConfigError> {
        let trunk = TrunkState::new(up, down, Instant::now())?;
        let mut state = self.shared.state.lock();
        state.trunks.push(trunk);
        Ok(Trunk::new(self.shared.clone(), state.trunks.len() - 1))
    }

    /// Hands a datagram to a socket at once, from whatever source the caller makes up. False if no socket has the address.
    pub fn inject(&self, source: SocketAddr, destination: SocketAddr, contents: Bytes) -> bool {
        let datagram = Datagram { line: 0, pair: 0, source, destination, ecn: None, contents };
        let socket = self.shared.state.lock().socket_at(destination);
        socket.is_some_and(|socket| {
            socket.arrive(destination, datagram);
            true
        })
    }

    /// Datagrams that were sent to where no line leads, or arrived where no socket is (any more).
    pub fn unroutable(&self) -> u64 {
        self.shared.state.lock().unroutable
    }
}

impl Shared {
    /// Puts one datagram on its line.
    fn send(&self, source: SocketAddr, destination: SocketAddr, ecn: Option<EcnCodepoint>, contents: Bytes) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let upward = state.from_client.get(&(source, destination)).map(|line| (*line, Direction::Up));
        let downward = || state.from_relay.get(&(destination, source)).map(|line| (*line, Direction::Down));
        let Some(((line, pair), direction)) = upward.or_else(downward) else {
            state.unroutable += 1;
            return;
        };
        if direction == Direction::Up
            && pair == 0
            && let Some(at) = state.lines[line].pass_nat(now)
        {
            state.from_relay.insert(at, (line, pair));
        }
        let source = if direction == Direction::Up { state.lines[line].pairs[pair].public } else { source };
        let datagram = Datagram { line, pair, source, destination, ecn, contents };
        let due = match (direction, state.lines[line].trunk) {
            (Direction::Down, Some(trunk)) => state.trunks[trunk].enqueue(now, direction, datagram),
            _ => state.lines[line].enqueue(now, direction, datagram),
        };
        self.plan(&mut state, due);
    }

    /// Makes the driver look no later than at `due`.
    fn plan(&self, state: &mut State, due: Option<Instant>) {
        if let Some(due) = due
            && state.planned.is_none_or(|planned| due < planned)
        {
            state.planned = Some(due);
            self.earlier.notify_one();
        }
    }

    /// Delivers what is due and plans the next look.
    fn deliver(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        // What leaves a trunk enters a line and the other way round, perhaps without delay.
        while state.pass_trunks(now) | state.pass_lines(now) {}
        let lines = state.lines.iter().filter_map(LineState::poll_timeout);
        let next = lines.chain(state.trunks.iter().filter_map(TrunkState::poll_timeout)).min();
        state.planned = next;
        next
    }
}

impl State {
    fn join(&mut self, client: SocketAddr, relay: SocketAddr, way: (usize, usize)) {
        let joined = self.from_client.insert((client, relay), way);
        assert!(joined.is_none(), "{client} and {relay} are joined already");
        self.from_relay.insert((client, relay), way);
    }

    /// Hands on what has come through the trunks; whether something went on to a line.
    fn pass_trunks(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for index in 0..self.trunks.len() {
            while let Some((direction, datagram)) = self.trunks[index].poll(now) {
                if direction == Direction::Up {
                    let at = self.lines[datagram.line].relay_of(&datagram);
                    self.arrive(at, datagram);
                } else {
                    self.lines[datagram.line].enqueue(now, direction, datagram);
                    moved = true;
                }
            }
        }
        moved
    }

    /// Hands on what has come through the lines; whether something went on to a trunk.
    fn pass_lines(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for index in 0..self.lines.len() {
            while let Some((at, datagram)) = self.lines[index].poll(now) {
                match self.lines[index].trunk.filter(|_| at == self.lines[index].relay_of(&datagram)) {
                    Some(trunk) => {
                        self.trunks[trunk].enqueue(now, Direction::Up, datagram);
                        moved = true;
                    }
                    None => self.arrive(at, datagram),
                }
            }
        }
        moved
    }

    fn arrive(&mut self, at: SocketAddr, datagram: Datagram) {
        match self.socket_at(at) {
            Some(socket) => socket.arrive(at, datagram),
            None => self.unroutable += 1,
        }
    }

    fn socket_at(&self, address: SocketAddr) -> Option<Arc<VirtualSocket>> {
        self.sockets.get(&address).and_then(Weak::upgrade)
    }
}

/// Delivers datagrams when they are due, for ever.
async fn drive(shared: Arc<Shared>) {
    loop {
        let now = Instant::now();
        let next = shared.deliver(now);
        let on_tick = tick_at_or_before(now) == now;
        // tokio moves the clock from tick to tick; all other moves are made here, and only if nothing else can run.
        let wait_until = next.map(tick_at_or_before).filter(|tick| on_tick && *tick > now);
        let move_to = if on_tick { next } else { next.into_iter().chain([tick_after(now)]).min() };
        match (wait_until, move_to) {
            (Some(tick), _) => tokio::select! {
                biased;
                () = shared.earlier.notified() => {}
                () = tokio::time::sleep_until(tick) => {}
            },
            (None, Some(instant)) => tokio::select! {
                biased;
                () = shared.earlier.notified() => {}
                () = when_idle() => advance_to(instant).await,
            },
            (None, None) => shared.earlier.notified().await,
        }
    }
}

#[cfg(test)]
mod tests;
