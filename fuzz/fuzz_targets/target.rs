//! One target of `tandem_testbed::fuzz` under libFuzzer: the one that the program is named after.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use tandem_testbed::fuzz::{self, Target};

static TARGET: OnceLock<&Target> = OnceLock::new();

fuzz_target!(
    init: {
        let target = fuzz::target(env!("CARGO_BIN_NAME")).expect("every program is named after a target");
        write_seeds(target);
        TARGET.set(target).expect("set once");
    },
    |input: &[u8]| (TARGET.get().expect("set before").run)(input)
);

/// Puts what to begin from where the fuzzer looks for it.
fn write_seeds(target: &Target) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    fs::create_dir_all(&corpus).expect("the corpus can be written");
    let kept = target.regressions().expect("kept inputs can be read");
    let inputs = (target.seeds)().into_iter().chain(kept.into_iter().map(|(_, input)| input));
    for (index, input) in inputs.enumerate() {
        fs::write(corpus.join(format!("seed-{index}")), input).expect("the corpus can be written");
    }
}
