//! The hold, step by step, and under any input.

use proptest::prelude::*;

use super::*;

const WIFI: PathId = PathId(0);
const CELL: PathId = PathId(1);
const FAST_RTT: Duration = Duration::from_millis(20);

/// A hold with a clock, and everything that it has handed on, in order.
struct Bench {
    hold: Hold,
    start: Instant,
    handed_on: Vec<u64>,
    class: HoldClass,
}

impl Bench {
    fn new(class: HoldClass) -> Self {
        let start = crate::testing::start();
        Self { hold: Hold::new(start), start, handed_on: Vec::new(), class }
    }

    fn at(&self, ms: f64) -> Instant {
        self.start + Duration::from_secs_f64(ms / 1e3)
    }

    fn arrive(&mut self, ms: f64, path: PathId, number: u64) -> Arrival {
        let now = self.at(ms);
        let arrival = self.hold.accept(path, number, self.class, &number.to_be_bytes(), now);
        if arrival == Arrival::Now {
            self.handed_on.push(number);
        }
        self.tick(ms);
        arrival
    }

    fn tick(&mut self, ms: f64) {
        let now = self.at(ms);
        while let Some(held) = self.hold.pop_ready(FAST_RTT, now) {
            self.handed_on.push(u64::from_be_bytes(held.bytes[..].try_into().expect("eight bytes")));
            self.hold.recycle(held);
        }
    }

    /// Numbers 0 to 9, one a millisecond, on both paths; copies on CELL come `lag` later.
    fn warm_up(&mut self, lag: u64) {
        for ms in 0..10 + lag {
            if ms < 10 {
                self.arrive(ms as f64, WIFI, ms);
            }
            if ms >= lag {
                self.arrive(ms as f64 + 0.5, CELL, ms - lag);
            }
        }
    }
}

/// A network that goes away while datagrams that came by it wait, and copies of them come by another.
#[test]
fn what_waits_is_known_though_the_path_that_delivered_it_is_gone() {
    let mut bench = Bench::new(HoldClass::Full);
    bench.warm_up(2);
    assert_eq!(bench.arrive(13.0, WIFI, 11), Arrival::Held);
    bench.hold.forget_path(WIFI);
    assert_eq!(bench.arrive(13.5, CELL, 11), Arrival::Copy);
    assert_eq!(bench.arrive(14.0, CELL, 10), Arrival::Now);
    bench.tick(400.0);
    bench.handed_on.sort();
    assert_eq!(bench.handed_on, (0..12).collect::<Vec<_>>());
    assert_eq!(bench.hold.held_len(), 0);
    assert_eq!(bench.arrive(401.0, CELL, 9), Arrival::Replay);
}

#[test]
fn numbers_at_the_end_of_all_numbers_move_nothing() {
    let mut bench = Bench::new(HoldClass::Full);
    bench.warm_up(2);
    for number in (0..20).map(|step| u64::MAX - step).chain((0..20).map(|step| u64::MAX - 20 + step)) {
        assert_eq!(bench.arrive(20.0, WIFI, number), Arrival::Now);
    }
    assert_eq!(bench.hold.expected(), 9);
}

#[test]
fn in_order_arrivals_never_wait_and_copies_are_dropped() {
    let mut bench = Bench::new(HoldClass::Full);
    bench.warm_up(5);
    assert_eq!(bench.handed_on, (0..10).collect::<Vec<_>>());
    assert_eq!(bench.hold.counters(), HoldCounters { copies: 10, ..HoldCounters::default() });
}

#[test]
fn a_gap_is_held_until_the_slow_copy_fills_it() {
    let mut bench = Bench::new(HoldClass::Full);
    bench.warm_up(20);
    assert_eq!(bench.arrive(30.0, WIFI, 11), Arrival::Held);
    assert_eq!(bench.arrive(31.0, WIFI, 12), Arrival::Held);
    assert_eq!(bench.handed_on.len(), 10);
    assert_eq!(bench.arrive(50.0, CELL, 10), Arrival::Now);
    assert_eq!(bench.handed_on, (0..13).collect::<Vec<_>>());
    assert_eq!(bench.hold.poll_timeout(), None);
}

