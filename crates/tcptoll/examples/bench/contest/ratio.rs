//! How far are two contestants apart, over rounds in which both took part?

use tcptoll_core::stats::{sample, sequence};

/// The ratio of two figures, and the figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    /// Geometric mean of the rounds' ratios, ours over theirs: what a round does to both cancels.
    pub(crate) value: f64,
    /// Interval that holds the ratio in 95 % of runs, whenever one stops. None: too few rounds.
    pub(crate) ci95: Option<[f64; 2]>,
    /// Geometric means, whose ratio the above is.
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    pub(crate) rounds: usize,
}

impl Ratio {
    /// Of one value a round each. None: they are not paired, or a value is not above 0.
    pub(crate) fn between(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        let above = |values: &[f64]| values.iter().all(|value| *value > 0.0);
        if ours.len() != theirs.len() || !above(ours) || !above(theirs) {
            return None;
        }
        let logs: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| (a / b).ln()).collect();
        let geometric = |values: &[f64]| -> Option<f64> {
            let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
            Some(sample::mean(&logs)?.exp())
        };
        Some(Self {
            value: sample::mean(&logs)?.exp(),
            ci95: sequence::interval(&logs, 0.05).map(|ends| ends.map(f64::exp)),
            ours: geometric(ours)?,
            theirs: geometric(theirs)?,
            rounds: logs.len(),
        })
    }

    /// `[0.76, 0.80]`, or why there is none.
    pub(crate) fn interval(&self) -> String {
        match self.ci95 {
            Some([low, high]) => format!("[{low:.3}, {high:.3}]"),
            None => format!("(too few rounds, {})", self.rounds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_round_does_to_both_cancels() {
        let theirs = [1.0, 2.0, 4.0, 8.0, 16.0];
        let ours = theirs.map(|value| value / 2.0);
        let ratio = Ratio::between(&ours, &theirs).unwrap();
        assert!((ratio.value - 0.5).abs() < 1e-12, "{ratio:?}");
        // Five equal ratios: no spread. The geometric mean of 1 to 16 is 4.
        let [low, high] = ratio.ci95.unwrap();
        assert!((low - 0.5).abs() < 1e-12 && (high - 0.5).abs() < 1e-12, "{ratio:?}");
        assert!((ratio.theirs - 4.0).abs() < 1e-12 && ratio.rounds == 5, "{ratio:?}");
    }

    #[test]
    fn four_rounds_have_a_ratio_and_no_interval() {
        let ratio = Ratio::between(&[1.0, 1.1, 0.9, 1.0], &[1.0; 4]).unwrap();
        assert_eq!(ratio.ci95, None);
        assert_eq!(ratio.interval(), "(too few rounds, 4)");
    }

    #[test]
    fn what_has_no_logarithm_has_no_ratio() {
        assert!(Ratio::between(&[0.0], &[1.0]).is_none());
        assert!(Ratio::between(&[1.0], &[1.0, 1.0]).is_none());
        assert!(Ratio::between(&[], &[]).is_none());
    }
}
