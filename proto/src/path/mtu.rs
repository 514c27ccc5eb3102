//! How large a datagram passes one path, all its life, found by padded probes of our own (after RFC 8899).
//!
//! The sizes that real networks have are tried from the largest down; each gets [`TRIES`] probes, so that random loss is
//! not taken for a limit. What is known is a promise: no larger datagram is sent on the path.
//!
//! A path may narrow later without a word. What passes is proved by every report of a large datagram that arrived. When
//! large ones were sent and none is reported for [`UNPROVED`], the size known is probed again; if none of [`CHECKS`] probes
//! is answered while the path lives, what every path carries is assumed, and the search begins anew.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Link MTUs that are tried, in bytes; 1,280 is what every path must carry (RFC 8200, section 5).
const LINK_MTUS: [u16; 6] = [1_500, 1_460, 1_420, 1_380, 1_340, 1_300];

/// The link MTU that is assumed before a probe was answered.
const BASE_LINK_MTU: u16 = 1_280;

/// Probes of one size before a smaller one is tried.
const TRIES: u32 = 8;

/// After the search ended below the largest size, it begins anew so much later.
const SEARCH_AGAIN: Duration = Duration::from_secs(120);

/// Large datagrams may go unreported for so long before the known size is probed again.
const UNPROVED: Duration = Duration::from_millis(300);

/// Probes of the known size before it is given up.
const CHECKS: u32 = 6;

/// The search for one path's MTU; sizes are UDP payloads.
#[derive(Debug, Clone)]
pub(crate) struct MtuSearch {
    headers: u16,
    known: u16,
    candidate: usize,
    tries: u32,
    next_at: Option<Instant>,
    /// The first search has come to an end: what is known is what passes.
    settled: bool,
    /// What is known is assumed from the other direction.
    assumed: bool,
    /// Since when large datagrams were sent of which none is known to have arrived.
    unproved: Option<Instant>,
    /// Probes sent to check the known size, and when the next is due; 0 while there is no doubt.
    checks: u32,
    next_check: Option<Instant>,
}

impl MtuSearch {
    /// A search towards `remote`, whose address family decides the headers' length.
    pub(crate) fn new(remote: SocketAddr) -> Self {
        let headers = if remote.ip().to_canonical().is_ipv4() { 28 } else { 48 };
        Self {
            headers,
            known: BASE_LINK_MTU - headers,
            candidate: 0,
            tries: 0,
            next_at: None,
            settled: false,
            assumed: false,
            unproved: None,
            checks: 0,
            next_check: None,
        }
    }

    /// Largest UDP payload that is known to pass, in bytes.
    pub(crate) fn known(&self) -> u16 {
        self.known
    }

    /// The largest size there is to find.
    pub(crate) fn largest(&self) -> u16 {
        LINK_MTUS[0] - self.headers
    }

    /// The other direction carried this size: as a rule this one does too, until our own probes say otherwise.
    pub(crate) fn assume(&mut self, size: u16) {
        if !self.settled {
            self.known = self.known.max(size.min(self.largest()));
            self.assumed = true;
        }
    }

    /// Whether a datagram larger than [`Self::known`] would be lost, rather than not be known to pass yet.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// A datagram of this size was sent.
    pub(crate) fn on_sent(&mut self, size: usize, now: Instant) {
        if self.unproved.is_none() && size > usize::from(self.base()) {
            self.unproved = Some(now);
            self.next_check = Some(now + UNPROVED);
        }
    }

    /// A datagram of this size is reported to have arrived.
    pub(crate) fn on_arrived(&mut self, size: u16) {
        if size > self.base() && size <= self.known {
            self.proved();
        }
    }

    /// Starts the search, once the path is up.
    pub(crate) fn start(&mut self, now: Instant) {
        self.proved();
        let found = self.known == self.largest() && !self.assumed;
        self.settled |= found;
        (self.candidate, self.tries, self.next_at) = (0, 0, (!found).then_some(now));
    }

