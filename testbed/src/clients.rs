//! Other people's programs through the product, on this machine's loopback: what `cargo xtask clients` runs.
//!
//! A [`Stand`] is a folder with origin servers (nginx with HTTP/1, HTTP/2 and TLS, sshd, a WebSocket echo), a relay that
//! may reach loopback, and two clients, one of which wants a password. A [`Trial`] is a line of shell that a user could
//! type; it has passed when it ends with 0. What a machine lacks is skipped, and the table says so.

pub mod command;
mod servers;
mod stand;
mod trials;

pub use stand::Stand;
pub use trials::{TRIALS, Trial};
