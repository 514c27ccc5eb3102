//! Emulated networks: a sans-IO model of one link direction.
//!
//! [`Link`] is the model. Packets go in with the time, and come out in the order and at the times at which a link with
//! that rate, queue, delay, jitter, loss, reordering, duplication, MTU and those outages would deliver them. It reads no
//! clock and draws all chance from the seed in its [`LinkConfig`], so that a run can be repeated exactly, in virtual
//! time as in real time.
//!
//! Rates are bits per second ([`Bitrate`]), sizes are bytes, shares are between 0 and 1, time is [`std::time`]'s.

mod bitrate;
mod chance;
mod config;
mod delay;
mod link;
mod loss;
mod outage;

pub use bitrate::{Bitrate, UnknownBitrate};
pub use config::{ConfigError, LinkConfig};
pub use delay::{Jitter, Order, Reorder};
pub use link::{Counters, Link, Packet};
pub use loss::{Loss, LossPlace};
pub use outage::{Outages, Window};
