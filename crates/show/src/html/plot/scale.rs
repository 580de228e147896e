//! From values to places, and round values for ticks.

/// How values go with places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are, with ticks at 1, 2 and 5 times powers of ten.
    Log,
    /// Equal ratios are, with ticks at powers of two: sizes in bytes.
    Bytes,
}

/// From values to places on the paper, linear or logarithmic.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    least: f64,
    most: f64,
    kind: Kind,
    /// Place of the least value.
    pub from: f64,
    /// Place of the greatest value.
    pub to: f64,
}

/// What a scale is to hold, before its places are known.
#[derive(Clone, Debug)]
pub enum Span {
    /// From 0 to a value.
    FromZero(f64),
    /// As of [`Scale::fit`].
    Fit(Vec<f64>),
    /// As of [`Scale::log`].
    Log(Vec<f64>),
}

impl Span {
    /// The scale for places.
    pub fn scale(&self, from: f64, to: f64) -> Scale {
        match self {
            Self::FromZero(most) => Scale::from_zero(*most, from, to),
            Self::Fit(values) => Scale::fit(values.iter().copied(), from, to),
            Self::Log(values) => Scale::log(values.iter().copied(), from, to),
        }
    }
}

/// From this ratio of greatest to least on, an axis is logarithmic.
const SPANS_DECADES: f64 = 20.0;

impl Scale {
    /// A scale that holds all `values`; logarithmic if they span decades.
    pub fn fit(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && *v >= 0.0).collect();
        let least = values.iter().copied().filter(|v| *v > 0.0).reduce(f64::min).unwrap_or(1.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(1.0).max(least);
        if most / least >= SPANS_DECADES {
            return Self { least: least * 0.9, most: most * 1.1, kind: Kind::Log, from, to };
        }
        let margin = ((most - least) * 0.04).max(most * 1e-4);
        Self { least: (least - margin).max(0.0), most: most + margin, kind: Kind::Linear, from, to }
    }

    /// A logarithmic scale that holds all `values` above 0, with some room at both ends.
    pub fn log(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && *v > 0.0).collect();
        let least = values.iter().copied().reduce(f64::min).unwrap_or(1.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(1.0);
        let room = (most / least).powf(0.05).max(1.000_5);
        Self { least: least / room, most: most * room, kind: Kind::Log, from, to }
    }

    /// The same for sizes in bytes, with ticks at powers of two.
    pub fn bytes(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        Self { kind: Kind::Bytes, ..Self::log(values, from, to) }
    }

    /// A linear scale between two values.
    pub fn between(least: f64, most: f64, from: f64, to: f64) -> Self {
        let most = if most > least { most } else { least + least.abs().max(1e-9) * 1e-3 };
        Self { least, most, kind: Kind::Linear, from, to }
    }

    /// A linear scale from 0.
    pub fn from_zero(most: f64, from: f64, to: f64) -> Self {
        Self { least: 0.0, most: most.max(1e-9), kind: Kind::Linear, from, to }
    }

    /// Whether it is logarithmic.
    pub fn is_log(&self) -> bool {
        self.kind != Kind::Linear
    }

    /// Place of a value.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.is_log() {
            (value.max(self.least) / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The greatest value that has a place.
    pub fn most(&self) -> f64 {
        self.most
    }

    /// Round values inside, at most about `most`.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        if self.kind == Kind::Bytes {
            return self.byte_ticks(most);
        }
        // Within a few times the least value, decades have no ticks to offer.
        if self.is_log() && self.most / self.least > 5.0 {
            self.log_ticks(most)
        } else {
            self.linear_ticks(most)
        }
    }

    fn linear_ticks(&self, most: usize) -> Vec<f64> {
        let rough = (self.most - self.least) / most.max(2) as f64;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(decade * 10.0);
        let first = (self.least / step).ceil() as i64;
        let last = (self.most / step).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }

    fn log_ticks(&self, most: usize) -> Vec<f64> {
        let first = self.least.log10().floor() as i32;
        let last = self.most.log10().ceil() as i32;
        let ticks = |multiples: &[f64], every: i32| -> Vec<f64> {
            (first..=last)
                .filter(|exponent| exponent.rem_euclid(every) == 0)
                .flat_map(|e| multiples.iter().map(move |m| m * 10_f64.powi(e)))
                .filter(|v| *v >= self.least && *v <= self.most)
                .collect()
        };
        let finest = [ticks(&[1.0, 2.0, 5.0], 1), ticks(&[1.0], 1), ticks(&[1.0], 2)];
        let [_, _, coarsest] = finest.clone();
        finest.into_iter().find(|ticks| ticks.len() <= most).unwrap_or(coarsest)
    }

    /// Powers of two, or of 4, 8, 32 or 1,024 where those are too many.
    fn byte_ticks(&self, most: usize) -> Vec<f64> {
        let first = self.least.log2().ceil() as i32;
        let last = self.most.log2().floor() as i32;
        let ticks = |every: i32| -> Vec<f64> {
            let exponents = (first..=last).filter(|exponent| exponent.rem_euclid(every) == 0);
            exponents.map(|exponent| 2_f64.powi(exponent)).collect()
        };
        let found = [1, 2, 3, 5].into_iter().map(ticks).find(|ticks| ticks.len() <= most);
        found.unwrap_or_else(|| ticks(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = Scale::fit([37_000.0, 38_400.0].into_iter(), 0.0, 100.0);
        assert_eq!(linear.ticks(4), [37_000.0, 37_500.0, 38_000.0]);
        let log = Scale::fit([20.0, 3e6].into_iter(), 0.0, 100.0);
        assert_eq!(log.ticks(6), [100.0, 1e3, 1e4, 1e5, 1e6]);
        assert!(log.is_log() && !linear.is_log());
    }

    #[test]
    fn a_logarithmic_axis_close_to_one_has_plain_ticks() {
        let near = Scale::log([0.96, 1.04].into_iter(), 0.0, 100.0);
        assert_eq!(near.ticks(5).len(), 5);
        let far = Scale::log([0.1, 10.0].into_iter(), 0.0, 100.0);
        assert!((far.at(1.0) - 50.0).abs() < 1e-9);
        assert_eq!(far.ticks(9), [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn sizes_have_ticks_at_powers_of_two() {
        let windows = Scale::bytes([2_048.0, 4_194_304.0].into_iter(), 0.0, 100.0);
        let kib = |n: f64| n * 1_024.0;
        assert_eq!(windows.ticks(6), [4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0].map(kib));
        assert_eq!(windows.ticks(12).len(), 12);
        let messages = Scale::bytes([1.0, 4_194_304.0].into_iter(), 0.0, 100.0);
        assert_eq!(messages.ticks(5), [1.0, 32.0, 1_024.0, 32_768.0, 1_048_576.0]);
        assert!(messages.is_log());
    }

    #[test]
    fn a_single_value_stands_in_the_middle_of_its_scale() {
        let scale = Scale::fit([50.0].into_iter(), 0.0, 100.0);
        assert!((scale.at(50.0) - 50.0).abs() < 1.0);
    }
}
