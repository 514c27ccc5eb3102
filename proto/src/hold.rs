//! Receive side: drops duplicates, and holds what follows a gap while the missing copy can still come.
//!
//! A QUIC receiver takes a datagram that arrives late for a loss, and its sender slows down although the copy on the slower
//! path would have filled the gap. So datagrams that follow a gap wait here, for at most [`LONGEST_HOLD`], and then go up
//! in one go. The rule: a gap is closed by the missing datagram, or given up as soon as every path that is worth waiting
//! for has either *passed* it (delivered a later number, and 1.25 times that path's reordering ago) or has run out of time
//! (its lag plus [`GRACE`] after the gap appeared). What comes later still is handed on at once. *Lag* is how far behind
//! the first copy a path's copies arrive, at most, over the last second.
//!
//! A path on which datagrams overtake each other is given a quarter of a round trip at least, as the worst is yet to come.
//! That holds for [`HoldClass::None`] too, so that the first flight of a download, which decides how fast it begins, is not
//! thrown back, and from the path's first datagram on; but only until [`ORDERLY`] datagrams in a row kept their order.
//!
//! Not worth waiting for is a path whose time ran out once and that delivered nothing since, one that carries less than
//! [`LEAST_SHARE`] of the numbers, and for [`HoldClass::Short`] one whose lag is long while another that lags little carries
//! [`LEADING_SHARE`]. (Where copies are held back on the faster path, most numbers come on the slower one alone.) Numbers are 64 bits,
//! already verified and expanded; every step is bounded however they jump.

mod seen;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::seen::Seen;
use crate::recent::RecentMax;
use crate::wire::control::{MAX_PATHS, PathId};
use crate::wire::header::HoldClass;

/// Numbers that are remembered for finding duplicates, counted down from the highest.
pub const WINDOW: u64 = 8_192;

/// Most datagrams held at once; when one more comes, the oldest gap is given up.
pub const MOST_HELD: usize = 2_048;

/// No gap is waited for longer.
pub const LONGEST_HOLD: Duration = Duration::from_millis(150);

/// Allowed on top of a path's lag.
pub const GRACE: Duration = Duration::from_millis(5);

/// A path that carries less of the numbers is not waited for.
pub const LEAST_SHARE: f64 = 0.3;

/// With less of the numbers no path is ahead of the others: what it lacks is not lost, it was never sent there.
pub const LEADING_SHARE: f64 = 0.7;

/// Datagrams in a row that none overtook before a path counts as one that keeps order.
pub const ORDERLY: u64 = 512;

/// A path's share is taken anew after this many numbers of its own progress.
const SHARE_WINDOW: u64 = 128;

/// Far-off numbers in a row after which the window moves to them.
const STRAYS_TO_MOVE: u32 = 8;

/// The highest number that the window moves to; no session lives that long.
const LAST_NUMBER: u64 = u64::MAX - 2 * WINDOW;

/// Buffers kept for later holds.
const MOST_SPARE: usize = 512;

/// What became of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// To be handed on now, before anything that [`Hold::pop_ready`] returns.
    Now,
    /// Kept; [`Hold::pop_ready`] returns it when its time comes.
    Held,
    /// Another copy came first, on another path.
    Copy,
    /// The same path delivered this number before.
    Replay,
}

/// A held datagram.
#[derive(Debug)]
pub struct Held {
    /// The QUIC datagram.
    pub bytes: Vec<u8>,
}

/// The receive window of one direction.
#[derive(Debug)]
pub struct Hold {
    epoch: Instant,
    /// The last [`WINDOW`] numbers; times are microseconds after `epoch`, modulo 2^32.
    seen: Seen,
    /// The first number neither handed on nor given up.
    next: u64,
    /// Index 0 is number `next`.
    held: VecDeque<Option<Held>>,
    held_count: usize,
    class: HoldClass,
    paths: [Arrivals; MAX_PATHS],
    strays: u32,
    stray: u64,
    deadline: Option<Instant>,
    spare: Vec<Vec<u8>>,
    counters: HoldCounters,
}

