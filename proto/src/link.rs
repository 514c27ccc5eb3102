//! All paths of one session at one end: what the transport asks for every datagram that leaves or arrives.
//!
//! Before the session has keys, QUIC's datagrams travel as they are: the client's on every path, the relay's to every
//! address that took part in the handshake. Once both ends hold keys and have heard a control datagram of the other, each
//! puts a header in front of its datagrams; a peer that never sends a control datagram never gets a header. The relay
//! sends to an address only after it has answered a challenge, and before that at most three times the bytes that came
//! from it.
//!
//! The shell hands in datagrams ([`Link::handle`]), asks where to send ([`Link::depart`]), sends what
//! [`Link::poll_transmit`] returns, and calls [`Link::handle_timeout`] and [`Link::release_held`] when
//! [`Link::poll_timeout`] and [`Link::poll_hold_timeout`] say so.

mod arrive;
mod control;
mod copies;
mod depart;
mod doubt;
mod halves;
mod judge;
mod orders;
mod replay;
mod rescue;
mod rest;
mod sent_log;
mod signs;
mod snapshot;
mod told;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub use arrive::Deliver;
pub use depart::{Batch, Departure, Targets};
use doubt::Doubt;
use halves::Halves;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use replay::ReplayWindow;
use rescue::{Kept, Watch};
use sent_log::SentLog;
pub use signs::PathSigns;
pub use snapshot::LinkSnapshot;
use told::Told;

use crate::congestion::noise_floor::TrialClock;
use crate::congestion::{ReferenceReport, SenderState};
use crate::hold::{Hold, HoldCounters};
use crate::keys::{Role, SECRET_LEN, SessionId, SessionKeys};
use crate::mode::{Copying, Mode};
use crate::path::order::{PathOrder, PathRole};
use crate::path::{Path, PathAddress};
use crate::schedule::{PathSet, Scheduler};
use crate::stats::PathState;
use crate::wire::control::{CHALLENGE_LEN, MAX_PATHS, PathId};
use crate::wire::header::TICK_MICROS;

/// Traffic within this time makes a session active: its paths are pinged and reported on.
const ACTIVE_FOR: Duration = Duration::from_secs(1);

/// Reports come at most this often, and at most every half round trip.
const LEAST_REPORT_INTERVAL: Duration = Duration::from_millis(5);

/// And at least this often while data arrives.
const MOST_REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// At most so many times the bytes that came from an address are sent to it before it has proved that it receives
/// (RFC 9000, section 8.1).
const AMPLIFICATION: u64 = 3;

/// One end of a session.
#[derive(Debug)]
pub struct Link {
    role: Role,
    epoch: Instant,
    rng: Pcg64,
    keys: Option<SessionKeys>,
    /// The far side speaks our headers.
    framing: bool,
    /// How this end's datagrams travel.
    copying: Copying,
    /// How the relay's datagrams are to travel, and how often the client changed its mind.
    wish: (u32, Copying),
    /// What the paths are for, by number.
    orders: [PathOrder; MAX_PATHS],
    paths: Vec<Path>,
    /// Client: the number to try first for a new path.
    next_path: u8,
    /// Relay: addresses that took part in the handshake, until paths are joined.
    handshake: Vec<HandshakeAddress>,
    /// Relay: an address that asks to become a path, one per path number.
    candidates: Vec<Candidate>,
    /// Relay: control datagrams that came before the keys.
    early: Vec<(PathAddress, Vec<u8>)>,
    scheduler: Scheduler,
    log: SentLog,
    /// The newest datagrams, should their path fail.
    kept: Kept,
    /// When more of them go again, and how many at most.
    rescue_at: Option<Instant>,
    rescue_left: usize,
    /// QUIC is watched after a rescue.
    watch: Option<Watch>,
    /// Datagrams of QUIC that carry more than acknowledgements, each counted once.
    sent_of_size: u64,
    /// The largest datagram that was let through, in bytes of UDP payload.
    largest: usize,
    /// How the connection sends now.
    sender: SenderState,
    trials: TrialClock,
    /// The path that carries every datagram in bicast; copies on the others are governed.
    primary: Option<PathId>,
    doubt: Doubt,
    /// When QUIC last sent something, and how many datagrams since it was last silent for a round trip.
    last_departure: Option<Instant>,
    since_silence: u32,
    /// Paths whose queue is beyond the tolerated one.
    queued: PathSet,
    reference: Option<(PathId, Instant)>,
    hold: Hold,
    /// Per path number: halves of datagrams that wait for the others; and where they are put together.
    halves: [Halves; MAX_PATHS],
    joined: Vec<u8>,
    /// Smoothed round-trip time of the fastest path.
    fast_rtt: Duration,
    delay_reference: Option<u32>,
    counter: u64,
    replay: ReplayWindow,
    active_until: Option<Instant>,
    /// What is needed only for traffic has been given back since.
    rested: bool,
    wake: bool,
    unreported: u32,
    last_report: Option<Instant>,
    last_sent_report: Option<Instant>,
    /// What the far side says it sent.
    peer_sent: Told,
    plain_allowance: f64,
    plain_from: Option<Instant>,
    outgoing: VecDeque<Outgoing>,
    /// Where tags are made.
    scratch: Vec<u8>,
    spare: Vec<Vec<u8>>,
    events: VecDeque<LinkEvent>,
    counters: LinkCounters,
}

