//! `cargo xtask check-targets`: whether the client, the relay and what they need type-check for every system that the
//! project means to run on.
//!
//! A system whose standard library the compiler has is checked, and so is any other if the compiler's own sources are
//! there (`rustup component add rust-src`), from which the standard library is then checked as well. What was not checked
//! is said, and is no failure: a machine that can neither have the one nor the other can still build what it runs. Nothing
//! is linked. C code of dependencies is not compiled: its compiler is a stand-in, as types do not depend on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::{cargo, workspace_root};

/// The systems, by the compiler's names.
const TARGETS: [&str; 5] = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
    "x86_64-pc-windows-gnu",
];

/// What is checked of the workspace.
const PACKAGES: [&str; 4] = ["tandem-core", "tandem-relay", "tandem-cli", "tandem-controller"];

/// The systems for which the desktop app is checked too, where its front end is built: on Linux its tests do more, and for
/// windows-gnu its build asks for that system's own tools.
const APP_TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-msvc"];
const APP: &str = "tandem-desktop";

/// How a system can be checked here.
enum Means {
    /// Its standard library is installed.
    Installed,
    /// It is checked from the compiler's sources along with the rest.
    FromSource,
    Missing,
}

/// Checks every system that can be. Returns whether none of those broke.
///
/// # Errors
/// When the compiler cannot be asked.
pub(crate) fn run() -> Result<bool> {
    let stand_in = stand_in()?;
    let has_front_end = workspace_root().join("app-desktop/ui/dist/index.html").exists();
    let (mut broken, mut unchecked) = (Vec::new(), Vec::new());
    for target in TARGETS {
        let arguments: &[&str] = match means(target)? {
            Means::Missing => {
                unchecked.push(target);
                continue;
            }
            Means::Installed => &[],
            Means::FromSource => &["-Zbuild-std=std,panic_unwind"],
        };
        println!("== {target}{}", if arguments.is_empty() { "" } else { " (standard library from source)" });
        let mut check = cargo(&["check", "--quiet", "--target", target]);
        let app = APP_TARGETS.contains(&target).then_some(APP);
        if app.is_some() && !has_front_end {
            println!("NOT CHECKED: {APP} for {target}: its front end is not built (npm run build)");
        }
        for package in PACKAGES.into_iter().chain(app.filter(|_| has_front_end)) {
            check.args(["--package", package]);
        }
        check.args(arguments);
        if !arguments.is_empty() {
            check.env("RUSTC_BOOTSTRAP", "1");
        }
        if target != host()? {
            for tool in ["CC", "AR"] {
                check.env(format!("{tool}_{}", target.replace('-', "_")), &stand_in);
            }
        }
        if !check.status().context("cannot start cargo check")?.success() {
            broken.push(target);
        }
    }
    for target in &unchecked {
        println!("NOT CHECKED: {target}: neither its standard library nor the compiler's sources are installed");
    }
    for target in &broken {
        println!("BROKEN: {target}");
    }
    let checked = TARGETS.len() - unchecked.len() - broken.len();
    println!("{checked} of {} systems checked and good", TARGETS.len());
    Ok(broken.is_empty())
}

fn means(target: &str) -> Result<Means> {
    let library = PathBuf::from(ask(&["--print", "target-libdir", "--target", target])?);
    let holds_std = |path: &Path| {
        fs::read_dir(path)
            .is_ok_and(|files| files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("libstd-")))
    };
    if holds_std(&library) {
        return Ok(Means::Installed);
    }
    let sources = PathBuf::from(ask(&["--print", "sysroot"])?).join("lib/rustlib/src/rust/library/std");
    Ok(if sources.exists() { Means::FromSource } else { Means::Missing })
}

/// The system that this program was built for.
fn host() -> Result<String> {
    let version = ask(&["-vV"])?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("the compiler does not name its host")
}

fn ask(arguments: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc).args(arguments).current_dir(workspace_root()).output();
    let output = output.with_context(|| format!("cannot start {}", rustc.display()))?;
    if !output.status.success() {
        bail!("{} {}: {}", rustc.display(), arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A compiler and archiver for C that makes empty files.
fn stand_in() -> Result<PathBuf> {
    const SCRIPT: &str = "#!/bin/sh\n\
        # Makes what it is asked for, empty: an object behind -o, or the archive that is the first file named *.a; for\n\
        # Windows behind -Fo and -out:.\n\
        while [ $# -gt 0 ]; do\n\
        case \"$1\" in\n\
        -o) : > \"$2\"; shift;; -Fo*) : > \"${1#-Fo}\";; -out:*) : > \"${1#-out:}\";; *.a) : > \"$1\";; -E) exit 0;;\n\
        esac; shift\n\
        done\n";
    let folder = workspace_root().join("target");
    fs::create_dir_all(&folder)?;
    let path = folder.join("check-targets-cc");
    fs::write(&path, SCRIPT).with_context(|| format!("cannot write {}", path.display()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(path)
}
