//! The stored records through the program: shown in every format, compared, refused. What is in each format is in
//! `tests/records/snapshots`; here is the mark of the whole, with styles, scripts and headings.

use std::collections::BTreeMap;
use std::path::Path;

use crate::program::{Program, entry};
use crate::{concurrently, frozen, printed};

/// What begins the line of a summary. Stored ones lack the arms: the program concludes anew without.
const SUMMARY: &str = "{\"line\":\"summary\"";

/// Names of the stored records, and each as the lines of a run that was killed.
fn stored() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let named = files.map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = compact(&text);
        let lines = lines.iter().filter(|line| !line.starts_with(SUMMARY));
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, lines.flat_map(|line| [line.as_str(), "\n"]).collect())
    });
    let stored: BTreeMap<_, _> = named.collect();
    assert!(stored.len() > 25);
    stored
}

/// Each document on a line, its tokens as they are.
fn compact(text: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    let (mut depth, mut in_string, mut escaped) = (0, false, false);
    for c in text.chars() {
        if !in_string && c.is_whitespace() {
            continue;
        }
        line.push(c);
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '{' | '[' if !in_string => depth += 1,
            '}' | ']' if !in_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            lines.push(std::mem::take(&mut line));
        }
    }
    lines
}

#[test]
fn records_are_shown_as_before() {
    let rows = concurrently(&stored().into_iter().collect::<Vec<_>>(), |program, (name, lines)| {
        let file = format!("{name}.jsonl");
        program.write(&file, lines);
        let row = |what: &str, text: &str| format!("{} {name} {what}\n", printed::mark(text));
        let mut rows = row("text", &program.run(&["report", &file]).said());
        rows += &row("ascii", &program.run_in("C", &["report", &file]).said());
        rows += &row("json", &program.run(&["report", &file, "--format", "json"]).said());
        for option in ["--html", "--svg", "--csv", "--markdown"] {
            let ran = program.run(&["report", &file, option, "shown"]);
            let shown = std::fs::read_to_string(program.folder().join("shown"));
            rows += &row(option, &(ran.said() + &shown.unwrap_or_default()));
            let _ = std::fs::remove_file(program.folder().join("shown"));
        }
        rows
    });
    frozen("reports", &rows.concat());
}

#[test]
fn two_records_are_compared_as_before() {
    let stored: Vec<_> = stored().into_iter().collect();
    // Neighbours, of which some are of one experiment, and each with itself.
    let neighbours = stored.iter().zip(stored.iter().skip(1));
    let pairs: Vec<_> = neighbours.chain(stored.iter().map(|one| (one, one))).collect();
    let said = concurrently(&pairs, |program, ((a, lines), (b, others))| {
        let b = &if a == b { format!("{b}_again") } else { b.clone() };
        program.write(a, lines);
        program.write(b, others);
        let json = program.run(&["compare", b, a, "--format", "json"]);
        format!(
            "{}as JSON: {}\n\n",
            entry(program, &["compare", b, a]),
            printed::mark(&json.said())
        )
    });
    frozen("compare", &said.concat());
}

/// It is made up: the setting found and two others, of which one took too much memory.
#[test]
fn a_result_of_tune_is_shown_as_before() {
    let program = Program::new();
    program.write("found", include_str!("tune.json"));
    let tune = |more: &[&str]| {
        let args = ["tune", "apache-prefork", "--quiet", "--from", "found", "--out", "out"];
        entry(&program, &[&args[..], more].concat())
    };
    let mut said = tune(&["--distribution", "debian"]);
    said += &tune(&["--distribution", "debian", "--details"]);
    said += &tune(&["--distribution", "red-hat", "--behind-timeout", "60s", "--details"]);
    said += &tune(&[
        "--distribution",
        "debian",
        "--html",
        "page",
        "--snippet",
        "lines",
        "--format",
        "json",
    ]);
    for name in ["out", "page", "lines"] {
        let text = std::fs::read_to_string(program.folder().join(name)).unwrap();
        said += &format!("{} {name}\n", printed::mark(&text));
    }
    frozen("tune", &said);
}

#[test]
fn records_are_merged_or_refused_as_before() {
    let stored = stored();
    let program = Program::new();
    let lines = &stored["connect_rounds"];
    program.write("a", lines);
    // A second point: another seed, and rounds of another length.
    let (seed, took) = ("\"seed\":", "\"took_s\":");
    assert!(lines.contains(seed) && lines.contains(took));
    program.write("b", &lines.replace(seed, "\"seed\":1").replace(took, "\"took_s\":1"));
    program.write("watch", &stored["watch"]);
    program.write("other", &stored["http"]);
    program.write("cut", &lines[..lines.len() / 2]);
    program.write("header", lines.lines().next().unwrap());
    program.write("empty", "");
    program.write("text", "no record\n");
    program.write("newer", &lines.replacen("\"record_version\":", "\"record_version\":9", 1));
    let mut said = String::new();
    for command in [
        "merge a b",
        "merge a b --format json",
        "merge a b --missing c=down --margin 3%",
        "merge a a",
        "merge a",
        "merge a other",
        "merge a watch",
        "merge a empty",
        "merge a cut",
        "merge a none",
        "merge a b --margin x",
        "merge a b --clock-bound 1ms",
        "merge",
        "compare a",
        "compare a other",
        "compare a watch",
        "compare a none",
        "compare a b --metric x",
        "compare a b --metric connect_us_p99 --margin 5%",
        "compare a b --margin x",
        "report cut",
        "report header",
        "report empty",
        "report text",
        "report newer",
        "report none",
        "report a b",
        "report a b --format json",
        "report a --html a",
        "report a --svg none/x",
        "report latest",
        "report latest~1",
        "report a b --csv x",
        "report watch --svg x",
        "runs",
        "runs --older-than 1d",
        "runs x",
        "study --resume none",
        "study --resume text",
        "study --resume empty",
        "study run --resume watch",
        "http --resume a",
        "connect --resume a --seed 1",
        "connect --resume a --out x",
        "connect --resume newer",
    ] {
        said += &entry(&program, &command.split(' ').collect::<Vec<_>>());
    }
    frozen("records", &said);
}
