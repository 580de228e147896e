//! A search as a sheet: the setting, everything measured, verdicts, the configuration.

use std::collections::BTreeMap;

use super::found::{Found, Note, STRATEGY};
use super::picture;
use super::setting;
use super::snippet::Snippet;
use tcptoll_core::number;
use tcptoll_core::sheet::{
    Align, Cell, Column, Forms, Part, Parts, Picture, Room, Row, Sheet, Table, Tone,
};
use tcptoll_core::units::capital;

/// Where words begin next to a label.
const INDENT: usize = 14;

/// From this ratio of the longest to the shortest on, bars are logarithmic.
const DECADES: f64 = 20.0;

/// What there is to see of a search.
pub(super) fn found_sheet(found: &Found) -> Sheet {
    let title = format!("tcptoll tune · {}", found.server.name());
    let refuses = found.chosen().is_none_or(setting::Cell::refuses);
    let mut sheet = Sheet {
        kicker: title.clone(),
        title,
        question: "Which KeepAlive setting gives visitors the shortest pages?".to_owned(),
        answer: [found.answer(), String::new()],
        tone: if refuses { Tone::Bad } else { Tone::Strong },
        place: place(found),
        file_name: "tune.json".to_owned(),
        time: found.started_at.clone(),
        footer: format!("tcptoll {}", found.tcptoll_version),
        ..Sheet::default()
    };
    let about =
        [("  load", Some(load(found))), ("  log", log(found)), ("  search", Some(search(found)))];
    for (label, text) in about {
        let text = text.map(|text| Part::labelled(label, INDENT, text, Tone::Dim));
        sheet.about.0.extend(text.map(|text| (Forms::TEXT, text)));
    }
    let doubts = Part::list("doubts", found.doubts.clone(), Tone::Doubt);
    sheet.about.put(Forms::PAGE, doubts.clone());
    let parts = &mut sheet.parts;
    if let Some(behind) = &found.behind {
        let tone = if behind.holds { Tone::Plain } else { Tone::Bad };
        let text = behind.words(found.server);
        parts.put(Forms::TEXT, Part::Blank);
        parts.put(Forms::ALL, Part::labelled("  balancer", INDENT, text, tone));
    }
    if !found.cells.is_empty() {
        sheet.lead.0.extend(held(found).map(|picture| (Forms::PAGE, Part::Picture(picture))));
        measured(parts, found);
        put_compared(parts, found);
        if let Some(proof) = &found.proof {
            let text = format!("{}: {}", proof.url, proof.text);
            parts.put(Forms::PAGE, Part::heading("On your server"));
            parts.put(Forms::TEXT, Part::Blank);
            parts.put(Forms::ALL, Part::labelled("  proof", INDENT, text, Tone::Strong));
        }
    }
    if !found.doubts.is_empty() {
        parts.put(Forms::TEXT, Part::Blank);
        parts.put(Forms::TEXT, doubts);
    }
    if !found.cells.is_empty() {
        if let Some(snippet) = &found.snippet {
            put_snippet(parts, snippet);
        }
        put_next(parts, found);
    }
    put_stages(parts, found);
    sheet
}

fn held(found: &Found) -> Option<Picture> {
    let workers = found.server.workers();
    Some(Picture {
        title: format!("Page time and {workers} held"),
        svg: picture::held(found)?.into(),
        caption: format!(
            "Each dot is a setting, labelled with its timeout. The large dot is the found setting; red dots refused \
             visitors. Lower left is better: short page times, few {workers} held."
        ),
        ..Picture::default()
    })
}

/// What was sought, and everything measured.
fn measured(parts: &mut Parts, found: &Found) {
    parts.put(Forms::TEXT, Part::Blank);
    parts.put(Forms::ALL, Part::prose(0, found.sought(), Tone::Plain));
    parts.put(Forms::TEXT, Part::Blank);
    let limit = format!("All measured settings, each with its limit of {}", found.server.workers());
    parts.put(Forms::PAGE, Part::heading(limit));
    parts.put(Forms::ALL, Part::Table(table(found)));
    parts.put(Forms::PAGE, Part::prose(0, "→: the found setting.", Tone::Dim));
    put_curve(parts, found);
    let knee = knee(found).map(|knee| Part::labelled("  knee", INDENT, knee, Tone::Plain));
    parts.0.extend(knee.map(|knee| (Forms::ALL, knee)));
    let notes = notes(found);
    if !notes.is_empty() {
        parts.put(Forms::PAGE, Part::title("Causes and failures"));
        parts.put(Forms::ALL, Part::list("causes", notes, Tone::Plain));
    }
}

