//! A merged record in every format. Its points are made of one real record: each has the same rounds, of which
//! the arm with the long backlog is a little slower at each further point. `split.json` is a real one.

use std::path::{Path, PathBuf};

use tcptoll_core::record::{Line, Missing, Summary};
use tcptoll_measure::merged::MergedRecord;
use tcptoll_measure::runner::{MergeOptions, merge, summarise_points};

use super::{is_snapshot, path, rendered, stored};

const POINTS: [&str; 3] = ["ams1", "fra1", "nyc3"];

fn point(folder: &Path, at: usize) -> PathBuf {
    let (record, summary) = stored(&path("connect_rounds"));
    let mut lines = record.lines;
    for line in &mut lines {
        match line {
            Line::Header(header) => {
                header.seed = at as u64;
                header.vantage = Some(POINTS[at].to_owned());
            }
            Line::Trial(trial) => {
                // No two runs take the same time.
                trial.took_s += 0.001 * at as f64;
                if trial.arm.name != "backlog 4096" {
                    continue;
                }
                let mean = trial.arm.metrics.get_mut("connect_us_mean").unwrap();
                mean.value *= 1.0 + 0.1 * at as f64;
            }
            _ => {}
        }
    }
    lines.push(Line::Summary(Box::new(Summary { partial: at == 2, ..summary })));
    let path = folder.join(format!("{}.jsonl", POINTS[at]));
    let texts = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n");
    std::fs::write(&path, texts.collect::<String>()).unwrap();
    path
}

fn merged() -> Summary {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..3).map(|at| point(folder.path(), at)).collect();
    let missing =
        vec![Missing { point: "sgp1".into(), reason: "no result by the deadline".into() }];
    let options = MergeOptions {
        command: ["tcptoll", "merge", "ams1.jsonl", "fra1.jsonl", "nyc3.jsonl"]
            .map(Into::into)
            .into(),
        version: "0.1.0".into(),
        missing,
        ..MergeOptions::default()
    };
    let mut summary = merge(&paths, options).unwrap().summary.unwrap();
    for point in summary.points.iter_mut().flat_map(|points| &mut points.points) {
        point.record = format!("{}.jsonl", point.name);
    }
    summary
}

#[test]
fn a_merged_record_is_rendered_as_before() {
    is_snapshot("merged", rendered(&merged(), "all.jsonl"));
}

#[test]
fn a_load_of_three_machines_is_rendered_as_before() {
    let record = MergedRecord::open(&path("split")).unwrap().unwrap();
    let summary = summarise_points(&record).unwrap();
    assert!(summary.valid && !summary.partial, "{:?}", summary.warnings);
    is_snapshot("split", rendered(&summary, "all.jsonl"));
}

#[test]
fn the_answer_of_a_merged_record_is_short_too() {
    let answer = merged().answer;
    assert!(answer.chars().count() <= 400, "{answer}");
}
