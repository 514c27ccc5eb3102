//! One path of a session as one end sees it: whether it lives, how it performs, what went over it.
//!
//! A path lives while the far side echoes the clocks of our control datagrams that travelled on it. While traffic flows, a
//! ping leaves every [`PING_INTERVAL`], and soon again while one is unanswered; a ping that stays without echo for
//! `Path::silence_limit` makes the path [`PathState::Down`]: it carries nothing until something is echoed again. Other
//! evidence that our datagrams arrive, a report that counts new ones, serves as well as an echo.

pub(crate) mod arrivals;
pub(crate) mod departures;
pub(crate) mod mtu;
pub(crate) mod rtt;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use arrivals::Arrivals;
use departures::Departures;
use mtu::MtuSearch;
use rtt::Rtt;

use crate::stats::PathState;
use crate::wire::control::PathId;

/// How often a path is pinged while traffic flows.
pub const PING_INTERVAL: Duration = Duration::from_millis(100);

/// How often an idle path is pinged by the client: NATs forget UDP after 30 s.
pub const IDLE_PING_INTERVAL: Duration = Duration::from_secs(15);

/// A client asks again this soon, [`EAGER_TRIES`] times: over a path that loses two of five, joining takes many tries.
const EAGER_RETRY: Duration = Duration::from_millis(25);

/// Tries before the wait between two begins to grow.
const EAGER_TRIES: u32 = 40;

/// Longest wait between two tries to bring a path up.
const LONGEST_RETRY: Duration = Duration::from_secs(2);

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

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) address: PathAddress,
    pub(crate) state: PathState,
    pub(crate) problem: Option<String>,
    pub(crate) rtt: Rtt,
    pub(crate) mtu: MtuSearch,
    pub(crate) arrivals: Arrivals,
    pub(crate) departures: Departures,
    /// The first ping that nothing answers yet: when, and its clock.
    unanswered: Option<(Instant, u32)>,
    last_ping: Option<Instant>,
    /// Tries to bring the path up since it was last up.
    tries: u32,
    /// Until when the socket's last error keeps traffic away.
    pub(crate) failing_until: Option<Instant>,
    last_echo: Option<u32>,
    /// Client: something came over it, which before there are keys is all that tells of it.
    pub(crate) heard: bool,
}

impl Path {
    pub(crate) fn new(id: PathId, address: PathAddress) -> Self {
        Self {
            id,
            address,
            state: PathState::Joining,
            problem: None,
            rtt: Rtt::default(),
            mtu: MtuSearch::new(address.remote),
            arrivals: Arrivals::new(),
            departures: Departures::new(),
            unanswered: None,
            last_ping: None,
            tries: 0,
            failing_until: None,
            last_echo: None,
            heard: false,
        }
    }

    /// Whether traffic may go over the path now.
    pub(crate) fn usable(&self, now: Instant) -> bool {
        self.state == PathState::Up && self.failing_until.is_none_or(|until| until <= now)
    }

    /// How long a ping may stay unanswered: at most this and one ping interval pass between a path's death and its end.
    pub(crate) fn silence_limit(&self) -> Duration {
        (self.rtt.or_assumed() * 5 / 2 + self.rtt.deviation() * 4)
            .clamp(Duration::from_millis(300), Duration::from_secs(3))
    }

    /// The far side echoes `clock`, which it held for `held` microseconds; our clock is `clock_now`.
    pub(crate) fn on_echo(&mut self, clock: u32, held: u32, clock_now: u32) {
        let elapsed = clock_now.wrapping_sub(clock).wrapping_sub(held);
        let fresh = self.last_echo.is_none_or(|last| (clock.wrapping_sub(last) as i32) > 0);
        if !fresh || elapsed > i32::MAX as u32 {
            return;
        }
        self.last_echo = Some(clock);
        self.rtt.update(Duration::from_micros(elapsed.into()));
        if self.unanswered.is_some_and(|(_, sent)| (clock.wrapping_sub(sent) as i32) >= 0) {
            self.unanswered = None;
        }
    }

    /// A report counts new datagrams on this path: it lives.
    pub(crate) fn on_evidence(&mut self) {
        self.unanswered = None;
    }

    /// The path carries traffic from now on.
    pub(crate) fn come_up(&mut self, now: Instant) {
        self.state = PathState::Up;
        self.problem = None;
        self.unanswered = None;
        self.tries = 0;
        self.mtu.start(now);
    }

    /// The path carries no traffic until it comes up again.
    pub(crate) fn go_down(&mut self, problem: &str) {
        self.state = PathState::Down;
        self.problem = Some(problem.to_owned());
        self.unanswered = None;
        // After a long silence the clock of the last echo is no measure for newer ones: it wraps.
        self.last_echo = None;
    }

