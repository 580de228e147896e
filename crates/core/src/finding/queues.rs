//! Was an overload of a queue rare, or did it last? One rule for a load and for the looks at a live machine.
//!
//! A rare overload may be tolerated, a burst needs a longer queue, and one that lasts a faster server: there a longer
//! queue only makes clients wait longer. A figure that was not measured decides nothing.

/// An overload hits at most this share of the connections to be rare: 1 of 1,000. Then neither the
/// p99.9 of the clients nor any quantile below it shows it.
const RARE_CONNECTIONS: f64 = 0.001;

/// A rare overload drops packets in at most this share of the slices: 1 of 100, so about once in 10 s.
/// One slice alone is rare in a load of any length: a single moment is no rhythm.
const RARE_SLICES: f64 = 0.01;

/// A queue that is full in more than 1 of 20 samples has no reserve, even if it dropped little: the
/// next burst of the same size overflows it.
const RARE_SAMPLES: f64 = 0.05;

/// From half of the time on, the overload is the normal state: connections arrive faster than the
/// server accepts them, and any queue would fill.
const LASTING: f64 = 0.5;

/// Looks a second apart miss what happens in between: nearly all of them must show a queue that is nearly full.
const LASTING_LOOKS: f64 = 0.8;

/// What is known of a queue's overload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueFigures {
    /// Share of the connections that were delayed or failed.
    pub hit_share: Option<f64>,
    /// Share of samples, some milliseconds apart, in which the queue was full.
    pub full_share: Option<f64>,
    /// Share of the slices of 100 ms in which the kernel dropped packets.
    pub dropping_share: Option<f64>,
    /// Number of these slices.
    pub dropping_slices: u64,
    /// Share of looks, a second apart, at which the queue was nearly full.
    pub nearly_full_share: Option<f64>,
}

/// How an overload went on over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// It may be tolerated.
    Rare,
    /// The queue overflows at times and is empty in between: a longer one would hold the bursts.
    Bursts,
    /// The server is too slow for the connections that arrive: a longer queue makes them wait longer.
    Lasting,
}

impl Overload {
    /// Its name in a record and in evidence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rare => "rare",
            Self::Bursts => "bursts",
            Self::Lasting => "lasting",
        }
    }

    /// Its remedy in the section `accept-queue-full` of `docs/causes.md`.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Rare => "tolerate",
            Self::Bursts => "longer",
            Self::Lasting => "faster",
        }
    }

    /// How it went on.
    ///
    /// None: there is no figure to judge by.
    pub fn judge(figures: QueueFigures) -> Option<Self> {
        let QueueFigures { hit_share, full_share, dropping_share, .. } = figures;
        if let Some(share) = figures.nearly_full_share {
            return Some(if share >= LASTING_LOOKS { Self::Lasting } else { Self::Bursts });
        }
        if hit_share.is_none() && full_share.is_none() && dropping_share.is_none() {
            return None;
        }
        let at_most = |share: Option<f64>, limit: f64| share.is_none_or(|share| share <= limit);
        if at_most(hit_share, RARE_CONNECTIONS)
            && at_most(full_share, RARE_SAMPLES)
            && (figures.dropping_slices <= 1 || at_most(dropping_share, RARE_SLICES))
        {
            return Some(Self::Rare);
        }
        let over_time = [full_share, dropping_share];
        let lasts = over_time.iter().any(Option::is_some)
            && over_time.into_iter().flatten().all(|share| share >= LASTING);
        Some(if lasts { Self::Lasting } else { Self::Bursts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(hit: f64, full: f64, dropping_slices: u64) -> Option<Overload> {
        Overload::judge(QueueFigures {
            hit_share: Some(hit),
            full_share: Some(full),
            dropping_share: Some(dropping_slices as f64 / 200.0),
            dropping_slices,
            nearly_full_share: None,
        })
    }

    #[test]
    fn an_overload_is_rare_only_where_connections_samples_and_slices_all_say_so() {
        assert_eq!(judged(0.001, 0.05, 2), Some(Overload::Rare), "1 of 1,000, 1 of 20, 1 of 100");
        assert_eq!(judged(0.00101, 0.05, 2), Some(Overload::Bursts), "one connection more");
        assert_eq!(judged(0.001, 0.0505, 2), Some(Overload::Bursts), "one full sample more");
        assert_eq!(judged(0.001, 0.05, 3), Some(Overload::Bursts), "one slice more");
    }

    #[test]
    fn one_slice_with_drops_is_rare_in_a_short_load_too() {
        let short = |dropping_slices| QueueFigures {
            hit_share: Some(0.001),
            full_share: Some(0.01),
            dropping_share: Some(dropping_slices as f64 / 20.0),
            dropping_slices,
            nearly_full_share: None,
        };
        assert_eq!(Overload::judge(short(1)), Some(Overload::Rare));
        assert_eq!(Overload::judge(short(2)), Some(Overload::Bursts));
    }

    #[test]
    fn an_overload_lasts_from_half_of_the_samples_and_half_of_the_slices_on() {
        assert_eq!(judged(0.4, 0.5, 100), Some(Overload::Lasting));
        assert_eq!(judged(0.4, 0.4995, 100), Some(Overload::Bursts));
        assert_eq!(judged(0.4, 0.5, 99), Some(Overload::Bursts));
    }

    #[test]
    fn what_was_not_measured_decides_nothing() {
        let none = QueueFigures::default();
        let hit = |share| Overload::judge(QueueFigures { hit_share: Some(share), ..none });
        assert_eq!(Overload::judge(none), None);
        assert_eq!(hit(0.4), Some(Overload::Bursts));
        assert_eq!(hit(0.00001), Some(Overload::Rare));
        let dropping = QueueFigures { dropping_share: Some(0.75), dropping_slices: 150, ..none };
        assert_eq!(Overload::judge(dropping), Some(Overload::Lasting));
    }

    #[test]
    fn of_looks_four_of_five_must_show_a_queue_that_is_nearly_full() {
        let looks = |share| {
            let figures =
                QueueFigures { nearly_full_share: Some(share), ..QueueFigures::default() };
            Overload::judge(figures)
        };
        assert_eq!(looks(0.8), Some(Overload::Lasting));
        assert_eq!(looks(0.79), Some(Overload::Bursts));
    }
}
