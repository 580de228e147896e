//! Machines that run the same study, each at a place of its own: vantage points.
//!
//! In what their studies may differ is said by [`difference`], what they show together [`crate::verdict::compare::over_points`].

use crate::study::{Compare, NamedArm, Settings, Study};

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

#[cfg(test)]
mod tests {
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
}
