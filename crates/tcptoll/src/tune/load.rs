//! Who comes and what they load: from the command line, a study, an access log, a page that is copied.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::setting::Setting;
use super::strategy::REQUESTS_USUAL;
use crate::cli::TuneArgs;
use crate::cli::tune::{OTHERWISE, SEARCH, is_load, spec};
use crate::{output, studies};
use tcptoll_core::experiment::option::Levels;
use tcptoll_core::http::access_log;
use tcptoll_core::page::har;
use tcptoll_core::page::visits::{Traffic, UNKNOWN};
use tcptoll_core::study::{Settings, Study, level_text};
use tcptoll_core::units::parse_time;
use tcptoll_lab::files::{is_too_large, read_at_most};
use tcptoll_lab::lab::Interrupt;
use tcptoll_measure::pages::Server;

/// Longest access log that is read.
const LOG_MAX: u64 = 512 << 20;

/// Fewer visitors per second than this would leave a trial without any.
const RATE_MIN: f64 = 0.1;

/// Files of a page that the lab makes, at most.
const RESOURCES_MAX: f64 = 1_000.0;

/// A log that spans less than this says little of peaks, s.
const SPAN_MIN_S: f64 = 3_600.0;

/// Options of a page that the lab makes; a page of the user's takes their place.
const MADE: [&str; 3] = ["page-size", "resource-size", "resources"];

/// The load, with what is known of where it comes from.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Options of the experiment.
    pub(super) settings: Settings,
    /// The access log, read.
    pub(super) traffic: Option<Traffic>,
    /// Arms of the study: name, and its settings.
    pub(super) others: Vec<(String, Settings)>,
    /// What is not known, a sentence each.
    pub(super) doubts: Vec<String>,
}

impl Load {
    /// Of what was typed. Reads the study and the log; the page of `--url` is loaded by [`Load::copy`].
    pub(super) fn read(args: &TuneArgs, server: Server) -> anyhow::Result<Self> {
        let mut load = Self::default();
        if let Some(name) = &args.study {
            load.take_study(name, server)?;
        }
        if let Some(path) = &args.access_log {
            load.take_log(path)?;
        }
        for (name, value) in typed(args)? {
            load.settings.insert(name, value);
        }
        let own_page = ["har", "site"].iter().any(|name| load.settings.contains_key(*name));
        if own_page || args.url.is_some() {
            load.settings.retain(|name, _| !MADE.contains(&name.as_str()));
        }
        if args.url.is_some() {
            // The server's time is the page's own.
            load.settings.remove("work");
        }
        Ok(load)
    }

    fn take_study(&mut self, name: &str, server: Server) -> anyhow::Result<()> {
        let study = studies::load(name)?;
        if study.experiment != spec().name {
            bail!(
                "--study {name}: it is a study of `{}`; tune takes the visitors of one of `{}`, like vps-2016",
                study.experiment,
                spec().name
            );
        }
        if let Some((factor, _)) =
            study.factors.iter().find(|(name, _)| spec().option(name).is_some_and(is_load))
        {
            bail!(
                "--study {name}: its factor {factor} makes several loads of it; give a study with one, or set \
                 --{factor}"
            );
        }
        let of_load = |(name, _): &(&String, &Value)| spec().option(name).is_some_and(is_load);
        let mut settings: Settings =
            study.settings.iter().filter(of_load).map(|(n, v)| (n.clone(), v.clone())).collect();
        if let Some(warmup) = study.warmup.clone() {
            settings.insert("warmup".to_owned(), warmup);
        }
        if server != Server::ApachePrefork {
            let own = ["php", "worker-memory"];
            let dropped: Vec<&str> =
                own.into_iter().filter(|name| settings.remove(*name).is_some()).collect();
            if !dropped.is_empty() {
                self.doubts.push(format!(
                    "{} of the study is for apache-prefork: {} runs PHP in processes of its own, whose memory \
                     the limit counts as well.",
                    dropped.join(" and "),
                    server.name()
                ));
            }
        }
        self.settings = settings;
        for arm in study.arms()? {
            let its = arm.settings.get("server").map(level_text);
            let same = its.as_deref().is_none_or(|its| {
                its == server.name() || (its == "apache" && server == Server::ApacheEvent)
            });
            if same {
                let name = if arm.name.is_empty() { study.name.clone() } else { arm.name };
                self.others.push((name, arm.settings));
            }
        }
        Ok(())
    }

