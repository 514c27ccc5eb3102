//! The hold: every number is handed on once, nothing waits for ever, and what waits is bounded.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tandem_proto::hold::{Arrival, Hold, LONGEST_HOLD, MOST_HELD, WINDOW};
use tandem_proto::wire::control::PathId;
use tandem_proto::wire::header::HoldClass;

use super::input::Input;

const FAST_RTT: Duration = Duration::from_millis(20);

/// A hold and what it has handed on.
struct World {
    hold: Hold,
    now: Instant,
    /// Numbers that were taken and not yet handed on.
    waiting: BTreeSet<u64>,
    handed_on: BTreeSet<u64>,
    /// Some number lay so far off that copies cannot be told apart any more.
    strayed: bool,
}

impl World {
    fn accept(&mut self, path: PathId, number: u64, class: HoldClass) {
        let expected = self.hold.expected();
        let is_first = self.waiting.is_empty() && self.handed_on.is_empty();
        self.strayed |= (!is_first && expected.abs_diff(number) >= WINDOW) || number >= u64::MAX - 2 * WINDOW;
        let arrival = self.hold.accept(path, number, class, &number.to_be_bytes(), self.now);
        let known = self.waiting.contains(&number) || self.handed_on.contains(&number);
        match arrival {
            Arrival::Now => self.hand_on(number),
            Arrival::Held => assert!(self.waiting.insert(number), "{number} is held twice"),
            Arrival::Copy | Arrival::Replay => assert!(known, "{number} was never seen, and dropped"),
        }
        self.release();
    }

    fn hand_on(&mut self, number: u64) {
        assert!(self.handed_on.insert(number) || self.strayed, "{number} is handed on twice");
    }

    fn release(&mut self) {
        let mut last = None;
        while let Some(held) = self.hold.pop_ready(FAST_RTT, self.now) {
            let number = u64::from_be_bytes(held.bytes[..].try_into().expect("eight bytes"));
            assert!(self.waiting.remove(&number), "{number} did not wait");
            assert!(last.is_none_or(|last| last < number), "{number} after {last:?}");
            last = Some(number);
            self.hand_on(number);
            self.hold.recycle(held);
        }
        assert_eq!(self.hold.held_len(), self.waiting.len());
        assert!(self.waiting.len() <= MOST_HELD, "{} wait", self.waiting.len());
        assert_eq!(self.hold.poll_timeout().is_some(), !self.waiting.is_empty());
        if let Some(at) = self.hold.poll_timeout() {
            assert!(
                at > self.now && at <= self.now + LONGEST_HOLD,
                "the next look is in {:?}",
                at.checked_duration_since(self.now)
            );
        }
    }
}

pub(super) fn run(bytes: &[u8]) {
    let now = Instant::now();
    let mut input = Input::new(bytes);
    let mut world =
        World { hold: Hold::new(now), now, waiting: BTreeSet::new(), handed_on: BTreeSet::new(), strayed: false };
    let mut sent = input.u64();
    if input.u8() & 1 == 0 {
        sent &= 0xffff;
    }
    while !input.is_empty() {
        let act = input.u8();
        let path = PathId(act & 7);
        let class = [HoldClass::None, HoldClass::Full, HoldClass::Short][usize::from(act >> 3) % 3];
        match input.below(12) {
            0..5 => {
                sent = sent.saturating_add(1);
                world.accept(path, sent, class);
            }
            5 => {
                sent = sent.saturating_add(u64::from(input.u8()));
                world.accept(path, sent, class);
            }
            6 => world.accept(path, sent.saturating_sub(u64::from(input.u16())), class),
            7 => {
                world.now += Duration::from_millis(u64::from(input.u8()));
                world.release();
            }
            8 => world.hold.set_reordering(path, Duration::from_micros(u64::from(input.u16()))),
            9 => world.hold.set_lag_hint(path, Duration::from_micros(u64::from(input.u16()) * 8)),
            10 => world.hold.expect(path, input.u8() & 1 == 0),
            _ => match input.u8() {
                0..16 => world.accept(path, input.u64(), class),
                16..32 => world.hold.forget_path(path),
                more => (0..u64::from(more)).for_each(|number| {
                    world.accept(path, sent.saturating_add(2 * number), class);
                }),
            },
        }
    }
    world.now += LONGEST_HOLD;
    world.release();
    assert!(world.waiting.is_empty(), "{:?} wait for ever", world.waiting);
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let head = [0, 0, 0, 0, 0, 0, 0, 9, 0];
    let in_order = (0..60).flat_map(|number| [number % 16, 0]);
    let gaps = (0..60).flat_map(|number| if number % 7 == 0 { vec![8, 5, 3] } else { vec![number % 16, 1] });
    let late = (0..40).flat_map(|number| if number % 5 == 0 { vec![9, 6, 0, 4] } else { vec![8, 2] });
    let slow = (0..40).flat_map(|number| if number % 4 == 0 { vec![9, 7, 30] } else { vec![8, 5, 2] });
    let full = (0..40).flat_map(|_| vec![8, 11, 255, 8, 5, 255]);
    let far = (0..12).flat_map(|number| vec![8, 11, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf0 + number]);
    let with = |steps: &mut dyn Iterator<Item = u8>| head.into_iter().chain(steps).collect();
    vec![
        with(&mut { in_order }),
        with(&mut { gaps }),
        with(&mut { late }),
        with(&mut { slow }),
        with(&mut { full }),
        with(&mut { far }),
    ]
}
