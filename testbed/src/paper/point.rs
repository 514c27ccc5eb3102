//! What one run is made of: everything that decides its result but chance and the machine.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tandem_netem::{Bitrate, LossPlace};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};

use crate::PathLinks;

/// Who carries the download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Nobody: the competitors are alone.
    Nobody,
    /// The kernel's TCP with CUBIC, without Tandem.
    TcpCubic,
    /// The kernel's TCP with its BBR, without Tandem.
    TcpBbr,
    /// Tandem with that controller in both directions.
    #[serde(untagged)]
    Tandem(Algorithm),
}

impl Carrier {
    /// The name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Nobody => "nobody",
            Carrier::TcpCubic => "tcp-cubic",
            Carrier::TcpBbr => "tcp-bbr",
            Carrier::Tandem(algorithm) => algorithm.name(),
        }
    }

    /// The name in plots and tables.
    pub fn title(self) -> &'static str {
        match self {
            Carrier::Nobody => "nobody",
            Carrier::TcpCubic => "TCP (CUBIC)",
            Carrier::TcpBbr => "TCP (BBR)",
            Carrier::Tandem(Algorithm::Bbr3) => "Tandem's BBRv3",
            Carrier::Tandem(Algorithm::Bbr3Draft) => "BBRv3 (draft)",
            Carrier::Tandem(Algorithm::Bbr1) => "BBRv1",
            Carrier::Tandem(Algorithm::Bbr2) => "BBRv2",
            Carrier::Tandem(Algorithm::BbrCws) => "BBR-CWS",
            Carrier::Tandem(Algorithm::Cubic) => "QUIC (CUBIC)",
            Carrier::Tandem(algorithm) => algorithm.name(),
        }
    }

    /// Whether it is the kernel's TCP.
    pub fn is_kernel_tcp(self) -> bool {
        matches!(self, Carrier::TcpCubic | Carrier::TcpBbr)
    }
}

/// Whose packets travel twice: the paper's four schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Nobody's; there is one network alone.
    Unicast,
    /// The client's.
    Client,
    /// The server's.
    Server,
    /// Both sides'.
    Both,
}

impl Scheme {
    /// All of them, in the paper's order.
    pub const ALL: [Scheme; 4] = [Scheme::Unicast, Scheme::Client, Scheme::Server, Scheme::Both];

    /// The sides whose packets are copied.
    pub fn sides(self) -> Option<Sides> {
        match self {
            Scheme::Unicast => None,
            Scheme::Client => Some(Sides::Client),
            Scheme::Server => Some(Sides::Server),
            Scheme::Both => Some(Sides::Both),
        }
    }

    /// The product's name of it.
    pub fn mode(self) -> Mode {
        self.sides().map_or(Mode::Single, Mode::Bicast)
    }

    /// How many networks there are: one that is unicast needs no second, and must not be able to flee to it.
    pub fn networks(self) -> usize {
        if self == Scheme::Unicast { 1 } else { 2 }
    }

    /// The paper's name.
    pub fn title(self) -> &'static str {
        match self {
            Scheme::Unicast => "unicasting",
            Scheme::Client => "client-side bicasting",
            Scheme::Server => "server-side bicasting",
            Scheme::Both => "bidirectional bicasting",
        }
    }
}

/// How much is downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// A file; what has not come after `longest_s` seconds is measured by what has.
    File {
        /// Its length in bytes.
        bytes: u64,
        /// In seconds.
        longest_s: u64,
    },
    /// As much as comes in a window of time, after some time to settle.
    Window {
        /// Before the window, in seconds.
        settle_s: u64,
        /// The window, in seconds.
        window_s: u64,
    },
}

impl Amount {
    /// The longest that it takes.
    pub fn longest(self) -> Duration {
        Duration::from_secs(match self {
            Amount::File { longest_s, .. } => longest_s,
            Amount::Window { settle_s, window_s } => settle_s + window_s,
        })
    }
}

/// Two networks between the client and the relay, or its plain router; each direction alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// Each network's rate, in Mbit/s of IP packets.
    pub rates_mbit: [u32; 2],
    /// Each network's round trip without queues, in milliseconds. Between relay and server there is none.
    pub rtts_ms: [u32; 2],
    /// Each direction's queue, in bandwidth-delay products of its network.
    pub queue_bdp: f64,
    /// Where packets are lost by chance.
    pub loss_place: LossPlace,
}

