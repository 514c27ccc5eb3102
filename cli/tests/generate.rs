//! Man pages and completions of the program, as packages take them.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn generate(folder: &Path) {
    let status = Command::new(env!("CARGO_BIN_EXE_tandem")).arg("generate").arg(folder).status().unwrap();
    assert!(status.success());
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// Runs a tool on a file, if this machine has it; answers with what it complained about.
fn complaints(tool: &str, arguments: &[&str], file: &Path) -> Option<String> {
    match Command::new(tool).args(arguments).arg(file).output() {
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Ok(output) => Some(format!("{output:?}")),
        Err(error) => {
            eprintln!("SKIPPED: {tool} cannot be run: {error}");
            None
        }
    }
}

#[test]
fn every_command_has_a_man_page_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path());
    let man = folder.path().join("man/man1");
    let pages = names(&man);
    for command in ["pair", "run", "status", "paths", "stats", "mode", "stop", "doctor", "demo"] {
        assert!(pages.contains(&format!("tandem-{command}.1")), "{pages:?}");
    }
    assert!(!pages.contains("tandem-generate.1"), "a hidden command has a page");
    for page in pages {
        let file = man.join(&page);
        let text = fs::read_to_string(&file).unwrap();
        for part in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"] {
            assert!(text.contains(part), "{page} lacks {part}");
        }
        if let Some(complaints) = complaints("man", &["--warnings", "-l"], &file) {
            assert_eq!(complaints, "", "{page}");
        }
    }
}

#[test]
fn completions_are_scripts_that_their_shells_take() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path());
    let completions = folder.path().join("completions");
    for name in ["tandem.bash", "_tandem", "tandem.fish", "_tandem.ps1"] {
        let text = fs::read_to_string(completions.join(name)).unwrap();
        assert!(text.contains("--congestion") || text.contains("congestion"), "{name} knows no option");
    }
    if let Some(complaints) = complaints("bash", &["-n"], &completions.join("tandem.bash")) {
        assert_eq!(complaints, "");
    }
}
