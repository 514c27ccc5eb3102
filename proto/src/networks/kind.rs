//! What kind of network an interface leads to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of network an interface leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceKind {
    /// Wireless LAN.
    Wifi,
    /// A mobile network.
    Cellular,
    /// A cable.
    Ethernet,
    /// Loopback, tunnels and whatever the system does not tell.
    #[default]
    Other,
}

impl fmt::Display for InterfaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InterfaceKind::Wifi => "wifi",
            InterfaceKind::Cellular => "cellular",
            InterfaceKind::Ethernet => "ethernet",
            InterfaceKind::Other => "other",
        })
    }
}
