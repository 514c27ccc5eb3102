//! Which of several relays a client uses.
//!
//! A search asks all relays at once: each gets a handshake, whose round trip tells how near it is, and then lets the paths
//! join. As soon as one of them is *ready* (its paths have joined), the nearest of those that have answered by then is taken:
//! so a dead relay costs no time, and a slow one none either. If the nearest is not ready itself it has [`GRACE`] for that.
//! A relay that the user prefers has [`PREFERENCE`] to answer, and is taken before nearer ones. The relay that was used last
//! stays unless another is surely nearer, so that noise makes nobody move.
//!
//! The taken relay may still say no (it is full, it stops): then the search goes on with the others. One that refuses this
//! client for good is asked no more, in any search.
//!
//! Relays are numbered as the caller lists them. Time is passed in.

use std::time::{Duration, Instant};

/// How long a nearer relay that has answered may take to be ready.
pub const GRACE: Duration = Duration::from_millis(100);
/// How long the preferred relay may take to be ready once another one is.
pub const PREFERENCE: Duration = Duration::from_millis(500);
/// Another relay must be nearer than the one used last by this share of its round trip...
const NEARER_SHARE: u32 = 3;
/// ...and by this much.
const NEARER_BY: Duration = Duration::from_millis(5);
/// A relay whose session fell silent is asked for a sign of life once another one answers, which shows that the networks work;
/// it has two of its round trips for it, but at least this...
const LEAST_SIGN: Duration = Duration::from_millis(100);
/// ...and at most this.
const LONGEST_SIGN: Duration = Duration::from_millis(400);

/// For how long no path of a session may be up before another session is sought. A path is down only after it has itself been
/// silent for a while; one on a new network that is still joining after this time may do so for ever.
const SILENCE: Duration = Duration::from_millis(1500);
/// The same after a sleep, in which the relay may well have forgotten the session: a path answers in one round trip.
const SILENCE_AWAKE: Duration = Duration::from_millis(500);

/// The standing of every relay, and the choice among them.
#[derive(Debug)]
pub struct Relays {
    relays: Vec<Relay>,
    preferred: Option<usize>,
    last: Option<usize>,
    /// When the first one of this search became ready.
    ready_since: Option<Instant>,
}

#[derive(Debug, Default)]
struct Relay {
    stage: Stage,
    /// The round trip of its last handshake.
    round_trip: Option<Duration>,
}

/// How far a relay has come in a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// Not part of the search.
    #[default]
    Idle,
    /// Asked, no answer yet.
    Asked,
    /// The handshake is done.
    Answered,
    /// Its paths have joined.
    Ready,
    /// It did not answer, or not as wished; it may be asked again.
    Failed,
    /// It refuses this client for good.
    Refused,
}

impl Relays {
    /// So many relays, of which one may be preferred.
    pub fn new(count: usize, preferred: Option<usize>) -> Self {
        let relays = (0..count).map(|_| Relay::default()).collect();
        Self { relays, preferred: preferred.filter(|at| *at < count), last: None, ready_since: None }
    }

    /// A search among these begins.
    pub fn search(&mut self, among: &[usize]) {
        self.ready_since = None;
        for (at, relay) in self.relays.iter_mut().enumerate() {
            if relay.stage != Stage::Refused {
                relay.stage = if among.contains(&at) { Stage::Asked } else { Stage::Idle };
            }
        }
    }

    /// A relay that failed is asked again.
    pub fn asked(&mut self, at: usize) {
        self.set(at, Stage::Asked);
    }

    /// A relay's handshake is done, and took this round trip.
    pub fn answered(&mut self, at: usize, round_trip: Duration) {
        self.relays[at].round_trip = Some(round_trip);
        self.set(at, Stage::Answered);
    }

    /// A relay's paths have joined: it can be taken.
    pub fn ready(&mut self, at: usize, now: Instant) {
        self.set(at, Stage::Ready);
        self.ready_since.get_or_insert(now);
    }

    /// A relay does not answer, is full, or stops.
    pub fn failed(&mut self, at: usize) {
        self.set(at, Stage::Failed);
        if !self.relays.iter().any(|relay| relay.stage == Stage::Ready) {
            self.ready_since = None;
        }
    }

    /// A relay refuses this client for good.
    pub fn refused(&mut self, at: usize) {
        self.failed(at);
        self.relays[at].stage = Stage::Refused;
    }

