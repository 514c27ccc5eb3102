//! Every decision of Tandem, without I/O.
//!
//! State machines and codecs that both ends share: they are handed bytes and the time, and answer with bytes, events and
//! the next time they want to be asked. Nothing here opens a socket, reads a clock, spawns a task or draws randomness of
//! its own (seeds come from configuration), so everything can be tested in virtual time.
//!
//! Times are [`std::time::Instant`] and [`std::time::Duration`]; lengths are bytes of UDP payload unless a name says
//! otherwise; rates are bytes per second inside and megabits per second in the snapshots that people read.

pub mod admission;
mod bucket;
pub mod congestion;
pub mod events;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod guesses;
pub mod hold;
pub mod keys;
pub mod link;
pub mod measure;
pub mod mode;
pub mod networks;
pub mod pairing;
pub mod path;
pub mod peers;
mod recent;
pub mod relays;
pub mod schedule;
pub mod stats;
#[cfg(test)]
mod testing;
pub mod turns;
pub mod wire;
