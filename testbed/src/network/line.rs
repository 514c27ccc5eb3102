//! One client address joined to one relay address: two links, a NAT, and whoever sits on the wire.
//!
//! Others may share the line ([`Line::share`]): their datagrams stand in the same queues.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use quinn::udp::EcnCodepoint;
use tandem_netem::{ConfigError, Counters, Direction, Link, LinkConfig};
use tokio::time::Instant;

use super::hostile::{Attacker, Hostility, Vantage};
use super::{Datagram, Shared, Trunk};

/// What a router makes of the ECN field, whatever it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnMark {
    /// Not capable of ECN.
    Cleared,
    /// Capable: ECT(0).
    Capable,
    /// Congestion experienced.
    Congestion,
}

impl EcnMark {
    fn codepoint(self) -> Option<EcnCodepoint> {
        match self {
            EcnMark::Cleared => None,
            EcnMark::Capable => Some(EcnCodepoint::Ect0),
            EcnMark::Congestion => Some(EcnCodepoint::Ce),
        }
    }
}

/// A line of a [`VirtualNetwork`](super::VirtualNetwork): a handle to watch and change it.
#[derive(Clone, Debug)]
pub struct Line {
    shared: Arc<Shared>,
    index: usize,
}

impl Line {
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { shared, index }
    }

    /// Gives the line another public address, as a NAT does that forgot the old one.
    ///
    /// What the relay still sends to the old address uses the line and is dropped at its end.
    ///
    /// # Panics
    /// When the address belongs to another line.
    pub fn rebind(&self, public: SocketAddr) {
        let mut state = self.shared.state.lock();
        let pair = &mut state.lines[self.index].pairs[0];
        pair.public = public;
        let at = (public, pair.relay);
        let other = state.from_relay.insert(at, (self.index, 0));
        assert!(other.is_none_or(|owner| owner == (self.index, 0)), "{public} belongs to another line");
    }

    /// Makes the line's NAT forget the client's address when nothing has left the client for that long: what comes for it then
    /// is dropped, and the next that leaves gets another public port. `None` (as at first) never forgets.
    pub fn set_nat_timeout(&self, timeout: Option<std::time::Duration>) {
        let mut state = self.shared.state.lock();
        state.lines[self.index].nat_timeout = timeout;
    }

    /// Joins two more addresses by the same two links, as a neighbour's traffic that stands in the same queues.
    ///
    /// # Panics
    /// When the two are joined already.
    pub fn share(&self, client: SocketAddr, relay: SocketAddr) {
        let mut state = self.shared.state.lock();
        let pairs = &mut state.lines[self.index].pairs;
        let pair = pairs.len();
        pairs.push(Pair { client, public: client, relay });
        state.join(client, relay, (self.index, pair));
    }

    /// Lets what travels on the line share a trunk with others, at the relay's end.
    pub fn lead_through(&self, trunk: &Trunk) {
        self.shared.state.lock().lines[self.index].trunk = Some(trunk.index());
    }

    /// The address under which the relay sees the client.
    pub fn public_address(&self) -> SocketAddr {
        self.shared.state.lock().lines[self.index].pairs[0].public
    }

    /// Drops in silence all that travels in one direction, until [`restore`](Self::restore).
    pub fn cut(&self, direction: Direction) {
        self.change(direction, |link, now| link.cut(now));
    }

    /// Ends a [`cut`](Self::cut).
    pub fn restore(&self, direction: Direction) {
        self.change(direction, |link, now| link.restore(now));
    }

    /// What has happened to the datagrams of one direction. Those of an attacker are not counted.
    pub fn counters(&self, direction: Direction) -> Counters {
        self.shared.state.lock().lines[self.index].link(direction).counters()
    }

    /// Changes the loss of one direction.
    ///
    /// # Errors
    /// Refuses a loss that cannot be, and changes nothing.
    pub fn set_loss(&self, direction: Direction, loss: tandem_netem::Loss) -> Result<(), ConfigError> {
        self.change(direction, |link, now| link.set_loss(now, loss))
    }

    /// Changes the rate of one direction.
    ///
    /// # Errors
    /// Refuses a rate that cannot be, and changes nothing.
    pub fn set_rate(&self, direction: Direction, rate: Option<tandem_netem::Bitrate>) -> Result<(), ConfigError> {
        self.change(direction, |link, now| link.set_rate(now, rate))
    }

    /// Changes the largest IP packet that passes in one direction; larger ones vanish without a word.
    ///
    /// # Errors
    /// Refuses an MTU that no IP network has, and changes nothing.
    pub fn set_mtu(&self, direction: Direction, mtu: Option<u32>) -> Result<(), ConfigError> {
        self.change(direction, |link, now| link.set_mtu(now, mtu))
    }

    /// Makes a router of one direction write this ECN codepoint into every packet; `None` leaves packets as they are.
    pub fn set_ecn(&self, direction: Direction, mark: Option<EcnMark>) {
        self.shared.state.lock().lines[self.index].way(direction).ecn = mark;
    }

    /// Changes the delay of one direction.
    ///
    /// # Errors
    /// Refuses a delay that cannot be, and changes nothing.
    pub fn set_delay(&self, direction: Direction, delay: std::time::Duration) -> Result<(), ConfigError> {
        self.change(direction, |link, now| link.set_delay(now, delay))
    }

    /// Sets an attacker on one direction, or takes the one there away.
    ///
    /// What the attacker sends arrives at the far end at once, takes nothing of the line's rate and bears the address of
    /// the line's other end: the worst that someone on the wire can do short of dropping.
    pub fn set_hostility(&self, direction: Direction, hostility: Option<Hostility>) {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        let way = state.lines[self.index].way(direction);
        way.attacker = hostility.map(|hostility| Attacker::new(hostility, now));
        let due = way.poll_timeout();
        self.shared.plan(&mut state, due);
    }

    /// Datagrams that the present attacker of one direction has sent.
    pub fn forged(&self, direction: Direction) -> u64 {
        let mut state = self.shared.state.lock();
        state.lines[self.index].way(direction).attacker.as_ref().map_or(0, Attacker::sent)
    }

    fn change<T>(&self, direction: Direction, change: impl FnOnce(&mut Link<Datagram>, std::time::Instant) -> T) -> T {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        let way = state.lines[self.index].way(direction);
        let outcome = change(&mut way.link, now.into_std());
        let due = way.poll_timeout();
        self.shared.plan(&mut state, due);
        outcome
    }
}

