//! The desktop app's tasks: its front end, pictures of its screens, what it costs, and its packages.
//!
//! The app needs more than Rust: node for its front end and the web view's libraries. Where they are missing its checks are
//! left out, and say so.

mod dist;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;

use crate::bed::built;
use crate::cargo::{cargo, workspace_root};

pub(crate) use dist::{DistArguments, run as dist};

/// The least version of node that the front end's tools take.
const NODE: (u32, u32) = (20, 19);
/// The profile in which the app is built while it is worked on.
const PROFILE: &str = "app";
/// The web view's library, by the name that pkg-config knows.
const WEB_VIEW: &str = "webkit2gtk-4.1";

/// What this machine lacks to build the desktop app, in words; `None` if nothing.
pub(crate) fn missing() -> Option<String> {
    let node = output("node", &["--version"]);
    match node.as_deref().map(version) {
        None => return Some("no node: install nodejs and npm".to_owned()),
        Some(found) if found < NODE => {
            return Some(format!("node is {}; {}.{} is needed", node.unwrap_or_default(), NODE.0, NODE.1));
        }
        Some(_) => {}
    }
    if output("npm", &["--version"]).is_none() {
        return Some("no npm".to_owned());
    }
    let built_for_linux = cfg!(target_os = "linux");
    if built_for_linux && output("pkg-config", &["--modversion", WEB_VIEW]).is_none() {
        return Some(format!("no {WEB_VIEW}: install libwebkit2gtk-4.1-dev and pkg-config"));
    }
    None
}

/// What a program prints if it ends well.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first two numbers of `v20.19.5`.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.trim_start_matches('v').split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Builds the front end and runs its tests. Returns whether all went well.
///
/// # Errors
/// When npm cannot be started.
pub(crate) fn front_end() -> Result<bool> {
    for arguments in [&["ci", "--no-audit", "--no-fund"][..], &["run", "build"], &["test"]] {
        let mut npm = Command::new("npm");
        npm.args(arguments).current_dir(folder().join("ui"));
        if !npm.status().context("cannot start npm")?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes pictures of every screen to docs/screenshots. Returns whether all went well.
///
/// # Errors
/// When npm or cargo cannot be started.
pub(crate) fn screenshots() -> Result<bool> {
    if !front_end()? {
        return Ok(false);
    }
    let Some(stand) = built("tandem-stand", PROFILE)? else { return Ok(false) };
    let stand = Stand::start(&stand)?;
    let mut test = real_app(PROFILE, "in_light_and_dark");
    test.envs(stand.control.as_ref().map(|control| ("TANDEM_STAND", control)));
    Ok(test.status().context("cannot start cargo test")?.success())
}

/// What `cargo xtask app-costs` is asked to do.
#[derive(Args, Debug)]
pub(crate) struct CostsArguments {
    /// How to build the programs: release, or app, which takes less time to build.
    #[arg(long, default_value = "release", value_name = "PROFILE")]
    profile: String,
}

/// Measures memory and processor time of the app, and prints them. Returns whether it costs no more than it may.
///
/// # Errors
/// When npm or cargo cannot be started.
pub(crate) fn costs(arguments: &CostsArguments) -> Result<bool> {
    if !front_end()? {
        return Ok(false);
    }
    let Some(client) = built("tandem", &arguments.profile)? else { return Ok(false) };
    let mut test = real_app(&arguments.profile, "what_the_app_costs");
    Ok(test.env("TANDEM_CLIENT", client).status().context("cannot start cargo test")?.success())
}

/// Tests with the real app that are run for what they make, by a part of their names.
fn real_app(profile: &str, tests: &str) -> Command {
    let mut test = cargo(&["test", "--package", "tandem-desktop", "--profile", profile, "--test", "real", "--"]);
    test.args(["--ignored", "--nocapture", tests]);
    test
}

/// A client on emulated networks that TCP shares too, to measure with. It ends when it is dropped.
struct Stand {
    process: Child,
    /// Its control socket; `None` where this machine lacks something for it, which it says itself.
    control: Option<String>,
}

impl Stand {
    fn start(program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("its output")?).read_line(&mut line)?;
        let control = Some(line.trim().to_owned()).filter(|control| !control.is_empty());
        Ok(Self { process, control })
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // Nothing can be done about one that does not end well.
        let _ = self.process.wait();
    }
}

/// The app's folder.
fn folder() -> PathBuf {
    workspace_root().join("app-desktop")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("v20.19.5"), (20, 19));
        assert!(version("v18.20.4") < NODE && version("v22.3.0") > NODE && version("v20.9.0") < NODE);
        assert_eq!(version("nonsense"), (0, 0));
    }
}
