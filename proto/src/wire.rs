//! What travels between client and relay, as bytes: pure functions with named limits. `docs/PROTOCOL.md` is the text.

pub mod control;
pub mod flow;
pub mod header;