/// What a [`Hold`] has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoldCounters {
    /// Copies dropped because another came first.
    pub copies: u64,
    /// Datagrams dropped because the same path delivered them before.
    pub replays: u64,
    /// Datagrams that waited.
    pub held: u64,
    /// Gaps given up.
    pub given_up: u64,
    /// Datagrams that filled a gap after it was given up, or was never waited for.
    pub late: u64,
}

/// One path as the hold sees it.
#[derive(Debug)]
struct Arrivals {
    highest: Option<u64>,
    /// Every new highest number above the front gap, with its time.
    passed: VecDeque<(u64, Instant)>,
    lag: RecentMax<Duration>,
    lag_hint: Duration,
    reordering: Duration,
    /// Numbers it delivered since one overtook another.
    orderly: u64,
    /// Share of the numbers that it carried, taken over its own progress: a path that lags carries them later.
    share: f64,
    share_from: u64,
    share_count: u64,
    /// It has joined, though nothing may have come yet.
    expected: bool,
    /// Its time ran out, and nothing came since.
    overdue: bool,
}

impl Arrivals {
    fn new() -> Self {
        Self {
            highest: None,
            passed: VecDeque::new(),
            lag: RecentMax::new(Duration::from_secs(1)),
            lag_hint: Duration::ZERO,
            reordering: Duration::ZERO,
            orderly: 0,
            share: 1.0,
            share_from: 0,
            share_count: 0,
            expected: false,
            overdue: false,
        }
    }

    fn lag(&mut self, now: Instant) -> Duration {
        self.lag.get(now).unwrap_or(self.lag_hint)
    }

    /// Whether a datagram may still come on this path after later ones.
    fn may_reorder(&self, class: HoldClass) -> bool {
        if class == HoldClass::None { self.orderly < ORDERLY } else { !self.reordering.is_zero() }
    }

    /// For how long it may come then.
    fn patience(&self, class: HoldClass, fast_rtt: Duration) -> Duration {
        if self.may_reorder(class) { self.reordering.mul_f64(1.25).max(fast_rtt / 4) } else { Duration::ZERO }
    }
}

