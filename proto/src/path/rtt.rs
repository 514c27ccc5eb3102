//! Round-trip time of one path, smoothed as in RFC 9002, section 5.

use std::time::Duration;

/// Smoothed round-trip time, its deviation and its minimum.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    deviation: Duration,
    min: Option<Duration>,
}

/// What to assume before the first sample: long enough for most networks, short enough to retry within a second.
const UNKNOWN: Duration = Duration::from_millis(100);

impl Rtt {
    /// Takes one sample.
    pub(crate) fn update(&mut self, sample: Duration) {
        self.min = Some(self.min.map_or(sample, |min| min.min(sample)));
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.deviation = sample / 2;
            }
            Some(smoothed) => {
                self.deviation = (self.deviation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// The smoothed value; `None` before the first sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The smoothed value, or an assumption before the first sample.
    pub(crate) fn or_assumed(&self) -> Duration {
        self.smoothed.unwrap_or(UNKNOWN)
    }

    /// Mean deviation of the samples.
    pub(crate) fn deviation(&self) -> Duration {
        self.deviation
    }

    /// Lowest sample; `None` before the first.
    pub(crate) fn min(&self) -> Option<Duration> {
        self.min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_smoothed_as_rfc_9002_says() {
        let ms = Duration::from_millis;
        let mut rtt = Rtt::default();
        assert_eq!(rtt.or_assumed(), UNKNOWN);
        rtt.update(ms(80));
        assert_eq!((rtt.smoothed(), rtt.deviation()), (Some(ms(80)), ms(40)));
        rtt.update(ms(160));
        assert_eq!((rtt.smoothed(), rtt.deviation(), rtt.min()), (Some(ms(90)), ms(50), Some(ms(80))));
    }
}
