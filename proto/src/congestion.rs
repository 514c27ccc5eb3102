//! Congestion controllers as pure state machines; they know no QUIC library.
//!
//! An [`Algorithm`] names a controller. Those the QUIC library brings itself (CUBIC and NewReno) are wrapped where that
//! library is met; the model-based ones live here, one file each.
//!
//! Lengths are bytes of UDP payload, rates are bytes per second, times are passed in.

mod algorithm;
pub mod pacer;

pub use algorithm::{Algorithm, UnknownAlgorithm};
