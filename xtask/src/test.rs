//! `cargo xtask test`: every check, in the order that finds the cheap mistakes first.
//!
//! Each step is one cargo command. The first that breaks ends the run; what was left out, and what was skipped on
//! request, stands in the table at the end. The last line sums the tests of all test binaries.

mod report;
mod tally;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::cargo::{Tool, cargo, run_watched};
use crate::desktop;
use report::{Outcome, Report};
use tally::Tally;

/// What `cargo xtask test` is asked to do.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct TestArguments {
    /// Leave out what rarely breaks: doc tests, dependencies, documentation.
    #[arg(long)]
    quick: bool,
    /// Leave out the check of licences and sources, on a machine that can neither have nor install cargo-deny.
    #[arg(long)]
    skip_deny: bool,
}

/// One check.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    tool: Option<Tool>,
    /// Flags for rustdoc, empty for none.
    rustdoc_flags: &'static str,
    /// Whether the output holds test results to be summed.
    runs_tests: bool,
    /// Whether `--quick` leaves it out.
    slow: bool,
    /// Whether it concerns the desktop app, which needs more than Rust.
    desktop: bool,
}

/// What most steps are: nothing special.
const PLAIN: Step =
    Step { name: "", arguments: &[], tool: None, rustdoc_flags: "", runs_tests: false, slow: false, desktop: false };

/// The desktop app is built in a profile of its own, and apart from the rest, which needs no web view.
const STEPS: [Step; 10] = [
    Step { name: "format", arguments: &["fmt", "--all", "--check"], tool: Some(Tool::Rustfmt), ..PLAIN },
    Step {
        name: "lints",
        arguments: &["clippy", "--workspace", "--exclude", "tandem-desktop", "--all-targets", "--", "-D", "warnings"],
        tool: Some(Tool::Clippy),
        ..PLAIN
    },
    Step { name: "cases", arguments: &["run", "--quiet", "--package", "xtask", "--", "check-cases"], ..PLAIN },
    Step {
        name: "tests",
        arguments: &[
            "test",
            "--workspace",
            "--exclude",
            "tandem-desktop",
            "--lib",
            "--bins",
            "--tests",
            "--no-fail-fast",
        ],
        runs_tests: true,
        ..PLAIN
    },
    Step {
        name: "app: front end",
        arguments: &["run", "--quiet", "--package", "xtask", "--", "front-end"],
        desktop: true,
        ..PLAIN
    },
    Step {
        name: "app: lints",
        arguments: &[
            "clippy",
            "--package",
            "tandem-desktop",
            "--profile",
            "app",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        tool: Some(Tool::Clippy),
        desktop: true,
        ..PLAIN
    },
    Step {
        name: "app: tests",
        arguments: &["test", "--package", "tandem-desktop", "--profile", "app", "--no-fail-fast"],
        runs_tests: true,
        desktop: true,
        ..PLAIN
    },
    Step {
        name: "doc tests",
        arguments: &["test", "--workspace", "--exclude", "tandem-desktop", "--doc", "--no-fail-fast"],
        runs_tests: true,
        slow: true,
        ..PLAIN
    },
    Step {
        name: "dependencies",
        arguments: &["deny", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"],
        tool: Some(Tool::Deny),
        slow: true,
        ..PLAIN
    },
    Step {
        name: "documentation",
        arguments: &["doc", "--workspace", "--exclude", "tandem-desktop", "--no-deps"],
        rustdoc_flags: "-D warnings",
        slow: true,
        ..PLAIN
    },
];

/// Runs the checks and prints the table. Returns whether all that ran passed.
///
/// # Errors
/// Only when the run itself is impossible; a check that cannot be made is a broken step of the report.
pub(crate) fn run(arguments: &TestArguments) -> Result<bool> {
    let report = run_steps(&STEPS, arguments, desktop::missing().as_deref(), run_step);
    print!("{report}");
    Ok(report.is_success())
}

/// Walks through the steps until one breaks.
fn run_steps(
    steps: &[Step],
    arguments: &TestArguments,
    lacks_for_desktop: Option<&str>,
    mut run_step: impl FnMut(&Step, &mut Tally) -> Outcome,
) -> Report {
    let mut report = Report::default();
    for step in steps {
        let outcome = match skip_reason(step, arguments, lacks_for_desktop) {
            _ if report.is_broken() => Outcome::NotReached,
            Some(reason) => {
                println!("\n== {}: SKIPPED: {reason}", step.name);
                Outcome::Skipped(reason.to_owned())
            }
            None => {
                println!("\n== {}: cargo {}", step.name, step.arguments.join(" "));
                run_step(step, &mut report.tally)
            }
        };
        report.add(step.name, outcome);
    }
    report
}

fn skip_reason<'r>(step: &Step, arguments: &TestArguments, lacks_for_desktop: Option<&'r str>) -> Option<&'r str> {
    if step.desktop && lacks_for_desktop.is_some() {
        lacks_for_desktop
    } else if step.tool == Some(Tool::Deny) && arguments.skip_deny {
        Some("--skip-deny")
    } else if step.slow && arguments.quick {
        Some("--quick")
    } else {
        None
    }
}

