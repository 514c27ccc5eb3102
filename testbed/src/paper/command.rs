//! The command line of the paper's experiments, behind `cargo xtask paper`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use super::figure::Figure;
use super::figures::FIGURES;
use super::point::Carrier;
use super::record::{BedKind, Records};
use super::run::{Bench, Job, Progress, commit, jobs, render};
use crate::namespaces::{Bed, KernelTcp, Programs, go_first};

/// Where results go, and where those of quick runs do.
const RESULTS: &str = "docs/results";
const QUICK_RESULTS: &str = "target/paper";

/// Runs the paper's experiments and lays the results beside what it states.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask paper", bin_name = "cargo xtask paper")]
struct Arguments {
    /// An experiment, by the paper's number or by its name; several times for several [default: all]
    #[arg(long = "figure", value_name = "FIGURE")]
    figures: Vec<String>,
    /// List the experiments and run none.
    #[arg(long)]
    list: bool,
    /// Run in virtual time, shorter and once, without root: CUBIC of the QUIC library stands in for the kernel's TCP.
    #[arg(long)]
    quick: bool,
    /// How often to run each point, each time with other chances [default: 3; with --quick 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: Option<u64>,
    /// Run points again that have been run; the newer run counts.
    #[arg(long)]
    again: bool,
    /// Run nothing: draw and write what there is.
    #[arg(long, conflicts_with = "again")]
    render: bool,
    /// Print each run as a line of JSON; progress goes to standard error in any case.
    #[arg(long)]
    json: bool,
    /// Where records, drawings and the page are [default: docs/results; with --quick target/paper]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
    /// Where the programs' logs go.
    #[arg(long, default_value = "target/paper/logs", value_name = "FOLDER")]
    logs: PathBuf,
}

/// Runs what the command line asks for. Fails if a run could not be made.
pub fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask paper: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every run was made.
fn run(arguments: Arguments) -> Result<bool> {
    let chosen = choose(&arguments.figures)?;
    if arguments.list {
        for Figure { id, title, citation, .. } in chosen {
            println!("{id:<11} {title} ({citation})");
        }
        return Ok(true);
    }
    let quick = arguments.quick;
    let folder = arguments.results.clone().unwrap_or_else(|| if quick { QUICK_RESULTS } else { RESULTS }.into());
    let mut records = Records::open(&folder.join("runs.jsonl"))?;
    let seeds: Vec<u64> = (1..=arguments.repeat.unwrap_or(if quick { 1 } else { 3 })).collect();
    let all = jobs(chosen.iter().copied(), quick, &seeds);
    let is_made = |(bed, point, seed): &Job| records.has(*bed, point, *seed);
    let wanted: Vec<Job> = match (arguments.render, arguments.again) {
        (true, _) => Vec::new(),
        (false, true) => all,
        (false, false) => {
            let (made, missing): (Vec<Job>, Vec<Job>) = all.into_iter().partition(is_made);
            let commit = commit();
            let of_others = made.iter().filter(|(bed, point, seed)| !records.is_of_commit(*bed, point, *seed, &commit));
            eprintln!("{} runs to be made, {} are there", missing.len(), made.len());
            match of_others.count() {
                0 => {}
                count => eprintln!("{count} of those are of another commit than {commit}; --again makes them anew"),
            }
            missing
        }
    };
    let mut failed = 0;
    if !wanted.is_empty() {
        let bench = bench(&arguments, &wanted)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        failed = runtime.block_on(async {
            tokio::select! {
                failed = run_all(&bench, &wanted, &mut records, arguments.json) => failed,
                _ = tokio::signal::ctrl_c() => bail!("interrupted; the next run goes on from here"),
            }
        })?;
    }
    for figure in chosen {
        let written = render(figure, &records, quick, &folder)?;
        eprintln!("{}: {}", folder.display(), written.join(", "));
    }
    if failed > 0 {
        eprintln!("{failed} runs could not be made; logs in {}", arguments.logs.display());
    }
    Ok(failed == 0)
}

/// What these runs need of the machine.
fn bench(arguments: &Arguments, wanted: &[Job]) -> Result<Bench> {
    let mut programs = None;
    if wanted.iter().any(|(bed, ..)| *bed == BedKind::Namespaces) {
        if let Some(lack) = Bed::lacks() {
            bail!("this machine lacks {lack}; run it with sudo, in a virtual machine, or with --quick");
        }
        programs = Some(Programs::beside_this_one()?);
        go_first();
        if !KernelTcp::Bbr.is_there() {
            eprintln!("this kernel's TCP has no BBR: its runs will be missing");
        }
    }
    // What is drawn later must lie where this was started.
    let logs = std::path::absolute(&arguments.logs).context("the folder of the logs")?;
    Ok(Bench::new(programs, logs))
}

/// Makes runs one after another. Returns how many failed.
async fn run_all(bench: &Bench, wanted: &[Job], records: &mut Records, json: bool) -> Result<usize> {
    let mut progress = Progress::new(wanted);
    let mut failed = 0;
    for (index, job) in wanted.iter().enumerate() {
        let (_, point, seed) = job;
        eprint!("[{}/{}, {} left] {point}, seed {seed}: ", index + 1, wanted.len(), progress.left());
        let began = Instant::now();
        match bench.run(job).await {
            Ok(record) => {
                let measured = &record.measured;
                let own = (point.carrier != Carrier::Nobody).then(|| format!("{:.1} Mbit/s", measured.goodput_mbps()));
                let rivals = measured.rivals_mbps.iter().map(|rate| format!("TCP {rate:.1}"));
                let rates: Vec<_> = own.into_iter().chain(rivals).collect();
                eprintln!("{} (load {:.1})", rates.join(", "), record.machine.load_before);
                let line = records.add(record)?;
                if json {
                    println!("{line}");
                }
            }
            Err(error) => {
                eprintln!("FAILED: {error:#}");
                failed += 1;
            }
        }
        progress.done(job, began);
    }
    Ok(failed)
}

/// The experiments that are meant by these words.
fn choose(words: &[String]) -> Result<Vec<&'static Figure>> {
    if words.is_empty() {
        return Ok(FIGURES.iter().collect());
    }
    let mut chosen: Vec<&Figure> = Vec::new();
    for word in words {
        let Some(figure) = FIGURES.iter().find(|figure| figure.is_meant(word)) else {
            bail!("there is no experiment {word:?}; --list shows them");
        };
        if !chosen.contains(&figure) {
            chosen.push(figure);
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_chosen_by_number_or_name_once() {
        let ids = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(ToString::to_string).collect();
            choose(&words).map(|chosen| chosen.iter().map(|figure| figure.id).collect::<Vec<_>>())
        };
        assert_eq!(ids(&["9", "15", "8"]).unwrap(), ["8-9", "15"]);
        assert_eq!(ids(&["unequal"]).unwrap(), ["unequal"]);
        assert_eq!(ids(&[]).unwrap().len(), FIGURES.len());
        assert!(ids(&["13"]).unwrap_err().to_string().contains("\"13\""));
    }
}
