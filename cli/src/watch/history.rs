//! Rates of the last minute.

use std::collections::VecDeque;
use std::time::Duration;

use tandem_proto::stats::Snapshot;

/// How far back the history reaches.
const SPAN: Duration = Duration::from_secs(60);
/// Samples kept at most, whatever the interval.
const MAX_SAMPLES: usize = 300;

/// One rate for each look at the engine, both directions, in Mbit/s.
pub(super) struct History {
    samples: usize,
    down: VecDeque<f64>,
    up: VecDeque<f64>,
}

impl History {
    /// An empty history that gets a sample `every` so long.
    pub(super) fn new(every: Duration) -> Self {
        let samples = (SPAN.as_secs_f64() / every.as_secs_f64().max(0.001)).ceil() as usize;
        Self { samples: samples.clamp(1, MAX_SAMPLES), down: VecDeque::new(), up: VecDeque::new() }
    }

    /// Adds what was seen now; nothing moves where there is no engine.
    pub(super) fn push(&mut self, snapshot: Option<&Snapshot>) {
        let rates = snapshot.map_or((0.0, 0.0), |now| (now.down.goodput_mbps, now.up.goodput_mbps));
        for (rates, rate) in [(&mut self.down, rates.0), (&mut self.up, rates.1)] {
            if rates.len() == self.samples {
                rates.pop_front();
            }
            rates.push_back(rate);
        }
    }

    /// The download's rates for a chart of so many columns.
    pub(super) fn down(&self, columns: usize) -> Chart {
        self.chart(&self.down, columns)
    }

    /// The upload's.
    pub(super) fn up(&self, columns: usize) -> Chart {
        self.chart(&self.up, columns)
    }

    fn chart(&self, rates: &VecDeque<f64>, columns: usize) -> Chart {
        let columns = columns.min(self.samples);
        let mut bars = vec![0.0f64; columns];
        let missing = self.samples - rates.len();
        for (index, rate) in rates.iter().enumerate() {
            let column = (missing + index) * columns / self.samples;
            if let Some(bar) = bars.get_mut(column) {
                // A column of several samples shows the highest: peaks are what one looks for.
                *bar = bar.max(*rate);
            }
        }
        let highest = rates.iter().copied().fold(0.0, f64::max);
        Chart { bars: bars.into_iter().map(|rate| (rate * 1e3) as u64).collect(), highest_mbps: highest }
    }
}

/// A minute as bars, the newest last.
#[derive(Debug, PartialEq)]
pub(super) struct Chart {
    /// Heights in kbit/s.
    pub(super) bars: Vec<u64>,
    /// What the highest bar stands for.
    pub(super) highest_mbps: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(rates: &[f64]) -> History {
        let mut history = History::new(Duration::from_secs(1));
        for rate in rates {
            let mut snapshot = Snapshot::default();
            snapshot.down.goodput_mbps = *rate;
            history.push(Some(&snapshot));
        }
        history
    }

    #[test]
    fn a_minute_is_kept_and_the_newest_stands_last() {
        let rates: Vec<_> = (0..100).map(f64::from).collect();
        let chart = with(&rates).down(60);
        assert_eq!(chart.bars.len(), 60);
        assert_eq!((chart.bars[0], chart.bars[59], chart.highest_mbps), (40_000, 99_000, 99.0));
        assert_eq!(with(&[1.0, 2.0]).down(60).bars[57..], [0, 1000, 2000]);
    }

    #[test]
    fn a_narrow_chart_shows_the_peak_of_what_shares_a_column() {
        let mut rates = vec![1.0; 60];
        rates[59] = 50.0;
        let chart = with(&rates).down(20);
        assert_eq!((chart.bars.len(), chart.bars[0], chart.bars[19]), (20, 1000, 50_000));
        assert!(with(&rates).down(0).bars.is_empty());
    }

    #[test]
    fn a_missing_engine_moves_nothing() {
        let mut history = with(&[5.0]);
        history.push(None);
        assert_eq!(history.down(60).bars[58..], [5000, 0]);
    }
}