/// A row for each setting: by workers, then by timeout.
fn table(found: &Found) -> Table {
    let mut cells: Vec<&setting::Cell> = found.cells.iter().collect();
    cells.sort_by_key(|cell| {
        let setting = &cell.setting;
        (std::cmp::Reverse(setting.workers), setting.timeout_ms, setting.requests)
    });
    let killed = if cells.iter().any(|cell| cell.kills > 0) { Room::Always } else { Room::Page };
    let column = |head: &str| Column::new(head, Align::Right);
    let columns = vec![
        column("timeout").gap(1),
        column("requests").gap(1),
        column("limit").gap(1),
        column("p95").under("page time"),
        column("mean").under("page time"),
        column("mean").under("held"),
        column("peak").under("held").gap(1),
        column("memory"),
        column("failed"),
        column("pages").gap(1),
        column("killed").gap(1).room(killed),
        column("rounds").room(Room::Page),
    ];
    let row = |cell: &setting::Cell| Row::Cells {
        cells: row(cell).into(),
        marked: found.choice == Some(cell.setting),
    };
    Table { columns, rows: cells.into_iter().map(row).collect(), sortable: true, note: None }
}

fn row(cell: &setting::Cell) -> [Cell; 12] {
    let figure = |text: String, value: f64| Cell { value: Some(value), ..text.into() };
    let count = |count: u64| figure(number::count(count), count as f64);
    let us = |us: Option<f64>| {
        us.map_or_else(|| number::ABSENT.into(), |us| figure(number::time(us), us))
    };
    let setting::Setting { timeout_ms, requests, workers } = cell.setting;
    [
        timeout_ms.map_or_else(|| "off".to_owned(), |ms| number::tick(ms as f64, "ms")).into(),
        match (timeout_ms, requests) {
            (None, _) => number::ABSENT.into(),
            (_, 0) => figure("no limit".to_owned(), f64::from(u32::MAX)),
            (_, requests) => count(requests),
        },
        count(workers),
        us(cell.page_us_p95),
        us(cell.page_us_mean),
        figure(format!("{:.1}", cell.workers_held_mean), cell.workers_held_mean),
        figure(format!("{:.0}", cell.workers_held_peak), cell.workers_held_peak),
        memory(cell),
        count(cell.failed),
        count(cell.pages),
        count(cell.kills),
        count(cell.rounds.into()),
    ]
}

fn memory(cell: &setting::Cell) -> Cell {
    match cell.memory_peak_bytes {
        0 => number::ABSENT.into(),
        bytes => Cell { value: Some(bytes as f64), ..number::bytes(bytes as f64).into() },
    }
}

/// p95 by what is held, on a terminal: a bar for each setting, by the workers that it held.
fn put_curve(parts: &mut Parts, found: &Found) {
    let mut cells: Vec<_> =
        found.cells.iter().filter_map(|cell| Some((cell, cell.page_us_p95?))).collect();
    cells.sort_by(|a, b| a.0.workers_held_mean.total_cmp(&b.0.workers_held_mean));
    let least = cells.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
    let most = cells.iter().map(|(_, us)| *us).fold(0.0, f64::max);
    if cells.len() < 2 || most <= least {
        return;
    }
    // A few per cent are to look like a few per cent.
    let log = most / least >= DECADES;
    let how = if log { "bars: log" } else { "bars from 0" };
    let workers = found.server.workers();
    let text = format!("p95 page time by {workers} held ({how}, to {})", number::time(most));
    let aligns = [Align::Right, Align::Right, Align::Left, Align::Left];
    let rows = cells.iter().map(|(cell, us)| {
        let share = if log { (us / least).ln() / (most / least).ln() } else { us / most };
        [
            format!("{:.1}", cell.workers_held_mean).into(),
            memory(cell),
            cell.setting.name(found.server).into(),
            Cell { value: Some(share * 100.0), bar: true, ..Cell::default() },
        ]
    });
    let columns = aligns.map(|align| Column::new("", align));
    parts.put(Forms::TEXT, Part::Blank);
    parts.put(Forms::TEXT, Part::title(text));
    parts.put(Forms::TEXT, Part::Table(Table::new(columns.into(), rows)));
}

fn put_compared(parts: &mut Parts, found: &Found) {
    if found.compared.is_empty() {
        return;
    }
    parts.put(Forms::PAGE, Part::heading("Compared with the found setting"));
    parts.put(Forms::TEXT, Part::Blank);
    parts.put(Forms::TEXT, Part::title("compared with the found setting"));
    let name = |one: &crate::tune::found::Compared| one.setting.name(found.server);
    for one in &found.compared {
        let about = format!("{} ({})", one.name, name(one));
        parts.put(Forms::TEXT, Part::prose(2, about, Tone::Plain));
        parts.put(Forms::TEXT, Part::prose(4, one.words(), Tone::Strong));
    }
    let rows = found.compared.iter().map(|one| [one.name.clone(), name(one), one.words()]);
    let table = Table::texts(&["name", "setting", "verdict"], &[0, 1, 2], rows);
    parts.put(Forms::WRITTEN, Part::Table(table));
    let note = compared_note(found).map(|note| Part::prose(2, note, Tone::Dim));
    parts.0.extend(note.map(|note| (Forms::ALL, note)));
}