    /// What is known of the path may no longer hold: it is asked for a sign of life in short intervals, as at first.
    pub(crate) fn suspect(&mut self, problem: &str) {
        self.go_down(problem);
        self.tries = 0;
        self.failing_until = None;
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
        self.unanswered.get_or_insert((now, clock));
        self.last_ping = Some(now);
        if self.state != PathState::Up {
            self.tries += 1;
        }
    }

    /// When the next ping is due; `None` while this end has no reason to ping.
    pub(crate) fn ping_due(&self, active: bool, is_client: bool, now: Instant) -> Option<Instant> {
        let Some(last_ping) = self.last_ping else {
            return (active || is_client).then_some(now);
        };
        let interval = match self.state {
            PathState::Up if !active && self.unanswered.is_none() => {
                if !is_client {
                    return None;
                }
                IDLE_PING_INTERVAL
            }
            PathState::Up if self.unanswered.is_some_and(|(at, _)| last_ping > at) => {
                (self.rtt.or_assumed() / 2).clamp(Duration::from_millis(20), PING_INTERVAL)
            }
            PathState::Up => PING_INTERVAL.max(self.rtt.or_assumed().min(IDLE_PING_INTERVAL) / 4),
            PathState::Joining | PathState::Down if is_client => {
                let doublings = self.tries.saturating_sub(EAGER_TRIES).min(8);
                (EAGER_RETRY * (1 << doublings)).min(LONGEST_RETRY)
            }
            PathState::Joining | PathState::Down => {
                if !active {
                    return None;
                }
                LONGEST_RETRY
            }
        };
        Some(last_ping + interval)
    }

    /// When the path is given up for silent.
    pub(crate) fn silent_at(&self) -> Option<Instant> {
        let (since, _) = self.unanswered.filter(|_| self.state == PathState::Up)?;
        Some(since + self.silence_limit())
    }

    /// Moves the path to another address: behind a NAT, or on another network under the same number. What was measured is
    /// kept, except where it cannot hold; the far side's counters may have started anew.
    pub(crate) fn move_to(&mut self, address: PathAddress, now: Instant) {
        let family = |address: PathAddress| address.remote.ip().to_canonical().is_ipv4();
        if family(self.address) != family(address) {
            self.mtu = MtuSearch::new(address.remote);
        }
        self.address = address;
        self.departures.on_reset();
        self.unanswered = None;
        self.failing_until = None;
        if self.state == PathState::Up {
            self.mtu.start(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Path {
        let address = PathAddress { socket: 0, remote: "192.0.2.1:4433".parse().expect("an address"), local: None };
        Path::new(PathId(0), address)
    }

    #[test]
    fn a_ping_without_echo_ends_the_path_within_half_a_second() {
        let start = crate::testing::start();
        let mut path = path();
        path.come_up(start);
        path.on_echo(1_000, 0, 21_000);
        path.on_ping_sent(50_000, start);
        let silent = path.silent_at().expect("a ping is unanswered");
        assert!(silent - start + PING_INTERVAL <= Duration::from_millis(500));
        path.on_echo(49_000, 0, 69_000);
        assert!(path.silent_at().is_some(), "an echo of an earlier clock answers nothing");
        path.on_echo(50_000, 0, 70_000);
        assert_eq!(path.silent_at(), None);
    }

    #[test]
    fn an_unanswered_ping_is_repeated_soon() {
        let start = crate::testing::start();
        let mut path = path();
        path.come_up(start);
        path.on_echo(1_000, 0, 21_000);
        path.on_ping_sent(50_000, start);
        path.on_ping_sent(150_000, start + PING_INTERVAL);
        let due = path.ping_due(true, true, start).expect("a ping is due");
        assert_eq!(due - start, PING_INTERVAL + Duration::from_millis(20));
    }

    #[test]
    fn an_old_or_impossible_echo_changes_nothing() {
        let mut path = path();
        path.on_echo(1_000, 0, 21_000);
        path.on_echo(900, 0, 500_000);
        path.on_echo(2_000, 5_000, 3_000);
        assert_eq!(path.rtt.smoothed(), Some(Duration::from_millis(20)));
    }

    #[test]
    fn an_idle_path_is_pinged_by_the_client_alone_and_seldom() {
        let start = crate::testing::start();
        let mut path = path();
        path.come_up(start);
        path.on_ping_sent(0, start);
        path.on_evidence();
        assert_eq!(path.ping_due(false, true, start), Some(start + IDLE_PING_INTERVAL));
        assert_eq!(path.ping_due(false, false, start), None);
    }
}
