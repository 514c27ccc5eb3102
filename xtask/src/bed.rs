//! `cargo xtask cases`: the cases of docs/CASES.md on real sockets, measured beside what is allowed.
//!
//! Builds the programs and the runner of the testbed in one go and starts it; what it does stands there
//! (`testbed/src/cases`), how to use it in docs/TESTBED.md.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::cargo::{cargo, workspace_root};

/// What `cargo xtask cases` is asked to do.
#[derive(Args, Debug)]
pub(crate) struct CasesArguments {
    /// How to build the programs: release, or dev, which takes less time to build; to be given first.
    #[arg(long, default_value = "release", value_name = "PROFILE")]
    profile: String,
    /// Handed on to the runner; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and runs the cases. Returns whether none was missed.
///
/// # Errors
/// When cargo or the runner cannot be started.
pub(crate) fn run(arguments: &CasesArguments) -> Result<bool> {
    run_built("tandem-cases", &arguments.profile, &arguments.arguments)
}

/// Builds the programs and the testbed's runners, and starts one of them. Returns whether it succeeded.
///
/// # Errors
/// When cargo or the runner cannot be started.
pub(crate) fn run_built(runner: &str, profile: &str, arguments: &[OsString]) -> Result<bool> {
    let Some(runner) = built(runner, profile)? else { return Ok(false) };
    let mut command = Command::new(&runner);
    command.args(arguments).current_dir(workspace_root());
    Ok(command.status().with_context(|| format!("cannot start {}", runner.display()))?.success())
}

/// Builds the programs and the testbed's runners; the path of one of them, or `None` if that failed.
///
/// # Errors
/// When cargo cannot be started.
pub(crate) fn built(runner: &str, profile: &str) -> Result<Option<PathBuf>> {
    let packages = ["--package", "tandem-cli", "--package", "tandem-relay", "--package", "tandem-testbed"];
    let mut build = cargo(&["build", "--quiet", "--bins"]);
    build.args(packages).args(["--profile", profile]);
    eprintln!("building the programs ({profile})");
    if !build.status().context("cannot start cargo build")?.success() {
        return Ok(None);
    }
    // The folder that cargo uses for a profile, which has a name of its own for dev alone.
    let folder = if profile == "dev" { "debug" } else { profile };
    let target = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"].into_iter().find_map(std::env::var_os);
    let target = target.map_or_else(|| workspace_root().join("target"), Into::into);
    Ok(Some(target.join(folder).join(runner)))
}