#[test]
fn a_gap_is_given_up_once_every_path_has_passed_it() {
    let mut bench = Bench::new(HoldClass::Full);
    bench.warm_up(20);
    bench.arrive(30.0, WIFI, 11);
    assert_eq!(bench.arrive(51.0, CELL, 11), Arrival::Copy);
    assert_eq!(bench.handed_on.last(), Some(&11));
    assert_eq!(bench.hold.counters().given_up, 1);
}

#[test]
fn a_gap_is_given_up_after_lag_and_grace_and_a_silent_path_holds_nothing_more() {
    let mut bench = Bench::new(HoldClass::Full);
    bench.warm_up(20);
    bench.arrive(30.0, WIFI, 11);
    let deadline = bench.hold.poll_timeout().expect("11 waits");
    let wait = deadline - bench.at(30.0);
    assert!(wait > Duration::from_millis(25) && wait < Duration::from_millis(27), "waits {wait:?}");
    bench.tick(57.0);
    assert_eq!(bench.handed_on.last(), Some(&11));
    bench.arrive(60.0, WIFI, 13);
    assert_eq!(bench.handed_on.last(), Some(&13), "CELL ran out of time and delivered nothing since");
    bench.arrive(61.0, CELL, 13);
    bench.arrive(62.0, WIFI, 15);
    assert_eq!(bench.handed_on.last(), Some(&13), "CELL is back: held again");
}

#[test]
fn a_path_that_joined_is_waited_for_before_it_has_delivered_anything() {
    let mut bench = Bench::new(HoldClass::Full);
    bench.hold.expect(CELL, true);
    bench.hold.set_lag_hint(CELL, Duration::from_millis(20));
    bench.arrive(0.0, WIFI, 0);
    assert_eq!(bench.arrive(1.0, WIFI, 2), Arrival::Held);
    bench.tick(20.0);
    assert_eq!(bench.handed_on, [0]);
    bench.arrive(21.0, CELL, 1);
    assert_eq!(bench.handed_on, [0, 1, 2]);
}

#[test]
fn short_holds_wait_only_for_paths_that_lag_little() {
    for (lag, held) in [(4, true), (20, false)] {
        let mut bench = Bench::new(HoldClass::Short);
        bench.warm_up(lag);
        let arrival = bench.arrive(40.0, WIFI, 11);
        assert_eq!(arrival, Arrival::Held);
        assert_eq!(bench.handed_on.last() == Some(&9), held, "lag {lag} ms");
    }
}

/// Copies are held back on the faster path: what it did not bring is not lost.
#[test]
fn short_holds_wait_for_a_slow_path_that_alone_carries_everything() {
    for (every, held) in [(1, false), (2, true)] {
        let mut bench = Bench::new(HoldClass::Short);
        for ms in 0..400u64 {
            if ms % every == 0 {
                bench.arrive(ms as f64, WIFI, ms);
            }
            if let Some(number) = ms.checked_sub(20) {
                bench.arrive(ms as f64 + 0.5, CELL, number);
            }
        }
        bench.arrive(402.0, WIFI, 402);
        assert_eq!(bench.handed_on.last() != Some(&402), held, "one in {every}");
    }
}

#[test]
fn nothing_is_held_for_a_sender_that_is_not_limited() {
    let mut bench = Bench::new(HoldClass::None);
    for number in 0..ORDERLY {
        bench.arrive(number as f64, WIFI, number);
    }
    let ms = ORDERLY as f64;
    assert_eq!(bench.arrive(ms + 10.0, WIFI, ORDERLY + 5), Arrival::Now);
    assert_eq!(bench.arrive(ms + 11.0, CELL, ORDERLY + 2), Arrival::Now);
    assert_eq!(bench.arrive(ms + 12.0, WIFI, ORDERLY + 2), Arrival::Copy);
}

