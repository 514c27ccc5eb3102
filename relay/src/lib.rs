//! The relay: the server-side proxy of Tandem, between bicasting clients and the servers they want to reach.
//!
//! [`serve::Relay`] accepts connections from the transport, a session for each; a session admits its client by token
//! ([`tokens`]) and opens flows through an [`egress::Egress`], which resolves names and obeys the access rules ([`rules`]).
//! Everything on disk is in one [`directory::Directory`]. [`limits`] bound what clients may cost; [`admin`] tells tools how it is.
//!
//! The `tandem-relay` program adds the command line, sockets and signals; the demo and tests use this library in-process.

pub mod admin;
pub mod config;
pub mod directory;
pub mod egress;
pub mod identity;
pub mod invitation;
pub mod limits;
pub mod manual;
mod measure;
mod memory;
mod metrics;
mod places;
mod rate;
pub mod rules;
pub mod serve;
mod session;
pub mod tokens;