    fn take_log(&mut self, path: &Path) -> anyhow::Result<()> {
        let name = format!("--access-log {}", path.display());
        let found = fs::metadata(path).with_context(|| name.clone())?;
        if !found.is_file() {
            bail!("{name}: it is not a regular file");
        }
        let bytes = read_at_most(path, LOG_MAX).map_err(|error| {
            if is_too_large(&error) {
                anyhow::anyhow!(
                    "{name}: it is longer than 512 MiB: give a part of it, like the last day or the busiest hour"
                )
            } else {
                anyhow::Error::new(error).context(name.clone())
            }
        })?;
        let traffic = Traffic::from_log(&access_log::hits(&bytes))
            .map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
        let mut set = |name: &str, value: String| {
            self.settings.insert(name.to_owned(), Value::from(value));
        };
        let rate = traffic.rate_per_s_busiest.max(RATE_MIN);
        set("rate", format!("{rate:.3}"));
        set("pages", format!("{:.2}", traffic.pages_mean));
        if let Some(s) = traffic.think_s_mean {
            set("think", format!("{}ms", (s * 1e3).round()));
        }
        set("resources", format!("{}", traffic.resources_mean.round().min(RESOURCES_MAX)));
        for (name, bytes) in
            [("page-size", traffic.page_bytes_mean), ("resource-size", traffic.resource_bytes_mean)]
        {
            if let Some(bytes) = bytes {
                set(name, format!("{}", bytes.round() as u64));
            }
        }
        if rate > traffic.rate_per_s_busiest {
            self.doubts.push(format!(
                "The busiest minute of the log has {:.3} visitors per second, too few for a trial: {RATE_MIN} are \
                 taken. With so few visitors the setting matters little.",
                traffic.rate_per_s_busiest
            ));
        }
        if traffic.resources_mean > RESOURCES_MAX {
            self.doubts.push(format!(
                "The log has {:.0} files per page: {RESOURCES_MAX:.0} are loaded.",
                traffic.resources_mean
            ));
        }
        if traffic.span_s < SPAN_MIN_S {
            self.doubts.push(format!(
                "The log spans {:.0} s only: its busiest minute says little of your visitors.",
                traffic.span_s
            ));
        }
        if traffic.left_out > 0 {
            self.doubts.push(format!(
                "The log has {} requests more than are read: the last of it is left out.",
                traffic.left_out
            ));
        }
        self.doubts.extend(UNKNOWN.map(str::to_owned));
        self.traffic = Some(traffic);
        Ok(())
    }

    /// Loads the page of `--url` once, and writes it where the lab reads it.
    ///
    /// Errors: it cannot be loaded whole.
    pub(super) fn copy(
        &mut self,
        url: &str,
        args: &TuneArgs,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let mut study = page();
        study.settings.insert("url".to_owned(), Value::from(url));
        study.settings.insert("loads".to_owned(), Value::from(1));
        let run = output::measure(&study, Some(&args.link_tolerance), args.quiet, None, interrupt)
            .with_context(|| format!("--url {url}"))?;
        let loads = run.summary.arms.first().and_then(|arm| arm.own.page.as_deref());
        let loads = loads.with_context(|| format!("--url {url}: nothing was loaded"))?;
        if let Some(class) = loads.waterfall.failure() {
            bail!("--url {url}: the page did not come whole ({class}): nothing can be copied");
        }
        let file = run.record.with_extension("har");
        fs::write(&file, har::of_waterfall(&loads.waterfall))
            .with_context(|| format!("the copy of the page, {}", file.display()))?;
        if loads.requests_left_out > 0 {
            self.doubts.push(format!(
                "The page has {} files more than are copied.",
                loads.requests_left_out
            ));
        }
        self.settings.insert("har".to_owned(), Value::from(file.display().to_string()));
        Ok(())
    }

    /// The load as text, for people.
    pub(super) fn texts(&self) -> std::collections::BTreeMap<String, String> {
        self.settings.iter().map(|(name, value)| (name.clone(), level_text(value))).collect()
    }

    /// A number of the load, or the default of its option.
    pub(super) fn number(&self, name: &str) -> f64 {
        let typed = self.settings.get(name).map(level_text);
        let default = || {
            use tcptoll_core::experiment::option::DefaultValue::Text;
            match spec().option(name)?.default {
                Text(text) => Some(text.to_owned()),
                _ => None,
            }
        };
        typed.or_else(default).and_then(|text| text.parse().ok()).unwrap_or(1.0)
    }

    /// A time of the load, s, if it is set.
    pub(super) fn time_s(&self, name: &str) -> Option<f64> {
        let text = self.settings.get(name).map(level_text)?;
        tcptoll_core::units::parse_time(&text).ok().map(|time| time.as_secs_f64())
    }

    /// Sets what differs here from the experiment's own defaults, where nobody did.
    pub(super) fn take_defaults(&mut self) {
        for (name, _, default) in OTHERWISE {
            if let Some(default) = default {
                self.settings.entry(name.to_owned()).or_insert_with(|| Value::from(default));
            }
        }
    }
}

/// What was typed of the load, each option with one value.
fn typed(args: &TuneArgs) -> anyhow::Result<Settings> {
    let mut settings = Settings::new();
    for (name, values) in &args.load.typed {
        let Some(option) = spec().option(name) else { continue };
        let value = match option.levels {
            Levels::Flag => Value::from(true),
            Levels::Together => Value::from(values.clone()),
            Levels::Each | Levels::EachOr(_) if values.iter().any(|value| value.contains(',')) => {
                bail!(
                    "--{name} {}: tune takes one value, because it searches settings of the server only; run it \
                     once for each",
                    values.join(" ")
                )
            }
            _ => Value::from(values.join(" ")),
        };
        settings.insert((*name).to_owned(), value);
    }
    Ok(settings)
}

// The studies that `tune` measures with, and what of their options a search varies.

static PAGE: LazyLock<Study> = LazyLock::new(|| {
    Study::from_toml(include_str!("../../studies/tune/page.toml"))
        .expect("a test reads these files")
});

/// The study of a search, without arms and load.
pub(crate) fn search() -> Study {
    SEARCH.clone()
}

/// The study that loads a page once, without its URL.
pub(crate) fn page() -> Study {
    PAGE.clone()
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
    use super::*;
    use tcptoll_measure::experiments;

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
