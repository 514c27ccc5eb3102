//! `cargo xtask bench`: what a gigabyte costs in processor time, beside a plain QUIC proxy; and with `memory`, how much memory
//! the programs take.
//!
//! Builds the benchmarks of the testbed as they would be shipped and runs them; what they measure and how stands there
//! (`testbed/benches/loopback`, `testbed/src/bin/memory.rs`).

use std::ffi::OsString;

use anyhow::{Context, Result};
use clap::Args;

use crate::cargo::cargo;

/// What `cargo xtask bench` is asked to do.
#[derive(Args, Debug)]
pub(crate) struct BenchArguments {
    /// Handed on to the benchmark; `--help` lists them. If the first is `memory`, memory is measured rather than time.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the benchmark. Returns whether it succeeded.
///
/// # Errors
/// When cargo cannot be started.
pub(crate) fn run(arguments: &BenchArguments) -> Result<bool> {
    if let Some((_, rest)) = arguments.arguments.split_first().filter(|(first, _)| *first == "memory") {
        return crate::bed::run_built("tandem-memory", "release", rest);
    }
    let mut command = cargo(&["bench", "--quiet", "--package", "tandem-testbed", "--bench", "loopback", "--"]);
    let status = command.args(&arguments.arguments).status().context("cannot start cargo bench")?;
    Ok(status.success())
}
