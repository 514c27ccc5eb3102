//! One QUIC connection over several networks: what client and relay share.
//!
//! quinn is seen only in this folder. A [`PathSocket`] is one UDP socket, bound to one network; the bicast socket fans
//! quinn's datagrams out to the path sockets and folds what arrives on them back into one stream, as the state machines
//! of `tandem_proto` decide. Above it stand [`Client`] and [`RelayEndpoint`], which make [`Connection`]s with [`Stream`]s.
//!
//! This module imports neither inbounds nor the client's engine.

pub mod congestion;
pub mod pacing;
pub mod socket;

pub use socket::{PathSocket, UdpPathSocket};
