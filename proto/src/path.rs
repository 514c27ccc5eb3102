//! One path of a session as one end sees it: whether it lives, how it performs, what went over it.
//!
//! A path lives while what we send on it is confirmed: the far side echoes the clocks of our control datagrams, and reports
//! the datagrams that arrive. While traffic flows, a ping leaves every [`PING_INTERVAL`], and in quick succession when a
//! confirmation is late; `Liveness` says when silence means that the path is [`PathState::Down`]. Then it carries nothing
//! until something sent after that is echoed. A path that came back is *on probation* for some seconds, the longer the
//! sooner it failed: it carries copies, but is not preferred to one that works.

pub(crate) mod arrivals;
pub(crate) mod departures;
pub(crate) mod liveness;
pub(crate) mod loss;
pub(crate) mod mtu;
pub mod order;
pub(crate) mod rtt;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use arrivals::Arrivals;
use departures::Departures;
use liveness::Liveness;
use loss::{Loss, LossBounds};
use mtu::MtuSearch;
use order::{Allowance, PathOrder, PathRole};
use rtt::Rtt;

use crate::stats::PathState;
use crate::wire::control::PathId;

/// How often a path is pinged while traffic flows.
pub const PING_INTERVAL: Duration = Duration::from_millis(100);

/// How often a backup is pinged that carries nothing while traffic flows elsewhere.
const WAITING_PING_INTERVAL: Duration = Duration::from_secs(1);

/// How often an idle path is pinged by the client: NATs forget UDP after 30 s.
pub const IDLE_PING_INTERVAL: Duration = Duration::from_secs(15);

/// A client asks again this soon, [`EAGER_TRIES`] times: over a path that loses two of five, joining takes many tries.
const EAGER_RETRY: Duration = Duration::from_millis(25);

/// Tries before the wait between two begins to grow.
const EAGER_TRIES: u32 = 40;

/// Longest wait between two tries to bring a path up while another one works.
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// The same while none works: flows wait for the first to come back.
const LONGEST_LONE_RETRY: Duration = Duration::from_millis(400);

/// A relay with traffic asks so often after a path that fell silent; the client does the rest.
const RELAY_RETRY: Duration = Duration::from_millis(500);

/// A path that came back is not preferred for this long, and twice as long if it had not lived for [`STEADY`] before.
const PROBATION: Duration = Duration::from_secs(3);

/// A path that lived this long did not flap.
const STEADY: Duration = Duration::from_secs(30);

/// A path that was left because it loses is not preferred again for this long, and for up to four times as long if that
/// happens again and again.
const LOSS_PROBATION: Duration = Duration::from_secs(10);

/// A path that failed to send is tried again after this long.
const SEND_ERROR_PAUSE: Duration = Duration::from_millis(200);

/// Where a path's datagrams come from and go to, on this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathAddress {
    /// Which of this end's sockets.
    pub socket: usize,
    /// The far side.
    pub remote: SocketAddr,
    /// This end's address, where the socket has several.
    pub local: Option<IpAddr>,
}

/// What decides how often a path is pinged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Traffic flows.
    Active,
    /// Traffic flows on others.
    Waiting,
    /// There is none.
    Idle,
}

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) address: PathAddress,
    pub(crate) state: PathState,
    pub(crate) problem: Option<String>,
    /// What it is for, and what its rate leaves to send.
    pub(crate) order: PathOrder,
    pub(crate) allowance: Allowance,
    pub(crate) rtt: Rtt,
    pub(crate) mtu: MtuSearch,
    pub(crate) arrivals: Arrivals,
    pub(crate) departures: Departures,
    pub(crate) loss: Loss,
    /// What [`Self::loss`] said when it was last asked.
    pub(crate) loss_bounds: LossBounds,
    liveness: Liveness,
    last_ping: Option<Instant>,
    /// Tries to bring the path up since it was last up.
    tries: u32,
    /// Until when the socket's last error keeps traffic away.
    pub(crate) failing_until: Option<Instant>,
    last_echo: Option<u32>,
    /// Client: something came over it, which before there are keys is all that tells of it.
    pub(crate) heard: bool,
    /// Our clock when the path went down: what comes back of anything later proves that it works again.
    down_clock: Option<u32>,
    up_since: Option<Instant>,
    carries_since: Option<Instant>,
    /// Client: the relay asked whether this address is ours.
    pub(crate) challenged: bool,
    /// Times in a row that it went down soon after it came up, and that it was left because of loss.
    flaps: u32,
    losses: u32,
    /// Until then it is not preferred.
    probation_until: Option<Instant>,
    /// When anything valid last came in on it.
    pub(crate) heard_at: Instant,
}

