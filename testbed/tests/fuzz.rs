//! Every fuzzing target on its kept inputs and on a row of changed valid ones: the same row in every run.
//!
//! `cargo xtask fuzz` looks longer and learns from coverage; what it finds is kept in `fuzz/regressions`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use allocation_counter::measure;
use tandem_testbed::fuzz::{self, Mutator, TARGETS, Target};

/// Tries one input; says what it was if something does not hold.
fn attempt(target: &Target, input: &[u8], origin: &str) {
    let mut outcome = Ok(());
    let used = measure(|| outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    let shown = || format!("{} on {origin}: {}", target.name, input.escape_ascii());
    assert!(outcome.is_ok(), "broken: {}", shown());
    let most = target.most_memory;
    assert!(used.bytes_max <= most, "{} of {most} bytes were kept: {}", used.bytes_max, shown());
}

fn explore(name: &str) {
    let target = fuzz::target(name).unwrap();
    let mut pool = (target.seeds)();
    for (index, seed) in pool.iter().enumerate() {
        // The first run sets up what lives as long as the program.
        (target.run)(seed);
        attempt(target, seed, &format!("seed {index}"));
    }
    for (path, input) in target.regressions().unwrap() {
        attempt(target, &input, &path.display().to_string());
        pool.push(input);
    }
    let mut mutator = Mutator::new(pool, 1);
    for number in 0..target.tries {
        attempt(target, &mutator.next_input(), &format!("try {number}"));
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        /// The targets that have a test here.
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            explore(stringify!($name));
        })*
    };
}

targets! { header control request frames pairing target link hold peers socks http config ask captive names settings token revoked }

#[test]
fn every_target_has_a_test() {
    let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(all, TESTED);
}
