//! `cargo xtask`: the tasks of this workspace that take more than one cargo command.
//!
//! `test` is what a change must pass before it lands, and what continuous integration runs. Nothing here is shipped.

mod bed;
mod bench;
mod cargo;
mod cases;
mod clients;
mod desktop;
mod fuzz;
mod man;
mod paper;
mod targets;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the Tandem workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check: format, lints, tests, dependencies, documentation.
    ///
    /// Installs what this machine lacks (rustfmt, clippy, cargo-deny) and says so. Stops at the first step that
    /// breaks and tells which steps were left out.
    Test(test::TestArguments),
    /// Check that the tests named in docs/CASES.md exist; a step of `test`.
    #[command(hide = true)]
    CheckCases,
    /// Try cases of docs/CASES.md on real sockets, in network namespaces (needs root): measured beside allowed.
    #[command(disable_help_flag = true)]
    Cases(bed::CasesArguments),
    /// Run the paper's experiments in network namespaces (needs root) and lay the results beside what it states; with
    /// `--quick` in virtual time.
    #[command(disable_help_flag = true)]
    Paper(paper::PaperArguments),
    /// Drive other people's programs through the proxy, as far as installed: curl, git, pip, apt, ssh, Chromium.
    #[command(disable_help_flag = true)]
    Clients(clients::ClientsArguments),
    /// Measure processor time per gigabyte on loopback, beside a plain QUIC proxy; with `memory`, the programs' memory.
    #[command(disable_help_flag = true)]
    Bench(bench::BenchArguments),
    /// Let libFuzzer look for inputs that break a parser or state machine.
    ///
    /// Installs cargo-fuzz if it is missing. What it finds lies in fuzz/artifacts.
    Fuzz(fuzz::FuzzArguments),
    /// Write man pages and shell completions to target/man and target/completions.
    Man,
    /// Build the desktop app's front end and run its tests; a step of `test`.
    #[command(hide = true)]
    FrontEnd,
    /// Write pictures of the desktop app's screens to docs/screenshots, in light and dark (Linux).
    Screenshots,
    /// Measure what the desktop app costs in memory and processor time, hidden and shown, beside the engine alone (Linux).
    AppCosts(desktop::CostsArguments),
    /// Build the desktop app's packages into target/dist (Linux).
    Dist(desktop::DistArguments),
    /// Type-check for every system that the project means to run on, and say which could not be checked here.
    CheckTargets,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test(arguments) => test::run(&arguments),
        Task::CheckCases => cases::check(),
        Task::Cases(arguments) => bed::run(&arguments),
        Task::Paper(arguments) => paper::run(&arguments),
        Task::Clients(arguments) => clients::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Man => man::run(),
        Task::CheckTargets => targets::run(),
        Task::FrontEnd => desktop::front_end(),
        Task::Screenshots => desktop::screenshots(),
        Task::AppCosts(arguments) => desktop::costs(&arguments),
        Task::Dist(arguments) => desktop::dist(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
