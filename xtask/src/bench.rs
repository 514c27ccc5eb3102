//! `cargo xtask bench`: what a gigabyte costs in processor time, beside a plain QUIC proxy.
//!
//! Builds the benchmark of the testbed as it would be shipped and runs it; what it measures and how stands there
//! (`testbed/benches/loopback`).

use std::ffi::OsString;

use anyhow::{Context, Result};
use clap::Args;

use crate::cargo::cargo;

/// What `cargo xtask bench` is asked to do.
#[derive(Args, Debug)]
pub(crate) struct BenchArguments {
    /// Handed on to the benchmark; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the benchmark. Returns whether it succeeded.
///
/// # Errors
/// When cargo cannot be started.
pub(crate) fn run(arguments: &BenchArguments) -> Result<bool> {
    let mut command = cargo(&["bench", "--quiet", "--package", "tandem-testbed", "--bench", "loopback", "--"]);
    let status = command.args(&arguments.arguments).status().context("cannot start cargo bench")?;
    Ok(status.success())
}
