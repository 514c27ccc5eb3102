//! Local days, and the months of a plan that begin on a certain day.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A day of the local calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date {
    /// From 0 to 9999.
    year: u16,
    /// 1 to 12.
    month: u8,
    /// 1 to 31, as the month has them.
    day: u8,
}

/// The first of January of the year 1970.
impl Default for Date {
    fn default() -> Self {
        Self { year: 1970, month: 1, day: 1 }
    }
}

/// No such day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no date: a day such as 2026-12-31 is allowed")]
pub struct WrongDate(pub String);

impl Date {
    /// A day that exists, of the years 0 to 9999.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let exists = year <= 9999 && (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        exists.then_some(Self { year, month, day })
    }

    /// The day on which the month of a plan began that this day belongs to: months begin on `reset_day`, or on their last
    /// day where they have fewer.
    pub fn month_start(self, reset_day: u8) -> Self {
        let start = self.with_day(reset_day);
        if start <= self { start } else { self.first_of_previous_month().with_day(reset_day) }
    }

    /// The day on which the next month of the plan begins.
    pub fn next_month_start(self, reset_day: u8) -> Self {
        let start = self.with_day(reset_day);
        if start > self { start } else { self.first_of_next_month().with_day(reset_day) }
    }

    /// The day after.
    pub fn next_day(self) -> Self {
        if self.day < days_in(self.year, self.month) {
            Self { day: self.day + 1, ..self }
        } else {
            self.first_of_next_month()
        }
    }

    fn with_day(self, day: u8) -> Self {
        Self { day: day.clamp(1, days_in(self.year, self.month)), ..self }
    }

    fn first_of_next_month(self) -> Self {
        if self.month == 12 {
            Self { year: self.year.saturating_add(1), month: 1, day: 1 }
        } else {
            Self { month: self.month + 1, day: 1, ..self }
        }
    }

    fn first_of_previous_month(self) -> Self {
        if self.month == 1 {
            Self { year: self.year.saturating_sub(1), month: 12, day: 1 }
        } else {
            Self { month: self.month - 1, day: 1, ..self }
        }
    }
}

fn days_in(year: u16, month: u8) -> u8 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Date {
    type Err = WrongDate;

    fn from_str(text: &str) -> Result<Self, WrongDate> {
        let mut parts = text.split('-');
        let date = (|| {
            let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
            let of_digits = |part: &str, length| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
            let whole = of_digits(year, 4) && of_digits(month, 2) && of_digits(day, 2) && parts.next().is_none();
            Self::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).filter(|_| whole)
        })();
        date.ok_or_else(|| WrongDate(text.to_owned()))
    }
}

impl TryFrom<String> for Date {
    type Error = WrongDate;

    fn try_from(text: String) -> Result<Self, WrongDate> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn date(text: &str) -> Date {
        text.parse().expect("a date")
    }

    #[test]
    fn months_begin_on_their_day_or_their_last() {
        for (today, reset_day, start, next) in [
            ("2026-12-01", 1, "2026-12-01", "2027-01-01"),
            ("2026-12-01", 15, "2026-11-15", "2026-12-15"),
            ("2026-12-15", 15, "2026-12-15", "2027-01-15"),
            ("2027-02-27", 31, "2027-01-31", "2027-02-28"),
            ("2027-02-28", 31, "2027-02-28", "2027-03-31"),
            ("2028-02-28", 30, "2028-01-30", "2028-02-29"),
            ("2027-01-10", 31, "2026-12-31", "2027-01-31"),
            ("2027-03-30", 31, "2027-02-28", "2027-03-31"),
        ] {
            let found = (date(today).month_start(reset_day), date(today).next_month_start(reset_day));
            assert_eq!(found, (date(start), date(next)), "{today}, {reset_day}");
        }
        assert_eq!(date("2026-12-31").next_day(), date("2027-01-01"));
        assert_eq!(date("2028-02-28").next_day(), date("2028-02-29"));
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in ["", "2026-02-29", "2026-13-01", "2026-00-01", "2026-1-1", "2026-12-31-", "+026-01-01", "today"] {
            assert!(text.parse::<Date>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_day_lies_in_its_month_of_the_plan(year in 1u16..9998, month in 1u8..=12, day in 1u8..=31, reset in 1u8..=31) {
            if let Some(today) = Date::new(year, month, day) {
                let (start, next) = (today.month_start(reset), today.next_month_start(reset));
                prop_assert!(start <= today && today < next);
                prop_assert_eq!(start.next_month_start(reset), next);
                prop_assert_eq!(today.to_string().parse(), Ok(today));
            }
        }
    }
}
