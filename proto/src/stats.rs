//! The one snapshot of a session that every surface shows.
//!
//! Command line, control socket, metrics and the apps print these structs and nothing else, so that all of them tell the
//! same. Every field carries its unit in its name; counters only grow within a session.

use serde::{Deserialize, Serialize};

use crate::mode::Mode;
use crate::networks::{CapState, InterfaceKind, NetworkRole};
use crate::path::order::PathRole;

/// A session as its client sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Where the session stands.
    pub state: SessionState,
    /// Why there is no connection, in words for a person; `None` while connected.
    pub problem: Option<String>,
    /// The addresses, as paired, of the relay in use; while there is none and several are known, those of all of them.
    pub relay: String,
    /// Every relay that the client is paired with, in the order in which they came.
    #[serde(default)]
    pub relays: Vec<RelayStats>,
    /// Where the proxy listens, as `ADDRESS:PORT`; `None` where there is none.
    #[serde(default)]
    pub proxy: Option<String>,
    /// How datagrams use the paths.
    #[serde(flatten)]
    pub mode: Mode,
    /// The congestion controller asked for, of both directions: `bbr3`, `bbr3-draft`, `cubic`, `newreno`,
    /// `bbr1`, `bbr2` or `bbr-cws`.
    pub congestion: String,
    /// Time since the session was established, in seconds; 0 while there is none.
    pub uptime_s: f64,
    /// TCP flows open now.
    pub flows_open: u64,
    /// TCP flows opened since the engine started.
    pub flows_total: u64,
    /// Smoothed round-trip time of the connection as QUIC sees it, in milliseconds.
    pub srtt_ms: f64,
    /// The QUIC sender's congestion window (upload), in bytes.
    pub cwnd_bytes: u64,
    /// What the congestion controller of the upload is about, in one word such as `startup`; empty while not connected.
    pub phase: String,
    /// The rate at which the upload is paced, in Mbit/s; `None` where the window alone sets it.
    pub pacing_mbps: Option<f64>,
    /// From client to relay.
    pub up: DirectionStats,
    /// From relay to client.
    pub down: DirectionStats,
    /// Every path, in the order in which they were added.
    pub paths: Vec<PathStats>,
    /// Every network that there is or of which something was said, by name.
    #[serde(default)]
    pub networks: Vec<NetworkStats>,
}

/// A network as its user sees it: what it is for, and what it has carried.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkStats {
    /// The interface's name, for example `wwan0`.
    pub name: String,
    /// What kind of network it is; `other` also while the machine does not have it.
    #[serde(default)]
    pub kind: InterfaceKind,
    /// Whether the machine has it now.
    pub present: bool,
    /// What it is for.
    pub role: NetworkRole,
    /// Whether its data costs money.
    pub metered: bool,
    /// IP packets in both directions since local midnight, in bytes.
    pub used_today_bytes: u64,
    /// The same since the month began.
    pub used_month_bytes: u64,
    /// The most it may carry in a day; `None` for no cap.
    pub cap_daily_bytes: Option<u64>,
    /// The most it may carry in a month.
    pub cap_monthly_bytes: Option<u64>,
    /// The day on which a month begins, 1 to 31.
    pub reset_day: u8,
    /// The share of a cap from which on the network is slowed, in percent; 100: it is not.
    pub soft_percent: u8,
    /// How near the nearest cap is.
    pub cap: CapState,
    /// How fast it may go each way, in Mbit/s; `None` as fast as it can.
    pub limit_mbps: Option<f64>,
    /// Why it carries nothing, in words for a person.
    pub problem: Option<String>,
}

/// One of the relays that a client is paired with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RelayStats {
    /// What its user calls it.
    pub name: String,
    /// Its addresses as paired.
    pub addresses: String,
    /// Whether it is in use.
    pub state: RelayState,
    /// Whether it is taken before nearer ones.
    pub preferred: bool,
    /// The round trip of the last handshake with it, in milliseconds; `None` before the first.
    pub rtt_ms: Option<f64>,
    /// When the token for it expires, in seconds since the Unix epoch; `None` before the first session.
    pub token_expires: Option<u64>,
    /// What went wrong with it last, in words for a person; `None` while it is in use.
    pub problem: Option<String>,
}

