//! Tandem over emulated networks in virtual time: where the transport's behaviour is tested. Never shipped.
//!
//! [`virtual_time::run`] gives a test a clock that jumps from event to event. [`VirtualNetwork`] gives it hosts, lines
//! with the link model of `tandem_netem`, faults and attackers. Everything is seeded: the same test takes the same steps
//! every time. [`namespaces`] is the other bed: real programs and real sockets, for root on Linux. [`clients`] are other
//! people's programs that are driven through the product.

#[cfg(target_os = "linux")]
pub mod cases;
#[cfg(target_os = "linux")]
pub mod clients;
mod compete;
mod exchange;
#[cfg(target_os = "linux")]
pub mod fuzz;
mod identity;
mod measure;
#[cfg(target_os = "linux")]
pub mod namespaces;
mod network;
mod origins;
#[cfg(target_os = "linux")]
pub mod paper;
mod scenario;
mod tcp;
pub mod virtual_time;

pub use compete::{Competition, Shares};
pub use exchange::serve;
pub use identity::Identity;
pub use measure::{Amount, Download, EvenStreams, Interrupted, Latencies, Pings, download, upload};
pub use network::{EcnMark, Hostility, Line, SendFault, Trunk, Vantage, VirtualNetwork, VirtualSocket};
pub use origins::Origins;
pub use scenario::{Bed, Measured, PathLinks, RELAY, Rival, Scenario};
pub use tcp::TcpFlow;
