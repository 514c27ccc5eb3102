//! Client: how often whoever reaches the proxy may guess its password.
//!
//! Every wrong guess is charged to a budget of the source that it came from, and while that is empty nothing is taken from
//! there: not the right password either, since the answer would tell. The same wrong guess again is charged only once, so
//! that a program which keeps an old password, and learns nothing by it, does not shut out the others of its machine.
//!
//! A source is an IPv4 address or an IPv6 /64, of which one host can have every address. Times are passed in.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::bucket::Bucket;

/// Wrong guesses that a source may make at once.
pub const BURST: u32 = 10;

/// After so long a source may make another.
pub const EVERY: Duration = Duration::from_secs(10);

/// Sources that are remembered at most; the one that owes least makes room.
const MOST_SOURCES: usize = 1_024;

/// Wrong guesses of a source that are known again.
const REMEMBERED: usize = 4;

/// What becomes of a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is right.
    Right,
    /// It is wrong.
    Wrong,
    /// There were too many wrong ones from this source: whether it is right is not told.
    Braked {
        /// This is the first time since the source's budget was full.
        first: bool,
    },
}

/// What a source has left, and what it has tried.
#[derive(Debug)]
struct Source {
    left: Bucket,
    tried: [Option<u64>; REMEMBERED],
    braked: bool,
}

/// The wrong guesses of late.
#[derive(Debug, Default)]
pub struct Guesses {
    sources: HashMap<IpAddr, Source>,
}

impl Guesses {
    /// Judges what came from `from`: whether it is `right`, and a number that stands for it and tells nothing of it.
    pub fn judge(&mut self, from: IpAddr, right: bool, guess: u64, now: Instant) -> Verdict {
        let from = source(from);
        if let Some(known) = self.sources.get_mut(&from) {
            known.left.fill(rate(), BURST.into(), now);
            if known.left.tokens >= f64::from(BURST) {
                self.sources.remove(&from);
            } else if known.left.tokens < 1.0 {
                return Verdict::Braked { first: !std::mem::replace(&mut known.braked, true) };
            }
        }
        if right {
            return Verdict::Right;
        }
        if !self.sources.contains_key(&from) {
            self.make_room(now);
        }
        let fresh = || Source { left: Bucket::full(BURST.into(), now), tried: [None; REMEMBERED], braked: false };
        let known = self.sources.entry(from).or_insert_with(fresh);
        if !known.tried.contains(&Some(guess)) {
            known.tried.rotate_right(1);
            known.tried[0] = Some(guess);
            known.left.tokens -= 1.0;
        }
        Verdict::Wrong
    }

    /// Forgets who owes nothing any more, and if that is nobody, who owes least.
    fn make_room(&mut self, now: Instant) {
        if self.sources.len() < MOST_SOURCES {
            return;
        }
        self.sources.retain(|_, source| {
            source.left.fill(rate(), BURST.into(), now);
            source.left.tokens < f64::from(BURST)
        });
        if self.sources.len() >= MOST_SOURCES
            && let Some(least) =
                self.sources.iter().max_by(|one, other| one.1.left.tokens.total_cmp(&other.1.left.tokens))
        {
            let least = *least.0;
            self.sources.remove(&least);
        }
    }
}

/// Guesses a second.
fn rate() -> f64 {
    EVERY.as_secs_f64().recip()
}

fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn guessing_is_slowed_to_six_a_minute_after_ten() {
        let (mut guesses, start) = (Guesses::default(), crate::testing::start());
        let from = address("192.0.2.1");
        let tried = (0..3_600_000u32).step_by(100).map(|ms| {
            let now = start + Duration::from_millis(ms.into());
            guesses.judge(from, false, ms.into(), now)
        });
        let mut told = tried.fold((0, 0), |(wrong, first), verdict| match verdict {
            Verdict::Wrong => (wrong + 1, first),
            Verdict::Braked { first: true } => (wrong, first + 1),
            Verdict::Braked { first: false } => (wrong, first),
            Verdict::Right => unreachable!("none is right"),
        });
        assert_eq!(told, (10 + 359, 1), "wrong ones that were looked at in an hour, and times that it is to be told");
        // While it goes on the right one is not known from there, and is from elsewhere; afterwards it is.
        let now = start + Duration::from_secs(3_600);
        told.0 = 0;
        while guesses.judge(from, false, told.0, now) == Verdict::Wrong {
            told.0 += 1;
        }
        assert_eq!(guesses.judge(from, true, 0, now), Verdict::Braked { first: false });
        assert_eq!(guesses.judge(address("192.0.2.2"), true, 0, now), Verdict::Right);
        assert_eq!(guesses.judge(from, true, 0, now + 2 * EVERY), Verdict::Right);
    }

    #[test]
    fn the_right_password_costs_nothing_and_the_same_wrong_one_costs_once() {
        let (mut guesses, now) = (Guesses::default(), crate::testing::start());
        let from = address("127.0.0.1");
        for round in 0..100_000 {
            assert_eq!(guesses.judge(from, true, 7, now), Verdict::Right);
            assert_eq!(guesses.judge(from, false, round % 4, now), Verdict::Wrong);
        }
        for other in 100..106 {
            assert_eq!(guesses.judge(from, false, other, now), Verdict::Wrong);
        }
        assert_eq!(guesses.judge(from, true, 7, now), Verdict::Braked { first: true });
        // Told anew only once all is forgotten.
        let later = now + EVERY * (BURST + 1);
        for guess in 0..10 {
            assert_eq!(guesses.judge(from, false, guess, later), Verdict::Wrong);
        }
        assert_eq!(guesses.judge(from, false, 11, later), Verdict::Braked { first: true });
    }

    #[test]
    fn a_host_has_one_budget_for_all_its_addresses() {
        let (mut guesses, now) = (Guesses::default(), crate::testing::start());
        let braked = |guesses: &mut Guesses, from: &str| {
            matches!(guesses.judge(address(from), true, 0, now), Verdict::Braked { .. })
        };
        for guess in 0..10 {
            guesses.judge(address(&format!("2001:db8::{guess}")), false, guess, now);
            guesses.judge(address("::ffff:192.0.2.1"), false, guess, now);
        }
        assert!(braked(&mut guesses, "2001:db8::ffff:0:0:1") && !braked(&mut guesses, "2001:db8:0:1::1"));
        assert!(braked(&mut guesses, "192.0.2.1") && !braked(&mut guesses, "192.0.2.2"));
    }

    #[test]
    fn many_sources_are_bounded_and_do_not_wash_out_one_that_guesses() {
        let (mut guesses, now) = (Guesses::default(), crate::testing::start());
        let guesser = address("192.0.2.1");
        for guess in 0..10 {
            guesses.judge(guesser, false, guess, now);
        }
        for host in 0..20_000u32 {
            guesses.judge(IpAddr::from((0x0a00_0000 + host).to_be_bytes()), false, 0, now);
        }
        assert_eq!(guesses.sources.len(), MOST_SOURCES);
        assert!(matches!(guesses.judge(guesser, true, 0, now), Verdict::Braked { .. }));
    }
}
