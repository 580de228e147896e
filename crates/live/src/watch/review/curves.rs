//! What pictures need of a record: neighbours joined until there are few enough points.

use std::collections::BTreeMap;

use super::Review;
use crate::watch::record::{Interval, ListenerPart, WatchLine};

/// Points of a curve, at most.
const POINTS_MAX: usize = 1_000;
/// Listeners, and destinations, that are drawn, at most.
const DRAWN_MAX: usize = 8;

/// The second reading of a record: keeps what is drawn.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Place of a listener in the review, by address and port.
    places: BTreeMap<(String, u16), u32>,
    /// Place and limit by number.
    numbers: BTreeMap<u32, (u32, u32)>,
    drawn: Vec<String>,
    /// Width of a point, s.
    step_s: f64,
    series: Series,
    open: Option<(u64, Interval)>,
}

/// What is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// At most 1,001 intervals. Numbers of listeners are their places in the review.
    pub points: Vec<Interval>,
    /// Limits of the accept queue by place: since when, s, and which.
    pub limits: BTreeMap<u32, Vec<(f64, u32)>>,
}

impl Curves {
    /// For the record of this review.
    pub fn new(review: &Review) -> Self {
        let listeners = review.listeners.iter().take(DRAWN_MAX).enumerate();
        let places =
            listeners.map(|(at, one)| ((one.address.clone(), one.port), at as u32)).collect();
        let drawn = review.destinations.iter().take(DRAWN_MAX).map(|one| one.to.clone()).collect();
        Self {
            places,
            numbers: BTreeMap::new(),
            drawn,
            step_s: (review.lasted_s / POINTS_MAX as f64).max(1e-3),
            series: Series::default(),
            open: None,
        }
    }

    /// Takes a line that [`Reviewer`](super::Reviewer) took.
    pub fn line(&mut self, line: WatchLine) {
        match line {
            WatchLine::Listener(line) => {
                if let Some(place) = self.places.get(&(line.address, line.port)) {
                    self.numbers.insert(line.n, (*place, line.accept_queue_limit));
                }
            }
            WatchLine::State(interval) => self.interval(*interval),
            _ => {}
        }
    }

    fn interval(&mut self, mut interval: Interval) {
        interval.diagnoses.clear();
        interval.limits = None;
        interval.destinations.retain(|one| self.drawn.contains(&one.to));
        interval.listeners = self.listeners(std::mem::take(&mut interval.listeners), interval.at_s);
        let at = (interval.at_s / self.step_s).floor() as u64;
        self.open = match self.open.take() {
            Some((step, open)) if step == at => Some((step, open.join(interval))),
            Some((_, open)) => {
                self.series.points.push(open);
                Some((at, interval))
            }
            None => Some((at, interval)),
        };
    }

    /// Sockets of one address and port as one listener, numbered by its place.
    fn listeners(&mut self, parts: Vec<ListenerPart>, at_s: f64) -> Vec<ListenerPart> {
        let mut all: BTreeMap<u32, ListenerPart> = BTreeMap::new();
        for part in parts {
            let Some((place, limit)) = self.numbers.get(&part.n).copied() else { continue };
            let steps = self.series.limits.entry(place).or_default();
            // A socket of several with other limits makes a step at each look: that many are not drawn.
            if steps.last().is_none_or(|(_, last)| *last != limit) && steps.len() < POINTS_MAX {
                steps.push((at_s, limit));
            }
            let part = part.numbered(place);
            match all.get_mut(&place) {
                Some(known) => known.add(&part),
                None => drop(all.insert(place, part)),
            }
        }
        all.into_values().collect()
    }

    /// What is to be drawn.
    pub fn finish(mut self) -> Series {
        self.series.points.extend(self.open.take().map(|(_, open)| open));
        self.series
    }
}
