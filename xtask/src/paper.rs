//! `cargo xtask paper`: the paper's experiments on our beds, laid beside what it states.
//!
//! Builds the programs and the runner of the testbed and starts it; what it does stands there (`testbed/src/paper`), how to use
//! it in docs/TESTBED.md.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;

use crate::bed::run_built;

/// What `cargo xtask paper` is asked to do.
#[derive(Args, Debug)]
pub(crate) struct PaperArguments {
    /// How to build: release, or dev, which takes less time to build; to be given first [default: release, with --quick dev]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Handed on to the runner; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and runs the experiments. Returns whether every run was made.
///
/// # Errors
/// When cargo or the runner cannot be started.
pub(crate) fn run(arguments: &PaperArguments) -> Result<bool> {
    let quick = arguments.arguments.iter().any(|argument| argument == "--quick");
    let profile = arguments.profile.as_deref().unwrap_or(if quick { "dev" } else { "release" });
    run_built("tandem-paper", profile, &arguments.arguments)
}