    /// The relay to be taken now; `None` until something happens or [`Self::poll_timeout`].
    pub fn take(&self, now: Instant) -> Option<usize> {
        let since = self.ready_since?;
        let waited = now.saturating_duration_since(since);
        if let Some(preferred) = self.preferred {
            match self.relays[preferred].stage {
                Stage::Ready => return Some(preferred),
                Stage::Asked | Stage::Answered if waited < PREFERENCE => return None,
                _ => {}
            }
        }
        let nearest = self.nearest(&[Stage::Answered, Stage::Ready])?;
        if self.relays[nearest].stage == Stage::Ready {
            return Some(nearest);
        }
        if waited < GRACE { None } else { self.nearest(&[Stage::Ready]) }
    }

    /// When [`Self::take`] may answer otherwise though nothing else happens.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let since = self.ready_since?;
        [since + GRACE, since + PREFERENCE].into_iter().find(|at| *at > now)
    }

    /// The relay of a new session.
    pub fn taken(&mut self, at: usize) {
        self.last = Some(at);
    }

    /// Those that have not refused this client for good, but for one.
    pub fn others(&self, than: usize) -> Vec<usize> {
        self.willing().into_iter().filter(|at| *at != than).collect()
    }

    /// Those that have not refused this client for good.
    pub fn willing(&self) -> Vec<usize> {
        (0..self.relays.len()).filter(|at| !self.is_refused(*at)).collect()
    }

    /// Whether a relay has refused this client for good.
    pub fn is_refused(&self, at: usize) -> bool {
        self.relays[at].stage == Stage::Refused
    }

    /// The preferred relay.
    pub fn preferred(&self) -> Option<usize> {
        self.preferred
    }

    /// The round trip of a relay's last handshake.
    pub fn round_trip(&self, at: usize) -> Option<Duration> {
        self.relays[at].round_trip
    }

    fn set(&mut self, at: usize, stage: Stage) {
        if self.relays[at].stage != Stage::Refused {
            self.relays[at].stage = stage;
        }
    }

    /// The nearest at one of these stages; the one used last, unless another is surely nearer.
    fn nearest(&self, stages: &[Stage]) -> Option<usize> {
        let there = |at: &usize| stages.contains(&self.relays[*at].stage);
        let distance = |at: usize| self.relays[at].round_trip.unwrap_or(Duration::MAX);
        let nearest = (0..self.relays.len()).filter(there).min_by_key(|at| distance(*at))?;
        match self.last.filter(there) {
            Some(last) if !is_surely_nearer(distance(nearest), distance(last)) => Some(last),
            _ => Some(nearest),
        }
    }
}

/// For how long no path of a session may be up before another session is sought: at the same relay, and at others, of which
/// there may be none. Others are asked at once when a path has `fallen` silent, and not just not joined yet. `woken` says that
/// this machine slept meanwhile.
pub fn patience(others: bool, fallen: bool, woken: bool) -> Duration {
    match (others && fallen, woken) {
        (true, _) => Duration::ZERO,
        (false, true) => SILENCE_AWAKE,
        (false, false) => SILENCE,
    }
}

/// For how long a silent session is asked for a sign of life, from when another relay answers, before that one is taken.
pub fn sign_of_life(round_trip: Duration) -> Duration {
    (2 * round_trip).clamp(LEAST_SIGN, LONGEST_SIGN)
}

