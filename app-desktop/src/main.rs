//! `tandem-desktop`: the desktop app.

#![cfg_attr(windows, windows_subsystem = "windows")]

use std::process::ExitCode;

use clap::Parser as _;
use tandem_desktop::Options;

fn main() -> ExitCode {
    match tandem_desktop::run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            eprintln!("tandem-desktop: {error:#}");
            ExitCode::FAILURE
        }
    }
}
