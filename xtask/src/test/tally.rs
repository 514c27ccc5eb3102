//! Sums the closing lines of Rust test binaries.

use std::ops::AddAssign;

/// How many tests ended how, over any number of test binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Test binaries (or doc test runs) that printed a result.
    pub(super) binaries: u32,
    /// Tests that passed.
    pub(super) passed: u32,
    /// Tests that failed.
    pub(super) failed: u32,
    /// Tests that were ignored.
    pub(super) skipped: u32,
}

impl Tally {
    /// Takes in one line of output; all but a binary's closing line leave the tally as it is.
    pub(super) fn read_line(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        // "ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s"; "ok" may be coloured.
        let words: Vec<&str> = counts.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        let count =
            |what: &str| words.windows(2).find(|pair| pair[1] == what).and_then(|pair| pair[0].parse::<u32>().ok());
        if let (Some(passed), Some(failed), Some(ignored)) = (count("passed"), count("failed"), count("ignored")) {
            self.binaries += 1;
            self.passed += passed;
            self.failed += failed;
            self.skipped += ignored;
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.binaries += other.binaries;
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_several_binaries_are_summed() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests",
            "test a_test_with_9_passed_in_its_name ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: \u{1b}[31mFAILED\u{1b}[0m. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.01s",
        ] {
            tally.read_line(line);
        }
        assert_eq!(tally, Tally { binaries: 2, passed: 13, failed: 2, skipped: 1 });
    }

    #[test]
    fn a_line_without_all_counts_is_no_result() {
        let mut tally = Tally::default();
        tally.read_line("test result: ok. many passed");
        assert_eq!(tally, Tally::default());
    }
}