fn is_surely_nearer(one: Duration, other: Duration) -> bool {
    let margin = (other / NEARER_SHARE).max(NEARER_BY);
    one.checked_add(margin).is_some_and(|sum| sum < other)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::start;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Two relays that are both asked.
    fn two(preferred: Option<usize>) -> (Relays, Instant) {
        let mut relays = Relays::new(2, preferred);
        relays.search(&[0, 1]);
        (relays, start())
    }

    #[test]
    fn the_first_that_is_ready_is_taken_at_once_when_the_other_is_silent() {
        let (mut relays, now) = two(None);
        assert_eq!(relays.take(now), None);
        relays.answered(1, ms(40));
        assert_eq!(relays.take(now), None);
        relays.ready(1, now);
        assert_eq!(relays.take(now), Some(1));
    }

    #[test]
    fn the_nearest_of_those_that_answered_is_taken_if_it_is_ready_soon() {
        let (mut relays, now) = two(None);
        relays.answered(0, ms(60));
        relays.answered(1, ms(20));
        relays.ready(0, now);
        assert_eq!(relays.take(now), None, "the nearer one has a moment");
        assert_eq!(relays.poll_timeout(now), Some(now + GRACE));
        relays.ready(1, now + ms(5));
        assert_eq!(relays.take(now + ms(5)), Some(1));
    }

    #[test]
    fn a_nearer_one_that_never_gets_ready_is_not_waited_for_any_longer() {
        let (mut relays, now) = two(None);
        relays.answered(0, ms(60));
        relays.answered(1, ms(20));
        relays.ready(0, now);
        assert_eq!(relays.take(now + GRACE), Some(0));
    }

    #[test]
    fn the_one_used_last_stays_unless_another_is_surely_nearer() {
        for (other, expected) in [(59, 0), (45, 0), (39, 1), (10, 1)] {
            let (mut relays, now) = two(None);
            relays.taken(0);
            relays.answered(0, ms(60));
            relays.answered(1, ms(other));
            relays.ready(0, now);
            relays.ready(1, now);
            assert_eq!(relays.take(now), Some(expected), "{other}");
        }
    }

    #[test]
    fn a_preferred_relay_is_waited_for_and_then_not_insisted_on() {
        let (mut relays, now) = two(Some(1));
        relays.answered(0, ms(20));
        relays.ready(0, now);
        assert_eq!(relays.take(now + PREFERENCE / 2), None);
        assert_eq!(relays.take(now + PREFERENCE), Some(0));
        relays.answered(1, ms(90));
        relays.ready(1, now + PREFERENCE);
        assert_eq!(relays.take(now + PREFERENCE), Some(1), "far away, and preferred");
        relays.failed(1);
        assert_eq!(relays.take(now), Some(0), "one that failed is not waited for");
    }

    #[test]
    fn one_that_says_no_leaves_the_field_to_the_others_and_one_that_refuses_is_out() {
        let (mut relays, now) = two(None);
        for (at, round_trip) in [(0, 20), (1, 90)] {
            relays.answered(at, ms(round_trip));
            relays.ready(at, now);
        }
        assert_eq!(relays.take(now), Some(0));
        relays.failed(0);
        assert_eq!(relays.take(now), Some(1));
        relays.refused(1);
        assert_eq!(relays.take(now), None);
        assert_eq!((relays.poll_timeout(now), relays.willing(), relays.others(0)), (None, vec![0], vec![]));
        relays.search(&[0, 1]);
        relays.answered(1, ms(1));
        relays.ready(1, now);
        assert_eq!(relays.take(now), None);
    }

    #[test]
    fn others_are_asked_at_once_when_a_path_falls_silent_and_not_while_a_new_one_joins() {
        assert_eq!(patience(true, true, false), Duration::ZERO);
        assert_eq!((patience(true, false, false), patience(false, true, false)), (SILENCE, SILENCE));
        assert_eq!(patience(false, true, true), SILENCE_AWAKE);
    }

    #[test]
    fn a_sign_of_life_is_waited_for_in_proportion_and_within_limits() {
        let waits = [1, 60, 100, 900].map(|round_trip| sign_of_life(ms(round_trip)));
        assert_eq!(waits, [100, 120, 200, 400].map(ms));
    }

    proptest! {
        #[test]
        fn what_is_taken_is_ready_and_something_ready_is_taken_in_the_end(
            events in prop::collection::vec((0usize..4, 0usize..5, 1u64..300), 0..60),
            preferred in prop::option::of(0usize..4),
            last in prop::option::of(0usize..4),
        ) {
            let mut relays = Relays::new(4, preferred);
            relays.last = last;
            relays.search(&[0, 1, 2, 3]);
            let mut now = start();
            for (at, what, round_trip) in events {
                now += ms(round_trip);
                match what {
                    0 => relays.asked(at),
                    1 => relays.answered(at, ms(round_trip)),
                    2 => relays.ready(at, now),
                    3 => relays.failed(at),
                    _ => relays.refused(at),
                }
                if let Some(taken) = relays.take(now) {
                    prop_assert_eq!(relays.relays[taken].stage, Stage::Ready);
                }
            }
            let some_ready = relays.relays.iter().any(|relay| relay.stage == Stage::Ready);
            prop_assert_eq!(relays.take(now + PREFERENCE).is_some(), some_ready);
        }
    }
}
