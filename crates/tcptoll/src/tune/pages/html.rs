//! The page of a search: one file, with its style, script and numbers in it.

use crate::tune::found::Found;
use serde::Serialize;

use super::{picture, sentences};
use tcptoll_show::html::frame::{COPY, Frame};
use tcptoll_show::number;
use tcptoll_show::svg::TwoScreens;

const FRAME: Frame =
    Frame { content: include_str!("page.html"), style: include_str!("page.css"), script: COPY };

/// The page of a cleaned search; `original` is embedded as data.
pub(crate) fn render(found: &Found, original: &Found) -> String {
    let view = view(found);
    FRAME.page(&view.title, &view, &[original])
}

/// Words and tables of the page.
#[derive(Serialize)]
struct TunePage {
    title: String,
    answer: String,
    picture: Option<TwoScreens>,
    sought: &'static str,
    place: Vec<String>,
    load: Vec<String>,
    log: Option<String>,
    search: String,
    seed: u64,
    knee: Option<String>,
    workers: &'static str,
    rows: Vec<TableRow>,
    compared: Vec<[String; 3]>,
    compared_note: Option<String>,
    behind: Option<String>,
    behind_broken: bool,
    proof: Option<String>,
    distribution: &'static str,
    pieces: Vec<[String; 2]>,
    apply: String,
    undo: String,
    cost: String,
    stages: Vec<[String; 4]>,
    notes: Vec<String>,
    doubts: Vec<String>,
    time: String,
    version: String,
}

#[derive(Serialize)]
struct TableRow {
    cells: Vec<String>,
    chosen: bool,
}

fn view(found: &Found) -> TunePage {
    let snippet = found.snippet.as_ref();
    let row = |row: sentences::Row| TableRow {
        chosen: row.chosen,
        cells: vec![
            row.timeout,
            row.requests,
            row.workers,
            row.p95,
            row.mean,
            row.held,
            row.peak,
            row.memory,
            row.failed,
            row.killed,
            row.pages,
            row.rounds,
        ],
    };
    let stage = |stage: &crate::tune::found::Stage| {
        [
            stage.why.clone(),
            number::count(stage.cells.len() as u64),
            number::duration(stage.took_s),
            stage.record.clone().unwrap_or_else(|| number::ABSENT.to_owned()),
        ]
    };
    TunePage {
        title: format!("tcptoll tune · {}", found.server.name()),
        answer: found.answer(),
        picture: picture::held(found),
        sought: found.sought(),
        place: sentences::place(found),
        load: sentences::load(found),
        log: sentences::log(found),
        search: sentences::search(found),
        seed: found.seed,
        knee: sentences::knee(found),
        workers: found.server.workers(),
        rows: sentences::rows(found).into_iter().map(row).collect(),
        compared: sentences::compared(found),
        compared_note: sentences::compared_note(found),
        behind: found.behind.as_ref().map(|behind| behind.words(found.server)),
        behind_broken: found.behind.as_ref().is_some_and(|behind| !behind.holds),
        proof: found.proof.as_ref().map(|proof| format!("{}: {}", proof.url, proof.text)),
        distribution: snippet.map_or("", |snippet| snippet.distribution.words()),
        pieces: snippet.map_or_else(Vec::new, |snippet| {
            snippet.pieces.iter().map(|piece| [piece.at(), piece.lines.join("\n")]).collect()
        }),
        apply: snippet.map_or_else(String::new, |snippet| snippet.apply.join("\n")),
        undo: snippet.map_or_else(String::new, |snippet| snippet.undo.join("\n")),
        cost: snippet.map_or_else(String::new, |snippet| snippet.cost.clone()),
        stages: found.stages.iter().map(stage).collect(),
        notes: sentences::notes(found),
        doubts: found.doubts.clone(),
        time: found.started_at.clone(),
        version: found.tcptoll_version.clone(),
    }
}
