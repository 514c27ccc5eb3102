//! Whether a path still carries what this end sends on it, from what comes back of it.
//!
//! Everything sent that ought to be confirmed leaves a mark; a *proof* (an echo of a ping's clock, a report of a
//! datagram's arrival, by whatever path it comes) removes the marks up to when that was sent. A mark that stays longer than
//! a round trip makes the path *suspect*: it is pinged in quick succession. It is *silent* once all of these hold: the
//! oldest mark is old, no proof has come for a while, and so many pings are overdue that a path as lossy as this one is
//! known to be would do that less than once in a million times. So a death is found soon after two round trips, and
//! neither loss, nor a queue that grows, nor a process that slept is taken for one.
//!
//! Pings also measure: the share that gets no echo is the loss of both directions together, known for idle paths as well.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::rtt::Rtt;

/// Marks and pings remembered at most; more say nothing new.
const MOST: usize = 64;

/// Least distance of two marks.
const MARK_SPACING: Duration = Duration::from_millis(5);

/// A confirmation may be so much later than a round trip and four deviations: a report waits for a few datagrams.
const LATE: Duration = Duration::from_millis(10);

/// The oldest mark of a silent path is older than this, and than two round trips and four deviations.
const LEAST_SILENCE: Duration = Duration::from_millis(250);

/// No proof has come for this long, nor for half a round trip and four deviations: the proofs of a queue that fills come
/// late, but they come.
const LEAST_QUIET: Duration = Duration::from_millis(150);

/// A path that lives is taken for silent less often than this.
const MISJUDGED: f64 = 1e-6;

/// A ping's chance to get no echo is taken to lie within.
const CHANCES: (f64, f64) = (0.3, 0.7);

/// What a new path is taken for.
const CHANCE_AT_FIRST: f64 = 0.5;

/// Quick pings are spread over what is left of [`LEAST_SILENCE`], at least and at most so far apart.
const QUICK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

/// What is awaited from one path.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// When things were sent that no proof covers yet, oldest first.
    marks: VecDeque<Instant>,
    last_mark: Option<Instant>,
    /// Pings that were not echoed, oldest first; once they count as lost, only those that no proof is newer than.
    pings: VecDeque<Ping>,
    /// The newest thing that is known to have arrived left then.
    proved_to: Option<Instant>,
    last_proof: Option<Instant>,
    /// Share of pings without echo, among the last thirty or so.
    missed: f64,
}

/// A ping on its way.
#[derive(Debug, Clone, Copy)]
struct Ping {
    clock: u32,
    sent: Instant,
    /// Nothing will answer it any more.
    lost: bool,
}

impl Liveness {
    pub(crate) fn new() -> Self {
        Self {
            marks: VecDeque::with_capacity(MOST),
            last_mark: None,
            pings: VecDeque::with_capacity(MOST),
            proved_to: None,
            last_proof: None,
            missed: CHANCE_AT_FIRST,
        }
    }

    /// Something leaves that ought to be confirmed; whether nothing else was awaited.
    pub(crate) fn on_sent(&mut self, rtt: &Rtt, now: Instant) -> bool {
        let first = self.marks.is_empty();
        let spacing = (rtt.or_assumed() / 16).max(MARK_SPACING);
        let apart = first || self.last_mark.is_none_or(|last| now.saturating_duration_since(last) >= spacing);
        if apart && self.marks.len() < MOST {
            self.marks.push_back(now);
            self.last_mark = Some(now);
        }
        first
    }

    /// A ping with this clock leaves.
    pub(crate) fn on_ping(&mut self, clock: u32, rtt: &Rtt, now: Instant) {
        self.on_sent(rtt, now);
        if self.pings.len() == MOST {
            self.pings.pop_front();
        }
        self.pings.push_back(Ping { clock, sent: now, lost: false });
    }

    /// The far side echoes this clock; whether it was a ping's whose fate was open.
    pub(crate) fn on_echo(&mut self, clock: u32) -> bool {
        let Some(index) = self.pings.iter().position(|ping| ping.clock == clock) else { return false };
        let open = self.pings.remove(index).is_some_and(|ping| !ping.lost);
        self.missed -= if open { self.missed / 32.0 } else { 0.0 };
        open
    }

    /// Something that left at `sent` has arrived.
    pub(crate) fn on_proof(&mut self, sent: Instant, now: Instant) {
        if self.proved_to.is_some_and(|newest| newest >= sent) {
            return;
        }
        self.proved_to = Some(sent);
        self.last_proof = Some(now);
        while self.marks.front().is_some_and(|mark| *mark <= sent) {
            self.marks.pop_front();
        }
    }

    /// How many more pings have stayed without an echo for so long that none will come; to be asked now and then.
    pub(crate) fn settle(&mut self, rtt: &Rtt, now: Instant) -> u32 {
        let patience = 2 * expected(rtt) + Duration::from_millis(100);
        let mut lost = 0;
        for ping in &mut self.pings {
            if !ping.lost && now.saturating_duration_since(ping.sent) > patience {
                ping.lost = true;
                lost += 1;
            }
        }
        // What a silence lost says nothing of a path that lives: it counts once the silence is over.
        let (proved_to, before) = (self.proved_to, self.pings.len());
        self.pings.retain(|ping| !ping.lost || proved_to.is_none_or(|proved| ping.sent > proved));
        for _ in self.pings.len()..before {
            self.missed += (1.0 - self.missed) / 32.0;
        }
        lost
    }

    /// From when on the path is suspect.
    pub(crate) fn suspect_at(&self, rtt: &Rtt) -> Option<Instant> {
        Some(*self.marks.front()? + expected(rtt) + LATE)
    }

