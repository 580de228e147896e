//! One question each, and the table of all. To add one: a folder, a line in [`ALL`], a recorded run in
//! `runner/replay/cases.rs`, a page in docs.

pub(crate) use crate::kit::plan::Experiment;

/// Every experiment, in alphabetical order.
pub(crate) const ALL: &[&dyn Experiment] = &[
    &crate::open::accept_queue::experiment::AcceptQueue,
    &crate::open::connect::experiment::Connect,
    &crate::requests::http::experiment::Http,
    &crate::idle::keepalive::experiment::Keepalive,
    &crate::carry::messages::Messages,
    &crate::pages::page::experiment::Page,
    &crate::carry::stream::Stream,
    &crate::open::syn_queue::experiment::SynQueue,
    &crate::open::time_wait::experiment::TimeWait,
    &crate::pages::visitors::experiment::VisitorsOfASite,
    &crate::requests::worker_pool::experiment::WorkerPool,
];

/// The experiment of this name.
///
/// None: this build cannot measure it.
pub(crate) fn find(name: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|experiment| experiment.spec().name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tcptoll_core::experiment::option::{DefaultValue, Only, Opt};
    use tcptoll_core::experiment::spec::Spec;
    use tcptoll_core::study::Settings;

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
        for experiment in ALL {
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
        let described: Vec<&str> = crate::specs::ALL.iter().map(|spec| spec.name).collect();
        let measured: Vec<&str> = ALL.iter().map(|experiment| experiment.spec().name).collect();
        assert_eq!(measured, described);
    }
}
