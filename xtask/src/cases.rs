//! Checks `docs/CASES.md` against the tests: what it names must exist, and must name the case in turn.
//!
//! Each case is a row of a table, `| CODE | what must hold | tests |`. A test is written `` `path/file.rs::name` ``; the
//! file must hold a function of that name and mention the code. A row without a test must say "Not yet".

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};

use crate::cargo::workspace_root;

const DOCUMENT: &str = "docs/CASES.md";

/// Prints what is wrong. Returns whether nothing is.
///
/// # Errors
/// When the document cannot be read.
pub(crate) fn check() -> Result<bool> {
    let root = workspace_root();
    let document = fs::read_to_string(root.join(DOCUMENT)).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let problems = problems(&document, |path| fs::read_to_string(root.join(path)).ok());
    for problem in &problems {
        println!("{DOCUMENT}: {problem}");
    }
    if problems.is_empty() {
        let (cases, shown) = count(&document);
        println!("{cases} cases, {shown} of them with tests");
    }
    Ok(problems.is_empty())
}

/// One case of the document.
struct Case<'d> {
    code: &'d str,
    /// Paths and names of its tests.
    tests: Vec<(&'d str, &'d str)>,
    not_yet: bool,
}

/// The rows that begin with a code.
fn cases(document: &str) -> impl Iterator<Item = Case<'_>> {
    document.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let code = cells.next().filter(|code| is_code(code))?;
        let tests = cells.nth(1).unwrap_or_default();
        let named = tests.split('`').skip(1).step_by(2).filter_map(|test| test.split_once("::"));
        Some(Case { code, tests: named.collect(), not_yet: tests.contains("Not yet") })
    })
}

/// Letters, a hyphen, a number.
fn is_code(text: &str) -> bool {
    text.split_once('-').is_some_and(|(name, number)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase()) && number.parse::<u16>().is_ok()
    })
}

fn count(document: &str) -> (usize, usize) {
    (cases(document).count(), cases(document).filter(|case| !case.tests.is_empty()).count())
}

/// What is wrong with the document; `read` gives the text of a file of the workspace.
fn problems(document: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut codes = BTreeSet::new();
    for Case { code, tests, not_yet } in cases(document) {
        if !codes.insert(code) {
            problems.push(format!("{code} has two rows"));
        }
        if tests.is_empty() && !not_yet {
            problems.push(format!("{code} names no test and does not say \"Not yet\""));
        }
        for (path, name) in tests {
            match read(path) {
                None => problems.push(format!("{code} names {path}, which cannot be read")),
                Some(text) if !text.contains(&format!("fn {name}(")) => {
                    problems.push(format!("{code} names the test {name}, which is not in {path}"));
                }
                Some(text) if !mentions(&text, code) => {
                    problems.push(format!("{code} names a test in {path}, which does not mention the code"));
                }
                Some(_) => {}
            }
        }
    }
    if codes.is_empty() {
        problems.push("there is no case in it".to_owned());
    }
    problems
}

/// Whether the text holds the code, not as the beginning of another (SEC-1 in SEC-10).
fn mentions(text: &str, code: &str) -> bool {
    text.match_indices(code).any(|(at, _)| !text[at + code.len()..].starts_with(|next: char| next.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<String> {
        (path == "a/b.rs").then(|| "/// PATH-11\n#[test]\nfn it_answers() {}\n".to_owned())
    }

    fn found(rows: &str) -> Vec<String> {
        problems(&format!("| case | what | tests |\n| --- | --- | --- |\n{rows}"), read)
    }

    #[test]
    fn a_row_with_a_test_that_exists_or_a_reason_is_good() {
        let good = "| PATH-11 | It answers. | `a/b.rs::it_answers` |\n| TUN-1 | It passes. | Not yet: no TUN. |";
        assert_eq!(found(good), Vec::<String>::new());
        assert_eq!(count(good), (2, 1));
    }

    #[test]
    fn whatever_does_not_exist_is_named() {
        for (rows, expected) in [
            ("| PATH-11 | It. | `a/c.rs::it_answers` |", "a/c.rs, which cannot be read"),
            ("| PATH-11 | It. | `a/b.rs::it` |", "the test it, which is not in a/b.rs"),
            ("| PATH-1 | It. | `a/b.rs::it_answers` |", "does not mention the code"),
            ("| PATH-11 | It. | soon |", "PATH-11 names no test"),
            ("| TUN-1 | a | Not yet |\n| TUN-1 | b | Not yet |", "TUN-1 has two rows"),
            ("no table", "no case"),
        ] {
            let found = found(rows);
            assert!(found.len() == 1 && found[0].contains(expected), "{rows}: {found:?}");
        }
    }
}
