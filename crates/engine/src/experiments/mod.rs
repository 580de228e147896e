//! One question each, and the table of all. To add one: a folder, a line in [`ALL`], a recorded run in
//! `runner/replay/cases.rs`, a page in docs.

pub mod accept_queue;
pub mod bench;
pub mod connect;
pub mod http;
pub mod keepalive;
pub mod messages;
pub mod page;
pub mod stream;
pub mod syn_queue;
pub mod time_wait;
pub mod visitors;
pub mod worker_pool;

pub use self::bench::plan::{
    Context, Experiment, Outcome, Plan, PublicLoad, SplitPlan, Start, TrialError,
};

/// Every experiment, in alphabetical order.
pub const ALL: &[&dyn Experiment] = &[
    &accept_queue::AcceptQueue,
    &connect::Connect,
    &http::Http,
    &keepalive::Keepalive,
    &messages::Messages,
    &page::Page,
    &stream::Stream,
    &syn_queue::SynQueue,
    &time_wait::TimeWait,
    &visitors::VisitorsOfASite,
    &worker_pool::WorkerPool,
];

/// The experiment of this name.
///
/// None: this build cannot measure it.
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|experiment| experiment.spec().name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tcptoll_model::experiments::option::{DefaultValue, Only, Opt};
    use tcptoll_model::experiments::spec::Spec;
    use tcptoll_model::study::Settings;

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
        let described: Vec<&str> =
            tcptoll_model::experiments::ALL.iter().map(|spec| spec.name).collect();
        let measured: Vec<&str> = ALL.iter().map(|experiment| experiment.spec().name).collect();
        assert_eq!(measured, described);
    }
}
