//! The bed of real sockets: the product's programs, the kernel's networking and servers in namespaces, joined by emulated links.
//!
//! A [`Bed`] is a client with two networks, a router, a relay and an origin, built from a [`Plan`]; a [`Network`] changes
//! what its links and translators do while packets pass. [`Relay`] and [`Client`] run the real programs in it, [`Origin`],
//! [`download`] and the like are the server and the application, which check every byte. Linux and root are needed;
//! [`or_skip`] says so, loudly.
//!
//! ```no_run
//! # async fn run() -> anyhow::Result<()> {
//! use tandem_testbed::namespaces::{Bed, Client, Origin, Plan, Programs, Relay, WIFI, Watched, download};
//!
//! let programs = Programs::beside_this_one()?;
//! let bed = Bed::build(&Plan::standard(1))?;
//! let _origin = Origin::start(&bed)?;
//! let relay = Relay::start_plain(&bed, &programs)?;
//! let client = Client::start(&bed, &programs, &relay, &["--mode", "bicast"])?;
//! client.paths_up(2).await?;
//! bed.network(WIFI).silence();
//! let trace = download(client.connect().await?, 1_000_000, &Watched::new()).await?;
//! println!("{:.1} Mbit/s", trace.rate());
//! # Ok(())
//! # }
//! ```

mod bed;
mod capture;
mod dns;
mod frame;
mod nat;
mod nat64;
mod neighbour;
mod netns;
mod origin;
mod packet;
mod product;
mod router;
mod tap;
mod turn;

pub use bed::{
    Bed, CELL, DefaultRoute, HostSide, Line, ORIGIN, PORTAL, Plan, RELAY, RELAY_NAME, RELAY_NAME_V4, RELAY_SECOND,
    RELAY_V6, WIFI,
};
pub use capture::{Capture, Seen};
pub use netns::Namespace;
pub use origin::{
    Echo, KernelTcp, LINE, Origin, Trace, Watched, download, download_by, download_slowly, stream_down, stream_up,
    upload,
};
pub use packet::Ecn;
pub use product::{Client, Connector, Process, Programs, Relay, Snapshot, connect_plainly, limit_descriptors};
pub use router::{Behaviour, CopyCounts, Network, Refused};
pub use turn::{Turn, go_first};

use std::io::Write;

/// Whether a test that needs the bed can run; if not, says so where nothing hides it.
pub fn or_skip(test: &str) -> bool {
    let Some(lack) = Bed::lacks() else { return true };
    // Not eprintln: the test harness would keep it to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: this machine lacks {lack}");
    false
}
