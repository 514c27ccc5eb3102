//! `cargo xtask fuzz`: libFuzzer on the targets of `fuzz/`, for as long as is wanted.
//!
//! Needs `cargo fuzz` (installed if it is missing) and a C++ compiler. What it finds lies in `fuzz/artifacts`; once mended,
//! the input goes to `fuzz/regressions/TARGET`, where the tests try it as well. How fast a target is and how much of its
//! code it reached is in libFuzzer's last lines.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cargo::{Tool, cargo, workspace_root};

/// Memory at which a target counts as broken, in MB: the most that one may use is 16, and libFuzzer keeps the corpus.
const MEMORY_LIMIT_MB: u32 = 1_024;
/// Seconds after which one input counts as endless.
const INPUT_LIMIT: u32 = 20;
/// Bytes of the longest input.
const LONGEST_INPUT: u32 = 4_096;

/// What `cargo xtask fuzz` is asked to do.
#[derive(Args, Debug)]
pub(crate) struct FuzzArguments {
    /// The target; all of them one after the other if none is given.
    target: Option<String>,
    /// How long each runs.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    seconds: u32,
}

/// Runs the targets. Returns whether nothing was found.
///
/// # Errors
/// When cargo or the tool cannot be started, or there is no such target.
pub(crate) fn run(arguments: &FuzzArguments) -> Result<bool> {
    Tool::Fuzz.ensure()?;
    let all = targets()?;
    let chosen: Vec<_> = match &arguments.target {
        None => all,
        Some(name) if all.contains(name) => vec![name.clone()],
        Some(name) => bail!("there is no target {name}; there are: {}", all.join(", ")),
    };
    let mut clean = true;
    for target in chosen {
        println!("== {target}: {} s", arguments.seconds);
        let mut run = fuzz(&["run", "--sanitizer", "none", &target, "--"]);
        run.args([
            format!("-max_total_time={}", arguments.seconds),
            format!("-rss_limit_mb={MEMORY_LIMIT_MB}"),
            format!("-timeout={INPUT_LIMIT}"),
            format!("-max_len={LONGEST_INPUT}"),
            "-print_final_stats=1".to_owned(),
        ]);
        clean &= run.status().context("cannot start cargo fuzz")?.success();
    }
    Ok(clean)
}

fn targets() -> Result<Vec<String>> {
    let listed = fuzz(&["list"]).output().context("cannot start cargo fuzz")?;
    if !listed.status.success() {
        bail!("cargo fuzz cannot list the targets: {}", String::from_utf8_lossy(&listed.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
}

/// `cargo fuzz` with the flags that make the stable compiler take those of the nightly one.
fn fuzz(arguments: &[&str]) -> Command {
    let mut command = cargo(&["fuzz"]);
    command.args(arguments).current_dir(workspace_root()).env("RUSTC_BOOTSTRAP", "1");
    command
}