/// What a relay is to the client now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RelayState {
    /// The session is with it.
    Used,
    /// The session is with it, and it is about to stop.
    Leaving,
    /// It may be used when it is needed.
    #[default]
    Known,
    /// It refuses this client for good.
    Refused,
}

/// Where a client's session stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Not started, or stopped.
    #[default]
    Stopped,
    /// Trying to reach the relay for the first time, or again.
    Connecting,
    /// Established, and at least one path carries traffic.
    Connected,
}

/// One direction of a session, over all its paths.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionStats {
    /// Application bytes per second over the last second, in Mbit/s.
    pub goodput_mbps: f64,
    /// Application bytes carried in flows.
    pub flow_bytes: u64,
    /// QUIC datagrams, each counted once however many copies travelled.
    pub datagrams: u64,
    /// Copies beyond the first of each datagram that were sent.
    pub copies: u64,
    /// Copies that were held back to spare a path, or that its socket could not take.
    pub copies_skipped: u64,
    /// Copies that arrived where that of the path that carries everything did not: what bicasting was good for.
    #[serde(default)]
    pub copies_useful: u64,
    /// UDP payload bytes of the copies sent: what it cost.
    #[serde(default)]
    pub copy_bytes: u64,
    /// UDP payload bytes of everything sent on all paths, copies and control datagrams included.
    pub link_bytes: u64,
    /// Share of the datagrams of which no copy arrived, in percent, over the session.
    pub effective_loss_percent: f64,
}

/// One path of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathStats {
    /// The number the client gave the path.
    pub id: u8,
    /// The interface's name, for example `wlan0`.
    pub interface: String,
    /// The local address in use.
    pub local: String,
    /// The relay's address on this path.
    pub remote: String,
    /// Whether the path carries traffic.
    pub state: PathState,
    /// What it is for: `use`, or `backup` while others work.
    #[serde(default)]
    pub role: PathRole,
    /// The last problem of the path in words for a person.
    pub problem: Option<String>,
    /// Whether datagrams that must travel on one path travel on this one (upload).
    pub preferred: bool,
    /// Smoothed round-trip time, in milliseconds; `None` before the first sample.
    pub srtt_ms: Option<f64>,
    /// Lowest round-trip time seen, in milliseconds.
    pub min_rtt_ms: Option<f64>,
    /// Mean deviation of one-way delays of what arrives here, in milliseconds.
    pub jitter_ms: f64,
    /// Largest UDP payload known to pass, in bytes.
    pub mtu_bytes: u16,
    /// From client to relay.
    pub up: PathDirection,
    /// From relay to client.
    pub down: PathDirection,
}

/// Whether a path can carry traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    /// Joined and answering.
    Up,
    /// Asked the relay to join, no answer yet.
    #[default]
    Joining,
    /// Fell silent or its socket fails; tried again.
    Down,
}

/// One direction of one path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathDirection {
    /// Datagrams of the QUIC connection sent on this path.
    pub datagrams: u64,
    /// UDP payload bytes sent on this path, control datagrams included.
    pub bytes: u64,
    /// Delivered bytes per second over the last second, as this end knows them, in Mbit/s.
    pub rate_mbps: f64,
    /// Share of the datagrams sent here that did not arrive, in percent, over about the last second.
    pub loss_percent: f64,
    /// The same since the session began.
    pub total_loss_percent: f64,
    /// How much longer than its least of the last 10 s the way through this path takes now, in milliseconds.
    pub queue_ms: f64,
    /// Copies that were held back on this path.
    #[serde(default)]
    pub copies_skipped: u64,
    /// Share of the loss that is taken for noise and not for congestion, in percent of the datagrams.
    #[serde(default)]
    pub noise_percent: f64,
    /// How fast copies may go on this path, in Mbit/s; `None` while they may go as fast as the originals.
    #[serde(default)]
    pub copy_limit_mbps: Option<f64>,
    /// Send errors of the path's socket.
    pub send_errors: u64,
}
