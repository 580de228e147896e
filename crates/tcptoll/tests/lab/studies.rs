//! Studies run to their end: arms, published figures, an arm that fails.

use std::fs;

use crate::support::{
    Folder, Ran, TOLERANCE, checked_summary, last_line, measured, no_lab, run, tcptoll,
};

/// Runs a study file with its record in `folder`.
fn study(folder: &Folder, text: &str) -> Ran {
    let (file, record) = (folder.path("study.toml"), folder.path("record.jsonl"));
    fs::write(&file, text).unwrap();
    let args = ["study", "run", &file, "--quiet", "--format", "json", "--out", &record];
    run(tcptoll(&args).args(["--link-tolerance", TOLERANCE]))
}

#[test]
fn a_study_file_runs_its_arms_and_keeps_published_figures_beside_ours() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let ran = study(
        &folder,
        "name = 'near-and-far'\nquestion = 'what?'\nexperiment = 'connect'\n\
         [settings]\ncount = 20\n\
         [[arm]]\nname = 'near'\n[[arm]]\nname = 'far'\nlink = 'rtt=5ms'\ncount = 30\n\
         [[published]]\narm = 'far'\nmetric = 'connect_us_mean'\nvalue = 5000.0\nsource = 's'\n",
    );
    assert!(measured(&ran), "{:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(
        (summary.study.as_deref(), summary.question.as_str()),
        (Some("near-and-far"), "what?")
    );
    let arms: Vec<(&str, u64)> =
        summary.arms.iter().map(|arm| (arm.name.as_str(), arm.ok)).collect();
    assert_eq!(arms, [("near", 20), ("far", 30)]);
    assert_eq!(summary.published[0].arm, "far");
    assert!(summary.arms[1].metrics.contains_key(&summary.published[0].metric));
}

#[test]
fn an_arm_that_fails_after_another_succeeded_is_recorded_with_its_reason() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let ran = study(
        &folder,
        "question = 'what?'\nexperiment = 'connect'\n[settings]\ncount = 20\n\
         [[arm]]\nname = 'well'\n[[arm]]\nname = 'ill'\nserver = 'exit 4'\n\
         [[arm]]\nname = 'well again'\n",
    );
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    let summary = checked_summary(&ran.stdout);
    let failures: Vec<bool> = summary.arms.iter().map(|arm| arm.failure.is_some()).collect();
    assert_eq!(failures, [false, true, false]);
    assert!(summary.arms[1].failure.as_ref().unwrap().contains("exit 4"));
    assert_eq!((summary.arms[0].ok, summary.arms[1].attempts, summary.arms[2].ok), (20, 0, 20));
    assert!(!summary.valid);
    assert_eq!(last_line(&folder.file("record.jsonl")), Some(summary));
}
