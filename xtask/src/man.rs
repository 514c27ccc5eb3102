//! `cargo xtask man`: man pages and shell completions of both programs, in `target/man` and `target/completions`.
//!
//! The programs write them themselves (a hidden command), so a page cannot tell anything else than `--help`.

use anyhow::{Context, Result};

use crate::cargo::{cargo, workspace_root};

/// Package and program.
const PROGRAMS: [(&str, &str); 2] = [("tandem-cli", "tandem"), ("tandem-relay", "tandem-relay")];

/// Builds the programs and lets them write. Returns whether they did.
///
/// # Errors
/// When cargo cannot be started.
pub(crate) fn run() -> Result<bool> {
    let folder = workspace_root().join("target");
    for (package, program) in PROGRAMS {
        let mut write = cargo(&["run", "--quiet", "--package", package, "--bin", program, "--", "generate"]);
        if !write.arg(&folder).status().context("cannot start cargo run")?.success() {
            return Ok(false);
        }
    }
    println!("man pages are in {0}/man, completions in {0}/completions", folder.display());
    Ok(true)
}