impl Hold {
    /// An empty window; times before `epoch` must not be passed in later.
    pub fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            seen: Seen::default(),
            next: 0,
            held: VecDeque::new(),
            held_count: 0,
            class: HoldClass::None,
            paths: std::array::from_fn(|_| Arrivals::new()),
            strays: 0,
            stray: 0,
            deadline: None,
            spare: Vec::new(),
            counters: HoldCounters::default(),
        }
    }

    /// Near which number the next is expected: the highest so far.
    pub fn expected(&self) -> u64 {
        self.seen.highest().unwrap_or(0)
    }

    /// What has been done so far.
    pub fn counters(&self) -> HoldCounters {
        self.counters
    }

    /// Datagrams that wait now.
    pub fn held_len(&self) -> usize {
        self.held_count
    }

    /// When [`Self::pop_ready`] wants to be called again; `None` while nothing waits.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// How far behind the first copy this path's copies arrive.
    pub fn lag(&mut self, path: PathId, now: Instant) -> Duration {
        self.paths[usize::from(path.0)].lag(now)
    }

    /// Sets the lag to assume before the first copy came on this path: half of how much longer its round trip takes.
    pub fn set_lag_hint(&mut self, path: PathId, hint: Duration) {
        self.paths[usize::from(path.0)].lag_hint = hint;
    }

    /// One datagram of this path has just overtaken another; sets by how much they do.
    pub fn set_reordering(&mut self, path: PathId, reordering: Duration) {
        let path = &mut self.paths[usize::from(path.0)];
        (path.reordering, path.orderly) = (reordering, 0);
    }

    /// A path has joined, or is silent: whether copies may come there.
    pub fn expect(&mut self, path: PathId, expected: bool) {
        self.paths[usize::from(path.0)].expected = expected;
    }

    /// Forgets a path that is gone: it is waited for no more, and a new one may take its number. What it delivered stays
    /// known.
    pub fn forget_path(&mut self, path: PathId) {
        self.paths[usize::from(path.0)] = Arrivals::new();
        self.seen.forget_path(path);
    }

    /// Whether number `number` arrived on `path`, as far as the window reaches.
    pub fn arrived_on(&self, path: PathId, number: u64) -> bool {
        let highest = self.seen.highest();
        let within = highest.is_some_and(|highest| number <= highest && highest - number < WINDOW);
        within && self.seen.on(number) & (1 << path.0) != 0
    }

    fn any_arrived(&self, number: u64) -> bool {
        self.expected() - number < WINDOW && self.seen.on(number) != 0
    }

    /// The highest number that arrived on `path`.
    pub fn highest_on(&self, path: PathId) -> Option<u64> {
        self.paths[usize::from(path.0)].highest
    }

    /// Takes a verified datagram that arrived on `path`.
    ///
    /// The caller hands the datagram on if the answer is [`Arrival::Now`], and then takes what [`Self::pop_ready`] gives.
    pub fn accept(&mut self, path: PathId, number: u64, class: HoldClass, bytes: &[u8], now: Instant) -> Arrival {
        if number > LAST_NUMBER {
            return Arrival::Now;
        }
        let Some(highest) = self.seen.highest() else {
            self.start_at(number, class);
            self.mark(path, number, now);
            return Arrival::Now;
        };
        if number > highest.saturating_add(WINDOW) {
            return self.stray(path, number, class, now);
        }
        if highest >= number + WINDOW {
            // Too old to tell a copy from a first arrival; QUIC can.
            return self.stray(path, number, class, now);
        }
        self.strays = 0;
        if number > highest {
            self.seen.advance(number);
            self.class = class;
        }
        let bit = 1 << path.0;
        let seen = self.seen.on(number);
        if seen & bit != 0 {
            self.counters.replays += 1;
            return Arrival::Replay;
        }
        let copy = seen != 0;
        if copy {
            let behind = self.micros(now).wrapping_sub(self.seen.first_at(number));
            self.paths[usize::from(path.0)].lag.insert(Duration::from_micros(behind.into()), now);
            self.mark(path, number, now);
            self.counters.copies += 1;
            return Arrival::Copy;
        }
        self.mark(path, number, now);
        if number < self.next {
            self.counters.late += 1;
            return Arrival::Now;
        }
        if number == self.next {
            self.next += 1;
            self.held.pop_front();
            return Arrival::Now;
        }
        let may_reorder = self.paths[usize::from(path.0)].may_reorder(self.class);
        if self.class == HoldClass::None && self.held_count == 0 && !may_reorder {
            self.held.clear();
            self.next = number + 1;
            return Arrival::Now;
        }
        let index = (number - self.next) as usize;
        if index >= WINDOW as usize {
            return Arrival::Now;
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        if self.held.len() <= index {
            self.held.resize_with(index + 1, || None);
        }
        self.held[index] = Some(Held { bytes: buffer });
        self.held_count += 1;
        self.counters.held += 1;
        Arrival::Held
    }

    /// The next datagram that need not wait any longer; `None` when none is left for now.
    ///
    /// `fast_rtt` is the round-trip time of the fastest path.
    pub fn pop_ready(&mut self, fast_rtt: Duration, now: Instant) -> Option<Held> {
        self.deadline = None;
        while self.held_count > 0 {
            match self.held.pop_front() {
                Some(Some(datagram)) => {
                    self.next += 1;
                    self.held_count -= 1;
                    return Some(datagram);
                }
                Some(None) => {
                    if self.any_arrived(self.next) {
                        self.next += 1;
                        continue;
                    }
                    if self.held_count <= MOST_HELD
                        && self.expected() - self.next < WINDOW
                        && let Some(deadline) = self.waits_until(fast_rtt, now)
                    {
                        self.held.push_front(None);
                        self.deadline = Some(deadline);
                        return None;
                    }
                    self.counters.given_up += 1;
                    self.next += 1;
                }
                None => unreachable!("held datagrams are counted"),
            }
        }
        self.held.clear();
        None
    }

    /// Takes back the buffer of a datagram that was handed on.
    pub fn recycle(&mut self, held: Held) {
        if self.spare.len() < MOST_SPARE {
            self.spare.push(held.bytes);
        }
    }

    /// Gives back what is needed only while datagrams come; what has not come so far is not waited for.
    pub fn rest(&mut self) {
        if self.held_count > 0 {
            return;
        }
        self.seen.rest();
        (self.held, self.spare) = (VecDeque::new(), Vec::new());
        self.paths.iter_mut().for_each(|path| path.passed = VecDeque::new());
    }

    /// Until when the front gap is waited for; `None` if it is to be given up now.
    fn waits_until(&mut self, fast_rtt: Duration, now: Instant) -> Option<Instant> {
        let (gap, class) = (self.next, self.class);
        let longest_lag = match class {
            HoldClass::Short => (fast_rtt / 4).max(Duration::from_millis(5)),
            _ => LONGEST_HOLD,
        };
        let mut appeared = None;
        for path in &mut self.paths {
            while path.passed.front().is_some_and(|(number, _)| *number <= gap) {
                path.passed.pop_front();
            }
            if let Some((_, at)) = path.passed.front() {
                appeared = Some(appeared.map_or(*at, |first: Instant| first.min(*at)));
            }
        }
        let appeared = appeared?;
        let is_led = self
            .paths
            .iter_mut()
            .any(|path| path.highest.is_some() && path.share >= LEADING_SHARE && path.lag(now) <= longest_lag);
        let mut until = None;
        for path in &mut self.paths {
            if (path.highest.is_none() && !path.expected) || path.overdue {
                continue;
            }
            let lag = path.lag(now);
            let deadline = match path.passed.front() {
                Some((_, at)) => *at + path.patience(class, fast_rtt),
                None if class == HoldClass::None => continue,
                None if (is_led && lag > longest_lag) || path.share < LEAST_SHARE => continue,
                None => appeared + (lag + GRACE).min(LONGEST_HOLD),
            };
            let deadline = deadline.min(appeared + LONGEST_HOLD);
            if deadline > now {
                until = Some(until.map_or(deadline, |last: Instant| last.max(deadline)));
            } else if path.passed.is_empty() {
                path.overdue = true;
            }
        }
        until
    }

    fn start_at(&mut self, number: u64, class: HoldClass) {
        self.seen.start_at(number);
        self.next = number + 1;
        self.class = class;
        self.strays = 0;
        for path in &mut self.paths {
            path.highest = None;
            path.passed.clear();
        }
    }

    /// A number too far from the window to be judged. Several in a row that lie together move the window, if nothing waits.
    fn stray(&mut self, path: PathId, number: u64, class: HoldClass, now: Instant) -> Arrival {
        self.strays = if self.stray.abs_diff(number) < WINDOW { self.strays + 1 } else { 1 };
        self.stray = number;
        if self.strays >= STRAYS_TO_MOVE && number > self.expected() && self.held_count == 0 {
            self.held.clear();
            self.start_at(number, class);
            self.mark(path, number, now);
        }
        Arrival::Now
    }

    fn mark(&mut self, path: PathId, number: u64, now: Instant) {
        self.seen.mark(path, number, self.micros(now));
        self.pass(path, number, now);
    }

    fn pass(&mut self, path: PathId, number: u64, now: Instant) {
        let next = self.next;
        let path = &mut self.paths[usize::from(path.0)];
        path.overdue = false;
        path.orderly += 1;
        path.share_count += 1;
        if path.highest.is_none_or(|highest| number > highest) {
            let numbers = number.saturating_sub(path.share_from);
            if path.highest.is_none() {
                (path.share_from, path.share_count) = (number, 0);
            } else if numbers >= SHARE_WINDOW {
                path.share = path.share_count as f64 / numbers as f64;
                (path.share_from, path.share_count) = (number, 0);
            }
            path.highest = Some(number);
            while path.passed.front().is_some_and(|(number, _)| *number <= next) {
                path.passed.pop_front();
            }
            if number > next {
                path.passed.push_back((number, now));
            }
        }
    }

    fn micros(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.epoch).as_micros() as u32
    }
}

#[cfg(test)]
mod tests;
