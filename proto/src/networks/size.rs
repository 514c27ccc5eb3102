//! Amounts of data as people write them: `2 GB`, where a GB is 10^9 bytes as on every bill.

use std::fmt;
use std::str::FromStr;

/// An amount of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataSize {
    /// In bytes.
    pub bytes: u64,
}

/// Units, the largest first.
const UNITS: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("B", 1)];

/// No amount is larger.
const MOST: f64 = 1e18;

/// A text that is no amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no amount of data: a number and B, kB, MB, GB or TB are allowed, for example \"2 GB\"")]
pub struct WrongSize(pub String);

impl FromStr for DataSize {
    type Err = WrongSize;

    fn from_str(text: &str) -> Result<Self, WrongSize> {
        let wrong = || WrongSize(text.to_owned());
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim())).ok_or_else(wrong)?.1;
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * unit as f64;
        if (0.0..=MOST).contains(&bytes) { Ok(Self { bytes: bytes.round() as u64 }) } else { Err(wrong()) }
    }
}

impl fmt::Display for DataSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = UNITS.into_iter().find(|(_, unit)| self.bytes >= *unit).unwrap_or(("B", 1));
        if self.bytes.is_multiple_of(unit) {
            return write!(f, "{} {name}", self.bytes / unit);
        }
        // As many digits as it takes, so that it reads back as it was.
        let digits = format!("{:0width$}", self.bytes % unit, width = unit.ilog10() as usize);
        write!(f, "{}.{} {name}", self.bytes / unit, digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        for (text, bytes) in [("2 GB", 2_000_000_000), ("1.5gb", 1_500_000_000), ("500 MB", 500_000_000), ("7 B", 7)] {
            assert_eq!(text.parse(), Ok(DataSize { bytes }), "{text}");
        }
        for text in ["", "2", "GB", "2 XB", "-1 GB", "1e3 GB", "2 GB GB", "9999999999 TB", "1.2.3 MB", "2 GiB"] {
            let error = text.parse::<DataSize>().expect_err(text);
            assert!(error.to_string().contains("for example \"2 GB\""), "{error}");
        }
    }

    proptest! {
        #[test]
        fn an_amount_reads_back_as_it_was(bytes in 0u64..1_000_000_000_000_000) {
            prop_assert_eq!(DataSize { bytes }.to_string().parse(), Ok(DataSize { bytes }));
        }

        #[test]
        fn any_text_is_an_amount_or_refused(text in ".{0,20}") {
            let _ = text.parse::<DataSize>();
        }
    }
}
