//! What `tune` reads of this machine: which module Apache has, whose files it is, its memory; and of a server of the
//! user's: the setting that it has before any search, and `--prove`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tcptoll_core::number;

use super::found::Proof;
use super::load::{Load, search};
use super::search::stored;
use super::setting::Setting;
use super::snippet::Distribution;
use crate::cli::TuneArgs;
use crate::cli::tune::spec;
use crate::output;
use tcptoll_core::experiment::option::Only;
use tcptoll_core::record::Verdict;
use tcptoll_core::study::{Compare, NamedArm, RoundsAsked, Study};
use tcptoll_core::units::text_time;
use tcptoll_lab::lab::Interrupt;
use tcptoll_live::doctor::servers::begun_by;
use tcptoll_live::doctor::{Program, ServerConfig};
use tcptoll_measure::pages::Server;
use tcptoll_measure::runner::Schedule;

/// The module that Apache has on this machine, with the file that says so. None: no configuration of Apache is here.
pub(super) fn apache(root: &Path) -> Option<(Server, String)> {
    let enabled = root.join("etc/apache2/mods-enabled");
    let names = fs::read_dir(&enabled).into_iter().flatten().flatten();
    let of_file = |name: &str| Server::of_mpm(name.strip_prefix("mpm_")?.strip_suffix(".load")?);
    let debian = names.filter_map(|entry| {
        let server = of_file(entry.file_name().to_str()?)?;
        Some((server, entry.path().display().to_string()))
    });
    let red_hat = || {
        let path = root.join("etc/httpd/conf.modules.d/00-mpm.conf");
        let text = fs::read_to_string(&path).ok()?;
        let server = text.lines().find_map(|line| {
            let module = line.trim().strip_prefix("LoadModule mpm_")?.split("_module").next()?;
            Server::of_mpm(module)
        })?;
        Some((server, path.display().to_string()))
    };
    debian.min_by(|a, b| a.1.cmp(&b.1)).or_else(red_hat)
}

/// Whose files a configuration on this machine has. None: neither's.
pub(super) fn distribution(root: &Path) -> Option<Distribution> {
    Distribution::of_release(&fs::read_to_string(root.join("etc/os-release")).ok()?)
}

/// Memory of this machine, bytes.
pub(super) fn memory_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:").map(|kib| kib << 10)
}

/// Pages that were written to swap since the machine started.
pub(super) fn swapped() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    field(&text, "pswpout ").unwrap_or_default()
}

fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The configuration that the user has.
///
/// Errors: it cannot be read whole.
pub(super) fn present(path: &Path, server: Server) -> anyhow::Result<ServerConfig> {
    let name = format!("--present {}", path.display());
    let file = fs::canonicalize(path).with_context(|| name.clone())?;
    let program = if server == Server::Nginx { Program::Nginx } else { Program::Apache };
    let config = begun_by(program, &file);
    if let Some(why) = config.unread.first() {
        bail!("{name}: {why}: the present setting is not known for sure");
    }
    let at = |is: Option<bool>| is == Some(true);
    let set = at(config.keepalive_timeout_s.as_ref().map(|one| !one.at.is_default()))
        || at(config.keepalive_requests.as_ref().map(|one| !one.at.is_default()))
        || at(config.workers.as_ref().map(|one| !one.at.is_default()));
    if !set {
        let [timeout, requests, workers] = server.directives();
        bail!(
            "{name}: it sets none of {timeout}, {requests} and {workers} for {}: is it a configuration of this server?",
            program.name()
        );
    }
    Ok(config)
}

/// The same as a setting. What is not set is the server's own; `workers`: their number where none is set.
pub(super) fn setting_of(config: &ServerConfig, server: Server, workers: u64) -> Setting {
    let timeout_s = config.keepalive_timeout_s.as_ref().map(|one| one.value);
    let requests = config.keepalive_requests.as_ref().map(|one| one.value);
    Setting {
        timeout_ms: match timeout_s {
            Some(s) if s <= 0.0 => None,
            Some(s) => Some((s * 1e3).round() as u64),
            None => Some(server.own_timeout_ms()),
        },
        requests: requests.unwrap_or(server.own_requests()),
        workers: config.workers.as_ref().map_or(workers, |one| one.value.max(1)),
    }
}

// `--prove`: the found setting and the present one in turn, on a server of the user's.
//
// It switches by commands of the user's. A tool that writes a server's configuration over ssh would need the
// server's layout, root and a way back; two commands know all three.

/// The names of the two arms.
const ARMS: [&str; 2] = ["found", "present"];

/// Rounds: a verdict of no difference needs fifteen.
const ROUNDS: [u32; 2] = [6, 30];

/// What is proven, and how the server is switched.
pub(super) struct Wanted<'a> {
    pub(super) url: &'a str,
    /// Commands that switch to the found setting, and to the present one.
    pub(super) switches: [&'a str; 2],
    pub(super) time: Duration,
}

