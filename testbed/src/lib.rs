//! Tandem over emulated networks in virtual time: where the transport's behaviour is tested. Never shipped.
//!
//! [`virtual_time::run`] gives a test a clock that jumps from event to event. [`VirtualNetwork`] gives it hosts, lines
//! with the link model of `tandem_netem`, faults and attackers. Everything is seeded: the same test takes the same steps
//! every time.

mod identity;
mod network;
mod origins;
pub mod virtual_time;

pub use identity::Identity;
pub use network::{Hostility, Line, SendFault, VirtualNetwork, VirtualSocket};
pub use origins::Origins;
