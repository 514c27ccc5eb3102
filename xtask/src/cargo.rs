//! Runs cargo and its subcommands in the workspace, and installs those that are missing.
//!
//! A child must not see the variables that `cargo run` set for this program (`CARGO_PKG_*` and the like): build
//! scripts watch them, so that the same crates would be built again each time the tasks and a developer take turns.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A cargo command in the root of the workspace, with the toolchain that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(workspace_root());
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_set_by_cargo_run) {
            command.env_remove(name);
        }
    }
    command
}

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in a folder of the workspace")
}

/// Whether a variable describes the crate that `cargo run` started, rather than the user's wishes.
fn is_set_by_cargo_run(name: &str) -> bool {
    name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
        || matches!(name, "CARGO_BIN_NAME" | "CARGO_CRATE_NAME" | "CARGO_PRIMARY_PACKAGE")
}

/// Runs a command to its end, hands each line of its standard output to `on_line` and prints it unchanged.
///
/// Returns whether the command succeeded.
///
/// # Errors
/// When the command cannot be started or its output cannot be read.
pub(crate) fn run_watched(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", describe(command)))?;
    let output = child.stdout.take().expect("standard output is piped");
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    let mut terminal = std::io::stdout().lock();
    loop {
        line.clear();
        let read = reader
            .read_until(b'\n', &mut line)
            .with_context(|| format!("cannot read the output of {}", describe(command)))?;
        if read == 0 {
            break;
        }
        // A reader of ours that went away (`| head`) must not look like a broken test.
        let _ = terminal.write_all(&line);
        let _ = terminal.flush();
        on_line(String::from_utf8_lossy(&line).trim_end());
    }
    let status = child.wait().with_context(|| format!("cannot wait for {}", describe(command)))?;
    Ok(status.success())
}

/// The command as a person would type it.
fn describe(command: &Command) -> String {
    let mut words = vec!["cargo".to_string()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// A cargo subcommand that a step needs, and how it gets onto a machine without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `cargo fmt`, a component of the toolchain.
    Rustfmt,
    /// `cargo clippy`, a component of the toolchain.
    Clippy,
    /// `cargo deny`, built from its source.
    Deny,
    /// `cargo fuzz`, built from its source.
    Fuzz,
}

impl Tool {
    fn subcommand(self) -> &'static str {
        match self {
            Tool::Rustfmt => "fmt",
            Tool::Clippy => "clippy",
            Tool::Deny => "deny",
            Tool::Fuzz => "fuzz",
        }
    }

    /// Makes sure that the tool runs, and installs it if it does not.
    ///
    /// # Errors
    /// When it is missing and cannot be installed.
    pub(crate) fn ensure(self) -> Result<()> {
        if self.runs() {
            return Ok(());
        }
        let mut install = match self {
            Tool::Rustfmt => rustup_component("rustfmt"),
            Tool::Clippy => rustup_component("clippy"),
            Tool::Deny => cargo(&["install", "--locked", "cargo-deny"]),
            Tool::Fuzz => cargo(&["install", "--locked", "cargo-fuzz"]),
        };
        println!(
            "cargo {} is missing: installing it{}",
            self.subcommand(),
            if matches!(self, Tool::Deny | Tool::Fuzz) { " (built from source, some minutes)" } else { "" }
        );
        let installed = install
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("cannot start the installation of cargo {}", self.subcommand()))?;
        if !installed.success() || !self.runs() {
            bail!("cargo {} is missing and could not be installed", self.subcommand());
        }
        println!("cargo {} is installed", self.subcommand());
        Ok(())
    }

    fn runs(self) -> bool {
        cargo(&[self.subcommand(), "--version"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

fn rustup_component(name: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["component", "add", name]).current_dir(workspace_root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_root_holds_the_workspace_manifest() {
        let manifest = std::fs::read_to_string(workspace_root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn variables_of_the_running_crate_are_hidden_and_wishes_of_the_user_are_kept() {
        assert!(is_set_by_cargo_run("CARGO_PKG_VERSION"));
        assert!(is_set_by_cargo_run("CARGO_MANIFEST_DIR"));
        assert!(!is_set_by_cargo_run("CARGO_TARGET_DIR"));
        assert!(!is_set_by_cargo_run("CARGO_HOME"));
        assert!(!is_set_by_cargo_run("CARGO_TERM_COLOR"));
    }

    #[test]
    fn a_watched_command_yields_its_lines_and_its_success() {
        let mut lines = Vec::new();
        let succeeded = run_watched(&mut cargo(&["--version"]), |line| lines.push(line.to_string()));
        assert!(succeeded.unwrap());
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("cargo "), "{lines:?}");
    }

    #[test]
    fn a_watched_command_that_fails_is_told_apart() {
        let mut command = cargo(&["no-such-subcommand"]);
        command.stderr(Stdio::null());
        assert!(!run_watched(&mut command, |_| {}).unwrap());
    }
}
