//! Cases measured on real sockets: what `cargo xtask cases` runs.
//!
//! A [`Case`] builds a bed, does what its requirement in docs/CASES.md says, and returns [`Check`]s: what was measured,
//! beside what is allowed. Families have a file each. Cases run one after
//! another, as they share two things that cannot be divided: the machine's processors and its clock.

mod caps;
mod cc;
pub mod command;
mod figures;
mod flows;
mod long;
mod multi;
mod path;
mod relays;
mod report;
mod sleep;
mod stand;
mod tcp;

pub use report::{Allowed, Check, Outcome, Verdict, print_table, to_json};
pub use stand::Context;

use std::pin::Pin;

use anyhow::Result;

/// What a running case is.
pub type Running = Pin<Box<dyn Future<Output = Result<Vec<Check>>> + Send>>;

/// A requirement and how it is tried.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its code in docs/CASES.md, or one word for a figure.
    pub code: &'static str,
    /// What is tried, in a few words.
    pub what: &'static str,
    /// Tries it.
    pub run: fn(Context) -> Running,
}

/// Every case, in the order of docs/CASES.md, then the figures.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        tcp::CASES,
        flows::CASES,
        path::CASES,
        cc::CASES,
        multi::CASES,
        caps::CASES,
        sleep::CASES,
        figures::CASES,
        relays::CASES,
        long::CASES,
    ]
    .into_iter()
    .flatten()
}

/// The cases that run unless told otherwise: those with a code.
pub fn with_codes() -> impl Iterator<Item = &'static Case> {
    all().filter(|case| case.code.contains('-'))
}
