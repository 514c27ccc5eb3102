//! The engine of the client: from local connections to flows over a session that keeps itself alive.
//!
//! [`Engine`] owns everything that runs: the inbounds, the session to the relay with its paths, and the snapshots that
//! every surface shows. The session is made anew whenever it ends, with the nearest of the relays that answer, unless all of
//! them refuse the client. The control
//! socket, through which other processes ask and steer the engine, stands beside it ([`control`]; both together: [`host`]), and so
//! does what finds out why there is no session ([`doctor`]).
//!
//! ```text
//! inbounds → SessionDial → session → relays (which one) → maker (connect, Hello, paths) → transport
//!                 ↑ waits for ↑ is told of networks by the platform
//! ```

mod accounts;
mod addresses;
mod backoff;
mod captive;
pub mod control;
mod diagnose;
mod dial;
pub mod doctor;
mod engine;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
pub mod host;
mod leftovers;
mod maker;
mod measure;
mod names;
mod nat64;
mod networks;
mod race;
mod relays;
mod session;
mod wake;
mod ways;

pub use accounts::StateError;
pub use engine::{Engine, EngineConfig, EngineError, EngineHandle, default_addresses};
pub use measure::Measurement;

/// Where what networks carry is kept unless told otherwise; `None` without a home.
pub fn default_state() -> Option<std::path::PathBuf> {
    let directory = dirs::state_dir().or_else(dirs::data_local_dir)?;
    Some(directory.join("tandem").join("networks.json"))
}

/// Where the proxy listens unless told otherwise.
pub const DEFAULT_LISTEN: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1080);