impl Path {
    pub(crate) fn new(id: PathId, address: PathAddress, now: Instant) -> Self {
        Self {
            id,
            address,
            state: PathState::Joining,
            problem: None,
            order: PathOrder::default(),
            allowance: Allowance::default(),
            rtt: Rtt::default(),
            mtu: MtuSearch::new(address.remote),
            arrivals: Arrivals::new(),
            departures: Departures::new(),
            loss: Loss::new(),
            loss_bounds: LossBounds::default(),
            liveness: Liveness::new(),
            last_ping: None,
            tries: 0,
            failing_until: None,
            last_echo: None,
            heard: false,
            down_clock: None,
            up_since: None,
            carries_since: None,
            challenged: false,
            flaps: 0,
            losses: 0,
            probation_until: None,
            heard_at: now,
        }
    }

    /// Whether traffic may go over the path now.
    pub(crate) fn usable(&self, now: Instant) -> bool {
        self.state == PathState::Up && self.failing_until.is_none_or(|until| until <= now)
    }

    /// Whether copies are to be expected on it, though none may have come yet.
    pub(crate) fn is_expected(&self) -> bool {
        self.state == PathState::Up && self.order.role == PathRole::Use
    }

    /// So many datagrams of together so many bytes leave on the path.
    pub(crate) fn spend(&mut self, datagrams: u64, bytes: usize, now: Instant) {
        self.allowance.spend(bytes + datagrams as usize * self.overhead(), now);
    }

    /// They did not leave after all.
    pub(crate) fn refund(&mut self, datagrams: u64, bytes: usize) {
        self.allowance.refund(bytes + datagrams as usize * self.overhead());
    }

    fn overhead(&self) -> usize {
        usize::from(ip_udp_headers(self.address.remote.ip()))
    }

    /// Whether another path that works is to be preferred.
    pub(crate) fn on_probation(&self, now: Instant) -> bool {
        self.probation_until.is_some_and(|until| until > now)
    }

    /// Something that ought to be confirmed leaves on the path; whether nothing else was awaited.
    pub(crate) fn on_sent(&mut self, now: Instant) -> bool {
        self.state == PathState::Up && self.liveness.on_sent(&self.rtt, now)
    }

    /// The far side echoes `clock`, which it held for `held` microseconds; our clock is `clock_now`. `queued` tells that the
    /// path has a queue. Whether it is the first echo of something sent after the path went down.
    pub(crate) fn on_echo(&mut self, clock: u32, held: u32, clock_now: u32, queued: bool, now: Instant) -> bool {
        let ago = clock_now.wrapping_sub(clock);
        let elapsed = ago.wrapping_sub(held);
        let fresh = self.last_echo.is_none_or(|last| (clock.wrapping_sub(last) as i32) > 0);
        if self.liveness.on_echo(clock) && !queued {
            self.loss.count(1, 0, now);
        }
        if !fresh || elapsed > i32::MAX as u32 || ago > i32::MAX as u32 {
            return false;
        }
        self.last_echo = Some(clock);
        self.rtt.update(Duration::from_micros(elapsed.into()));
        if let Some(sent) = now.checked_sub(Duration::from_micros(ago.into())) {
            self.liveness.on_proof(sent, now);
        }
        self.down_clock.is_some_and(|down| (clock.wrapping_sub(down) as i32) > 0)
    }

    /// A report tells that something arrived which left at `sent`.
    pub(crate) fn on_evidence(&mut self, sent: Instant, now: Instant) {
        self.liveness.on_proof(sent, now);
    }

    /// Since when what leaves on the path reaches the far side; `None` while it does not.
    pub(crate) fn carries_since(&self) -> Option<Instant> {
        self.carries_since.filter(|_| self.state == PathState::Up)
    }

    /// The far side did not know the path's address and has learnt it now: what left before is lost.
    pub(crate) fn on_known_again(&mut self, now: Instant) {
        self.carries_since = Some(now);
        self.liveness.reset();
    }

    /// Counts pings that nothing will answer any more, and sums up the loss.
    pub(crate) fn settle_pings(&mut self, queued: bool, now: Instant) {
        let lost = self.liveness.settle(&self.rtt, now);
        if lost > 0 && !queued {
            self.loss.count(lost, lost, now);
        }
        self.loss_bounds = self.loss.bounds(now);
    }