/// How a new [`Link`] begins.
#[derive(Debug, Clone, Copy)]
pub struct LinkConfig {
    /// Which end it is.
    pub role: Role,
    /// How the session uses its paths; the relay learns it from the client.
    pub mode: Mode,
    /// For challenges.
    pub seed: u64,
}

/// A control datagram to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// Where to.
    pub address: PathAddress,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// Something that the shell or the congestion controller must know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LinkEvent {
    /// Datagrams from this address belong to the session from now on.
    AddressAdded(PathAddress),
    /// They no longer do.
    AddressRemoved(PathAddress),
    /// A path changed between carrying traffic and not.
    PathChanged(PathId, PathState),
    /// A datagram that went over several paths did not arrive on the reference path, though perhaps a copy did on another.
    ReferenceLoss {
        /// Its number.
        number: u64,
        /// UDP payload bytes.
        bytes: u16,
        /// When it left.
        sent_at: Instant,
        /// Whether the path had a queue beyond the tolerated one then.
        queue_exceeded: bool,
    },
    /// A report settled the fate of datagrams on the reference path; follows upon its losses.
    ReferenceReport(ReferenceReport),
    /// A report came in: [`Link::hold_lag`] and [`Link::fast_rtt`] may have changed.
    Reported,
}

/// What a [`Link`] has counted beside its paths' figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Copies sent beyond the first of each datagram.
    pub copies: u64,
    /// Bytes of UDP payload of those copies.
    pub copy_bytes: u64,
    /// Copies that were held back to spare a path, or that its socket did not take.
    pub copies_skipped: u64,
    /// Datagrams dropped because their tag or seal was wrong, they came from a strange address, or they are too long.
    pub forged: u64,
    /// Control datagrams dropped because they were seen before.
    pub replayed: u64,
    /// QUIC datagrams not sent because they exceed the MTU of a path in use: probes mostly.
    pub oversized: u64,
    /// QUIC datagrams without header dropped because too many came after headers were agreed.
    pub plain_dropped: u64,
    /// QUIC datagrams sent again because their path failed.
    pub rescued: u64,
}

#[derive(Debug)]
struct HandshakeAddress {
    address: PathAddress,
    received: u64,
    sent: u64,
}

#[derive(Debug)]
struct Candidate {
    path: PathId,
    address: PathAddress,
    challenge: [u8; CHALLENGE_LEN],
    received: u64,
    sent: u64,
    /// The largest datagram that came from it as a probe, in bytes of UDP payload.
    probed: u16,
    /// It asked to join: what was known of the path may be of another network.
    joins: bool,
}

