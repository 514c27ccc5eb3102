//! What the last hour was like, for the live view: a sample a second, kept whether or not anybody looks.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tandem_proto::stats::{DirectionStats, PathStats, SessionState, Snapshot};

/// Samples kept, one a second.
const MOST: usize = 3600;
/// The loss that is left is looked at over so many samples: in one second too little is lost to tell.
const LOSS_SPAN: usize = 10;

/// How far back to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Span {
    /// 60 points of a second.
    Minute,
    /// 360 points of ten seconds each, which are means.
    Hour,
}

impl Span {
    /// Points, and samples in each.
    fn shape(self) -> (usize, usize) {
        match self {
            Span::Minute => (60, 1),
            Span::Hour => (360, 10),
        }
    }
}

/// The last hour.
#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

#[derive(Debug, Clone, Default)]
struct Sample {
    unix_s: f64,
    /// `None` while there is no session.
    totals: Option<Totals>,
    networks: Vec<Network>,
}

#[derive(Debug, Clone, Copy)]
struct Totals {
    down_mbps: f64,
    up_mbps: f64,
    down: Lost,
    up: Lost,
}

/// Datagrams of one direction since the session began, and those of which no copy arrived.
#[derive(Debug, Clone, Copy)]
struct Lost {
    datagrams: f64,
    lost: f64,
}

#[derive(Debug, Clone)]
struct Network {
    name: String,
    down_mbps: f64,
    up_mbps: f64,
    down_loss: f64,
    up_loss: f64,
    queue_ms: f64,
}

/// One line for each thing that is drawn; all as long as `unix_s`, with `None` where nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Columns {
    /// The middle of each point, in seconds since the Unix epoch.
    pub unix_s: Vec<f64>,
    /// What applications received, in Mbit/s.
    pub down_mbps: Vec<Option<f64>>,
    /// What applications sent, in Mbit/s.
    pub up_mbps: Vec<Option<f64>>,
    /// Datagrams to the client of which no copy arrived, in percent, over the last ten seconds.
    pub down_lost_percent: Vec<Option<f64>>,
    /// The same of those to the relay.
    pub up_lost_percent: Vec<Option<f64>>,
    /// Every network that carried a path in this time, by name.
    pub networks: Vec<NetworkColumns>,
}

/// The lines of one network.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NetworkColumns {
    /// The interface's name.
    pub name: String,
    /// Delivered to the client, in Mbit/s.
    pub down_mbps: Vec<Option<f64>>,
    /// Delivered to the relay, in Mbit/s.
    pub up_mbps: Vec<Option<f64>>,
    /// Datagrams to the client lost on this network, in percent.
    pub down_loss_percent: Vec<Option<f64>>,
    /// The same of those to the relay.
    pub up_loss_percent: Vec<Option<f64>>,
    /// How much longer than the least the way takes, in milliseconds; the longer of both directions.
    pub queue_ms: Vec<Option<f64>>,
}

impl History {
    /// Takes the sample of this second.
    pub fn push(&mut self, snapshot: Option<&Snapshot>, unix_s: f64) {
        if self.samples.len() == MOST {
            self.samples.pop_front();
        }
        let connected = snapshot.filter(|snapshot| snapshot.state == SessionState::Connected);
        self.samples.push_back(connected.map_or(Sample { unix_s, ..Sample::default() }, |s| Sample::new(s, unix_s)));
    }

    /// What is drawn for a span that ends now; a point for each time, known or not.
    pub fn columns(&self, span: Span) -> Columns {
        let (points, each) = span.shape();
        let first = self.samples.len().saturating_sub(points * each);
        let mut names: Vec<&str> = Vec::new();
        for network in self.samples.iter().skip(first).flat_map(|sample| &sample.networks) {
            if !names.contains(&network.name.as_str()) {
                names.push(&network.name);
            }
        }
        names.sort_unstable();
        let mut columns = Columns::default();
        columns
            .networks
            .extend(names.iter().map(|name| NetworkColumns { name: (*name).to_owned(), ..Default::default() }));
        let all: Vec<&Sample> = self.samples.iter().skip(first).collect();
        // Whole points from the end on; what is left over at the beginning is half a point.
        for chunk in all.rchunks(each).rev() {
            let mean = |of: &dyn Fn(&Sample) -> Option<f64>| mean(chunk.iter().filter_map(|sample| of(sample)));
            columns.unix_s.push(mean(&|sample| Some(sample.unix_s)).unwrap_or_default());
            columns.down_mbps.push(mean(&|sample| Some(sample.totals?.down_mbps)));
            columns.up_mbps.push(mean(&|sample| Some(sample.totals?.up_mbps)));
            let end = chunk.last().map_or(0.0, |sample| sample.unix_s);
            let span = each.max(LOSS_SPAN);
            columns.down_lost_percent.push(self.lost(end, span, |totals| totals.down));
            columns.up_lost_percent.push(self.lost(end, span, |totals| totals.up));
            for network in &mut columns.networks {
                let name = network.name.as_str();
                let of = |pick: fn(&Network) -> f64| {
                    mean(&|sample: &Sample| sample.networks.iter().find(|network| network.name == name).map(pick))
                };
                network.down_mbps.push(of(|network| network.down_mbps));
                network.up_mbps.push(of(|network| network.up_mbps));
                network.down_loss_percent.push(of(|network| network.down_loss));
                network.up_loss_percent.push(of(|network| network.up_loss));
                network.queue_ms.push(of(|network| network.queue_ms));
            }
        }
        columns
    }