    /// The path carries traffic from now on.
    pub(crate) fn come_up(&mut self, now: Instant) {
        if self.state == PathState::Down {
            self.probation_until = Some(now + PROBATION * if self.flaps == 0 { 1 } else { 2 });
        }
        self.state = PathState::Up;
        self.problem = None;
        self.liveness.reset();
        self.down_clock = None;
        self.up_since = Some(now);
        self.carries_since = Some(now);
        self.tries = 0;
        self.mtu.start(now);
    }

    /// The path carries no traffic until it comes up again; our clock is `clock_now`.
    pub(crate) fn go_down(&mut self, problem: &str, clock_now: u32, now: Instant) {
        let steady = self.up_since.is_none_or(|since| now.saturating_duration_since(since) >= STEADY);
        self.flaps = if steady { 0 } else { self.flaps.saturating_add(1) };
        self.state = PathState::Down;
        self.problem = Some(problem.to_owned());
        self.liveness.reset();
        self.down_clock = Some(clock_now);
        // After a long silence the clock of the last echo is no measure for newer ones: it wraps.
        self.last_echo = None;
    }

    /// What is known of the path may no longer hold: it is asked for a sign of life in short intervals, as at first.
    pub(crate) fn suspect(&mut self, problem: &str, clock_now: u32, now: Instant) {
        self.go_down(problem, clock_now, now);
        self.tries = 0;
        self.failing_until = None;
    }

    /// Traffic leaves the path because it loses more than another.
    pub(crate) fn on_left_for_loss(&mut self, now: Instant) {
        let again = self.probation_until.is_some_and(|until| now.saturating_duration_since(until) < STEADY);
        self.losses = if again { (self.losses + 1).min(2) } else { 0 };
        self.probation_until = Some(now + LOSS_PROBATION * (1 << self.losses));
    }

    /// The socket failed to send.
    pub(crate) fn on_send_error(&mut self, error: &str, now: Instant) {
        self.departures.send_errors += 1;
        self.failing_until = Some(now + SEND_ERROR_PAUSE);
        self.problem = Some(format!("cannot send: {error}"));
    }

    /// The size of the probe that the next request to join is to be: every other one is, so that the path's MTU is known as
    /// soon as it is up.
    pub(crate) fn probe_with_join(&self) -> Option<u16> {
        (self.state != PathState::Up && self.tries < EAGER_TRIES && self.tries.is_multiple_of(2))
            .then(|| self.mtu.largest())
    }

    /// A control datagram with this clock leaves on the path and asks for an answer.
    pub(crate) fn on_ping_sent(&mut self, clock: u32, now: Instant) {
        self.last_ping = Some(now);
        if self.state == PathState::Up {
            self.liveness.on_ping(clock, &self.rtt, now);
        } else {
            self.tries += 1;
        }
    }

    /// When the next ping is due; `None` while this end has no reason to ping. `lone` tells that no path works.
    pub(crate) fn ping_due(&self, pace: Pace, is_client: bool, lone: bool, now: Instant) -> Option<Instant> {
        let active = pace != Pace::Idle;
        let Some(last_ping) = self.last_ping else {
            return (active || is_client).then_some(now);
        };
        let interval = match self.state {
            PathState::Up => {
                let regular = match pace {
                    Pace::Active => Some(PING_INTERVAL.max(self.rtt.or_assumed().min(IDLE_PING_INTERVAL) / 4)),
                    Pace::Waiting => Some(WAITING_PING_INTERVAL.max(self.rtt.or_assumed().min(IDLE_PING_INTERVAL))),
                    Pace::Idle => is_client.then_some(IDLE_PING_INTERVAL),
                };
                let regular = regular.map(|interval| last_ping + interval);
                return regular.into_iter().chain(self.liveness.quick_ping_at(last_ping, &self.rtt)).min();
            }
            PathState::Joining | PathState::Down if is_client => {
                let doublings = self.tries.saturating_sub(EAGER_TRIES).min(8);
                (EAGER_RETRY * (1 << doublings)).min(if lone { LONGEST_LONE_RETRY } else { LONGEST_RETRY })
            }
            PathState::Joining | PathState::Down if active => RELAY_RETRY,
            PathState::Joining | PathState::Down => return None,
        };
        Some(last_ping + interval)
    }

    /// Whether a confirmation is late.
    pub(crate) fn is_suspect(&self, now: Instant) -> bool {
        self.liveness.suspect_at(&self.rtt).is_some_and(|at| at <= now)
    }

