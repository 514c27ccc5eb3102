//! Progress on standard error: a bar for each run on a terminal, else a line for each.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Plan;

/// The progress of all runs.
pub(super) struct Progress {
    runs: usize,
    begun: std::cell::Cell<usize>,
    terminal: bool,
}

/// The progress of one run.
pub(super) struct Run {
    /// `None` without a terminal.
    bar: Option<ProgressBar>,
    name: String,
}

impl Progress {
    pub(super) fn new(runs: usize) -> Self {
        Self { runs, begun: std::cell::Cell::new(0), terminal: io::stderr().is_terminal() }
    }

    /// Writes text as it is.
    pub(super) fn say(&self, text: &str) {
        // Nobody may be reading; the result is what counts.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    pub(super) fn begin(&self, plan: &Plan) -> Run {
        self.begun.set(self.begun.get() + 1);
        let number = self.begun.get();
        let name = format!("{number}/{}  {:<7} {:<13}", self.runs, plan.congestion, plan.mode.scheme());
        let bar = self.terminal.then(|| {
            let style = ProgressStyle::with_template("{prefix} {bar:30} {msg}").expect("the template is well-formed");
            let bar = ProgressBar::new(plan.time.as_millis() as u64).with_style(style);
            bar.with_prefix(name.clone()).with_message("connecting")
        });
        if let Some(bar) = &bar {
            bar.tick();
        }
        Run { bar, name }
    }
}

impl Run {
    /// Shows how far the run is, and the rate of late.
    pub(super) fn show(&self, elapsed: Duration, mbps: f64) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{mbps:5.1} Mbit/s"));
            bar.set_position(elapsed.as_millis() as u64);
        }
    }

    /// Shows the result.
    pub(super) fn end(self, mbps: f64) {
        match self.bar {
            Some(bar) => {
                bar.set_position(bar.length().unwrap_or_default());
                bar.abandon_with_message(format!("{mbps:5.1} Mbit/s"));
            }
            None => drop(writeln!(io::stderr(), "{} {mbps:5.1} Mbit/s", self.name)),
        }
    }
}
