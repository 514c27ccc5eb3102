//! `tandem doctor`: what stands between this machine and its relay, and what to do about it.
//!
//! Finds out the facts as `tandem run` with the same flags would meet them ([`tandem_core::client::doctor`]), and puts the
//! findings into [`words`], a line each. Progress goes to standard error: a changing line on a terminal, else one line a
//! step. With `--json` the findings are one object. The program ends with 1 if something must be done.

mod words;

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;
use tandem_core::client::doctor::{Finding, Plan, Progress, Step, Verdict, examine, judge};
use tandem_core::config::Config;
use tandem_core::platform::System;
use tandem_core::print::print;

use self::words::Words;
use crate::args::DoctorOptions;
use crate::shutdown::Signals;

/// How often the sign of life turns.
const TURN: Duration = Duration::from_millis(100);

pub(crate) async fn run(options: DoctorOptions, control: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("signals cannot be awaited")?;
    let (full, json) = (options.full, options.json);
    let plan = plan(options, control);
    let display = Display::new();
    let facts = tokio::select! {
        facts = examine(plan, Arc::new(System), display.progress()) => facts,
        () = signals.next() => anyhow::bail!("stopped before the end"),
    };
    display.end();
    let findings: Vec<_> = judge(&facts).into_iter().map(Worded::of).collect();
    let worst = findings.iter().map(|worded| worded.finding.verdict).max().unwrap_or(Verdict::Ok);
    if json {
        print(&(serde_json::to_string_pretty(&Report { verdict: worst, findings })? + "\n"))?;
    } else {
        print(&styled(&text(&findings, full)))?;
    }
    Ok(if worst == Verdict::Problem { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What `tandem run` would work with.
fn plan(options: DoctorOptions, control: Option<PathBuf>) -> Plan {
    let DoctorOptions { full, setup, .. } = options;
    let loaded = setup.config.as_deref().map(Config::load).transpose();
    let (file, config) = match loaded {
        Ok(file) => (file.unwrap_or_default(), setup.config.clone().map(Ok)),
        Err(error) => (Config::default(), Some(Err(format!("{:#}", anyhow::Error::from(error))))),
    };
    let links =
        setup.links(&file).map(|paired| paired.pairings.list().iter().map(|known| known.link.clone()).collect());
    let mut listen: Vec<SocketAddr> = vec![setup.listen(&file)];
    listen.extend(file.forwards.iter().map(|forward| forward.listen));
    Plan {
        config,
        links: links.map_err(|error| format!("{error:#}")),
        listen,
        networks: file.networks,
        state: setup.state(),
        interfaces: setup.interfaces(file.interfaces),
        control,
        full,
    }
}

/// The findings as programs get them.
#[derive(Serialize)]
struct Report {
    /// The worst of the findings'.
    verdict: Verdict,
    findings: Vec<Worded>,
}

/// A finding with its words.
#[derive(Serialize)]
struct Worded {
    #[serde(flatten)]
    finding: Finding,
    #[serde(flatten)]
    words: Words,
}

impl Worded {
    fn of(finding: Finding) -> Self {
        let words = words::of(&finding);
        Self { finding, words }
    }
}

fn text(findings: &[Worded], full: bool) -> String {
    let mut text = String::new();
    for Worded { finding, words } in findings {
        let (verdict, style) = match finding.verdict {
            Verdict::Ok => ("ok", Style::new().fg_color(Some(AnsiColor::Green.into()))),
            Verdict::Warning => ("warning", Style::new().fg_color(Some(AnsiColor::Yellow.into()))),
            Verdict::Problem => ("problem", Style::new().fg_color(Some(AnsiColor::Red.into())).bold()),
        };
        text += &format!("{style}{verdict:<8}{style:#} {}: {}", words.about, words.text);
        if let Some(advice) = &words.advice {
            text += &format!("; {advice}");
        }
        text.push('\n');
    }
    let count = |verdict| findings.iter().filter(|worded| worded.finding.verdict == verdict).count();
    let several = |count: usize, what: &str| match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
    text += &format!("\n{}, {}", several(problems, "problem"), several(warnings, "warning"));
    if !full && problems == 0 {
        text += "; with --full also how long each network stays open in silence (a minute)";
    }
    text.push('\n');
    text
}

/// Colours where standard output shows them, else none.
fn styled(text: &str) -> String {
    match AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
        _ => text.to_owned(),
    }
}

/// What is being done, on standard error.
struct Display {
    bar: Option<ProgressBar>,
}

impl Display {
    fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(TURN);
            bar
        });
        Self { bar }
    }

    fn progress(&self) -> Progress {
        let bar = self.bar.clone();
        let last = Mutex::new(None);
        Arc::new(move |step| match &bar {
            Some(bar) => bar.set_message(step_words(step)),
            None => {
                // A countdown is no line a second in a log.
                let kind = std::mem::discriminant(&step);
                if last.lock().replace(kind) != Some(kind) {
                    // Nobody may be reading; the findings are what counts.
                    let _ = writeln!(io::stderr(), "{}", step_words(step));
                }
            }
        })
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn step_words(step: Step) -> String {
    match step {
        Step::Machine => "looking at this machine".to_owned(),
        Step::Names => "looking the relay up".to_owned(),
        Step::Ways(1) => "reaching the relay by the one way there is".to_owned(),
        Step::Ways(count) => format!("reaching the relay by {count} ways"),
        Step::Silence(left) => format!("waiting in silence: {} s left", left.as_secs()),
    }
}
