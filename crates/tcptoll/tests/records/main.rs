//! Real records, concluded anew and rendered in every format: the whole way from trials to text.
//!
//! Each `NAME.json` is a run of the program, shortened (`store.rs`); `make.sh` has the command
//! lines. The tests drop the summary that closes a record, conclude from its trials as
//! `tcptoll report` does for a run that was killed, and compare text, HTML, CSV, Markdown and the
//! summary with snapshots. Nothing here needs a lab or a clock.
//!
//! After a change of what is concluded or rendered: `INSTA_UPDATE=always cargo test -p tcptoll
//! --test records`, and read the difference. A record is made anew only where a new observation is
//! to be tested: `make.sh FOLDER`, then `RECORDS_FROM=FOLDER cargo test -p tcptoll --test records
//! -- --ignored`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
mod doctor;
mod generic;
mod html;
mod merged;
mod page;
mod pictures;
mod pretty;
mod store;
mod tables;
mod text;
mod watch;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tcptoll_core::record::{Line, Summary};
use tcptoll_measure::experiments::REPORTS;
use tcptoll_measure::record::Record;
use tcptoll_measure::runner;
use tcptoll_show::TextStyle;

/// One test and one stored record for each name.
macro_rules! records {
    ($($name:ident),* $(,)?) => {
        /// Names of the stored records.
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { is_rendered_as_before(stringify!($name)); })*
    };
}

records! {
    connect,
    connect_errors,
    connect_nine,
    connect_resumed,
    connect_rounds,
    connect_stopped,
    connect_target,
    http,
    http_errors,
    http_nothing,
    http_rate,
    http_reuse,
    http_study,
    http_target,
    keepalive_cut,
    keepalive_freeze,
    keepalive_window,
    stream_memory,
    messages_sizes,
    messages_stall,
    page_keepalive,
    stream_windows,
    accept_queue,
    syn_queue,
    time_wait,
    visitors,
    worker_pool,
}

/// Name of the summary that no run has written.
const HOSTILE: &str = "hostile";

/// Fields of the summary that put figures into words. They may be improved, so they are not compared
/// with the stored summary.
const WORDS: [&str; 5] = ["answer", "causes", "advice", "warnings", "next"];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/records/{name}.json"))
}

/// A record without its summary, and that summary.
fn stored(path: &Path) -> (Record, Summary) {
    let content = std::fs::read_to_string(path).unwrap();
    let documents = serde_json::Deserializer::from_str(&content).into_iter::<Line>();
    let mut lines: Vec<Line> = documents.map(Result::unwrap).collect();
    let Some(Line::Summary(summary)) = lines.pop() else {
        panic!("no summary closes {}", path.display())
    };
    (read_back(&lines), *summary)
}

/// What is concluded from a stored record, or the summary that a hostile peer wrote: a run whose
/// every word holds escapes, tags, template braces and characters that turn the direction.
fn load(name: &str) -> Summary {
    // Concluding takes most of a test's time, and every test needs most of the records.
    static LOADED: LazyLock<BTreeMap<&str, Summary>> = LazyLock::new(|| {
        let hostile = std::fs::read_to_string(path(HOSTILE)).unwrap();
        let of_runs = NAMES.iter().map(|&name| {
            let (record, ended) = stored(&path(name));
            (name, concluded(&record, &ended))
        });
        of_runs.chain([(HOSTILE, serde_json::from_str(&hostile).unwrap())]).collect()
    });
    LOADED[name].clone()
}

/// Names of everything that can be loaded.
fn all() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied().chain([HOSTILE])
}

/// Lines as the program reads them from a file.
fn read_back(lines: &[Line]) -> Record {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for line in lines {
        writeln!(file, "{}", serde_json::to_string(line).unwrap()).unwrap();
    }
    Record::read(file.path()).unwrap()
}

/// What follows from the trials, with how the run ended: trials do not say that.
fn concluded(record: &Record, ended: &Summary) -> Summary {
    let mut summary = runner::summarise(record).expect("the study is of this build");
    summary.partial = ended.partial;
    summary.passport.steal = ended.passport.steal;
    if let (Some(rounds), Some(ended)) = (&mut summary.rounds, &ended.rounds) {
        rounds.stopped.clone_from(&ended.stopped);
    }
    if ended.partial {
        // How to go on names the record's file.
        summary.next.insert(0, ended.next[0].clone());
    }
    summary
}

fn is_rendered_as_before(name: &str) {
    is_snapshot(name, rendered(&load(name), "run.jsonl"));
}

#[test]
fn hostile() {
    is_rendered_as_before(HOSTILE);
}

/// Every form; the first is what people read.
fn rendered(summary: &Summary, record: &str) -> [(&'static str, String); 7] {
    let at =
        |width, colour| REPORTS.text(summary, Some(Path::new(record)), TextStyle { colour, width });
    [
        ("80 columns", at(80, false)),
        ("150 columns", at(150, false)),
        ("colour", at(80, true)),
        ("page", page::body(&REPORTS.html(summary))),
        ("CSV", REPORTS.csv(summary)),
        ("Markdown", REPORTS.markdown(summary)),
        ("JSON", serde_json::to_string(summary).unwrap()),
    ]
}

/// The first output as it is, and length and fingerprint of the others: to see one of them before and after a change,
/// `tcptoll report` shows it.
fn is_snapshot(name: &str, outputs: impl IntoIterator<Item = (&'static str, String)>) {
    let mut outputs = outputs.into_iter();
    let (_, shown) = outputs.next().unwrap();
    let mark = |(form, output): (&str, String)| {
        format!("{:7} bytes {} {form}\n", output.len(), pretty::fingerprint(&output))
    };
    let marks: String = outputs.map(mark).collect();
    in_snapshots().bind(|| insta::assert_snapshot!(name, format!("{shown}\n{marks}")));
}

/// Snapshots by their name alone, in the folder next to this file.
fn in_snapshots() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

/// Arms are not stored a second time: of these `store` makes sure when it stores a record.
#[test]
fn what_trials_say_is_what_the_run_said() {
    for name in NAMES {
        let (record, ended) = stored(&path(name));
        let figures = |summary: &Summary| {
            let mut value = serde_json::to_value(summary).unwrap();
            value["arms"] = json!([]);
            for field in WORDS {
                value[field] = Value::Null;
            }
            value
        };
        let anew = load(name);
        assert_eq!(figures(&anew), figures(&ended), "{name}");
        assert_eq!(anew.arms.len(), record.header().unwrap().study.arms().unwrap().len(), "{name}");
    }
}

#[test]
fn a_record_is_written_as_it_was_read() {
    for name in NAMES {
        let (record, _) = stored(&path(name));
        assert_eq!(read_back(&record.lines).lines, record.lines, "{name}");
        assert!(!record.torn && record.trials().next().is_some(), "{name}");
    }
}
