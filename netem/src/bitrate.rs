//! A rate in bits per second, as networks are sold: `100 Mbit/s`.
//!
//! The unit prefixes are decimal. [`Bitrate`] also knows how many bytes pass in a time, which is how queues are sized.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Units in the order in which they are tried for display, with their size in bit/s.
const UNITS: [(&str, u64); 4] = [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];

/// Bits per second.
///
/// Parses and prints as a number and one of `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bitrate(u64);

impl Bitrate {
    /// A rate of that many bits per second.
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// A rate of that many kilobits (1,000 bits) per second.
    pub const fn from_kbit(kilobits: u32) -> Self {
        Self(kilobits as u64 * 1_000)
    }

    /// A rate of that many megabits (1,000,000 bits) per second.
    pub const fn from_mbit(megabits: u32) -> Self {
        Self(megabits as u64 * 1_000_000)
    }

    /// The rate in bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// The bytes that pass at this rate in a time, rounded down.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.0).saturating_mul(time.as_nanos()) / 8 / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) =
            UNITS.into_iter().find(|&(_, size)| self.0 >= size && self.0.is_multiple_of(size)).unwrap_or(("bit/s", 1));
        write!(f, "{} {unit}", self.0 / size)
    }
}

/// A text that is no bit rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rate {0:?} is unknown: a number and bit/s, kbit/s, Mbit/s or Gbit/s, such as \"100 Mbit/s\"")]
pub struct UnknownBitrate(pub String);

impl FromStr for Bitrate {
    type Err = UnknownBitrate;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownBitrate(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(unknown)?;
        let (number, unit) = text.split_at(digits);
        let size = UNITS.into_iter().find(|&(name, _)| name == unit.trim()).ok_or_else(unknown)?.1;
        let number: f64 = number.parse().map_err(|_| unknown())?;
        // The largest f64 below 2^63 keeps the cast exact enough and far from any real link.
        let bits = number * size as f64;
        if bits < i64::MAX as f64 { Ok(Self(bits.round() as u64)) } else { Err(unknown()) }
    }
}

impl Serialize for Bitrate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bitrate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_prints_in_the_largest_unit_that_keeps_it_whole_and_reads_back() {
        for (bits, text) in [
            (100_000_000, "100 Mbit/s"),
            (2_000_000_000, "2 Gbit/s"),
            (1_500_000, "1500 kbit/s"),
            (64_001, "64001 bit/s"),
            (0, "0 bit/s"),
        ] {
            let rate = Bitrate::from_bits_per_second(bits);
            assert_eq!(rate.to_string(), text);
            assert_eq!(text.parse(), Ok(rate));
        }
        assert_eq!("1.5Mbit/s".parse(), Ok(Bitrate::from_kbit(1_500)));
    }

    #[test]
    fn a_text_without_a_known_unit_is_refused_with_the_units_there_are() {
        for text in ["", "100", "Mbit/s", "100 MB/s", "1.2.3 Mbit/s", "-1 Mbit/s", "99999999999999 Gbit/s"] {
            let error = text.parse::<Bitrate>().unwrap_err().to_string();
            assert!(error.contains("Mbit/s or Gbit/s"), "{error}");
        }
    }

    #[test]
    fn bytes_in_a_time_are_rounded_down() {
        let rate = Bitrate::from_mbit(100);
        assert_eq!(rate.bytes_in(Duration::from_millis(10)), 125_000);
        assert_eq!(rate.bytes_in(Duration::from_nanos(79)), 0);
        assert_eq!(Bitrate::from_bits_per_second(u64::MAX).bytes_in(Duration::MAX), u64::MAX);
    }
}
