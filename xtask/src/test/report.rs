//! What a run of the checks came to: a table of steps with their times, then the sum of all tests.

use std::fmt;
use std::time::Duration;

use super::tally::Tally;

/// How one step ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// It ran for this long and found nothing.
    Passed(Duration),
    /// It ran for this long and found something, or could not run; with the cause.
    Broken(Duration, String),
    /// It was left out; with the option that asked for it, or what this machine lacks.
    Skipped(String),
    /// An earlier step broke.
    NotReached,
}

/// All steps of a run, in order.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The tests of all test binaries. A step that breaks without a failed test counts as one failure.
    pub(super) tally: Tally,
    steps: Vec<(&'static str, Outcome)>,
}

impl Report {
    pub(super) fn add(&mut self, name: &'static str, outcome: Outcome) {
        self.steps.push((name, outcome));
    }

    pub(super) fn is_broken(&self) -> bool {
        self.steps.iter().any(|(_, outcome)| matches!(outcome, Outcome::Broken(..)))
    }

    /// Whether at least one step ran and none broke.
    pub(super) fn is_success(&self) -> bool {
        !self.is_broken() && self.steps.iter().any(|(_, outcome)| matches!(outcome, Outcome::Passed(_)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:<16}{:>9}  result", "step", "seconds")?;
        let mut total = Duration::ZERO;
        for (name, outcome) in &self.steps {
            let (elapsed, result) = match outcome {
                Outcome::Passed(elapsed) => (Some(*elapsed), "ok".to_string()),
                Outcome::Broken(elapsed, cause) => (Some(*elapsed), format!("BROKEN: {cause}")),
                Outcome::Skipped(reason) => (None, format!("skipped: {reason}")),
                Outcome::NotReached => (None, "not reached".to_string()),
            };
            total += elapsed.unwrap_or_default();
            let seconds = elapsed.map_or("-".to_string(), |time| format!("{:.1}", time.as_secs_f64()));
            writeln!(f, "{name:<16}{seconds:>9}  {result}")?;
        }
        writeln!(
            f,
            "{:<16}{:>9.1}  {}",
            "total",
            total.as_secs_f64(),
            if self.is_success() { "ok" } else { "BROKEN" }
        )?;
        writeln!(f, "{} passed, {} failed, {} skipped", self.tally.passed, self.tally.failed, self.tally.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_sums_the_tests() {
        let mut report = Report { tally: Tally { binaries: 2, passed: 12, failed: 0, skipped: 3 }, steps: Vec::new() };
        report.add("tests", Outcome::Passed(Duration::from_millis(1500)));
        let text = report.to_string();
        assert_eq!(text.lines().last(), Some("12 passed, 0 failed, 3 skipped"));
        assert!(text.contains("tests                 1.5  ok"), "{text}");
    }

    #[test]
    fn a_run_of_nothing_but_skips_is_no_success() {
        let mut report = Report::default();
        report.add("tests", Outcome::Skipped("--quick".into()));
        assert!(!report.is_success());
    }
}
