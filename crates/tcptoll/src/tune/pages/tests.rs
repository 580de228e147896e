use crate::tune::cell::Cell;
use crate::tune::found::{Behind, Compared, Found, Weight};
use crate::tune::setting::Setting;
use crate::tune::snippet::{Distribution, Snippet};
use tcptoll_measure::pages::Server;

use tcptoll_show::TextStyle;

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
    let text = crate::tune::pages::found_text(&found(), TextStyle::default());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Set KeepAliveTimeout to 65 s"), "{text}");
    for part in [
        "Set KeepAlive Off, MaxRequestWorkers 22.",
        "→",
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
    let text = crate::tune::pages::found_text(&nothing, TextStyle::default());
    assert!(text.contains("No setting was measured") && text.contains("A doubt."), "{text}");
    assert!(crate::tune::pages::found_html(&nothing).contains("No setting was measured"));
}

#[test]
fn names_of_others_are_escaped_on_the_page_and_the_curve_is_drawn() {
    let page = crate::tune::pages::found_html(&found());
    assert!(page.contains("2.4.71 &lt;b&gt;"), "the version of a server");
    assert!(page.contains("<svg class=\"wide\"") && page.contains("circle class=\"chosen\""));
    assert!(!page.contains("<b>\","), "the embedded data ends no element");
}