impl Link {
    /// A session without paths; no later time may lie before `now`.
    pub fn new(config: LinkConfig, now: Instant) -> Self {
        let copying = match config.role {
            Role::Client => config.mode.upload(),
            Role::Relay => config.mode.download(),
        };
        Self {
            role: config.role,
            epoch: now,
            rng: Pcg64::seed_from_u64(config.seed),
            keys: None,
            framing: false,
            copying,
            wish: (0, config.mode.download()),
            orders: [PathOrder::default(); MAX_PATHS],
            paths: Vec::with_capacity(2),
            next_path: 0,
            handshake: Vec::new(),
            candidates: Vec::new(),
            early: Vec::new(),
            scheduler: Scheduler::default(),
            log: SentLog::default(),
            kept: Kept::default(),
            rescue_at: None,
            rescue_left: 0,
            watch: None,
            sent_of_size: 0,
            largest: 0,
            sender: SenderState::default(),
            trials: TrialClock::default(),
            primary: None,
            doubt: Doubt::default(),
            last_departure: None,
            since_silence: 0,
            queued: PathSet::default(),
            reference: None,
            hold: Hold::new(now),
            halves: std::array::from_fn(|_| Halves::default()),
            joined: Vec::new(),
            fast_rtt: Duration::from_millis(100),
            delay_reference: None,
            counter: 0,
            replay: ReplayWindow::default(),
            active_until: None,
            rested: true,
            wake: false,
            unreported: 0,
            last_report: None,
            last_sent_report: None,
            peer_sent: Told::default(),
            plain_allowance: PLAIN_BURST,
            plain_from: None,
            outgoing: VecDeque::new(),
            scratch: Vec::new(),
            spare: Vec::new(),
            events: VecDeque::new(),
            counters: LinkCounters::default(),
        }
    }

    /// Adds a path of the client: it carries the handshake at once, or asks to join. `None` if there are [`MAX_PATHS`].
    pub fn add_path(&mut self, address: PathAddress, now: Instant) -> Option<PathId> {
        // Numbers are used again as late as can be: the relay may not have heard yet that a path is gone.
        let most = MAX_PATHS as u8;
        let next = (0..most).map(|step| PathId((self.next_path + step) % most));
        let id = next.into_iter().find(|id| self.path(*id).is_none())?;
        self.next_path = (id.0 + 1) % most;
        let at = self.paths.partition_point(|path| path.id < id);
        self.paths.insert(at, Path::new(id, address, now));
        self.wake = true;
        self.orders[usize::from(id.0)] = PathOrder::default();
        self.wish.0 = self.wish.0.wrapping_add(1);
        if self.keys.is_some() {
            self.ping(id, now);
        }
        Some(id)
    }

    /// Removes a path of the client and tells the relay on the others.
    pub fn remove_path(&mut self, id: PathId, now: Instant) {
        if self.path(id).is_none() {
            return;
        }
        let carried = self.forget(id);
        // Should the Leave get lost, the next wish says it again.
        self.orders[usize::from(id.0)] = PathOrder { role: PathRole::Gone, rate: None };
        self.wish.0 = self.wish.0.wrapping_add(1);
        self.say_leave(id, now);
        if carried {
            self.rescue(now);
        }
    }

    /// The session's secret is known: control datagrams can be sealed and opened from now on.
    pub fn set_keys(&mut self, secret: &[u8; SECRET_LEN], now: Instant) {
        self.keys = Some(SessionKeys::derive(secret, self.role));
        self.wake = true;
        if self.role == Role::Client {
            for index in 0..self.paths.len() {
                self.ping(self.paths[index].id, now);
            }
        }
        for (from, mut payload) in std::mem::take(&mut self.early) {
            self.handle_control(from, &mut payload, now);
        }
    }

    /// Changes the mode of a live session; the client tells the relay.
    pub fn set_mode(&mut self, mode: Mode, now: Instant) {
        match self.role {
            Role::Client => {
                self.copying = mode.upload();
                self.wish.1 = mode.download();
                self.change_wish(now);
            }
            Role::Relay => self.copying = mode.download(),
        }
    }

    /// Tells how the connection sends from now on; to be called before [`Self::depart`].
    pub fn set_sender_state(&mut self, sender: SenderState) {
        self.sender = sender;
    }

