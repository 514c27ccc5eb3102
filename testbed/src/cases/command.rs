//! The command line of the cases, behind `cargo xtask cases`: which to run, and how to print what came of them.
//!
//! Needs root. One case at a time on a machine: other runs wait for it, as each would measure the other.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use super::{Case, Context, Outcome};
use crate::namespaces::{Bed, Programs, Turn, go_first};
use anyhow::{Result, bail};
use clap::Parser;

/// Tries cases of docs/CASES.md on real sockets, in network namespaces.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask cases", bin_name = "cargo xtask cases")]
struct Arguments {
    /// The cases to run, for example MULTI-1, or the beginnings of their codes, for example CC [default: all with a code]
    #[arg(value_name = "CODE")]
    codes: Vec<String>,
    /// List the cases and run none.
    #[arg(long)]
    list: bool,
    /// Print the results as JSON; progress goes to standard error in any case.
    #[arg(long)]
    json: bool,
    /// Take less time: one run where three are compared, shorter waits.
    #[arg(long)]
    quick: bool,
    /// Where the chances of the links come from.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Where the programs' logs go, in a folder for each case.
    #[arg(long, default_value = "target/cases", value_name = "FOLDER")]
    logs: PathBuf,
}

/// Runs what the command line asks for. Fails if a case missed something, or could not be run.
pub fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask cases: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether no case missed anything.
fn run(arguments: Arguments) -> Result<bool> {
    if arguments.list {
        for Case { code, what, .. } in super::all() {
            println!("{code:<9} {what}");
        }
        return Ok(true);
    }
    let chosen = choose(&arguments.codes)?;
    if let Some(lack) = Bed::lacks() {
        bail!("this machine lacks {lack}; run it with sudo, or in a virtual machine");
    }
    let programs = Programs::beside_this_one()?;
    go_first();
    // Servers and applications of a thousand connections are in this process.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut outcomes = Vec::new();
        for case in chosen {
            let context = Context {
                programs: programs.clone(),
                quick: arguments.quick,
                seed: arguments.seed,
                logs: arguments.logs.clone(),
                code: case.code,
            };
            let outcome = tokio::select! {
                outcome = alone(case, context) => outcome?,
                _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            };
            if !arguments.json {
                super::print_table(&outcome);
            }
            outcomes.push(outcome);
        }
        let missed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.is_good()).map(|outcome| outcome.code).collect();
        if arguments.json {
            println!("{:#}", serde_json::Value::from(outcomes.iter().map(super::to_json).collect::<Vec<_>>()));
        } else if missed.is_empty() {
            println!("{} cases, none missed", outcomes.len());
        } else {
            println!("{} cases, missed: {}; logs in {}", outcomes.len(), missed.join(" "), arguments.logs.display());
        }
        Ok(missed.is_empty())
    })
}

/// Runs a case while no other run on this machine does.
async fn alone(case: &Case, context: Context) -> Result<Outcome> {
    let _turn = Turn::wait(case.code).await?;
    eprintln!("{}: {}", case.code, case.what);
    let started = Instant::now();
    let result = (case.run)(context).await;
    Ok(Outcome { code: case.code, result, took: started.elapsed() })
}

/// The cases of those codes, or that begin with them.
fn choose(codes: &[String]) -> Result<Vec<&'static Case>> {
    if codes.is_empty() {
        return Ok(super::with_codes().collect());
    }
    let mut chosen: Vec<&Case> = Vec::new();
    for code in codes {
        let wanted = code.to_ascii_uppercase();
        let family = format!("{}-", wanted.trim_end_matches('-'));
        let before = chosen.len();
        chosen.extend(super::all().filter(|case| case.code == wanted || case.code.starts_with(&family)));
        if chosen.len() == before {
            bail!("there is no case {code:?} on the bed; --list shows them");
        }
    }
    Ok(chosen)
}
