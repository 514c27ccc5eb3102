//! Measuring what a user gets: how fast and how fair, alone and beside others.
//!
//! [`SpeedReport`] compares each network alone with all of them at once, [`FairnessReport`] a TCP connection on each
//! network alone with the same beside the tunnel, as the paper does (section 5: throughput utilization). What is read off
//! a running transfer is a [`Meter`]'s decision; who may use the relay's service that of its [`Tickets`].

mod meter;
mod tickets;

pub use meter::Meter;
pub use tickets::{MOST_TICKETS, TICKET_LIFE, Tickets};

use serde::{Deserialize, Serialize};

use crate::mode::Mode;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Throughput, loss and delay of each network alone and of all at once.
    Speed,
    /// What a TCP connection on each network keeps beside the tunnel.
    Fairness,
}

/// What a running measurement tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// How far it is.
    Progress(Progress),
    /// The result of [`Kind::Speed`], which ends it.
    Speed(SpeedReport),
    /// The result of [`Kind::Fairness`], which ends it.
    Fairness(FairnessReport),
    /// It cannot be done, in words for a person, which ends it.
    Failed(String),
}

/// How far a measurement is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// What is going on, in words.
    pub step: String,
    /// Which step it is, from 1.
    pub number: u32,
    /// Of how many.
    pub of: u32,
    /// Of late, in Mbit/s; `None` before the first byte.
    pub mbps: Option<f64>,
    /// Time left in all, in seconds, as planned.
    pub left_s: f64,
}

/// Each network alone, and all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpeedReport {
    /// The relay's name.
    pub relay: String,
    /// The congestion controller.
    pub congestion: String,
    /// How long each transfer ran, in seconds.
    pub seconds: u16,
    /// The networks alone, then all of them if there are several.
    pub rows: Vec<SpeedRow>,
}

/// One way to use the networks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpeedRow {
    /// The networks used.
    pub networks: Vec<String>,
    /// How they were used.
    #[serde(flatten)]
    pub mode: Mode,
    /// Round-trip time before there was load, in milliseconds.
    pub idle_rtt_ms: Option<f64>,
    /// From the relay; `None` if it could not be measured.
    pub down: Option<Load>,
    /// To the relay.
    pub up: Option<Load>,
    /// Why something is missing, in words for a person.
    pub problem: Option<String>,
}

/// A transfer as fast as it goes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Application bytes per second, in Mbit/s, without the first moments.
    pub mbps: f64,
    /// Median of the round-trip times meanwhile, in milliseconds.
    pub rtt_ms: f64,
    /// Datagrams of which no copy arrived, in percent.
    pub loss_percent: f64,
}

/// A TCP connection on each network, alone and beside the tunnel. All of them download.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FairnessReport {
    /// The relay's name.
    pub relay: String,
    /// How the tunnel used the networks.
    #[serde(flatten)]
    pub mode: Mode,
    /// The tunnel's congestion controller.
    pub congestion: String,
    /// How long each transfer ran, in seconds.
    pub seconds: u16,
    /// What the tunnel brought beside TCP, in Mbit/s.
    pub tunnel_mbps: f64,
    /// Every network.
    pub rows: Vec<FairnessRow>,
}

/// One network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FairnessRow {
    /// The network.
    pub network: String,
    /// What TCP brought alone, in Mbit/s; `None` if it could not be measured.
    pub tcp_alone_mbps: Option<f64>,
    /// What TCP brought beside the tunnel, in Mbit/s.
    pub tcp_beside_mbps: Option<f64>,
    /// What the tunnel carried on this network meanwhile, in Mbit/s, copies included.
    pub tunnel_mbps: Option<f64>,
    /// Why something is missing, in words for a person.
    pub problem: Option<String>,
}

impl FairnessRow {
    /// TCP's throughput beside the tunnel, in percent of what it is alone: the paper's throughput utilization (section 5).
    pub fn utilization_percent(&self) -> Option<f64> {
        let alone = self.tcp_alone_mbps.filter(|alone| *alone > 0.0)?;
        Some(self.tcp_beside_mbps? / alone * 100.0)
    }

    /// Jain's index of TCP and the tunnel on this network, 0.5 to 1.
    pub fn jain(&self) -> Option<f64> {
        jain([self.tcp_beside_mbps?, self.tunnel_mbps?])
    }
}

/// Jain's fairness index: 1 if all have the same, 1/n if one has everything; `None` if nobody has anything.
pub fn jain(shares: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equal_shares_and_one_nth_for_one_who_has_all() {
        assert_eq!(jain([5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain([7.0, 0.0]), Some(0.5));
        assert_eq!(jain([0.0, 0.0]), None);
        assert_eq!(jain([]), None);
    }

    #[test]
    fn utilization_is_a_share_of_what_tcp_gets_alone() {
        let row = FairnessRow {
            network: "wifi0".to_owned(),
            tcp_alone_mbps: Some(40.0),
            tcp_beside_mbps: Some(30.0),
            tunnel_mbps: Some(30.0),
            problem: None,
        };
        assert_eq!((row.utilization_percent(), row.jain()), (Some(75.0), Some(1.0)));
        let nothing = FairnessRow { tcp_alone_mbps: Some(0.0), tunnel_mbps: None, ..row };
        assert_eq!((nothing.utilization_percent(), nothing.jain()), (None, None));
    }

    #[test]
    fn events_read_back() {
        let progress = Progress { step: "wifi0".to_owned(), number: 1, of: 3, mbps: None, left_s: 12.5 };
        let event = Event::Progress(progress);
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"progress":{"step":"wifi0","number":1,"of":3,"mbps":null,"left_s":12.5}}"#);
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}
