//! Machines that run the same study, each at a place of its own: vantage points; and the part of a load
//! that one of several machines takes.
//!
//! In what their studies may differ is said by [`difference`], what they show together by
//! [`crate::verdict::points::over_points`]. A share has its own number of requests and no duration. A
//! duration would be rounded up in each share: three shares of 10,000 requests would have 10,002.

use std::fmt;
use std::str::FromStr;

use super::{Compare, NamedArm, Settings, Study};

/// Longest name of a vantage point, in bytes.
pub const NAME_MAX: usize = 64;

/// Whether a vantage point may have this name: letters, digits, `.`, `-` and `_`, the first a letter or digit. It
/// can be the name of a file.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    first && text.len() <= NAME_MAX && text.chars().all(rest)
}

/// Options that say where a point is and how it is reached. Points may differ in them.
const OF_THE_POINT: [&str; 5] = ["client", "client-address", "remote-binary", "share", "ssh"];

/// In which part two studies differ so that their figures do not belong together, in words; `None`: in none.
///
/// Rounds, title, answer and published figures change no figure of an arm. `with_margin`: the margin, from which
/// verdicts follow, has to be the same.
#[must_use]
pub fn difference(a: &Study, b: &Study, with_margin: bool) -> Option<String> {
    if a.experiment != b.experiment {
        return Some(format!("it is of {}, not of {}", b.experiment, a.experiment));
    }
    let parts = |study: &Study| Parts {
        settings: common(&study.settings),
        factors: study.factors.clone(),
        arms: study.named_arms.iter().map(common_arm).collect(),
        compare: study.compare.clone(),
        others: [study.metric.clone(), study.warmup.as_ref().map(ToString::to_string)],
    };
    let margins = [a.margin.clone(), b.margin.clone()];
    let (a, b) = (parts(a), parts(b));
    let names = a.settings.keys().chain(b.settings.keys());
    if let Some(name) = names.clone().find(|name| a.settings.get(*name) != b.settings.get(*name)) {
        let value = |settings: &Settings| {
            settings.get(name).map_or_else(|| "absent".to_owned(), ToString::to_string)
        };
        return Some(format!(
            "its option {name} is {}, not {}",
            value(&b.settings),
            value(&a.settings)
        ));
    }
    if with_margin && margins[0] != margins[1] {
        let [a, b] = margins.map(|margin| margin.unwrap_or_else(|| "absent".to_owned()));
        return Some(format!("its margin is {b}, not {a}; --margin sets one for all"));
    }
    [
        (a.factors != b.factors, "its levels differ"),
        (a.arms != b.arms, "its arms differ"),
        (a.compare != b.compare, "it compares other arms"),
        (a.others != b.others, "its metric or warm-up differs"),
    ]
    .into_iter()
    .find_map(|(differs, words)| differs.then(|| words.to_owned()))
}

#[derive(PartialEq)]
struct Parts {
    settings: Settings,
    factors: std::collections::BTreeMap<String, Vec<serde_json::Value>>,
    arms: Vec<NamedArm>,
    compare: Vec<Compare>,
    others: [Option<String>; 2],
}

fn common(settings: &Settings) -> Settings {
    let of_all = |(name, _): &(&String, &serde_json::Value)| !OF_THE_POINT.contains(&name.as_str());
    settings.iter().filter(of_all).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn common_arm(arm: &NamedArm) -> NamedArm {
    NamedArm { settings: common(&arm.settings), ..arm.clone() }
}

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
    fn a_name_can_be_the_name_of_a_file() {
        for name in ["fra1", "a", "eu-west.2_b", "9"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "-x", "a/b", "a b", "ü", "a\n", &"x".repeat(65)] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    fn study(settings: &[(&str, i64)]) -> Study {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        Study { experiment: "connect".into(), settings: settings.collect(), ..Study::default() }
    }

    #[test]
    fn studies_of_two_points_may_differ_in_place_and_length_alone() {
        let one = study(&[("count", 100)]);
        let mut other = study(&[("count", 100)]);
        other.settings.insert("client".into(), "ssh://fra1".into());
        other.rounds.fixed = Some(15);
        other.margin = Some("2%".into());
        assert_eq!(difference(&one, &other, false), None);
        let reason = "its margin is 2%, not absent; --margin sets one for all";
        assert_eq!(difference(&one, &other, true).unwrap(), reason);
        other.settings.insert("count".into(), 200.into());
        assert_eq!(difference(&one, &other, false).unwrap(), "its option count is 200, not 100");
        other.settings.remove("count");
        assert_eq!(difference(&one, &other, false).unwrap(), "its option count is absent, not 100");
        other = Study { experiment: "http".into(), ..one.clone() };
        assert_eq!(difference(&one, &other, false).unwrap(), "it is of http, not of connect");
        other = one.clone();
        other.factors.insert("backlog".into(), vec![1.into(), 2.into()]);
        assert_eq!(difference(&one, &other, false).unwrap(), "its levels differ");
    }

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
