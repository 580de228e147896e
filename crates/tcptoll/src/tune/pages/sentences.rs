//! Sentences and rows of a search, the same for every report.

use std::collections::BTreeMap;

use crate::tune::cell::Cell;
use crate::tune::found::{Found, Note, STRATEGY};
use crate::tune::setting::seconds;
use tcptoll_core::units::{human_bytes, human_us};

use tcptoll_show::number;

/// The server, its memory and its workers, a phrase each.
pub(super) fn place(found: &Found) -> Vec<String> {
    let name = found.server_version.clone().unwrap_or_else(|| found.server.name().to_owned());
    let mpm = found.server.mpm().map(|mpm| format!("MPM {mpm}"));
    let by = match found.memory_limited_by.as_deref() {
        Some("kernel") => ", limited by the kernel",
        Some(_) => ", limited by tcptoll",
        None => "",
    };
    let size = match found.memory_bytes {
        // As it was typed.
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes => human_bytes(bytes as f64),
    };
    let memory = format!("{size} of memory{by}");
    let weight = found.weight.as_ref().map(|weight| {
        format!(
            "a worker takes {}, so {} fit",
            human_bytes(weight.worker_bytes as f64),
            number::count(weight.fits)
        )
    });
    [Some(name), mpm, Some(memory), weight].into_iter().flatten().collect()
}

/// Who comes, a phrase for each option.
pub(super) fn load(found: &Found) -> Vec<String> {
    found.load.iter().map(|(name, value)| format!("{name} {value}")).collect()
}

/// What the access log holds.
pub(super) fn log(found: &Found) -> Option<String> {
    let traffic = found.traffic.as_ref()?;
    let think = traffic.think_s_mean.map_or_else(String::new, |s| format!(", {s:.1} s apart"));
    let robots = match traffic.requests_of_robots {
        0 => String::new(),
        count => format!(" {} requests of robots are excluded.", number::count(count)),
    };
    let unreadable = match traffic.unreadable {
        0 => String::new(),
        count => format!(" {} lines could not be read.", number::count(count)),
    };
    Some(format!(
        "{} visits with {:.1} pages each{think}, and {:.1} files per page. The busiest minute has \
         {:.2} visitors per second.{robots}{unreadable}",
        number::count(traffic.visits),
        traffic.pages_mean,
        traffic.resources_mean,
        traffic.rate_per_s_busiest
    ))
}

/// How the search went.
pub(super) fn search(found: &Found) -> String {
    let how = match found.strategy.as_str() {
        STRATEGY => String::new(),
        other => format!(" by the procedure of the 2016 article ({other})"),
    };
    let stopped = if found.partial { ", stopped before the end" } else { "" };
    format!(
        "{} trials in {}{how}{stopped}.",
        number::count(found.trials.into()),
        number::duration(found.search_s)
    )
}

/// The fewest workers that do as well. None: the limit itself, or it is not known.
pub(super) fn knee(found: &Found) -> Option<String> {
    let (knee, choice) = (found.knee_workers?, found.choice?);
    let kind = found.server.workers();
    let memory = |workers: u64| {
        found.weight.as_ref().map_or_else(String::new, |weight| {
            format!(" ({})", human_bytes(weight.bytes(workers) as f64))
        })
    };
    // Where all are taken at times, there is no reserve.
    let full = found.chosen().is_none_or(Cell::is_full);
    (knee < choice.workers && !full).then(|| {
        format!(
            "{} {kind}{} did as well as {}{} with these visitors. The rest is a reserve.",
            number::count(knee),
            memory(knee),
            number::count(choice.workers),
            memory(choice.workers)
        )
    })
}

/// One setting as cells of a table.
pub(super) struct Row {
    pub(super) timeout: String,
    pub(super) requests: String,
    pub(super) workers: String,
    pub(super) p95: String,
    pub(super) mean: String,
    pub(super) held: String,
    pub(super) peak: String,
    pub(super) memory: String,
    pub(super) failed: String,
    pub(super) killed: String,
    pub(super) pages: String,
    pub(super) rounds: String,
    /// Whether it is the found one.
    pub(super) chosen: bool,
}

