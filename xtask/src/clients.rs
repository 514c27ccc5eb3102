//! `cargo xtask clients`: other people's programs through the proxy, with the commands that a user would type.
//!
//! Builds the programs and the runner of the testbed and starts it; what it does stands there (`testbed/src/clients`).

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;

use crate::bed::run_built;

/// What `cargo xtask clients` is asked to do.
#[derive(Args, Debug)]
pub(crate) struct ClientsArguments {
    /// How to build the programs: dev, or release; to be given first.
    #[arg(long, default_value = "dev", value_name = "PROFILE")]
    profile: String,
    /// Handed on to the runner; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and runs the trials. Returns whether none failed.
///
/// # Errors
/// When cargo or the runner cannot be started.
pub(crate) fn run(arguments: &ClientsArguments) -> Result<bool> {
    run_built("tandem-clients", &arguments.profile, &arguments.arguments)
}
