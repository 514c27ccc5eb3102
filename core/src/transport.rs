//! One QUIC connection over several networks: what client and relay share.
//!
//! quinn is seen only in this folder. A [`PathSocket`] is one UDP socket, bound to one network; the bicast socket fans
//! quinn's datagrams out to the path sockets and folds what arrives on them back into one stream, as the state machines
//! of `tandem_proto` decide. Above it stand [`Client`] and [`RelayEndpoint`], which make [`Connection`]s with [`Stream`]s.
//!
//! This module imports neither inbounds nor the client's engine.

mod bicast;
mod client;
pub mod congestion;
mod connection;
pub(crate) mod gate;
pub(crate) mod meter;
pub mod pacing;
mod paths;
mod relay;
mod session;
mod settings;
pub mod socket;
mod stream;
mod tls;

pub use client::{Client, ConnectConfig, ConnectError, Connecting};
pub use connection::{Connection, ConnectionClosed, ConnectionStats};
pub use paths::{PathId, PathSpec};
pub use relay::{BindError, HandshakeCounts, RelayEndpoint, RelayEndpointConfig};
pub use settings::{FIRST_STREAMS, STREAMS};
pub use socket::{PathSocket, UdpPathSocket};
pub use stream::{RecvStream, SendStream, Stream};
pub use tls::{IdentityError, SpkiPin, spki_pin};

/// A number from a run's seed, or from the system where there is none.
fn seed_number(seed: Option<[u8; 32]>) -> u64 {
    match seed {
        Some(seed) => u64::from_le_bytes([seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], seed[6], seed[7]]),
        None => rand::random(),
    }
}
