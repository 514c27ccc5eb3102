//! Which datagrams travel twice: the modes a user chooses between.
//!
//! A [`Mode`] covers both directions of a session. The paper's four schemes are `single` (unicasting) and `bicast` with
//! the client's, the relay's or both sides' datagrams copied.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a session uses its paths; can be changed at any time in a live session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "mode", content = "bicast")]
pub enum Mode {
    /// Every datagram travels on the best path; another takes over when that one fails.
    #[default]
    Single,
    /// Datagrams of the named sides travel on every healthy path.
    Bicast(Sides),
}

/// The sides whose datagrams are copied in bicast mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sides {
    /// The client's datagrams (the paper's client-side bicasting).
    Client,
    /// The relay's datagrams (server-side bicasting).
    Server,
    /// Both (bidirectional bicasting).
    #[default]
    Both,
}

/// How one direction uses its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Copying {
    /// One path carries each datagram.
    #[default]
    Single,
    /// Every healthy path carries each datagram.
    Bicast,
}

impl Mode {
    /// How the client's datagrams travel.
    pub fn upload(self) -> Copying {
        match self {
            Mode::Bicast(Sides::Client | Sides::Both) => Copying::Bicast,
            _ => Copying::Single,
        }
    }

    /// How the relay's datagrams travel.
    pub fn download(self) -> Copying {
        match self {
            Mode::Bicast(Sides::Server | Sides::Both) => Copying::Bicast,
            _ => Copying::Single,
        }
    }

    /// The paper's name of the scheme: `unicast`, `client`, `server` or `bidirectional`.
    pub fn scheme(self) -> &'static str {
        match self {
            Mode::Single => "unicast",
            Mode::Bicast(Sides::Client) => "client",
            Mode::Bicast(Sides::Server) => "server",
            Mode::Bicast(Sides::Both) => "bidirectional",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Single => f.write_str("single"),
            Mode::Bicast(sides) => write!(f, "bicast {sides}"),
        }
    }
}

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sides::Client => "client",
            Sides::Server => "server",
            Sides::Both => "both",
        })
    }
}

/// A word that names no side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bicast side {0:?} is unknown: client, server or both")]
pub struct UnknownSides(pub String);

impl FromStr for Sides {
    type Err = UnknownSides;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "client" => Ok(Sides::Client),
            "server" => Ok(Sides::Server),
            "both" => Ok(Sides::Both),
            other => Err(UnknownSides(other.to_owned())),
        }
    }
}
