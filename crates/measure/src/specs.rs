//! What each experiment is, without a machine: a folder each, and the table of all.

use tcptoll_core::experiment::spec::{Spec, Specs};

/// Every experiment, in alphabetical order.
pub const ALL: &[&Spec] = &[
    &crate::open::accept_queue::SPEC,
    &crate::open::connect::SPEC,
    &crate::requests::http::SPEC,
    &crate::idle::keepalive::SPEC,
    &crate::carry::messages::SPEC,
    &crate::pages::page::SPEC,
    &crate::carry::stream::SPEC,
    &crate::open::syn_queue::SPEC,
    &crate::open::time_wait::SPEC,
    &crate::pages::visitors::SPEC,
    &crate::requests::worker_pool::SPEC,
];

/// The same, to be asked by name.
pub const SPECS: Specs = Specs(ALL);

/// The experiment of this name, as of [`Specs::find`].
pub fn find(name: &str) -> Option<&'static Spec> {
    SPECS.find(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::experiment::option::{DefaultValue, Only};
    use tcptoll_core::tcp::checking::Path;
    use tcptoll_core::units::parse_share;

    #[test]
    fn names_are_sorted_unique_and_typeable_and_questions_are_questions() {
        assert!(ALL.windows(2).all(|pair| pair[0].name < pair[1].name));
        for spec in ALL {
            let name = spec.name;
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
            assert!(spec.question.ends_with('?'), "{name}");
            assert!(spec.metrics.windows(2).all(|pair| pair[0].name < pair[1].name), "{name}");
            let mut causes: Vec<&str> = spec.causes.iter().map(|cause| cause.id).collect();
            causes.sort_unstable();
            assert!(causes.windows(2).all(|pair| pair[0] != pair[1]), "{name}: {causes:?}");
            assert!(spec.histograms.windows(2).all(|p| p[0].name < p[1].name), "{name}");
        }
    }

    #[test]
    fn options_are_unique_typeable_and_stand_together_by_heading() {
        for spec in ALL {
            let names = spec.option_names();
            assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
            let kebab =
                |name: &&str| name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
            assert!(names.iter().all(kebab), "{names:?}");
            assert!(spec.target.is_none_or(|name| spec.option(name).is_some()), "{}", spec.name);
            let mut groups: Vec<&str> = spec.options.iter().map(|option| option.group).collect();
            groups.dedup();
            let several = |group: &&str| groups.iter().filter(|one| **one == *group).count() > 1;
            let split = groups.iter().copied().find(|group| !group.is_empty() && several(group));
            assert_eq!(split, None, "{}: in two places", spec.name);
        }
    }

    #[test]
    fn what_an_option_says_of_others_is_about_options_that_there_are() {
        for spec in ALL {
            for option in spec.options {
                let name = format!("{} --{}", spec.name, option.name);
                assert!(!option.help.is_empty() && !option.help.ends_with('.'), "{name}");
                assert!(!option.help.contains("[default"), "{name}");
                for only in option.only {
                    if let Only::With(other, _) | Only::When(other, _) = only {
                        assert!(spec.option(other).is_some(), "{name}: {other}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_name_has_one_meaning_in_all_experiments() {
        for spec in ALL {
            for known in spec.metrics {
                let first = SPECS.metric(known.name).unwrap();
                assert_eq!(
                    (first.words, first.better),
                    (known.words, known.better),
                    "{}",
                    spec.name
                );
                assert_eq!(SPECS.unit_of_metric(spec.name, known.name), known.unit);
            }
            for known in spec.histograms {
                assert_eq!(SPECS.histogram(known.name), Some(*known), "{}", spec.name);
            }
        }
    }

    #[test]
    fn the_loss_that_is_assumed_by_default_is_the_one_of_the_arithmetic() {
        let default = crate::idle::keepalive::SPEC.option("assumed-loss").unwrap().default;
        let DefaultValue::Text(text) = default else { panic!("{default:?}") };
        assert_eq!(parse_share(text), Ok(Path::ASSUMED.loss));
    }
}