impl Wanted<'_> {
    /// The study of a proof. Options of the lab have no effect on a server of the user's.
    fn study(&self, load: &Load) -> Study {
        let mut study = search();
        "Are pages shorter with the found setting than with the present one?"
            .clone_into(&mut study.question);
        let of_lab = |name: &str| {
            spec().option(name).is_some_and(|option| {
                option.only.iter().any(|only| matches!(only, Only::Lab | Only::With(..)))
            })
        };
        study.settings = load
            .settings
            .iter()
            .filter(|(n, _)| !of_lab(n))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        study.settings.insert("url".to_owned(), Value::from(self.url));
        study.named_arms = ARMS
            .iter()
            .zip(self.switches)
            .map(|(name, switch)| NamedArm {
                name: (*name).to_owned(),
                settings: [("before".to_owned(), Value::from(switch))].into(),
                ..NamedArm::default()
            })
            .collect();
        study.compare = vec![Compare { against: Some(Value::from(ARMS[1])), ..Compare::default() }];
        study.rounds = RoundsAsked {
            target: Some("verdict".to_owned()),
            min: Some(ROUNDS[0]),
            max: Some(ROUNDS[1]),
            max_time: Some(text_time(self.time)),
            ..RoundsAsked::default()
        };
        study
    }

    /// Checks what can be checked without a connection.
    pub(super) fn check(&self, load: &Load) -> anyhow::Result<()> {
        Schedule::from_study(&self.study(load))?;
        Ok(())
    }

    /// Runs it.
    ///
    /// Errors: nothing was measured.
    pub(super) fn run(
        &self,
        load: &Load,
        args: &TuneArgs,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Proof> {
        let tolerance = &args.link_tolerance;
        let run = output::measure(&self.study(load), Some(tolerance), args.quiet, None, interrupt)?;
        let none = run.summary.arms.iter().find(|arm| arm.ok == 0);
        if let (Some(arm), None) = (none, run.signal) {
            let classes: Vec<&str> = arm.errors.keys().map(String::as_str).collect();
            bail!(
                "no page succeeded with the {} setting ({} failed: {}); nothing is proved",
                arm.name,
                arm.attempts,
                classes.join(", ")
            );
        }
        let comparison = run.summary.comparisons.first().cloned();
        let failed: Vec<String> = run
            .summary
            .arms
            .iter()
            .filter(|arm| arm.attempts > arm.ok)
            .map(|arm| {
                format!(
                    "{} of {} pages failed with the {} setting",
                    arm.attempts - arm.ok,
                    arm.attempts,
                    arm.name
                )
            })
            .collect();
        let verdict = comparison.as_ref().map_or(Verdict::NotEnough, |one| one.verdict);
        let ratio = comparison.as_ref().and_then(|one| Some((one.ratio?, one.ci95)));
        let figures = match ratio {
            Some((ratio, ci95)) => {
                let [times, interval] = number::times(ratio, ci95);
                format!("{times} the p95 page time of the present one{interval}")
            }
            None => "no ratio".to_owned(),
        };
        let words = match verdict {
            Verdict::Lower => "pages are shorter with the found setting",
            Verdict::Higher => "pages are longer with the found setting: keep the present one",
            Verdict::NoDifference => "no difference found",
            Verdict::NotEnough => "not enough evidence: give it more time (--prove-time)",
        };
        let mut text = format!("Found setting: {figures}: {words}.");
        if !failed.is_empty() {
            text += &format!(" {}.", failed.join("; "));
        }
        Ok(Proof { url: self.url.to_owned(), comparison, text, record: stored(&run) })
    }
}

/// Whether the proof speaks against the found setting.
pub(super) fn is_worse(proof: &Proof) -> bool {
    proof.comparison.as_ref().is_some_and(|one| one.verdict == Verdict::Higher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_of_apache_is_read_where_each_distribution_has_it() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(apache(root.path()), None);
        let red_hat = root.path().join("etc/httpd/conf.modules.d");
        fs::create_dir_all(&red_hat).unwrap();
        let text =
            "#LoadModule mpm_prefork_module modules/a.so\nLoadModule mpm_event_module b.so\n";
        fs::write(red_hat.join("00-mpm.conf"), text).unwrap();
        assert_eq!(apache(root.path()).unwrap().0, Server::ApacheEvent);
        let debian = root.path().join("etc/apache2/mods-enabled");
        fs::create_dir_all(&debian).unwrap();
        for name in ["alias.load", "mpm_worker.conf", "mpm_worker.load"] {
            fs::write(debian.join(name), "").unwrap();
        }
        let (server, file) = apache(root.path()).unwrap();
        assert_eq!(server, Server::ApacheWorker);
        assert!(file.ends_with("mods-enabled/mpm_worker.load"), "{file}");
    }

    #[test]
    fn figures_of_the_kernel_are_found_by_their_names() {
        let text = "MemTotal:       24689512 kB\nMemFree: 1 kB\npswpin 5\npswpout 7\n";
        assert_eq!(field(text, "MemTotal:"), Some(24_689_512));
        assert_eq!(field(text, "pswpout "), Some(7));
        assert_eq!(field(text, "SwapTotal:"), None);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 24));
    }

    #[test]
    fn a_proof_takes_visitors_and_leaves_the_lab() {
        let settings = [("rate", "3"), ("memory", "512M"), ("link", "rtt=5ms"), ("duration", "4s")];
        let settings = settings.map(|(n, v)| (n.to_owned(), Value::from(v))).into();
        let load = Load { settings, ..Load::default() };
        let wanted = Wanted {
            url: "http://127.0.0.1:8080/",
            switches: ["true", "false"],
            time: Duration::from_mins(1),
        };
        wanted.check(&load).unwrap();
        let study = wanted.study(&load);
        assert_eq!(study.settings.keys().collect::<Vec<_>>(), ["duration", "rate", "url"]);
        let before: Vec<&Value> =
            study.named_arms.iter().map(|arm| &arm.settings["before"]).collect();
        assert_eq!(before, ["true", "false"]);
        let bad = Wanted { url: "ftp://a/", ..wanted };
        assert!(bad.check(&load).is_err());
    }
}
