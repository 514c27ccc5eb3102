//! What one direction of a link is like.
//!
//! A [`LinkConfig`] is plain data with working defaults (a perfect link), readable from any serde format: times are texts
//! such as `"10ms"`, rates `"100 Mbit/s"`. [`Link::new`](crate::Link::new) checks it; a bad value is refused with the
//! field's name, what was found and what is allowed.

use std::fmt::Display;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bitrate::Bitrate;
use crate::delay::{Jitter, Reorder};
use crate::loss::{Loss, LossPlace};
use crate::outage::Outages;

/// The bytes of an IPv4 and a UDP header without options.
pub(crate) const IP_UDP_HEADERS: u32 = 28;

/// The longest delay, jitter or reordering of a link.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(600);

/// The smallest MTU: every IPv4 host must take packets of this size (RFC 791 section 3.1).
const MIN_MTU: u32 = 68;

/// The most bytes counted beside each packet; far above any stack of headers.
const MAX_OVERHEAD: u32 = 1_000;

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    /// The bits that leave the queue per second; `None` is no limit, and then nothing queues.
    pub rate: Option<Bitrate>,
    /// The bytes, overhead included, that may wait behind the packet being sent; one more packet is dropped.
    pub queue_bytes: u64,
    /// The time on the way, one way.
    #[serde(with = "humantime_serde")]
    pub delay: Duration,
    /// How the delay varies.
    pub jitter: Jitter,
    /// Which packets are lost by chance.
    pub loss: Loss,
    /// Whether that happens before the queue or behind it.
    pub loss_place: LossPlace,
    /// Packets held back while others pass.
    pub reorder: Reorder,
    /// The share of packets, 0 to 1, that arrive twice, the copy right behind its original.
    pub duplicate_share: f64,
    /// The largest IP packet, in bytes, that passes; a larger one (UDP payload plus 28) is dropped in silence. `None` is no limit.
    pub mtu: Option<u32>,
    /// When the link carries nothing.
    pub outages: Outages,
    /// The bytes of headers that count against rate and queue beside each packet's own; 28 is IPv4 and UDP.
    pub overhead_bytes: u32,
    /// Where all chance comes from. Links with equal seeds lose the same packets: give each direction its own.
    pub seed: u64,
}

impl Default for LinkConfig {
    /// A perfect link: no limit, no delay, no loss; should a rate be set, 100 packets of 1,500 bytes may wait.
    fn default() -> Self {
        Self {
            rate: None,
            queue_bytes: 150_000,
            delay: Duration::ZERO,
            jitter: Jitter::default(),
            loss: Loss::None,
            loss_place: LossPlace::BeforeQueue,
            reorder: Reorder::default(),
            duplicate_share: 0.0,
            mtu: None,
            outages: Outages::None,
            overhead_bytes: IP_UDP_HEADERS,
            seed: 0,
        }
    }
}

impl LinkConfig {
    /// The same link with a queue that takes that long to empty at its rate; without a rate nothing changes.
    #[must_use]
    pub fn with_queue_time(mut self, time: Duration) -> Self {
        if let Some(rate) = self.rate {
            self.queue_bytes = rate.bytes_in(time);
        }
        self
    }

    /// The same link with a queue of that many bandwidth-delay products for a round trip of `rtt`; without a rate nothing
    /// changes.
    #[must_use]
    pub fn with_queue_bdp(mut self, products: f64, rtt: Duration) -> Self {
        if let Some(rate) = self.rate {
            // A float to integer cast saturates, so that nonsense makes an empty or an endless queue.
            self.queue_bytes = (rate.bytes_in(rtt) as f64 * products).round() as u64;
        }
        self
    }

    /// The same link with other chances.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Checks every field's range.
    ///
    /// # Errors
    /// Names the first field whose value cannot be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        validate_rate(self.rate)?;
        ConfigError::check_time("delay", self.delay)?;
        self.jitter.validate()?;
        self.loss.validate()?;
        self.reorder.validate()?;
        ConfigError::check_share("duplicate_share", self.duplicate_share)?;
        validate_mtu(self.mtu)?;
        if self.overhead_bytes > MAX_OVERHEAD {
            let allowed = format!("at most {MAX_OVERHEAD} bytes");
            return Err(ConfigError::new("overhead_bytes", self.overhead_bytes, allowed));
        }
        self.outages.validate()
    }
}