    /// When [`Self::poll`] wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.next_at.into_iter().chain(self.next_check).min()
    }

    /// The size of a probe to send now. `interval` is how long an answer may take; `alive` tells that small datagrams pass.
    pub(crate) fn poll(&mut self, interval: Duration, alive: bool, now: Instant) -> Option<u16> {
        if self.next_check.is_some_and(|at| at <= now) {
            self.next_check = Some(now + interval);
            if self.checks < CHECKS {
                self.checks += 1;
                return Some(self.known);
            }
            // A path that carries nothing at all says nothing of its MTU.
            if alive {
                (self.known, self.assumed) = (self.base(), false);
                self.start(now);
            }
        }
        if self.next_at.is_none_or(|at| at > now) {
            return None;
        }
        if self.tries == TRIES {
            self.candidate += 1;
            self.tries = 0;
        }
        let size = LINK_MTUS.get(self.candidate).map_or(0, |mtu| mtu - self.headers);
        if self.assumed && self.candidate > 0 {
            // The assumption was wrong.
            (self.known, self.assumed) = (self.base(), false);
        }
        if size <= self.known && !self.assumed {
            self.candidate = 0;
            self.tries = 0;
            self.settled = true;
            self.next_at = Some(now + SEARCH_AGAIN);
            return None;
        }
        self.tries += 1;
        self.next_at = Some(now + interval);
        Some(size)
    }

    /// A probe of this size arrived.
    pub(crate) fn on_ack(&mut self, size: u16, now: Instant) {
        if size >= self.known && self.checks > 0 {
            self.proved();
        }
        let candidate = LINK_MTUS.get(self.candidate).map_or(0, |mtu| mtu - self.headers);
        if (size > self.known || self.assumed) && LINK_MTUS.iter().any(|mtu| mtu - self.headers == size) {
            (self.known, self.assumed) = (size, false);
            if size >= candidate {
                // Nothing larger exists than the first candidate; else a wider network may take this one's place.
                let largest = self.candidate == 0;
                (self.candidate, self.tries, self.settled) = (0, 0, true);
                self.next_at = (!largest).then_some(now + SEARCH_AGAIN);
            }
        }
    }

    /// What every path carries.
    fn base(&self) -> u16 {
        BASE_LINK_MTU - self.headers
    }

    fn proved(&mut self) {
        (self.unproved, self.checks, self.next_check) = (None, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search over a path that carries UDP payloads of up to `limit` bytes; how many probes it took.
    fn search(mtu: &mut MtuSearch, limit: u16) -> u32 {
        let (mut now, mut probes) = (crate::testing::start(), 0);
        mtu.start(now);
        while let Some(at) = mtu.poll_timeout().filter(|at| !mtu.is_settled() || *at < now + SEARCH_AGAIN) {
            now = at;
            if let Some(size) = mtu.poll(Duration::from_millis(50), true, now) {
                probes += 1;
                if size <= limit {
                    mtu.on_ack(size, now);
                }
            }
        }
        probes
    }

    #[test]
    fn an_ethernet_path_is_known_after_one_probe() {
        let mut mtu = MtuSearch::new("192.0.2.1:1".parse().expect("an address"));
        assert_eq!((mtu.known(), search(&mut mtu, 1_472), mtu.known()), (1_252, 1, 1_472));
    }

    #[test]
    fn a_size_assumed_from_the_other_direction_holds_until_our_own_probes_fail() {
        for (limit, known) in [(1_472, 1_472), (1_352, 1_352), (1_260, 1_252)] {
            let mut mtu = MtuSearch::new("192.0.2.1:1".parse().expect("an address"));
            mtu.assume(1_472);
            assert_eq!((mtu.known(), mtu.is_settled()), (1_472, false));
            search(&mut mtu, limit);
            assert_eq!((mtu.known(), mtu.is_settled()), (known, true));
        }
    }

    /// PATH-2
    #[test]
    fn a_narrow_path_is_found_from_above() {
        let mut mtu = MtuSearch::new("[2001:db8::1]:1".parse().expect("an address"));
        search(&mut mtu, 1_380 - 48);
        assert_eq!((mtu.known(), mtu.is_settled()), (1_332, true));
        assert!(mtu.poll_timeout().is_some(), "a wider network may come");
    }

    /// Sends a large datagram every 10 ms over a path that carries payloads of up to `limit` bytes, if anything; tells how
    /// long it took until another size was known.
    fn use_until_it_changes(mtu: &mut MtuSearch, limit: u16, alive: bool) -> Option<Duration> {
        let start = crate::testing::start();
        let before = mtu.known();
        for step in 0..300 {
            let now = start + step * Duration::from_millis(10);
            mtu.on_sent(before.into(), now);
            if alive && before <= limit {
                mtu.on_arrived(before);
            }
            if let Some(size) = mtu.poll(Duration::from_millis(50), alive, now)
                && alive
                && size <= limit
            {
                mtu.on_ack(size, now);
            }
            if mtu.known() != before {
                return Some(now - start);
            }
        }
        None
    }

    fn settled() -> MtuSearch {
        let mut mtu = MtuSearch::new("192.0.2.1:1".parse().expect("an address"));
        search(&mut mtu, 1_472);
        mtu
    }

    /// PATH-1
    #[test]
    fn a_path_that_narrows_is_noticed_within_a_second_and_searched_again() {
        let mut mtu = settled();
        let noticed = use_until_it_changes(&mut mtu, 1_272, true).expect("it is noticed");
        assert!(noticed < Duration::from_secs(1), "{noticed:?}");
        assert_eq!(mtu.known(), 1_252);
        search(&mut mtu, 1_272);
        assert_eq!(mtu.known(), 1_272);
        // Two minutes later it carries everything again.
        let wide = mtu.poll_timeout().expect("the search goes on");
        let probe = mtu.poll(Duration::from_millis(50), true, wide).expect("a probe");
        mtu.on_ack(probe, wide);
        assert_eq!(mtu.known(), 1_472);
    }

    #[test]
    fn a_path_that_carries_large_datagrams_or_nothing_at_all_stays_as_it_is_known() {
        for (limit, alive) in [(1_472, true), (1_272, false)] {
            let mut mtu = settled();
            assert_eq!(use_until_it_changes(&mut mtu, limit, alive), None);
        }
    }
}
