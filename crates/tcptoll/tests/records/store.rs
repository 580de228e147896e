//! Shortens records of real runs and stores them, so that a difference can be read.
//!
//! Removed are most points of a series, counters of the IP layer, what a summary takes from the
//! first round of an arm alone (in its later rounds), and the summary's copy of the arms. `store`
//! checks that the summary of what is left is otherwise the one that the run itself wrote.

use std::collections::BTreeSet;
use std::path::Path;

use tcptoll_core::record::{Arm, Line, Passport, Summary};
use tcptoll_measure::record::Record;

use super::{NAMES, concluded, path, pretty, read_back};

/// Points of a series that are kept.
const POINTS: usize = 8;

/// Stores the runs in the folder `RECORDS_FROM`.
#[test]
#[ignore = "writes the stored records anew, from the runs of make.sh"]
fn store() {
    let folder = std::env::var_os("RECORDS_FROM").expect("RECORDS_FROM names make.sh's folder");
    for name in NAMES {
        let from = Path::new(&folder).join(format!("{}.jsonl", name.replace('_', "-")));
        if !from.exists() {
            println!("{name}: kept as it is, no {}", from.display());
            continue;
        }
        let record = Record::read(&from).unwrap();
        let mut said = record.summary().expect("the run ended").clone();
        anonymous(&mut said.passport);
        said.arms.iter_mut().for_each(shorten);
        let lines = shortened(&record);
        let anew = concluded(&read_back(&lines), &said);
        let value = |summary: &Summary| serde_json::to_value(summary).unwrap();
        assert_eq!(value(&anew), value(&said), "{name}: something else was removed");
        said.arms.clear();
        let lines = lines.into_iter().chain([Line::Summary(Box::new(said))]);
        let documents = lines.map(|line| pretty::json(&serde_json::to_string(&line).unwrap()));
        std::fs::write(path(name), documents.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    }
}

/// The lines of a record without its summary.
fn shortened(record: &Record) -> Vec<Line> {
    let mut seen = BTreeSet::new();
    let mut lines = record.lines.clone();
    lines.retain(|line| !matches!(line, Line::Summary(_)));
    for line in &mut lines {
        match line {
            Line::Header(header) => anonymous(&mut header.passport),
            Line::Resumed(resumed) => anonymous(&mut resumed.passport),
            Line::Trial(trial) => {
                shorten(&mut trial.arm);
                if seen.contains(&trial.arm.name) {
                    shown_of_the_first(&mut trial.arm);
                } else if trial.counts() {
                    seen.insert(trial.arm.name.clone());
                }
            }
            Line::Summary(_) | Line::Merged(_) | Line::Unknown => {}
        }
    }
    lines
}

/// Takes away what a run shows of the first round alone.
fn shown_of_the_first(arm: &mut Arm) {
    arm.series.clear();
    arm.timeline = None;
    arm.client.tcp_info = None;
    if let Some(server) = &mut arm.server {
        server.tcp_info = None;
    }
    if let Some(link) = &mut arm.link {
        link.rtt_us = None;
    }
}

/// Takes away what nothing is concluded from.
fn shorten(arm: &mut Arm) {
    for host in std::iter::once(&mut arm.client).chain(&mut arm.server) {
        host.counters.retain(|name, _| !name.starts_with("Ip"));
    }
    for series in arm.series.values_mut() {
        let every = series.points.len().div_ceil(POINTS).max(1);
        series.points = series.points.iter().copied().step_by(every).collect();
    }
}

/// The kernel's version without the name of its build.
fn anonymous(passport: &mut Passport) {
    passport.kernel = passport.kernel.split('-').next().unwrap_or_default().to_owned();
}