    /// The name of the session, once it has keys.
    pub fn session_id(&self) -> Option<SessionId> {
        self.keys.as_ref().map(|keys| keys.id)
    }

    /// The next control datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// Takes back the buffer of a sent control datagram.
    pub fn recycle(&mut self, outgoing: Outgoing) {
        if self.spare.len() < 2 * MAX_PATHS {
            self.spare.push(outgoing.bytes);
        }
    }

    /// The socket failed to send a control datagram to this address.
    pub fn control_not_sent(&mut self, address: PathAddress, error: &str, now: Instant) {
        if let Some(index) = self.index_at(address) {
            self.paths[index].on_send_error(error, now);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// Whether [`Self::poll_timeout`] may have moved forward since the last call.
    pub fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.wake)
    }

    /// Smoothed round-trip time of the fastest path.
    pub fn fast_rtt(&self) -> Duration {
        self.fast_rtt
    }

    /// For how long at most the far side holds what we send, as it last reported.
    pub fn hold_lag(&self) -> Duration {
        let carries = |path: &&Path| path.state == PathState::Up && !self.waits(path);
        let lags = self.paths.iter().filter(carries).map(|path| path.departures.reported_lag());
        lags.max().unwrap_or(Duration::ZERO)
    }

    /// How many paths carry traffic, of how many.
    pub fn joined_paths(&self) -> (usize, usize) {
        (self.paths.iter().filter(|path| path.state == PathState::Up).count(), self.paths.len())
    }

    /// The path whose losses and queue a controller is told of: the one with the largest delivered rate.
    pub fn reference_path(&self) -> Option<PathId> {
        self.reference.map(|(path, _)| path)
    }

    /// What the in-order hold has done.
    pub fn hold_counters(&self) -> HoldCounters {
        self.hold.counters()
    }

    /// What has been counted.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// For how long nothing valid has come on any path; zero for a session that has none, which QUIC alone watches over.
    pub fn silent_for(&self, now: Instant) -> Duration {
        let newest = self.paths.iter().map(|path| path.heard_at).max();
        newest.map_or(Duration::ZERO, |heard| now.saturating_duration_since(heard))
    }

    /// Addresses that carry the session now.
    pub fn addresses(&self) -> impl Iterator<Item = PathAddress> {
        self.paths.iter().map(|path| path.address).chain(self.handshake.iter().map(|peer| peer.address))
    }

    fn path(&self, id: PathId) -> Option<&Path> {
        self.paths.iter().find(|path| path.id == id)
    }

    fn path_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    fn index_at(&self, address: PathAddress) -> Option<usize> {
        self.paths.iter().position(|path| path.address == address)
    }

    /// Forgets a path; whether it was up.
    fn forget(&mut self, id: PathId) -> bool {
        if let Some(index) = self.paths.iter().position(|path| path.id == id) {
            let path = self.paths.remove(index);
            self.hold.forget_path(id);
            if self.reference.is_some_and(|(reference, _)| reference == id) {
                self.reference = None;
            }
            self.queued.remove(id);
            self.events.push_back(LinkEvent::AddressRemoved(path.address));
            return path.state == PathState::Up;
        }
        false
    }

    /// Notes traffic; the session counts as active for a while.
    fn touch(&mut self, now: Instant) {
        if self.active_until.is_none_or(|until| until <= now) {
            self.wake = true;
        }
        self.active_until = Some(now + ACTIVE_FOR);
        self.rested = false;
    }

    fn is_active(&self, now: Instant) -> bool {
        self.active_until.is_some_and(|until| until > now)
    }

    fn clock(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.epoch).as_micros() as u32
    }

    fn ticks(&self, now: Instant) -> u32 {
        let micros = now.saturating_duration_since(self.epoch).as_micros() as u64;
        (micros / TICK_MICROS) as u32 & (crate::wire::header::TICK_MODULUS - 1)
    }
}

/// Datagrams without header accepted a second after headers were agreed: stateless resets, and what was on its way.
const PLAIN_RATE: f64 = 100.0;

/// And at once.
const PLAIN_BURST: f64 = 200.0;

#[cfg(test)]
mod tests;