/// The lines of the configuration, in one piece, so that they can be copied.
fn put_snippet(parts: &mut Parts, snippet: &Snippet) {
    let about = format!("configuration for {}", snippet.distribution.words());
    parts.put(Forms::WRITTEN, Part::heading(capital(&about)));
    parts.put(Forms::TEXT, Part::Blank);
    parts.put(Forms::TEXT, Part::title(about));
    for piece in &snippet.pieces {
        parts.put(Forms::TEXT, Part::line(format!("# file {}", piece.at()), Tone::Plain));
        parts.put(Forms::WRITTEN, Part::title(piece.at()));
        parts.put(Forms::ALL, Part::Code { text: piece.lines.join("\n") });
    }
    parts.put(Forms::TEXT, Part::Blank);
    for (label, lines) in [("apply", &snippet.apply), ("undo", &snippet.undo)] {
        for (at, line) in lines.iter().enumerate() {
            parts.put(Forms::TEXT, command(if at == 0 { label } else { "" }, line));
        }
        parts.put(Forms::WRITTEN, Part::title(capital(label)));
        parts.put(Forms::WRITTEN, Part::Code { text: lines.join("\n") });
    }
    parts.put(Forms::ALL, Part::labelled("  cost", INDENT, &snippet.cost, Tone::Plain));
}

/// A command beside a label, in one piece.
fn command(label: &str, text: &str) -> Part {
    Part::line(format!("  {label:0$}{text}", INDENT - 2), Tone::Plain)
}

/// Commands that follow.
fn put_next(parts: &mut Parts, found: &Found) {
    for (at, [text, why]) in next(found).iter().enumerate() {
        if at == 0 {
            parts.put(Forms::TEXT, Part::Blank);
        }
        parts.put(Forms::TEXT, command(if at == 0 { "next" } else { "" }, text));
        parts.put(Forms::TEXT, Part::prose(INDENT + 2, why, Tone::Dim));
    }
}

/// How it was searched.
fn put_stages(parts: &mut Parts, found: &Found) {
    let log = log(found).map(|log| format!(" Log: {log}")).unwrap_or_default();
    parts.put(Forms::PAGE, Part::heading("How it was searched"));
    parts.put(Forms::PAGE, Part::prose(0, search(found) + &log, Tone::Plain));
    let rows = found.stages.iter().map(|stage| {
        let record = stage.record.clone().unwrap_or_else(|| number::ABSENT.to_owned());
        let settings = number::count(stage.cells.len() as u64);
        [stage.why.clone(), settings, number::duration(stage.took_s), record]
    });
    let table = Table::texts(&["stage", "settings", "time", "record"], &[0, 3], rows);
    parts.put(Forms::PAGE, Part::Table(table));
    let text = format!("Load: {}. Seed {}.", load(found), found.seed);
    parts.put(Forms::PAGE, Part::prose(0, text, Tone::Dim));
}

/// The server, its memory and its workers, a phrase each.
fn place(found: &Found) -> Vec<String> {
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
        bytes => number::bytes(bytes as f64),
    };
    let memory = format!("{size} of memory{by}");
    let weight = found.weight.as_ref().map(|weight| {
        format!(
            "a worker takes {}, so {} fit",
            number::bytes(weight.worker_bytes as f64),
            number::count(weight.fits)
        )
    });
    [Some(name), mpm, Some(memory), weight].into_iter().flatten().collect()
}

/// Who comes, a phrase for each option.
fn load(found: &Found) -> String {
    let options = found.load.iter().map(|(name, value)| format!("{name} {value}"));
    options.collect::<Vec<_>>().join(", ")
}