    /// The share of datagrams that were lost in the `span` samples up to the one of `end`.
    fn lost(&self, end: f64, span: usize, of: fn(&Totals) -> Lost) -> Option<f64> {
        let end = self.samples.partition_point(|sample| sample.unix_s <= end).checked_sub(1)?;
        let last = of(self.samples[end].totals.as_ref()?);
        let first =
            self.samples.range(end.saturating_sub(span)..end).filter_map(|sample| sample.totals.as_ref()).map(of);
        // A new session counts from zero.
        let first = first.rev().take_while(|first| first.datagrams <= last.datagrams).last()?;
        let datagrams = last.datagrams - first.datagrams;
        (datagrams >= 1.0).then(|| (100.0 * (last.lost - first.lost) / datagrams).clamp(0.0, 100.0))
    }
}

impl Sample {
    fn new(snapshot: &Snapshot, unix_s: f64) -> Self {
        let lost = |direction: &DirectionStats| {
            let datagrams = direction.datagrams as f64;
            Lost { datagrams, lost: datagrams * direction.effective_loss_percent / 100.0 }
        };
        let totals = Totals {
            down_mbps: snapshot.down.goodput_mbps,
            up_mbps: snapshot.up.goodput_mbps,
            down: lost(&snapshot.down),
            up: lost(&snapshot.up),
        };
        let network = |path: &PathStats| Network {
            name: path.interface.clone(),
            down_mbps: path.down.rate_mbps,
            up_mbps: path.up.rate_mbps,
            down_loss: path.down.loss_percent,
            up_loss: path.up.loss_percent,
            queue_ms: path.down.queue_ms.max(path.up.queue_ms),
        };
        Self { unix_s, totals: Some(totals), networks: snapshot.paths.iter().map(network).collect() }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use tandem_proto::stats::PathDirection;

    use super::*;

    fn snapshot(goodput_mbps: f64, datagrams: u64, effective_loss_percent: f64) -> Snapshot {
        let down = DirectionStats { goodput_mbps, datagrams, effective_loss_percent, ..DirectionStats::default() };
        let direction = PathDirection { rate_mbps: goodput_mbps, loss_percent: 5.0, ..PathDirection::default() };
        let path = PathStats { interface: "wlan0".to_owned(), down: direction, ..PathStats::default() };
        Snapshot { state: SessionState::Connected, down, paths: vec![path], ..Snapshot::default() }
    }

    #[test]
    fn a_minute_has_a_point_a_second_and_gaps_where_there_was_no_session() {
        let mut history = History::default();
        for second in 0..100 {
            let connected = (second != 90).then(|| snapshot(f64::from(second), 0, 0.0));
            history.push(connected.as_ref(), f64::from(second));
        }
        let columns = history.columns(Span::Minute);
        assert_eq!((columns.unix_s.len(), columns.unix_s[0], columns.unix_s[59]), (60, 40.0, 99.0));
        assert_eq!(
            (columns.down_mbps[0], columns.down_mbps[50], columns.down_mbps[59]),
            (Some(40.0), None, Some(99.0))
        );
        assert_eq!(columns.networks.len(), 1);
        assert_eq!(columns.networks[0].down_loss_percent[59], Some(5.0));
        assert_eq!(columns.networks[0].down_mbps[50], None);
    }

    #[test]
    fn an_hour_is_means_of_ten_seconds_and_no_more_is_kept() {
        let mut history = History::default();
        for second in 0..5000 {
            history.push(Some(&snapshot(f64::from(second % 10), 0, 0.0)), f64::from(second));
        }
        let columns = history.columns(Span::Hour);
        assert_eq!((columns.unix_s.len(), columns.unix_s[359]), (360, 4994.5));
        assert!(columns.down_mbps.iter().all(|mean| *mean == Some(4.5)));
    }

    #[test]
    fn the_loss_that_is_left_is_that_of_the_last_ten_seconds_and_of_this_session() {
        let mut history = History::default();
        // 100 datagrams a second; the first 50 s lose 2 %, then nothing is lost.
        for second in 0_u32..100 {
            let lost = f64::from(second.min(50)) * 2.0;
            let datagrams = u64::from(second) * 100;
            let percent = if second == 0 { 0.0 } else { 100.0 * lost / datagrams as f64 };
            history.push(Some(&snapshot(1.0, datagrams, percent)), f64::from(second));
        }
        let lost = history.columns(Span::Minute).down_lost_percent;
        assert!((lost[5].unwrap() - 2.0).abs() < 1e-6, "{lost:?}");
        assert!(lost[59].unwrap().abs() < 1e-6, "{lost:?}");
        history.push(Some(&snapshot(1.0, 10, 0.0)), 100.0);
        assert_eq!(history.columns(Span::Minute).down_lost_percent[59], None, "a new session has just begun");
    }
}
