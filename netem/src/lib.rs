//! Emulated networks: a sans-IO model of one link direction, and a rootless UDP forwarder around two of them.
//!
//! [`Link`] is the model. Packets go in with the time, and come out in the order and at the times at which a link with
//! that rate, queue, delay, jitter, loss, reordering, duplication, MTU and those outages would deliver them. It reads no
//! clock and draws all chance from the seed in its [`LinkConfig`], so that a run can be repeated exactly, in virtual
//! time as in real time.
//!
//! [`Forwarder`] puts two links, one for each direction, between real UDP sockets, as a NAT with a bad line behind it
//! would. It needs no privileges: whoever should suffer the link is pointed at the forwarder's address.
//!
//! ```
//! # async fn run(relay: std::net::SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tandem_netem::{Bitrate, Direction, Forwarder, LinkConfig, Loss};
//!
//! let up = LinkConfig {
//!     rate: Some(Bitrate::from_mbit(100)),
//!     delay: Duration::from_millis(5),
//!     loss: Loss::Random(0.05),
//!     seed: 1,
//!     ..LinkConfig::default()
//! }
//! .with_queue_bdp(1.0, Duration::from_millis(10));
//! let down = up.clone().with_seed(2);
//!
//! let wifi = Forwarder::spawn("127.0.0.1:0".parse()?, relay, up, down)?;
//! println!("send to {} what the relay should get", wifi.local_addr());
//! wifi.cut(Direction::Down);
//! # Ok(())
//! # }
//! ```
//!
//! Rates are bits per second ([`Bitrate`]), sizes are bytes, shares are between 0 and 1, time is [`std::time`]'s.

mod bitrate;
mod chance;
mod config;
mod delay;
mod forwarder;
mod link;
mod loss;
mod outage;

pub use bitrate::{Bitrate, UnknownBitrate};
pub use config::{ConfigError, LinkConfig};
pub use delay::{Jitter, Order, Reorder};
pub use forwarder::{Direction, Forwarder, ForwarderCounters, SpawnError};
pub use link::{Counters, Link, Packet};
pub use loss::{Loss, LossPlace};
pub use outage::{Outages, Window};