/// What the access log holds.
fn log(found: &Found) -> Option<String> {
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
fn search(found: &Found) -> String {
    let how = match found.strategy.as_str() {
        STRATEGY => String::new(),
        other => format!(" by the procedure of the 2016 article ({other})"),
    };
    let stopped = if found.partial { ", stopped before the end" } else { "" };
    format!(
        "{} trials in {}{how}{stopped}.",
        number::count(found.trials),
        number::duration(found.search_s)
    )
}

/// The fewest workers that do as well. None: the limit itself, or it is not known.
fn knee(found: &Found) -> Option<String> {
    let (knee, choice) = (found.knee_workers?, found.choice?);
    let kind = found.server.workers();
    let memory = |workers: u64| {
        found.weight.as_ref().map_or_else(String::new, |weight| {
            format!(" ({})", number::bytes(weight.bytes(workers) as f64))
        })
    };
    // Where all are taken at times, there is no reserve.
    let full = found.chosen().is_none_or(setting::Cell::is_full);
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

/// Causes and failures of all stages: each cause once, with its last setting and the number of others.
fn notes(found: &Found) -> Vec<String> {
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

/// How the verdicts came about.
fn compared_note(found: &Found) -> Option<String> {
    let rounds =
        found.compared.iter().filter_map(|one| Some(one.comparison.as_ref()?.rounds)).max()?;
    let times = if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
    Some(format!(
        "p95 page time relative to the found setting: both ran alternately for {times}, with \
         visitors that the search did not have. Differences below 10 % do not matter."
    ))
}

/// Commands that follow.
fn next(found: &Found) -> Vec<[String; 2]> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::found::{Behind, Compared, Weight};
    use crate::tune::setting::{Cell, Setting};
    use crate::tune::snippet::{Distribution, Snippet};
    use tcptoll_measure::pages::Server;
    use tcptoll_show::{TextStyle, sheet as show};

    fn page_of(found: &Found) -> String {
        show::html(found_sheet(found), found)
    }

    fn found() -> Found {
        let cell = |timeout_ms, workers, p95, held, kills| Cell {
            setting: Setting { timeout_ms, requests: 100, workers },
            rounds: 1,
            pages: 42,
            kills,
            page_us_p95: Some(p95),
            page_us_mean: Some(p95 * 0.8),
            workers_held_mean: held,
            workers_held_peak: held * 1.5,
            memory_peak_bytes: 300 << 20,
            ..Cell::default()
        };
        let cells = vec![
            cell(None, 22, 195_000.0, 1.0, 0),
            cell(Some(1_000), 22, 855_000.0, 15.2, 0),
            cell(Some(15_000), 22, 13.4e6, 22.0, 3),
        ];
        let choice = cells[0].setting;
        Found {
            server: Server::ApachePrefork,
            server_version: Some("Apache/2.4.71 <b>".to_owned()),
            strategy: "search".to_owned(),
            load: [("rate".to_owned(), "1".to_owned())].into(),
            memory_bytes: 512 << 20,
            memory_limited_by: Some("kernel".to_owned()),
            weight: Some(Weight { base_bytes: 18 << 20, worker_bytes: 20 << 20, fits: 22 }),
            workers_limit: 22,
            choice: Some(choice),
            knee_workers: Some(11),
            compared: vec![Compared {
                name: "300 requests, 1 s".to_owned(),
                setting: cells[1].setting,
                same_as: None,
                ..Compared::default()
            }],
            behind: Some(Behind::new(60_000, &cells[1].setting)),
            snippet: Some(Snippet::new(
                Server::ApachePrefork,
                Distribution::Debian,
                &choice,
                (&[], "a handshake for each file"),
            )),
            doubts: vec!["A doubt.".to_owned()],
            trials: 20,
            search_s: 430.0,
            cells,
            ..Found::default()
        }
    }

    #[test]
    fn the_text_has_the_setting_every_cell_the_verdicts_and_the_lines_to_copy() {
        let text = show::text(&found_sheet(&found()), TextStyle::default());
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("Set KeepAliveTimeout to 65 s"), "{text}");
        for part in [
            "Set KeepAlive Off, MaxRequestWorkers 22.",
            "→     off",
            "bars: log, to 13.4 s",
            "22 workers       █\n",
            "██████████\n",
            "13.4 s",
            "killed",
            "300 requests, 1 s (1 s, 100 requests, 22 workers)",
            "not measured",
            "KeepAlive Off\n<IfModule mpm_prefork_module>\n",
            "# file /etc/apache2/conf-available/zz-tcptoll.conf",
            "apachectl configtest",
            "a2disconf zz-tcptoll",
            "11 workers",
            "A doubt.",
            "20 trials in",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}:\n{text}");
    }

    #[test]
    fn a_search_without_a_measurement_is_one_sentence_and_its_doubts() {
        let nothing = Found { cells: Vec::new(), choice: None, snippet: None, ..found() };
        let text = show::text(&found_sheet(&nothing), TextStyle::default());
        assert!(text.contains("No setting was measured") && text.contains("A doubt."), "{text}");
        assert!(page_of(&nothing).contains("No setting was measured"));
    }

    #[test]
    fn names_of_others_are_escaped_on_the_page_and_the_curve_is_drawn() {
        let page = page_of(&found());
        assert!(page.contains("2.4.71 &lt;b&gt;"), "the version of a server");
        assert!(page.contains("<svg viewBox") && page.contains("circle class=\"chosen\""));
        assert!(!page.contains("<b>\","), "the embedded data ends no element");
    }
}