    /// When the path is given up for silent.
    pub(crate) fn silent_at(&self) -> Option<Instant> {
        (self.state == PathState::Up).then(|| self.liveness.silent_at(&self.rtt)).flatten()
    }

    /// Moves the path to another address: behind a NAT, or, if it `joins` anew, perhaps on another network under the same
    /// number. What was measured is kept, except where it cannot hold; the far side's counters may have started anew.
    pub(crate) fn move_to(&mut self, address: PathAddress, joins: bool, now: Instant) {
        let family = |address: PathAddress| address.remote.ip().to_canonical().is_ipv4();
        if family(self.address) != family(address) {
            self.mtu = MtuSearch::new(address.remote);
        }
        if joins {
            self.rtt = Rtt::default();
            self.loss = Loss::new();
        }
        self.address = address;
        self.departures.on_reset();
        self.failing_until = None;
        if self.state == PathState::Up {
            self.on_known_again(now);
            self.mtu.start(now);
        }
    }
}

/// Bytes of the IP and UDP headers around a payload that travels to or from this address.
pub fn ip_udp_headers(address: IpAddr) -> u16 {
    if address.to_canonical().is_ipv4() { 28 } else { 48 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn path() -> Path {
        let address = PathAddress { socket: 0, remote: "192.0.2.1:4433".parse().expect("an address"), local: None };
        Path::new(PathId(0), address, crate::testing::start())
    }

    #[test]
    fn an_unanswered_ping_is_repeated_soon() {
        let start = crate::testing::start();
        let mut path = path();
        path.come_up(start);
        path.on_echo(1_000, 0, 21_000, false, start);
        path.on_ping_sent(50_000, start);
        let due = path.ping_due(Pace::Active, true, false, start).expect("a ping is due");
        assert!(due - start < PING_INTERVAL, "{:?}", due - start);
        path.on_echo(50_000, 0, 70_000, false, start + 20 * MS);
        assert_eq!(path.ping_due(Pace::Active, true, false, start), Some(start + PING_INTERVAL));
    }

    #[test]
    fn an_old_or_impossible_echo_changes_nothing() {
        let start = crate::testing::start();
        let mut path = path();
        path.on_echo(1_000, 0, 21_000, false, start);
        path.on_echo(900, 0, 500_000, false, start);
        path.on_echo(2_000, 5_000, 3_000, false, start);
        assert_eq!(path.rtt.smoothed(), Some(20 * MS));
    }

    #[test]
    fn an_idle_path_is_pinged_by_the_client_alone_and_seldom() {
        let start = crate::testing::start();
        let mut path = path();
        path.come_up(start);
        path.on_ping_sent(0, start);
        path.on_echo(0, 0, 20_000, false, start + 20 * MS);
        assert_eq!(path.ping_due(Pace::Idle, true, false, start), Some(start + IDLE_PING_INTERVAL));
        assert_eq!(path.ping_due(Pace::Idle, false, false, start), None);
    }

    #[test]
    fn only_an_echo_of_something_later_brings_a_silent_path_back() {
        let start = crate::testing::start();
        let mut path = path();
        path.come_up(start);
        path.go_down("silent", 500_000, start);
        assert!(!path.on_echo(499_000, 0, 520_000, false, start), "sent before");
        assert!(path.on_echo(501_000, 0, 521_000, false, start));
    }

    #[test]
    fn a_path_that_flaps_waits_longer_and_never_long() {
        let start = crate::testing::start();
        let mut path = path();
        path.come_up(start);
        assert!(!path.on_probation(start), "a new one is as good as any");
        let mut now = start + STEADY;
        for (flap, wait) in [PROBATION, 2 * PROBATION, 2 * PROBATION].into_iter().enumerate() {
            path.go_down("silent", 0, now);
            path.come_up(now);
            assert!(path.on_probation(now + wait - MS) && !path.on_probation(now + wait), "flap {flap}");
            now += 2_000 * MS;
        }
    }

    #[test]
    fn a_path_that_loses_again_and_again_waits_longer() {
        let start = crate::testing::start();
        let mut path = path();
        let mut now = start;
        for factor in [1, 2, 4, 4] {
            path.on_left_for_loss(now);
            now += LOSS_PROBATION * factor;
            assert!(path.on_probation(now - MS) && !path.on_probation(now));
        }
        path.on_left_for_loss(now + STEADY);
        assert!(!path.on_probation(now + STEADY + LOSS_PROBATION));
    }
}
