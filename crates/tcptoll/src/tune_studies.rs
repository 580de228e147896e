//! The studies that `tune` measures with, and what of their options a search varies.

use std::sync::LazyLock;

use crate::tune::setting::Setting;
use crate::tune::strategy::REQUESTS_USUAL;
use tcptoll_core::experiment::option::{Levels, Opt};
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::{Settings, Study, level_text};
use tcptoll_core::units::parse_time;
use tcptoll_measure::experiments;
use tcptoll_measure::pages::Server;

static SEARCH: LazyLock<Study> =
    LazyLock::new(|| built_in(include_str!("../studies/tune/search.toml")));
static PAGE: LazyLock<Study> =
    LazyLock::new(|| built_in(include_str!("../studies/tune/page.toml")));

fn built_in(text: &str) -> Study {
    Study::from_toml(text).expect("a test reads these files")
}

/// The study of a search, without arms and load.
pub(crate) fn search() -> Study {
    SEARCH.clone()
}

/// The study that loads a page once, without its URL.
pub(crate) fn page() -> Study {
    PAGE.clone()
}

/// The experiment that a search measures with.
pub(crate) fn spec() -> &'static Spec {
    experiments::find(&SEARCH.experiment).expect("a test reads these files")
}

/// Options of the load that differ here: name, help, and the default that is shown and taken, if it is another.
pub(crate) const OTHERWISE: [(&str, &str, Option<&str>); 3] = [
    (
        "link",
        "Link between visitors and server: a name (see `tcptoll links`) or values like \
         rtt=37ms,rate=1gbit,loss=0.1% [default: rtt=15ms]",
        None,
    ),
    ("duration", "Length of the measured window of each trial, after the warm-up", Some("12s")),
    (
        "warmup",
        "Time during which visitors arrive before the measured window, so that the server starts \
         its workers",
        Some("8s"),
    ),
];

/// Whether an option says who comes, what is loaded, over which link and with which memory. The others are
/// what is searched, the server, and a server that is not ours.
pub(crate) fn is_load(option: &Opt) -> bool {
    const OTHERS: [&str; 7] = [
        "ca",
        "insecure",
        "keepalive",
        "keepalive-requests",
        "keepalive-timeout",
        "max-workers",
        "server",
    ];
    !OTHERS.contains(&option.name) && !matches!(option.levels, Levels::Arguments | Levels::Setting)
}

/// The setting of an arm; what it does not set is what the server has by itself.
///
/// Errors: a value that is none; a clause.
pub(crate) fn setting(arm: &Settings, server: Server, workers: u64) -> Result<Setting, String> {
    let text = |name: &str| arm.get(name).map(level_text);
    let number = |name: &str, without: u64| match text(name) {
        None => Ok(without),
        Some(text) => text.parse().map_err(|_| format!("{name} {text}: write a whole number")),
    };
    let off = arm.get("keepalive").is_some_and(|on| on.as_bool() == Some(false) || *on == "off");
    let timeout_ms = match text("keepalive-timeout") {
        _ if off => None,
        None => Some(server.own_timeout_ms()),
        Some(text) => {
            let time =
                parse_time(&text).map_err(|why| format!("keepalive-timeout {text}: {why}"))?;
            Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        }
    };
    Ok(Setting {
        timeout_ms,
        // Without KeepAlive there is no limit to speak of.
        requests: if off {
            REQUESTS_USUAL
        } else {
            number("keepalive-requests", server.own_requests())?
        },
        workers: number("max-workers", workers)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_studies_are_right_and_their_experiment_has_what_a_search_varies() {
        assert_eq!(search().metric.as_deref(), Some("page_us_p95"));
        assert!(experiments::find(&page().experiment).is_some());
        for server in Server::ALL {
            for timeout_ms in [None, Some(100)] {
                let setting = Setting { timeout_ms, requests: 30, workers: 7 };
                for name in setting.options(server).keys() {
                    let option = spec().option(name).unwrap();
                    assert!(!is_load(option), "{name}");
                }
            }
        }
        for load in ["rate", "pages", "think", "link", "site", "memory", "worker-memory"] {
            assert!(is_load(spec().option(load).unwrap()), "{load}");
        }
        for not in ["url", "before", "insecure"] {
            assert!(!is_load(spec().option(not).unwrap()), "{not}");
        }
    }

    #[test]
    fn arms_of_a_study_are_settings() {
        let arm = |pairs: &[(&str, Value)]| -> Settings {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        let setting_of = |pairs: &[(&str, Value)]| setting(&arm(pairs), Server::ApachePrefork, 22);
        let expected = Setting { timeout_ms: Some(2_000), requests: 120, workers: 22 };
        let typed = [("keepalive-timeout", "2s".into()), ("keepalive-requests", 120.into())];
        assert_eq!(setting_of(&typed), Ok(expected));
        assert_eq!(setting_of(&[("keepalive", "off".into())]).unwrap().timeout_ms, None);
        assert_eq!(setting_of(&[("max-workers", "9".into())]).unwrap().workers, 9);
        assert_eq!(setting_of(&[]).unwrap().timeout_ms, Some(5_000));
        assert!(setting_of(&[("keepalive-timeout", "soon".into())]).is_err());
        assert!(
            setting_of(&[("max-workers", "many".into())]).unwrap_err().contains("max-workers many")
        );
    }
}
