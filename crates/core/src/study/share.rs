//! The part of a load that one of several machines takes.
//!
//! A share has its own number of requests and no duration. A duration would be rounded up in each share:
//! three shares of 10,000 requests would have 10,002.

use std::fmt;
use std::str::FromStr;

/// Most machines that share a load.
pub const SHARES_MAX: u64 = 1_000;

/// Part `part`, from 1, of `total`: `2/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    part: u64,
    total: u64,
}

impl Share {
    /// Which part, from 1.
    #[must_use]
    pub fn part(self) -> u64 {
        self.part
    }

    /// Of how many.
    #[must_use]
    pub fn total(self) -> u64 {
        self.total
    }

    /// How many of `total` operations this part takes; all parts together take `total`.
    #[must_use]
    pub fn count(self, total: u64) -> u64 {
        total / self.total + u64::from(self.part <= total % self.total)
    }

    /// Operations per second of this part.
    #[must_use]
    pub fn rate(self, total_per_s: f64) -> f64 {
        total_per_s / self.total as f64
    }

    /// When its first operation is due after that of the first part, s: the parts take turns.
    #[must_use]
    pub fn after_s(self, total_per_s: f64) -> f64 {
        (self.part - 1) as f64 / total_per_s
    }
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let share = || {
            let (part, total) = text.split_once('/')?;
            let (part, total) = (part.trim().parse().ok()?, total.trim().parse().ok()?);
            (1..=SHARES_MAX).contains(&total).then_some(())?;
            (1..=total).contains(&part).then_some(Self { part, total })
        };
        share().ok_or("write the part and the number of parts, like 2/3")
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.total)
    }
}

/// Operations that an even schedule of `rate_per_s` has within `duration_s`: the first is due at 0.
#[must_use]
pub fn scheduled(rate_per_s: f64, duration_s: f64) -> u64 {
    (rate_per_s * duration_s).ceil() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_is_read_as_it_is_written() {
        assert_eq!("2/3".parse::<Share>().unwrap().to_string(), "2/3");
        for text in ["", "2", "0/3", "4/3", "1/0", "1/1001", "a/b", "1/2/3", "-1/3"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_even_schedule_has_its_first_operation_at_its_beginning() {
        assert_eq!((scheduled(10.0, 1.0), scheduled(10.0, 0.95), scheduled(3.0, 0.1)), (10, 10, 1));
    }

    proptest! {
        #[test]
        fn all_parts_together_are_the_whole(total in 0..10_000_000_u64, count in 1..=SHARES_MAX) {
            let parts = (1..=count).map(|part| Share { part, total: count }.count(total));
            prop_assert_eq!(parts.sum::<u64>(), total);
        }
    }
}
