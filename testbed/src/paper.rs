//! The paper's experiments: its figures and tables as data, run on our beds, and laid beside what it states.
//!
//! A [`Figure`] says who downloads over which networks beside whom; its [`Point`]s are run in network namespaces (Tandem's
//! programs and the kernel's TCP) or in virtual time (the transport alone, quickly and without root). Each run is a line in
//! a file that only grows, so that a run of hours can be stopped and goes on where it was; drawings, tables and the
//! page are made from that file. `cargo xtask paper` does all of it; docs/TESTBED.md says how.

mod claim;
pub mod command;
mod figure;
mod figures;
mod in_namespaces;
mod in_virtual_time;
mod page;
mod plot;
mod point;
mod record;
mod report;
mod run;

pub use claim::{Claim, Curve, Quantity, Role, Stated, Which};
pub use figure::{Figure, Shows};
pub use figures::FIGURES;
pub use point::{Amount, Carrier, Point, Scheme, Topology};
pub use record::{BedKind, Machine, Measured, Record, Records};
pub use run::{Bench, Job, jobs, render};