/// Checks an MTU, which may not be less than any IP network has.
pub(crate) fn validate_mtu(mtu: Option<u32>) -> Result<(), ConfigError> {
    match mtu {
        Some(mtu) if mtu < MIN_MTU => Err(ConfigError::new("mtu", mtu, format!("at least {MIN_MTU} bytes"))),
        _ => Ok(()),
    }
}

/// Checks a rate, which may not be zero: a link that carries nothing is an outage.
pub(crate) fn validate_rate(rate: Option<Bitrate>) -> Result<(), ConfigError> {
    match rate {
        Some(rate) if rate.bits_per_second() == 0 => {
            Err(ConfigError::new("rate", rate, "above zero; for a link that carries nothing use outages".to_owned()))
        }
        _ => Ok(()),
    }
}

/// A value of a link's configuration that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}; allowed: {allowed}")]
pub struct ConfigError {
    /// The field's name, as in the configuration.
    pub field: &'static str,
    /// The value found.
    pub found: String,
    /// What would be right.
    pub allowed: String,
}

impl ConfigError {
    fn new(field: &'static str, found: impl Display, allowed: String) -> Self {
        let found = found.to_string();
        Self { field, found, allowed }
    }

    pub(crate) fn check_share(field: &'static str, share: f64) -> Result<(), Self> {
        if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(Self::new(field, share, "0 to 1".to_owned())) }
    }

    pub(crate) fn check_time(field: &'static str, time: Duration) -> Result<(), Self> {
        if time <= MAX_TIME {
            Ok(())
        } else {
            Err(Self::new(field, format!("{time:?}"), format!("at most {MAX_TIME:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outage::Window;

    #[test]
    fn a_queue_can_be_given_in_time_and_in_bandwidth_delay_products() {
        let config = LinkConfig { rate: Some(Bitrate::from_mbit(100)), ..LinkConfig::default() };
        let rtt = Duration::from_millis(10);
        assert_eq!(config.clone().with_queue_time(rtt).queue_bytes, 125_000);
        assert_eq!(config.with_queue_bdp(1.5, rtt).queue_bytes, 187_500);
    }

    #[test]
    fn a_configuration_reads_as_people_write_it_and_prints_back() {
        let text = r#"
            rate = "100 Mbit/s"
            queue_bytes = 125000
            delay = "5ms"
            jitter = { sd = "2ms", correlation = "50ms" }
            loss = { random = 0.05 }
            loss_place = "after_queue"
            reorder = { share = 0.2, least = "3ms", most = "8ms" }
            mtu = 1400
            outages = { windows = [{ from = "1s", to = "1s 500ms" }] }
            seed = 7
        "#;
        let config: LinkConfig = toml::from_str(text).unwrap();
        assert_eq!(config.rate, Some(Bitrate::from_mbit(100)));
        assert_eq!(config.delay, Duration::from_millis(5));
        assert_eq!(config.loss, Loss::Random(0.05));
        assert_eq!(config.loss_place, LossPlace::AfterQueue);
        assert_eq!(config.overhead_bytes, 28);
        let window = Window { from: Duration::from_secs(1), to: Duration::from_millis(1_500) };
        assert_eq!(config.outages, Outages::Windows(vec![window]));
        config.validate().unwrap();
        let printed = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<LinkConfig>(&printed).unwrap(), config);
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let error = toml::from_str::<LinkConfig>("latency = \"5ms\"").unwrap_err().to_string();
        assert!(error.contains("latency") && error.contains("delay"), "{error}");
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_field_value_and_range() {
        let refused = |change: fn(&mut LinkConfig)| {
            let mut config = LinkConfig::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert_eq!(refused(|config| config.duplicate_share = 1.5), "duplicate_share is 1.5; allowed: 0 to 1");
        assert_eq!(
            refused(|config| config.rate = Some(Bitrate::from_mbit(0))),
            "rate is 0 bit/s; allowed: above zero; for a link that carries nothing use outages"
        );
        assert_eq!(refused(|config| config.mtu = Some(20)), "mtu is 20; allowed: at least 68 bytes");
        assert_eq!(refused(|config| config.delay = Duration::from_secs(601)), "delay is 601s; allowed: at most 600s");
        assert_eq!(
            refused(|config| config.overhead_bytes = 2_000),
            "overhead_bytes is 2000; allowed: at most 1000 bytes"
        );
        assert_eq!(
            refused(|config| config.reorder.least = Duration::from_millis(1)),
            "reorder.least is 1ms; allowed: at most reorder.most, 0ns"
        );
    }
}