impl Topology {
    /// The paper's: twice 100 Mbit/s and 10 ms. Queue and place of loss are not in the paper.
    pub const PAPER: Self =
        Self { rates_mbit: [100; 2], rtts_ms: [10; 2], queue_bdp: 1.0, loss_place: LossPlace::BeforeQueue };
}

/// One run's inputs, but for the seed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Who carries the download.
    pub carrier: Carrier,
    /// Whose packets travel twice.
    pub scheme: Scheme,
    /// What each network loses by chance, in percent of packets, in both directions.
    pub loss_percent: f64,
    /// The networks.
    pub topology: Topology,
    /// How many TCP flows compete on each network, each bound to it.
    pub rivals: u32,
    /// What those run.
    pub rival: Carrier,
    /// How much is downloaded.
    pub amount: Amount,
}

impl Point {
    /// The networks' links, as many as the scheme needs.
    pub fn paths(&self) -> Vec<PathLinks> {
        let Topology { rates_mbit, rtts_ms, queue_bdp, loss_place } = self.topology;
        let path = |(rate, rtt): (u32, u32)| {
            let rtt = Duration::from_millis(rtt.into());
            let mut links = PathLinks::symmetric(Bitrate::from_mbit(rate), rtt, self.loss_percent / 100.0);
            for link in [&mut links.up, &mut links.down] {
                *link = link.clone().with_queue_bdp(queue_bdp, rtt);
                link.loss_place = loss_place;
            }
            links
        };
        rates_mbit.into_iter().zip(rtts_ms).take(self.scheme.networks()).map(path).collect()
    }

    /// The same competitors on the same networks with nobody beside them.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { carrier: Carrier::Nobody, scheme: Scheme::Both, ..self }
    }

    /// The nearest that virtual time can do, where there is no kernel: CUBIC of the QUIC library for the kernel's, a tenth of
    /// a file, and a shorter window; `None` if there is nothing near.
    pub fn in_virtual_time(self) -> Option<Self> {
        let stand_in = |carrier| match carrier {
            Carrier::TcpCubic => Some(Carrier::Tandem(Algorithm::Cubic)),
            Carrier::TcpBbr => None,
            other => Some(other),
        };
        // The bed has room for one competitor on a line.
        if self.rivals > 1 {
            return None;
        }
        let amount = match self.amount {
            Amount::File { bytes, .. } => Amount::File { bytes: bytes / 10, longest_s: 10 },
            Amount::Window { .. } => Amount::Window { settle_s: 3, window_s: 7 },
        };
        Some(Self { carrier: stand_in(self.carrier)?, rival: stand_in(self.rival)?, amount, ..self })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Topology { rates_mbit: [rate, other], queue_bdp, .. } = self.topology;
        match self.carrier {
            Carrier::Nobody => write!(f, "{} {} on each network, alone", self.rivals, self.rival.title())?,
            carrier => write!(f, "{} {}", carrier.title(), self.scheme.title())?,
        }
        write!(f, ", {} % loss", self.loss_percent)?;
        if rate != other {
            write!(f, ", {rate} and {other} Mbit/s")?;
        }
        if queue_bdp != 1.0 {
            write!(f, ", queue of {queue_bdp} BDP")?;
        }
        if self.rivals > 0 && self.carrier != Carrier::Nobody {
            write!(f, ", beside {} {} on each network", self.rivals, self.rival.title())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_reads_as_it_was_written() {
        for carrier in [Carrier::Nobody, Carrier::TcpCubic, Carrier::TcpBbr, Carrier::Tandem(Algorithm::Bbr3Draft)] {
            let point = Point {
                carrier,
                scheme: Scheme::Both,
                loss_percent: 0.3,
                topology: Topology::PAPER,
                rivals: 1,
                rival: Carrier::TcpCubic,
                amount: Amount::Window { settle_s: 8, window_s: 30 },
            };
            let text = serde_json::to_string(&point).unwrap();
            assert!(text.contains(&format!("\"{}\"", carrier.name())), "{text}");
            assert_eq!(serde_json::from_str::<Point>(&text).unwrap(), point);
        }
    }
}