/// The rows of all cells: by workers, then by timeout.
pub(super) fn rows(found: &Found) -> Vec<Row> {
    let mut cells: Vec<&Cell> = found.cells.iter().collect();
    cells.sort_by_key(|cell| {
        let setting = &cell.setting;
        (std::cmp::Reverse(setting.workers), setting.timeout_ms, setting.requests)
    });
    cells.into_iter().map(|cell| row(cell, found.choice == Some(cell.setting))).collect()
}

pub(super) fn row(cell: &Cell, chosen: bool) -> Row {
    let setting = &cell.setting;
    let us = |us: Option<f64>| us.map_or_else(|| number::ABSENT.to_owned(), human_us);
    Row {
        timeout: setting.timeout_ms.map_or_else(|| "off".to_owned(), seconds),
        requests: match (setting.timeout_ms, setting.requests) {
            (None, _) => number::ABSENT.to_owned(),
            (_, 0) => "no limit".to_owned(),
            (_, requests) => number::count(requests),
        },
        workers: number::count(setting.workers),
        p95: us(cell.page_us_p95),
        mean: us(cell.page_us_mean),
        held: format!("{:.1}", cell.workers_held_mean),
        peak: format!("{:.0}", cell.workers_held_peak),
        memory: match cell.memory_peak_bytes {
            0 => number::ABSENT.to_owned(),
            bytes => human_bytes(bytes as f64),
        },
        failed: number::count(cell.failed),
        killed: number::count(cell.kills),
        pages: number::count(cell.pages),
        rounds: number::count(cell.rounds.into()),
        chosen,
    }
}

/// Causes and failures of all stages: each cause once, with its last setting and the number of others.
pub(super) fn notes(found: &Found) -> Vec<String> {
    let mut by_id: BTreeMap<&str, Vec<&Note>> = BTreeMap::new();
    for note in found.stages.iter().flat_map(|stage| &stage.notes) {
        let known = by_id.entry(&note.id).or_default();
        known.retain(|other| other.setting != note.setting);
        known.push(note);
    }
    let words = |(id, notes): (&str, Vec<&Note>)| {
        let last = notes.last()?;
        let others = match notes.len() - 1 {
            0 => String::new(),
            1 => " The same applies to 1 other setting.".to_owned(),
            count => format!(" The same applies to {count} other settings."),
        };
        Some(format!("{id}: {}: {}{others}", last.setting, last.text))
    };
    by_id.into_iter().filter_map(words).collect()
}

/// Settings next to the found one: whose it is, which it is, and the verdict.
pub(super) fn compared(found: &Found) -> Vec<[String; 3]> {
    let name = |one: &crate::tune::found::Compared| one.setting.name(found.server);
    found.compared.iter().map(|one| [one.name.clone(), name(one), one.words()]).collect()
}

/// How the verdicts came about.
pub(super) fn compared_note(found: &Found) -> Option<String> {
    let rounds =
        found.compared.iter().filter_map(|one| Some(one.comparison.as_ref()?.rounds)).max()?;
    let times = if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
    Some(format!(
        "p95 page time relative to the found setting: both ran alternately for {times}, with \
         visitors that the search did not have. Differences below 10 % do not matter."
    ))
}

/// Commands that follow.
pub(super) fn next(found: &Found) -> Vec<[String; 2]> {
    let record = found.compared_record.as_ref().or_else(|| found.stages.last()?.record.as_ref());
    let report = record.map(|record| {
        let record = tcptoll_core::printable::shell_argument(record);
        [
            format!("tcptoll report {record} --html page.html"),
            "show workers and page times over time".to_owned(),
        ]
    });
    let prove = found.proof.is_none().then(|| {
        [
            "tcptoll tune --help".to_owned(),
            "--prove compares the found and the present setting on your staging server".to_owned(),
        ]
    });
    [report, prove].into_iter().flatten().collect()
}
