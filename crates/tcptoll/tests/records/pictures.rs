//! Do words of a report's pictures overlap, leave their picture or their column, or are they too small; has every table
//! room? Chromium lays the pages out for a phone, for windows and for paper, and a script measures them there.

use std::fmt::Write as _;
use std::process::Command;

use super::{NAMES, load};
use tcptoll_measure::experiments::REPORTS;

/// Widths of a phone, of the narrowest window and of wider ones, px: from 641 on letters are small.
const WIDTHS: [u32; 4] = [400, 641, 800, 1200];

/// Width of A4 paper between margins of 1 cm, at 96 px per inch.
const PAPER: u32 = 718;

const SCRIPT: &str = include_str!("pictures.js");

#[test]
fn no_table_is_cut_and_no_word_overlaps_another_is_cut_or_too_small_on_a_phone_in_a_window_or_on_paper()
 {
    let has =
        Command::new("chromium").arg("--version").output().is_ok_and(|ran| ran.status.success());
    if !has {
        let required = std::env::var_os("LAB").is_some_and(|lab| lab == "required");
        assert!(!required, "chromium is not installed: cargo xtask setup");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut page = "<!doctype html><meta charset=utf-8><body>".to_owned();
    let mut frames = 0;
    let mut add = |title: &str, width: u32, content: &str| {
        frames += 1;
        let content = content.replace('&', "&amp;").replace('"', "&quot;");
        write!(
            page,
            "<iframe title=\"{title}\" width={width} height=20000 srcdoc=\"{content}\"></iframe>"
        )
        .unwrap();
    };
    for name in NAMES {
        let summary = load(name);
        let report = REPORTS.html(&summary);
        for width in WIDTHS {
            add(&format!("{name}, {width} px"), width, &report);
        }
        let printed = report.replace("@media print", "@media all");
        add(&format!("{name}, printed"), PAPER, &printed);
        if let Ok(picture) = REPORTS.svg(&summary) {
            add(&format!("{name}, first picture"), 800, &picture);
        }
    }
    write!(page, "<pre id=found>not looked at</pre><script>{SCRIPT}</script>").unwrap();
    let file = folder.path().join("pages.html");
    std::fs::write(&file, page).unwrap();
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"]);
    chromium.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
    // The script ends with the page's load event, whatever time that takes.
    chromium.args(["--virtual-time-budget=60000", "--dump-dom"]).arg(&file);
    let ran = chromium.output().unwrap();
    let dom = String::from_utf8_lossy(&ran.stdout);
    let found = dom.rsplit_once("<pre id=\"found\">").map(|(_, rest)| rest);
    let found = found.and_then(|rest| rest.split_once("</pre>")).map(|(found, _)| found.trim());
    let looked = format!("{frames} pages were looked at");
    assert_eq!(found, Some(looked.as_str()), "{}", String::from_utf8_lossy(&ran.stderr));
}
