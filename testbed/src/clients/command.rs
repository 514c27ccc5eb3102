//! The command line of the trials, behind `cargo xtask clients`: runs them one after another and prints a table.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;

use super::stand::installed;
use super::{Stand, TRIALS, Trial};
use crate::namespaces::Programs;

/// Drives other people's programs through the proxy: curl, git, pip, apt, ssh, Chromium and others, as far as installed.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask clients", bin_name = "cargo xtask clients")]
struct Arguments {
    /// Only the trials of these clients, for example curl [default: all]
    #[arg(value_name = "CLIENT")]
    clients: Vec<String>,
    /// List the trials with their commands and run none.
    #[arg(long)]
    list: bool,
    /// Fail if a trial is skipped for lack of a program.
    #[arg(long)]
    strict: bool,
}

/// What became of a trial.
enum Outcome {
    Passed(Duration),
    Failed(String),
    /// The programs that are not there.
    Skipped(Vec<&'static str>),
}

/// Runs what the command line asks for. Fails if a trial did.
pub fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask clients: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether no trial failed.
fn run(arguments: &Arguments) -> Result<bool> {
    let chosen = choose(&arguments.clients)?;
    if arguments.list {
        for (number, Trial { client, what, line, .. }) in chosen {
            println!("{number:>2} {client}: {what}\n   $ {line}");
        }
        return Ok(true);
    }
    let stand = Stand::build(&Programs::beside_this_one()?)?;
    let (mut failed, mut skipped, mut passed) = (0, 0, 0);
    for (number, trial) in chosen {
        let Trial { client, what, line, .. } = trial;
        let outcome = attempt(&stand, number, trial)?;
        let verdict = match &outcome {
            Outcome::Passed(took) => format!("ok {:>6.1} s", took.as_secs_f64()),
            Outcome::Failed(_) => "FAILED     ".to_owned(),
            Outcome::Skipped(_) => "SKIPPED    ".to_owned(),
        };
        println!("{number:>2} {verdict}  {client}: {what}\n   $ {line}");
        match outcome {
            Outcome::Passed(_) => passed += 1,
            Outcome::Failed(text) => {
                failed += 1;
                text.lines().for_each(|line| println!("     {line}"));
            }
            Outcome::Skipped(missing) => {
                skipped += 1;
                println!("     not installed: {}", missing.join(", "));
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0 && !(arguments.strict && skipped > 0))
}

fn attempt(stand: &Stand, number: usize, trial: &Trial) -> Result<Outcome> {
    let missing: Vec<_> = trial.needs.iter().copied().filter(|name| !installed(name)).collect();
    if !missing.is_empty() {
        return Ok(Outcome::Skipped(missing));
    }
    let started = Instant::now();
    let output = stand.shell(&format!("trial{number}"), trial.line)?.output()?;
    if output.status.success() {
        return Ok(Outcome::Passed(started.elapsed()));
    }
    let said = [&output.stdout[..], &output.stderr].concat();
    Ok(Outcome::Failed(format!("{}\n{}", output.status, String::from_utf8_lossy(&said).trim())))
}

/// The trials of these clients, with their numbers.
fn choose(clients: &[String]) -> Result<Vec<(usize, &'static Trial)>> {
    let wanted =
        |trial: &Trial| clients.is_empty() || clients.iter().any(|name| trial.client.eq_ignore_ascii_case(name));
    if let Some(unknown) =
        clients.iter().find(|name| !TRIALS.iter().any(|trial| trial.client.eq_ignore_ascii_case(name)))
    {
        let mut known: Vec<_> = TRIALS.iter().map(|trial| trial.client).collect();
        known.dedup();
        bail!("there is no trial of {unknown:?}; there are: {}", known.join(", "));
    }
    Ok((1..).zip(TRIALS).filter(|(_, trial)| wanted(trial)).collect())
}
