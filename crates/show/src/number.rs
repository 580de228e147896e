//! How are figures written that stand together: those of a column, and a figure with its interval?

pub use tcptoll_core::number::*;

/// Unit of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Microseconds.
    Micro,
    /// Milliseconds.
    Milli,
    /// Seconds.
    Second,
}

impl TimeUnit {
    /// For a column of values: that of the least one, unless the greatest would be unreadable in it.
    /// Every column of times is written in one unit, so that its figures can be compared.
    pub fn of_column(values: impl IntoIterator<Item = f64>) -> Self {
        let sizes = values.into_iter().map(f64::abs).filter(|us| us.is_finite() && *us > 0.0);
        let (least, greatest) =
            sizes.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), us| (a.min(us), b.max(us)));
        // Five digits before the point are read with less ease than two zeros after it, but not than three.
        let readable = |unit: &Self| {
            let most = if least < 10.0 * unit.us() { 99_999.5 } else { 9_999.5 };
            greatest / unit.us() < most
        };
        match least {
            // No value, or none but 0.
            us if us.is_infinite() => Some(Self::Micro),
            us if us < 999.5 => [Self::Micro, Self::Milli].into_iter().find(readable),
            us if us < 999_500.0 => [Self::Milli].into_iter().find(readable),
            _ => None,
        }
        .unwrap_or(Self::Second)
    }

    /// Microseconds in one of it.
    fn us(self) -> f64 {
        match self {
            Self::Micro => 1.0,
            Self::Milli => 1e3,
            Self::Second => 1e6,
        }
    }

    /// `µs`, `ms` or `s`.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Micro => "µs",
            Self::Milli => "ms",
            Self::Second => "s",
        }
    }

    /// The figure in this unit, without it.
    pub fn figure(self, us: f64) -> String {
        three(us / self.us())
    }

    /// The figure with this unit.
    pub fn text(self, us: f64) -> String {
        format!("{} {}", self.figure(us), self.symbol())
    }
}

/// A column of latencies, all in one unit; [`ABSENT`] where there is none.
pub fn times(column: &[Option<f64>]) -> Vec<String> {
    let unit = TimeUnit::of_column(column.iter().flatten().copied());
    let cell = |us: &Option<f64>| us.map_or_else(|| ABSENT.to_owned(), |us| unit.text(us));
    column.iter().map(cell).collect()
}

/// As [`times`], with the digits of [`exact_time`].
pub fn exact_times(column: &[f64]) -> Vec<String> {
    let unit = TimeUnit::of_column(column.iter().copied());
    let cell = |us: &f64| format!("{} {}", significant(us / unit.us(), 4), unit.symbol());
    column.iter().map(cell).collect()
}

// How is a figure with its interval written?

/// A figure and its 95 % interval, if there is one.
type WithInterval = (f64, Option<[f64; 2]>);

/// A figure with its interval, all in one unit and with the same decimals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// The figure, without unit.
    pub value: String,
    /// Its interval: `[13,480, 13,600]`.
    pub ci95: Option<String>,
    /// The unit; empty if there is none.
    pub symbol: String,
}

impl Estimate {
    /// Three digits, or as many as the width of the interval gives a meaning to.
    pub(crate) fn new(value: f64, ci95: Option<[f64; 2]>, unit: &str) -> Self {
        Self::within(value, ci95, unit, None)
    }

    /// A column of figures, each with its interval; times are all in one unit.
    pub(crate) fn column(figures: &[Option<WithInterval>], unit: &str) -> Vec<Option<Self>> {
        let time = is_time(unit)
            .then(|| TimeUnit::of_column(figures.iter().flatten().map(|(value, _)| *value)));
        let cell = |(value, ci95): (f64, _)| Self::within(value, ci95, unit, time);
        figures.iter().map(|figure| figure.map(cell)).collect()
    }

