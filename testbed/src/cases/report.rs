//! What cases have come to, as a table for people and as JSON for programs.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// What a measured value may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Allowed {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// Anything: a figure that explains others.
    Anything,
}

/// One measured value beside what is allowed.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What was measured.
    pub what: String,
    /// The value.
    pub measured: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What it may be.
    pub allowed: Allowed,
}

impl Check {
    /// A value that must not be exceeded.
    pub fn at_most(what: impl Into<String>, measured: f64, allowed: f64, unit: &'static str) -> Self {
        Self { what: what.into(), measured, unit, allowed: Allowed::AtMost(allowed) }
    }

    /// A value that must be reached.
    pub fn at_least(what: impl Into<String>, measured: f64, allowed: f64, unit: &'static str) -> Self {
        Self { what: what.into(), measured, unit, allowed: Allowed::AtLeast(allowed) }
    }

    /// A value that is only told.
    pub fn figure(what: impl Into<String>, measured: f64, unit: &'static str) -> Self {
        Self { what: what.into(), measured, unit, allowed: Allowed::Anything }
    }

    /// A time that must not be exceeded, in milliseconds.
    pub fn within(what: impl Into<String>, measured: Duration, allowed: Duration) -> Self {
        Self::at_most(what, measured.as_secs_f64() * 1e3, allowed.as_secs_f64() * 1e3, "ms")
    }

    /// Something that must be so.
    pub fn holds(what: impl Into<String>, holds: bool) -> Self {
        Self::at_least(what, f64::from(u8::from(holds)), 1.0, "(1: yes)")
    }

    /// Whether the value is allowed.
    pub fn verdict(&self) -> Verdict {
        let kept = match self.allowed {
            Allowed::AtMost(limit) => self.measured <= limit,
            Allowed::AtLeast(limit) => self.measured >= limit,
            Allowed::Anything => return Verdict::Figure,
        };
        if kept { Verdict::Ok } else { Verdict::Missed }
    }
}

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Within what is allowed.
    Ok,
    /// Not.
    Missed,
    /// Nothing was asked.
    Figure,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Ok => "ok",
            Verdict::Missed => "MISSED",
            Verdict::Figure => "",
        })
    }
}

/// What became of a case.
#[derive(Debug)]
pub struct Outcome {
    /// The case's code.
    pub code: &'static str,
    /// What was measured, or why it could not be.
    pub result: anyhow::Result<Vec<Check>>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Whether nothing was missed.
    pub fn is_good(&self) -> bool {
        self.result.as_ref().is_ok_and(|checks| checks.iter().all(|check| check.verdict() != Verdict::Missed))
    }
}

/// Prints a case's rows: case, what, measured, allowed, verdict.
pub fn print_table(outcome: &Outcome) {
    match &outcome.result {
        Ok(checks) => {
            for check in checks {
                let allowed = match check.allowed {
                    Allowed::AtMost(limit) => format!("<= {}", number(limit)),
                    Allowed::AtLeast(limit) => format!(">= {}", number(limit)),
                    Allowed::Anything => String::new(),
                };
                let (code, what, measured) = (outcome.code, &check.what, number(check.measured));
                println!("{code:<9} {what:<62} {measured:>9} {allowed:>11} {:<8} {}", check.unit, check.verdict());
            }
        }
        Err(error) => println!("{:<9} MISSED: {error:#}", outcome.code),
    }
}

/// As many digits as say something.
fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value.abs() < 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

/// A case as an object for programs.
pub fn to_json(outcome: &Outcome) -> Value {
    let checks = |checks: &[Check]| {
        checks
            .iter()
            .map(|check| {
                let (at_most, at_least) = match check.allowed {
                    Allowed::AtMost(limit) => (Some(limit), None),
                    Allowed::AtLeast(limit) => (None, Some(limit)),
                    Allowed::Anything => (None, None),
                };
                json!({
                    "what": check.what,
                    "measured": check.measured,
                    "unit": check.unit,
                    "at_most": at_most,
                    "at_least": at_least,
                    "missed": check.verdict() == Verdict::Missed,
                })
            })
            .collect::<Vec<_>>()
    };
    json!({
        "case": outcome.code,
        "ok": outcome.is_good(),
        "took_s": outcome.took.as_secs_f64(),
        "checks": outcome.result.as_deref().map(checks).unwrap_or_default(),
        "error": outcome.result.as_ref().err().map(|error| format!("{error:#}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_good_if_nothing_is_missed() {
        let outcome = |result| Outcome { code: "PATH-1", result, took: Duration::ZERO };
        let ok = Check::at_most("a", 1.0, 1.0, "ms");
        let missed = Check::at_least("b", 0.9, 1.0, "ms");
        assert!(outcome(Ok(vec![ok.clone(), Check::figure("c", 3.0, "ms")])).is_good());
        assert!(!outcome(Ok(vec![ok, missed])).is_good());
        assert!(!outcome(Err(anyhow::anyhow!("no bed"))).is_good());
    }

    #[test]
    fn a_value_that_is_no_number_is_missed() {
        assert_eq!(Check::at_most("a", f64::NAN, 1.0, "ms").verdict(), Verdict::Missed);
        assert_eq!(Check::at_least("a", f64::NAN, 1.0, "ms").verdict(), Verdict::Missed);
    }
}
