//! Words of an examination.

use serde_json::Value;
use tcptoll_core::sheet::Note;
use tcptoll_show::figures::plural;
use tcptoll_show::{findings, number};

use super::{Examination, NotExamined, ProofVerdict, ServerConfig};
use tcptoll_core::finding::{Finding, counted};

/// Reasons that are shown of one part that was not examined.
const REASONS_MAX: usize = 3;
/// Programs whose configuration is read.
pub(super) const PROGRAMS: &str = "nginx, Apache, Redis, HAProxy, PHP-FPM and MariaDB";

/// The evidence of a diagnosis: names and values.
pub(super) fn evidence(diagnosis: &Finding) -> Vec<[String; 2]> {
    diagnosis.evidence.iter().map(|(name, value)| [name.clone(), shown(name, value)]).collect()
}

/// A value as a reader would write it; numbers that name something have no separators.
fn shown(name: &str, value: &Value) -> String {
    let ends = |end: &&str| name == *end || name.ends_with(&format!("_{end}"));
    let fraction = |n: &serde_json::Number| n.as_f64().filter(|_| n.is_f64());
    match value {
        Value::Number(n) if ["pid", "port", "inode"].iter().any(ends) => n.to_string(),
        Value::Number(n) => fraction(n).map_or_else(|| findings::plain(value), number::plain),
        _ => findings::plain(value),
    }
}

/// What is said of a proof.
pub(super) fn verdict(verdict: ProofVerdict) -> &'static str {
    match verdict {
        ProofVerdict::Shown => "shown",
        ProofVerdict::NotShown => "not shown",
        ProofVerdict::NotRun => "not run",
    }
}

/// How much was found, in a sentence.
pub(super) fn answer(examination: &Examination) -> String {
    if examination.findings.is_empty() {
        let lasted = number::duration(examination.lasted_s);
        return match examination.examined.overflows_before {
            None | Some(0) => format!("Nothing found in {lasted}."),
            Some(count) => format!(
                "Nothing found in {lasted}. But before, accept queues here were full {}: repeat it while the load is on.",
                plural(count, "time")
            ),
        };
    }
    let kinds = counted(examination.findings.iter().map(|one| one.severity));
    format!("{}.", kinds.join(", "))
}

/// Where and how long, and how much was there: phrases.
pub(super) fn place(examination: &Examination) -> Vec<String> {
    let examined = &examination.examined;
    let mut phrases = vec!["tcptoll doctor".to_owned(), examination.host.clone()];
    phrases.extend(examination.netns.as_ref().map(|netns| format!("--netns {netns}")));
    phrases.push(format!("examined for {}", number::duration(examination.lasted_s)));
    phrases.push(plural(examined.listeners, "listener"));
    phrases.extend(examined.connections.map(|n| plural(n, "connection")));
    let waiting = examined.time_wait.filter(|n| *n > 0);
    phrases.extend(waiting.map(|n| format!("{} in TIME-WAIT", number::count(n))));
    phrases
}

/// What the examination cost; none: it was not measured.
pub(super) fn cost(examination: &Examination) -> Option<String> {
    let cost = &examination.cost;
    let ms = number::three(cost.cpu_s * 1e3);
    let share = number::percent(cost.cpu_share);
    let memory = number::bytes(cost.resident_bytes as f64);
    (cost.cpu_s > 0.0)
        .then(|| format!("{ms} ms of CPU ({share} of one CPU), {memory} of memory; read-only"))
}

/// A server with its version and how many of its files were read.
pub(super) fn server(server: &ServerConfig) -> String {
    let version = server.version.as_ref().map(|version| format!(" {version}"));
    let files = match (server.files_read.len(), server.unread.is_empty()) {
        (0, false) => "its configuration could not be read".to_owned(),
        (0, true) => "no configuration file".to_owned(),
        (n, true) => format!("{} read", plural(n as u64, "file")),
        (n, false) => format!("{} read, others unreadable", plural(n as u64, "file")),
    };
    format!(
        "{}{} (PID {}, {files})",
        server.program.name(),
        version.unwrap_or_default(),
        server.pid
    )
}

/// What was examined, in phrases, for a reader to whom nothing was found.
pub(super) fn looked_at(examination: &Examination) -> Vec<String> {
    let examined = &examination.examined;
    let mut phrases =
        vec![format!("queues and drops of {}", plural(examined.listeners, "listener"))];
    phrases.extend(
        examined.connections.map(|n| format!("{} with their local ports", plural(n, "connection"))),
    );
    phrases.push("rates of the kernel's counters".to_owned());
    if examined.sysctls > 0 {
        phrases.push(plural(examined.sysctls, "sysctl"));
    }
    let files: usize = examined.servers.iter().map(|one| one.files_read.len()).sum();
    if files > 0 {
        phrases.push(plural(files as u64, "configuration file"));
    }
    phrases
}

/// Parts that were not examined, with at most three reasons each and what to type: those of every examination, or
/// those of this one.
pub(super) fn missing(examination: &Examination, by_design: bool) -> Vec<Note> {
    let mut groups: Vec<(&NotExamined, Vec<&str>)> = Vec::new();
    let parts = &examination.examined.not_examined;
    for one in parts.iter().filter(|one| one.by_design == by_design) {
        match groups.iter_mut().find(|(first, _)| first.what == one.what) {
            Some((_, reasons)) => reasons.push(&one.why),
            None => groups.push((one, vec![&one.why])),
        }
    }
    let shown = |(first, reasons): (&NotExamined, Vec<&str>)| {
        let mut why = reasons[..reasons.len().min(REASONS_MAX)].join("; ");
        if reasons.len() > REASONS_MAX {
            why += &format!("; and {} more", reasons.len() - REASONS_MAX);
        }
        let mut same = parts.iter().filter(|one| one.what == first.what);
        let command = same.find_map(|one| one.remedy.clone()).unwrap_or_default();
        Note { about: first.what.clone(), text: why, command, bad: false }
    };
    groups.into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_name_something_have_no_separators_and_fractions_no_idle_zeros() {
        assert_eq!(shown("pid", &4711.into()), "4711");
        assert_eq!(shown("local_port", &8080.into()), "8080");
        assert_eq!(shown("ports_in_use", &8080.into()), "8,080");
        assert_eq!(shown("idle_s", &60.0.into()), "60");
        assert_eq!(shown("overflows_per_s", &8.201.into()), "8.201");
        assert_eq!(shown("drops_per_s", &0.003.into()), "0.003");
        assert_eq!(shown("is_reused", &false.into()), "no");
    }
}