    /// The figure in the unit of its column, if it has one.
    pub(crate) fn within(
        value: f64,
        ci95: Option<[f64; 2]>,
        unit: &str,
        column: Option<TimeUnit>,
    ) -> Self {
        let ends = ci95.unwrap_or([value; 2]);
        let greatest = ends.into_iter().fold(value.abs(), |most, end| most.max(end.abs()));
        let in_ms = is_time(unit) && (999_500.0..TEN_SECONDS_US).contains(&greatest);
        let time = column.or(in_ms.then_some(TimeUnit::Milli));
        let (factor, symbol) =
            time.map_or_else(|| scale(unit, greatest), |time| (1.0 / time.us(), time.symbol()));
        let width = ci95.map(|[low, high]| (high - low) * factor);
        let decimals = decimals(greatest * factor, width);
        let text = |value: f64| fixed(value * factor, decimals);
        Self {
            value: text(value),
            ci95: ci95.map(|[low, high]| format!("[{}, {}]", text(low), text(high))),
            symbol: symbol.to_owned(),
        }
    }

    /// A difference: a figure above 0 has its sign too.
    pub(crate) fn signed(value: f64, ci95: Option<[f64; 2]>, unit: &str) -> Self {
        let mut estimate = Self::new(value, ci95, unit);
        if value > 0.0 {
            estimate.value.insert(0, '+');
        }
        estimate
    }

    /// `13,540 [13,480, 13,600] /s`, or `13,540/s`.
    pub(crate) fn text(&self) -> String {
        if self.ci95.is_none() && self.symbol.starts_with('/') {
            return format!("{}{}", self.value, self.symbol);
        }
        let parts = [Some(&self.value), self.ci95.as_ref(), Some(&self.symbol)];
        let parts: Vec<&str> = parts
            .into_iter()
            .flatten()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        parts.join(" ")
    }
}

/// Whether values of this unit are times, which are written in µs, ms or s.
pub(crate) fn is_time(unit: &str) -> bool {
    matches!(unit, "us" | "µs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_times_has_one_unit() {
        let some = |values: &[f64]| times(&values.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(some(&[1_120.0, 850.0]), ["1,120 µs", "850 µs"]);
        assert_eq!(some(&[37_100.0, 48.0, 0.0]), ["37.1 ms", "0.0480 ms", "0 ms"]);
        assert_eq!(some(&[37_100.0, 4.8]), ["37,100 µs", "4.80 µs"]);
        assert_eq!(some(&[48.0, 3_003_000.0]), ["0.0480 ms", "3,003 ms"]);
        assert_eq!(some(&[1_500.0, 3_003_000.0]), ["1.50 ms", "3,003 ms"]);
        assert_eq!(some(&[1_000_000.0, 200e6]), ["1.00 s", "200 s"]);
        assert_eq!(times(&[None, Some(5.0)]), [ABSENT, "5.00 µs"]);
        assert_eq!(exact_times(&[37_060.0, 75.12]), ["37.06 ms", "0.07512 ms"]);
        let figures = [Some((850.0, Some([800.0, 1_200.0]))), None, Some((1_120.0, None))];
        let texts: Vec<Option<String>> = Estimate::column(&figures, "us")
            .iter()
            .map(|e| e.as_ref().map(Estimate::text))
            .collect();
        let expected = ["850 [800, 1,200] µs", "1,120 µs"].map(|text| Some(text.to_owned()));
        assert_eq!([texts[0].clone(), texts[2].clone()], expected);
        assert_eq!(texts[1], None);
    }

    #[test]
    fn an_interval_decides_how_many_digits_are_shown() {
        let text = |value, ci95, unit| Estimate::new(value, ci95, unit).text();
        assert_eq!(text(13_540.4, Some([13_480.0, 13_600.0]), "1/s"), "13,540 [13,480, 13,600] /s");
        assert_eq!(text(37_051.0, Some([37_049.0, 37_054.0]), "us"), "37.051 [37.049, 37.054] ms");
        assert_eq!(text(0.61, None, "1"), "0.610");
        assert_eq!(
            Estimate::signed(2e6, Some([-1e6, 5e6]), "bytes/s").text(),
            "+16.0 [-8.0, 40.0] Mbit/s"
        );
    }
}
