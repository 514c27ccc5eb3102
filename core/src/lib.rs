//! The engine of Tandem: the transport that both ends share, and the client built on it.
//!
//! Everything that touches a socket, a clock or a task is a thin shell around `tandem-proto`.

pub mod client;
pub mod config;
pub mod dial;
pub mod inbound;
pub mod platform;
pub mod print;
pub mod pump;
pub mod secrets;
pub mod transport;
