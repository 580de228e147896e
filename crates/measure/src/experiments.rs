//! One question each, and the table of all. To add one: a folder, a line in the table, a recorded run in
//! `runner/replay/mod.rs`, a page in docs.

use tcptoll_core::experiment::spec::{Spec, Specs};
use tcptoll_show::run::Reports;

use crate::kit::plan::Experiment;

/// The tables of experiments, from a line each: what it is, how it is measured, what it shows of its own.
macro_rules! experiments {
    ($($spec:path, $experiment:path, $own:path;)*) => {
        /// How each is measured.
        pub(crate) const EXPERIMENTS: &[&dyn Experiment] = &[$(&$experiment),*];

        /// What each experiment is, without a machine.
        pub const ALL: &[&Spec] = &[$(&$spec),*];

        /// The same, to be asked by name.
        pub const SPECS: Specs = Specs(ALL);

        /// Reports of the experiments of this build.
        pub const REPORTS: Reports = Reports {
            specs: SPECS,
            own: &[$(($spec.name, &$own)),*],
            broken: crate::limit::broken,
        };
    };
}

// In alphabetical order.
experiments! {
    crate::open::accept_queue::SPEC, crate::open::accept_queue::AcceptQueue, crate::open::accept_queue::sheet::OWN;
    crate::open::connect::SPEC, crate::open::connect::Connect, crate::open::connect::sheet::OWN;
    crate::requests::http::SPEC, crate::requests::http::Http, crate::requests::http::sheet::OWN;
    crate::idle::keepalive::SPEC, crate::idle::keepalive::Keepalive, crate::idle::keepalive::pictures::OWN;
    crate::carry::messages::SPEC, crate::carry::messages::Messages, crate::carry::messages::sheet::OWN;
    crate::pages::page::SPEC, crate::pages::page::Page, crate::pages::page::sheet::OWN;
    crate::carry::stream::SPEC, crate::carry::stream::Stream, crate::carry::stream::sheet::OWN;
    crate::open::syn_queue::SPEC, crate::open::syn_queue::SynQueue, crate::open::syn_queue::sheet::OWN;
    crate::open::time_wait::SPEC, crate::open::time_wait::TimeWait, crate::open::time_wait::sheet::OWN;
    crate::pages::visitors::SPEC, crate::pages::visitors::VisitorsOfASite, crate::pages::visitors::sheet::OWN;
    crate::requests::worker_pool::SPEC, crate::requests::worker_pool::WorkerPool, crate::requests::worker_pool::sheet::OWN;
}

/// The experiment of this name, as of [`Specs::find`].
pub fn find(name: &str) -> Option<&'static Spec> {
    SPECS.find(name)
}

/// How the experiment of this name is measured.
///
/// None: this build cannot measure it.
pub(crate) fn find_experiment(name: &str) -> Option<&'static dyn Experiment> {
    EXPERIMENTS.iter().copied().find(|experiment| experiment.spec().name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tcptoll_core::experiment::option::{DefaultValue, Only, Opt};
    use tcptoll_core::study::Settings;
    use tcptoll_core::tcp::checking::Path;
    use tcptoll_core::units::parse_share;

    use super::*;

    /// The fewest settings beside which an option has an effect.
    fn needed(spec: &Spec, option: &Opt) -> Settings {
        let mut settings = Settings::new();
        for only in option.only {
            let (other, value) = match only {
                Only::Lab | Only::OwnNetwork | Only::Target => continue,
                Only::OverSsh => ("server", "ssh://here"),
                Only::When(other, values) => (*other, values[0]),
                Only::With(other @ ("pause-every" | "rate" | "retries"), _) => (*other, "1"),
                Only::With(other @ "backoff", _) => (*other, "1s"),
                Only::With(other @ "detect-within", _) => (*other, "30s"),
                Only::With(other @ "memory", _) => (*other, "true"),
                Only::With(other @ "site", _) => (*other, "/usr/share/doc"),
                Only::With(other, _) => panic!("write a value for --{other}"),
            };
            settings.insert(other.to_owned(), Value::from(value));
            settings.extend(needed(spec, spec.option(other).unwrap()));
        }
        settings
    }

    #[test]
    fn every_default_is_read_as_if_it_were_typed() {
        for experiment in EXPERIMENTS {
            let spec = experiment.spec();
            experiment.plan(&Settings::new()).map(drop).unwrap();
            for option in spec.options {
                let DefaultValue::Text(text) = option.default else { continue };
                let mut settings = needed(spec, option);
                settings.insert(option.name.to_owned(), Value::from(text));
                let read = experiment.plan(&settings).map(drop).map_err(|error| error.to_string());
                assert_eq!(read, Ok(()), "{}: {settings:?}", spec.name);
            }
        }
    }

    #[test]
    fn every_experiment_is_described_in_the_model() {
        let described: Vec<&str> = ALL.iter().map(|spec| spec.name).collect();
        let measured: Vec<&str> =
            EXPERIMENTS.iter().map(|experiment| experiment.spec().name).collect();
        assert_eq!(measured, described);
    }

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