fn run_step(step: &Step, total: &mut Tally) -> Outcome {
    let started = Instant::now();
    let mut tally = Tally::default();
    let ran = step.tool.map_or(Ok(()), Tool::ensure).and_then(|()| {
        let mut command = cargo(step.arguments);
        if !step.rustdoc_flags.is_empty() {
            command.env("RUSTDOCFLAGS", step.rustdoc_flags);
        }
        run_watched(&mut command, |line| {
            if step.runs_tests {
                tally.read_line(line);
            }
        })
    });
    conclude(step, ran, tally, total, started.elapsed())
}

/// Turns what a step's command came to into its outcome, and adds its tests to the total.
fn conclude(step: &Step, ran: Result<bool>, tally: Tally, total: &mut Tally, elapsed: Duration) -> Outcome {
    *total += tally;
    let cause = match ran {
        Ok(true) if step.runs_tests && tally.binaries == 0 => {
            total.failed += 1;
            "no test result was printed".into()
        }
        Ok(true) if tally.failed > 0 => format!("{} tests failed", tally.failed),
        Ok(true) => {
            println!("== {}: ok, {:.1} s", step.name, elapsed.as_secs_f64());
            return Outcome::Passed(elapsed);
        }
        Ok(false) if tally.failed > 0 => format!("{} tests failed", tally.failed),
        Ok(false) => {
            // A lint, a build error, a crash: nobody who reads only the last line may take it for a pass.
            total.failed += 1;
            format!("cargo {} failed", step.arguments[0])
        }
        Err(error) => {
            total.failed += 1;
            format!("{error:#}")
        }
    };
    println!("== {}: BROKEN, {:.1} s: {cause}", step.name, elapsed.as_secs_f64());
    Outcome::Broken(elapsed, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_broken_step_ends_the_run_and_names_what_was_not_reached() {
        let mut ran = Vec::new();
        let report = run_steps(&STEPS, &TestArguments::default(), None, |step, _| {
            ran.push(step.name);
            if step.name == "lints" {
                Outcome::Broken(SECOND, "cargo clippy failed".into())
            } else {
                Outcome::Passed(SECOND)
            }
        });
        assert_eq!(ran, ["format", "lints"]);
        assert!(!report.is_success());
        let text = report.to_string();
        assert!(text.contains("cargo clippy failed"), "{text}");
        assert_eq!(text.matches("not reached").count(), STEPS.len() - 2, "{text}");
    }

    #[test]
    fn a_quick_run_skips_the_slow_steps_and_says_so() {
        let arguments = TestArguments { quick: true, skip_deny: false };
        let report = run_steps(&STEPS, &arguments, None, |_, _| Outcome::Passed(SECOND));
        assert!(report.is_success());
        assert_eq!(report.to_string().matches("skipped: --quick").count(), 3);
    }

    #[test]
    fn skipping_the_dependency_check_skips_only_that() {
        let arguments = TestArguments { quick: false, skip_deny: true };
        let mut ran = Vec::new();
        let report = run_steps(&STEPS, &arguments, None, |step, _| {
            ran.push(step.name);
            Outcome::Passed(SECOND)
        });
        assert!(report.is_success());
        let all = STEPS.iter().map(|step| step.name);
        assert_eq!(ran, all.filter(|name| *name != "dependencies").collect::<Vec<_>>());
    }

    #[test]
    fn what_the_machine_lacks_for_the_desktop_app_skips_its_steps_alone() {
        let report = run_steps(&STEPS, &TestArguments::default(), Some("no node"), |step, _| {
            assert!(!step.desktop, "{}", step.name);
            Outcome::Passed(SECOND)
        });
        assert!(report.is_success());
        assert_eq!(report.to_string().matches("skipped: no node").count(), 3);
    }

    const TEST_STEP: &Step = &STEPS[3];

    #[test]
    fn a_command_that_breaks_without_a_failed_test_counts_as_a_failure() {
        let mut total = Tally::default();
        let outcome = conclude(TEST_STEP, Ok(false), Tally::default(), &mut total, SECOND);
        assert!(matches!(outcome, Outcome::Broken(..)));
        assert_eq!(total.failed, 1);
    }

    #[test]
    fn failed_tests_are_counted_once() {
        let mut total = Tally::default();
        let mut tally = Tally::default();
        tally.read_line("test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        let outcome = conclude(TEST_STEP, Ok(false), tally, &mut total, SECOND);
        assert!(matches!(outcome, Outcome::Broken(_, cause) if cause == "2 tests failed"));
        assert_eq!((total.passed, total.failed), (5, 2));
    }

    #[test]
    fn a_test_step_that_ran_no_test_binary_is_broken() {
        let outcome = conclude(TEST_STEP, Ok(true), Tally::default(), &mut Tally::default(), SECOND);
        assert!(matches!(outcome, Outcome::Broken(..)));
    }
}