/// PATH-9
#[test]
fn a_path_that_may_reorder_is_given_a_quarter_of_a_round_trip_in_every_class() {
    for class in [HoldClass::None, HoldClass::Short, HoldClass::Full] {
        let mut bench = Bench::new(class);
        bench.arrive(0.0, WIFI, 0);
        if class != HoldClass::None {
            bench.hold.set_reordering(WIFI, Duration::from_millis(3));
        }
        assert_eq!(bench.arrive(1.0, WIFI, 2), Arrival::Held, "{class:?}");
        bench.tick(5.9);
        assert_eq!(bench.handed_on, [0], "{class:?}");
        bench.arrive(5.9, WIFI, 1);
        assert_eq!(bench.handed_on, [0, 1, 2], "{class:?}");
        bench.arrive(7.0, WIFI, 4);
        bench.tick(12.0);
        assert_eq!(bench.handed_on, [0, 1, 2, 4], "given up after 5 ms, {class:?}");
    }
}

#[test]
fn a_number_below_the_first_seen_is_no_duplicate() {
    let mut bench = Bench::new(HoldClass::Full);
    bench.arrive(0.0, WIFI, 5);
    assert_eq!(bench.arrive(1.0, WIFI, 3), Arrival::Now);
    assert_eq!(bench.arrive(1.0, WIFI, 3), Arrival::Replay);
}

#[test]
fn a_path_with_few_of_the_numbers_is_not_waited_for() {
    let mut bench = Bench::new(HoldClass::Full);
    for number in 0..400 {
        bench.arrive(number as f64, WIFI, number);
        if number % 10 == 0 {
            bench.arrive(number as f64 + 0.1, CELL, number);
        }
    }
    bench.arrive(400.0, WIFI, 401);
    assert_eq!(bench.handed_on.last(), Some(&401));
}

#[test]
fn a_far_jump_changes_nothing_until_it_proves_to_be_the_new_place() {
    let mut bench = Bench::new(HoldClass::Full);
    bench.warm_up(5);
    let far = 10 + 5 * WINDOW;
    assert_eq!(bench.arrive(30.0, WIFI, far), Arrival::Now);
    assert_eq!(bench.arrive(31.0, WIFI, 10), Arrival::Now);
    assert_eq!(bench.arrive(31.0, CELL, 10), Arrival::Copy);
    for more in 1..=10 {
        bench.arrive(32.0, WIFI, far + more);
    }
    assert_eq!(bench.arrive(33.0, CELL, far + 10), Arrival::Copy, "the window has moved");
}

proptest! {
    /// Whatever arrives in whatever order: each datagram is handed on once and no more than the limit is held.
    #[test]
    fn every_datagram_is_handed_on_exactly_once(
        steps in prop::collection::vec((0u8..3, 0u64..4_000, 0u64..3, 0u32..40), 1..600),
        full: bool,
    ) {
        let mut bench = Bench::new(if full { HoldClass::Full } else { HoldClass::Short });
        let (mut ms, mut expected) = (0.0, std::collections::BTreeSet::new());
        for (path, number, stretch, wait) in steps {
            let number = number * [1, 1, 3][stretch as usize];
            ms += f64::from(wait) / 4.0;
            expected.insert(number);
            bench.arrive(ms, PathId(path), number);
            prop_assert!(bench.hold.held_len() <= MOST_HELD);
            prop_assert_eq!(bench.hold.poll_timeout().is_some(), bench.hold.held_len() > 0);
        }
        bench.tick(ms + 1_000.0);
        prop_assert_eq!(bench.hold.held_len(), 0);
        let handed_on: std::collections::BTreeSet<u64> = bench.handed_on.iter().copied().collect();
        prop_assert_eq!(&handed_on, &expected);
        // Only numbers older than the window can come twice.
        let twice = bench.handed_on.len() - handed_on.len();
        prop_assert!(twice == 0 || expected.last() > Some(&WINDOW));
    }

    /// Numbers from the whole range neither panic nor pile up.
    #[test]
    fn any_numbers_are_bounded(numbers in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..20_000], 1..300)) {
        let mut bench = Bench::new(HoldClass::Full);
        for (step, number) in numbers.into_iter().enumerate() {
            bench.arrive(step as f64, PathId((step % 2) as u8), number.min(u64::MAX / 2));
            prop_assert!(bench.hold.held.len() <= WINDOW as usize + 1);
        }
    }
}
