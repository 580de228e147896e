//! Every contestant once a round, in an order shuffled anew each round.

use anyhow::Context as _;
use tcptoll_core::study;

use super::ratio::Ratio;

/// Orders of rounds are drawn from this, so that a run can be repeated.
const SEED: u64 = 20_191_105;

/// What each contestant did, one sample a round.
#[derive(Debug)]
pub(crate) struct Rounds<S> {
    /// In the order given.
    entries: Vec<(&'static str, Vec<S>)>,
}

impl<S> Rounds<S> {
    /// Gives each name its turns. `turn`: called with the place of a name.
    pub(crate) fn run(
        names: &[&'static str],
        rounds: u32,
        mut turn: impl FnMut(usize) -> anyhow::Result<S>,
    ) -> anyhow::Result<Self> {
        let mut entries: Vec<(&'static str, Vec<S>)> =
            names.iter().map(|name| (*name, Vec::new())).collect();
        for round in 0..rounds {
            for place in study::order_of_round(SEED, round, names.len()) {
                let (name, samples) = &mut entries[place];
                let sample = turn(place);
                samples.push(sample.with_context(|| format!("round {}, {name}", round + 1))?);
            }
        }
        Ok(Self { entries })
    }

    /// Names and samples, in the order given.
    pub(crate) fn entries(&self) -> &[(&'static str, Vec<S>)] {
        &self.entries
    }

    /// How far two are apart in a figure. None: one of them did not take part, or a figure is not
    /// above 0.
    pub(crate) fn ratio(&self, ours: &str, theirs: &str, figure: fn(&S) -> f64) -> Option<Ratio> {
        let figures = |name: &str| -> Option<Vec<f64>> {
            let (_, samples) = self.entries.iter().find(|(other, _)| *other == name)?;
            Some(samples.iter().map(figure).collect())
        };
        Ratio::between(&figures(ours)?, &figures(theirs)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_turn_in_each_round_and_ratios_are_of_pairs() {
        let mut turns = 0.0;
        let rounds = Rounds::run(&["a", "b"], 5, |place| {
            turns += 1.0;
            Ok(if place == 0 { 3.0 } else { 6.0 })
        });
        let rounds = rounds.unwrap();
        assert!((turns - 10.0_f64).abs() < 1e-9);
        assert!(rounds.entries().iter().all(|(_, samples)| samples.len() == 5));
        let ratio = rounds.ratio("a", "b", |value| *value).unwrap();
        assert!((ratio.value - 0.5).abs() < 1e-12, "{ratio:?}");
        assert!(rounds.ratio("a", "c", |value| *value).is_none());
    }

    #[test]
    fn a_turn_that_fails_is_named() {
        let failed = Rounds::<f64>::run(&["a"], 1, |_| anyhow::bail!("no"));
        assert_eq!(format!("{:#}", failed.unwrap_err()), "round 1, a: no");
    }
}