/// The line itself.
#[derive(Debug)]
pub(super) struct LineState {
    /// Whom it joins; the first are its owners.
    pub(super) pairs: Vec<Pair>,
    /// What lies between the line and its relay.
    pub(super) trunk: Option<usize>,
    nat_timeout: Option<std::time::Duration>,
    /// When the owner of the line last sent something.
    last_up: Instant,
    up: Way,
    down: Way,
}

/// Two addresses that a line joins.
#[derive(Debug)]
pub(super) struct Pair {
    client: SocketAddr,
    /// Where the relay believes the client to be.
    pub(super) public: SocketAddr,
    relay: SocketAddr,
}

/// One direction of a line.
#[derive(Debug)]
pub(super) struct Way {
    link: Link<Datagram>,
    ecn: Option<EcnMark>,
    attacker: Option<Attacker>,
}

impl LineState {
    pub(super) fn new(
        client: SocketAddr,
        relay: SocketAddr,
        up: LinkConfig,
        down: LinkConfig,
    ) -> Result<Self, ConfigError> {
        let now = Instant::now().into_std();
        let way = |config| Ok(Way { link: Link::new(config, now)?, ecn: None, attacker: None });
        let pairs = vec![Pair { client, public: client, relay }];
        Ok(Self { pairs, trunk: None, nat_timeout: None, last_up: Instant::now(), up: way(up)?, down: way(down)? })
    }

    pub(super) fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    fn link(&self, direction: Direction) -> &Link<Datagram> {
        match direction {
            Direction::Up => &self.up.link,
            Direction::Down => &self.down.link,
        }
    }

    fn nat_forgot(&self, now: Instant) -> bool {
        self.nat_timeout.is_some_and(|timeout| now - self.last_up > timeout)
    }

    /// The owner of the line sends something: the new public address and its peer, if the NAT had forgotten the old one.
    pub(super) fn pass_nat(&mut self, now: Instant) -> Option<(SocketAddr, SocketAddr)> {
        let forgot = self.nat_forgot(now);
        self.last_up = now;
        let pair = &mut self.pairs[0];
        forgot.then(|| {
            pair.public.set_port(pair.public.port().wrapping_add(1).max(1_024));
            (pair.public, pair.relay)
        })
    }

    /// Puts a datagram on the line; says when the line wants to be looked at next.
    pub(super) fn enqueue(&mut self, now: Instant, direction: Direction, mut datagram: Datagram) -> Option<Instant> {
        let way = self.way(direction);
        if let Some(mark) = way.ecn {
            datagram.ecn = mark.codepoint();
        }
        way.overhear(Vantage::Entrance, &datagram);
        way.link.enqueue(now.into_std(), datagram);
        way.poll_timeout()
    }

    /// The next datagram that has arrived, with the address of the socket that gets it.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(SocketAddr, Datagram)> {
        if let Some(datagram) = self.up.link.poll(now.into_std()) {
            self.up.overhear(Vantage::Exit, &datagram);
            return Some((self.pairs[datagram.pair].relay, datagram));
        }
        while let Some(datagram) = self.down.link.poll(now.into_std()) {
            self.down.overhear(Vantage::Exit, &datagram);
            let pair = &self.pairs[datagram.pair];
            let forgotten = datagram.pair == 0 && self.nat_forgot(now);
            if datagram.destination == pair.public && !forgotten {
                return Some((pair.client, datagram));
            }
        }
        let Pair { client, public, relay } = self.pairs[0];
        if let Some(contents) = self.up.forgery(now) {
            return Some((relay, forged(public, relay, contents)));
        }
        let contents = self.down.forgery(now)?;
        Some((client, forged(relay, client, contents)))
    }

    /// Where a datagram that goes up ends.
    pub(super) fn relay_of(&self, datagram: &Datagram) -> SocketAddr {
        self.pairs[datagram.pair].relay
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.up.poll_timeout().into_iter().chain(self.down.poll_timeout()).min()
    }
}

fn forged(source: SocketAddr, destination: SocketAddr, contents: Bytes) -> Datagram {
    Datagram { line: 0, pair: 0, source, destination, ecn: None, contents }
}

impl Way {
    fn overhear(&mut self, vantage: Vantage, datagram: &Datagram) {
        if let Some(attacker) = self.attacker.as_mut().filter(|attacker| attacker.vantage == vantage) {
            attacker.see(&datagram.contents);
        }
    }

    fn forgery(&mut self, now: Instant) -> Option<Bytes> {
        self.attacker.as_mut()?.poll(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.link.poll_timeout().map(Instant::from_std);
        let forgery = self.attacker.as_ref().map(Attacker::poll_timeout);
        due.into_iter().chain(forgery).min()
    }
}
