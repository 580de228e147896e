//! How often may the table of all sockets be read?
//!
//! A dump of 50,000 sockets takes 40 to 80 ms of CPU. The next one follows when the last has cost 0.7 % of
//! one CPU, after 2 s at the earliest and 60 s at the latest. Listeners are read at each look.

use std::time::Duration;

/// Part of one CPU that reading the table may take, as its denominator. The looks between take up to 1.2 %
/// where there are 1,000 listeners, a record and metrics; all together must stay below 2 %.
const SHARE: u32 = 150;
/// Time between two tables where they are cheap.
const EVERY_MIN: Duration = Duration::from_secs(2);
/// Time between two tables, at most: an older one says little. From 0.4 s of CPU a table on, the share is
/// exceeded for that.
const EVERY_MAX: Duration = Duration::from_mins(1);

/// Decides when the next table is due, from the CPU time of the one before: 40 ms of it make 6 s.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When the newest began, and the time until the next.
    newest: Option<(Duration, Duration)>,
}

impl Pace {
    /// Whether a table is due; the first is due at once.
    pub(super) fn is_due(self, now: Duration) -> bool {
        self.newest.is_none_or(|(began, every)| now >= began + every)
    }

    /// A table was read.
    pub(super) fn took(&mut self, began: Duration, cpu: Duration) {
        self.newest = Some((began, cpu.saturating_mul(SHARE).clamp(EVERY_MIN, EVERY_MAX)));
    }

    /// Time between two tables.
    pub(super) fn every(self) -> Duration {
        self.newest.map_or(EVERY_MIN, |(_, every)| every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_so_seldom_that_it_takes_less_than_a_hundredth_of_a_cpu() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        assert!(pace.is_due(Duration::ZERO) && pace.every() == ms(2_000));
        for (cpu, every) in [(0, 2_000), (13, 2_000), (40, 6_000), (399, 59_850), (5_000, 60_000)] {
            pace.took(ms(1_000), ms(cpu));
            assert_eq!(pace.every(), ms(every));
            assert!(!pace.is_due(ms(1_000 + every - 1)) && pace.is_due(ms(1_000 + every)));
        }
    }
}