    /// When the next ping is due on a suspect path of which the last was pinged at `last_ping`; `None` if it is not awaiting
    /// anything, or enough pings are on their way.
    pub(crate) fn quick_ping_at(&self, last_ping: Instant, rtt: &Rtt) -> Option<Instant> {
        let suspect_at = self.suspect_at(rtt)?;
        let enough = self.enough_pings();
        if self.unproved_pings().count() >= enough {
            return None;
        }
        let left = LEAST_SILENCE.saturating_sub(2 * expected(rtt) + LATE);
        let spacing = (left / enough as u32).clamp(QUICK.0, QUICK.1);
        Some(suspect_at.max(last_ping + spacing))
    }

    /// When the path is to be given up for silent; `None` while nothing is awaited or too few pings are on their way.
    pub(crate) fn silent_at(&self, rtt: &Rtt) -> Option<Instant> {
        let oldest = *self.marks.front()?;
        let old = oldest + LEAST_SILENCE.max(rtt.or_assumed() + expected(rtt));
        let quiet = LEAST_QUIET.max(rtt.or_assumed() / 2 + 4 * rtt.deviation());
        let quiet = self.last_proof.map_or(oldest, |last| last.max(oldest)) + quiet;
        let last_needed = self.unproved_pings().nth(self.enough_pings() - 1)?;
        Some(old.max(quiet).max(last_needed.sent + expected(rtt)))
    }

    /// Nothing is awaited any more.
    pub(crate) fn reset(&mut self) {
        self.marks.clear();
        self.pings.clear();
        self.last_mark = None;
    }

    fn unproved_pings(&self) -> impl Iterator<Item = &Ping> {
        self.pings.iter().filter(|ping| self.proved_to.is_none_or(|proved| ping.sent > proved))
    }

    fn enough_pings(&self) -> usize {
        let chance = self.missed.clamp(CHANCES.0, CHANCES.1);
        (MISJUDGED.ln() / chance.ln()).ceil() as usize
    }
}

/// A confirmation takes so long at most, as a rule.
fn expected(rtt: &Rtt) -> Duration {
    rtt.or_assumed() + 4 * rtt.deviation() + Duration::from_millis(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn steady_rtt(millis: u64) -> Rtt {
        let mut rtt = Rtt::default();
        (0..50).for_each(|_| rtt.update(Duration::from_millis(millis)));
        rtt
    }

    /// Pings a path whenever it is due and says when it is given up. Each ping is echoed a round trip later if `echoed` says
    /// so of its number.
    fn given_up(rtt_ms: u64, span: Duration, mut echoed: impl FnMut(u32, Duration) -> bool) -> Option<Duration> {
        let start = crate::testing::start();
        let rtt = steady_rtt(rtt_ms);
        let mut path = Liveness::new();
        let mut echoes: VecDeque<(Instant, u32, Instant)> = VecDeque::new();
        let (mut number, mut last_ping) = (0, start);
        for now in (0..span.as_millis() as u32).map(|at| start + at * MS) {
            while echoes.front().is_some_and(|(at, ..)| *at <= now) {
                let (_, clock, sent) = echoes.pop_front().expect("it is there");
                path.on_echo(clock);
                path.on_proof(sent, now);
            }
            path.settle(&rtt, now);
            if path.silent_at(&rtt).is_some_and(|at| at <= now) {
                return Some(now - start);
            }
            let quick = path.quick_ping_at(last_ping, &rtt);
            if quick.is_some_and(|at| at <= now) || now >= last_ping + 100 * MS {
                (number, last_ping) = (number + 1, now);
                path.on_ping(number, &rtt, now);
                if echoed(number, now - start) {
                    echoes.push_back((now + rtt_ms as u32 * MS, number, now));
                }
            }
        }
        None
    }

    #[test]
    fn a_death_is_found_within_three_round_trips_or_half_a_second() {
        for rtt_ms in [5, 20, 60, 150, 300, 600] {
            let death = 2_000 * MS;
            let found = given_up(rtt_ms, 10 * death, |_, at| at < death).expect("it is found") - death;
            let limit = (500 * MS).max(3 * rtt_ms as u32 * MS);
            assert!(found <= limit, "{rtt_ms} ms: {found:?}");
        }
    }

    #[test]
    fn ten_minutes_of_heavy_loss_are_no_death() {
        for (seed, loss) in [(1, 0.2), (2, 0.3), (3, 0.4)] {
            // Both directions lose.
            let mut state: u64 = seed;
            let mut chance = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 11) as f64 / (1u64 << 53) as f64
            };
            let lived = given_up(20, 600_000 * MS, |_, _| chance() >= loss && chance() >= loss);
            assert_eq!(lived, None, "loss {loss}");
        }
    }

    #[test]
    fn a_process_that_slept_pings_before_it_judges() {
        let start = crate::testing::start();
        let rtt = steady_rtt(20);
        let mut path = Liveness::new();
        path.on_ping(1, &rtt, start);
        let late = start + 180_000 * MS;
        assert_eq!(path.silent_at(&rtt), None, "one ping is not enough");
        assert!(path.quick_ping_at(start, &rtt).is_some_and(|at| at <= late));
    }

    #[test]
    fn proofs_that_come_ever_later_are_proofs() {
        // A queue that grows by a second a second: what left at t is confirmed at 2 t.
        let start = crate::testing::start();
        let rtt = steady_rtt(20);
        let mut path = Liveness::new();
        for at in 0..1_500u32 {
            let now = start + at * MS;
            if at % 20 == 0 {
                path.on_ping(at, &rtt, now);
            }
            path.on_proof(start + at / 2 * MS, now);
            assert!(path.silent_at(&rtt).is_none_or(|silent| silent > now), "at {at} ms");
        }
    }
}
