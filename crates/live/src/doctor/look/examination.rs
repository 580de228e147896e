//! One examination of a machine: looks over some seconds, sysctls, neighbours, servers.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::doctor::Machine;
use crate::doctor::neighbours::forgets;
use crate::doctor::rules::SYSCTLS;
use crate::doctor::seen::StateSums;
use crate::watch::{History, Look};
use tcptoll_kernel::SysError;
use tcptoll_lab::observe::read_sysctl;

use super::{peers, servers};
use crate::watch::reader::{NamespaceReader, Options, is_root, new_history};

/// Time between two looks; of a short examination, a quarter of it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A stop is looked for this often.
const STOP_EVERY: Duration = Duration::from_millis(50);
/// Notes, at most.
const NOTES_MAX: usize = 32;

/// How far an examination is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time since it began.
    pub passed: Duration,
    /// Time that it lasts.
    pub lasts: Duration,
    /// Looks so far.
    pub looks: u32,
    /// Diagnoses of the state so far.
    pub diagnoses: usize,
}

/// Looks at the machine for this long, each second, and calls `progress` after each look.
///
/// As soon as `stopped` says so it ends, and gives what was seen until then. All sockets are dumped
/// three times: at the beginning, in the middle and at the end.
///
/// Must be called before any thread is started. Errors: as [`NamespaceReader::open`] and [`NamespaceReader::look`].
pub fn examine(
    options: &Options,
    lasts: Duration,
    stopped: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Machine, SysError> {
    let mut reader = NamespaceReader::open(options)?;
    // One of all looks, for peaks and what is seen between; one of the first and the last, for rates.
    let (mut all, mut whole) = (new_history(), new_history());
    let mut seen = StateSums::new();
    let settings = sysctls();
    let every = LOOK_EVERY.min(lasts / 4).max(Duration::from_millis(1));
    let first = reader.look_at_all()?;
    let began = Instant::now();
    whole.push(first.clone());
    let mut last = take(&mut seen, &mut all, first, true);
    let mut is_halved = false;
    loop {
        progress(Progress {
            passed: began.elapsed(),
            lasts,
            looks: seen.looks(),
            diagnoses: seen.diagnoses(),
        });
        let is_last = began.elapsed() + every >= lasts;
        pause(began + (began.elapsed() + every).min(lasts), stopped);
        let ends = is_last || stopped();
        let half = !is_halved && began.elapsed() * 2 >= lasts;
        is_halved |= half;
        let look = if ends || half { reader.look_at_all()? } else { reader.look()? };
        last = if ends { look.clone() } else { last };
        take(&mut seen, &mut all, look, ends || half);
        if ends {
            break;
        }
    }
    let state = whole.push(last).clone();
    progress(Progress {
        passed: began.elapsed(),
        lasts,
        looks: seen.looks(),
        diagnoses: seen.diagnoses(),
    });
    let mut summary = seen.finish(state);
    let routes = peers::routes();
    let now = sysctls();
    let forgets = forgets(&now, summary.state.counted.tracked);
    let (neighbours, left_out) = peers::neighbours(&routes, forgets)?;
    let ports = summary.state.listeners.iter().map(|one| one.port).collect();
    let servers = servers::configured(&ports);
    // The dump of connections and the files were the largest part.
    summary.state.cost = reader.cost();
    let mut notes = changed(&settings, &now);
    if left_out > 0 {
        notes.push(format!(
            "{left_out} connections to further peers were not examined individually"
        ));
    }
    notes.truncate(NOTES_MAX);
    Ok(Machine {
        by_root: is_root(),
        state: summary.state,
        sysctls: now,
        neighbours,
        servers,
        addresses: routes.own(),
        standing: summary.standing,
        openings: summary.openings,
        tracked_per_s: summary.tracked_per_s,
        notes,
    })
}

/// Puts a look into the summary; gives it back.
fn take(seen: &mut StateSums, all: &mut History, look: Look, dumped: bool) -> Look {
    let state = all.push(look.clone());
    seen.see(state);
    if dumped {
        seen.dump(state);
    }
    look
}

/// Waits until then, or until it is stopped.
fn pause(until: Instant, stopped: &dyn Fn() -> bool) {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stopped() {
            return;
        }
        sleep(left.min(STOP_EVERY));
    }
}

/// The sysctls that rules look at; those that this namespace does not have are absent.
fn sysctls() -> BTreeMap<String, String> {
    let value = |name: &&str| Some(((*name).to_owned(), read_sysctl(name).ok()?));
    SYSCTLS.iter().filter_map(value).collect()
}

/// A note for each setting that was changed during the examination.
fn changed(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let absent = || "absent".to_owned();
    let names = SYSCTLS.iter().filter(|name| before.get(**name) != after.get(**name));
    names
        .map(|name| {
            let [from, to] =
                [before, after].map(|all| all.get(*name).cloned().unwrap_or_else(absent));
            format!(
                "{name} changed from {from} to {to} during the examination; the findings use {to}. Examine again."
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_changed_meanwhile_is_noted_with_both_values() {
        let sysctls = |value: Option<&str>| {
            let value = value.map(|value| ("net.core.somaxconn".to_owned(), value.to_owned()));
            value.into_iter().collect::<BTreeMap<_, _>>()
        };
        assert!(changed(&sysctls(Some("128")), &sysctls(Some("128"))).is_empty());
        let [note] = &changed(&sysctls(Some("128")), &sysctls(Some("4096")))[..] else {
            panic!("one note")
        };
        assert!(note.contains("from 128 to 4096"), "{note}");
        let [note] = &changed(&sysctls(None), &sysctls(Some("4096")))[..] else {
            panic!("one note")
        };
        assert!(note.contains("from absent to 4096"), "{note}");
    }

    #[test]
    fn a_pause_ends_as_soon_as_it_is_stopped() {
        let asked = std::cell::Cell::new(0);
        let stopped = || {
            asked.set(asked.get() + 1);
            asked.get() > 2
        };
        pause(Instant::now() + Duration::from_hours(1), &stopped);
        assert_eq!(asked.get(), 3);
    }
}
