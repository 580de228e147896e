//! The record of a watch, rendered in every format.
//!
//! `watch.json` is a real one: three listeners in a network namespace of their own, of which two overflow.
//! `make.sh` has the command lines.

use std::io::Write as _;
use std::path::Path;

use tcptoll::schema::Schema;
use tcptoll_live::watch::pages::{Clock, WatchCsv, Watched, watch_sheet};
use tcptoll_live::watch::{
    DestinationReview, Episode, Gap, Interval, ListenerPart, ListenerReview, Peak, Process, Review,
    Series, WatchRecord,
};
use tcptoll_show::{TextStyle, sheet};

use super::{is_snapshot, page};

const EVIL: &str = "</script><script>alert(1)</script>\u{1b}[2J{{ 7*7 }}|`\u{202e}=1\n";

fn clock() -> Clock {
    // 23 November 2026, 08:36 UTC.
    Clock { began_unix_s: 1_795_422_960.0, offset_s: 3_600, zone: "CET".into() }
}

fn kept() -> WatchRecord {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records/watch.json");
    WatchRecord::open(&path).unwrap().expect("the record of a watch")
}

fn watched(review: &Review) -> Watched<'_> {
    Watched { review, clock: clock(), record: Some(Path::new("night.jsonl")) }
}

fn watch_text(watched: &Watched<'_>, style: TextStyle) -> String {
    sheet::text(&watch_sheet(watched, None), style)
}

fn watch_markdown(watched: &Watched<'_>) -> String {
    sheet::markdown(&watch_sheet(watched, None))
}

fn watch_html(watched: &Watched<'_>, series: &Series) -> String {
    let page = watch_sheet(watched, Some(series));
    sheet::html(page, watched.review)
}

#[test]
fn the_record_of_a_watch_is_rendered_as_before() {
    let record = kept();
    let review = record.review().unwrap();
    let watched = watched(&review);
    let mut table = WatchCsv::default();
    let mut csv = WatchCsv::head();
    for line in record.lines().unwrap() {
        csv += &table.rows(&line.unwrap().1);
    }
    let csv: Vec<&str> = csv.lines().filter(|row| !row.contains(",host,")).collect();
    let at = |width, colour| watch_text(&watched, TextStyle { colour, width });
    let outputs = [
        ("80 columns", at(80, false)),
        ("150 columns", at(150, false)),
        ("colour", at(80, true)),
        ("page", page::body(&watch_html(&watched, &record.series(&review).unwrap()))),
        ("Markdown", watch_markdown(&watched)),
        ("CSV", csv.join("\n")),
        ("JSON", serde_json::to_string(&review).unwrap()),
    ];
    is_snapshot("watch", outputs);
}

#[test]
fn counts_of_listeners_add_up_to_those_of_the_host() {
    let review = kept().review().unwrap();
    let overflows: f64 = review.listeners.iter().map(|one| one.overflows).sum();
    assert!((overflows - review.counts["overflows"] as f64).abs() < 0.01, "{overflows}");
    assert!(review.counts["overflows"] > 0);
    let active: f64 = review.episodes.iter().map(|one| one.active_s).fold(0.0, f64::max);
    assert!(active > 0.0 && active <= review.lasted_s);
}

#[test]
fn the_summary_of_a_watch_follows_its_schema() {
    let review = serde_json::to_value(kept().review().unwrap()).unwrap();
    let schema = serde_json::from_str(Schema::WatchReport.published()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&review).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// A review whose every word is hostile.
fn hostile() -> Review {
    let evil = || EVIL.to_owned();
    let episode = Episode {
        id: evil(),
        severity: tcptoll_core::finding::Severity::Problem,
        subject: evil(),
        text: evil(),
        from_s: 1.0,
        to_s: 5.0,
        active_s: 2.0,
        worst_at_s: 3.0,
        ongoing: false,
        fix: Some(tcptoll_core::finding::Remedy {
            change: evil(),
            commands: vec![evil()],
            effect: evil(),
            cost: evil(),
            undo: evil(),
            ..tcptoll_core::finding::Remedy::default()
        }),
    };
    let process = Some(Process { pid: 1, name: evil() });
    let listener = ListenerReview {
        address: evil(),
        process,
        accept_queue_peak: 9,
        accept_queue_limit: 8,
        drops: 7,
        ..ListenerReview::default()
    };
    Review {
        kind: "watch".into(),
        tcptoll_version: evil(),
        command: vec![evil()],
        host: evil(),
        started_at: evil(),
        lasted_s: 9.0,
        counted_s: 9.0,
        interval_s: 1.0,
        looks: 9,
        lines: 9,
        episodes: vec![episode],
        listeners: vec![listener],
        destinations: vec![DestinationReview {
            to: evil(),
            ports_left: Some(3),
            ..DestinationReview::default()
        }],
        counts: [("drops".to_owned(), 7), (evil(), 1)].into(),
        peaks_per_s: [(evil(), Peak::default())].into(),
        gaps: vec![Gap { at_s: 8.0, lasted_s: 4.0, suspended_s: 4.0 }],
        ..Review::default()
    }
}

#[test]
fn a_hostile_record_steers_neither_the_terminal_nor_the_page() {
    let review = hostile();
    let watched = watched(&review);
    let part = ListenerPart { n: 0, queue: 9, ..ListenerPart::default() };
    let point = Interval {
        at_s: 9.0,
        interval_s: 9.0,
        looks: 9,
        listeners: vec![part],
        ..Interval::default()
    };
    let series = Series { points: vec![point], limits: [(0, vec![(0.0, 8)])].into() };
    let text = watch_text(&watched, TextStyle { colour: false, width: 80 });
    let markdown = watch_markdown(&watched);
    let html = watch_html(&watched, &series);
    for (name, output) in [("text", &text), ("markdown", &markdown), ("page", &page::body(&html))] {
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!output.chars().any(steers), "{name}: {output}");
    }
    // In a fence it is code.
    let outside: String = markdown.split("```").step_by(2).collect();
    assert!(!outside.contains("<script"), "{markdown}");
    // Its own two elements, and no third.
    assert_eq!(html.matches("<script").count(), 2, "{html}");
    assert!(html.contains("{{ 7*7 }}"), "no template is run: {html}");
}

/// As many points, listeners, destinations and episodes as a page can have.
#[test]
fn the_page_of_a_long_busy_watch_has_a_bounded_size() {
    let places = 0..8_u32;
    let part = |at: u32, n: u32| ListenerPart {
        n,
        queue: (at * 37 + n) % 129,
        drops: 5,
        ..ListenerPart::default()
    };
    let point = |at: u32| Interval {
        at_s: f64::from(at + 1) * 86.4,
        interval_s: 86.4,
        looks: 86,
        counts: [
            ("drops".to_owned(), u64::from(at * 7_919 % 1_000)),
            ("retransmitted".to_owned(), 3),
        ]
        .into(),
        peak_per_s: [("drops".to_owned(), f64::from(at * 104_729 % 977))].into(),
        listeners: places.clone().map(|n| part(at, n)).collect(),
        ..Interval::default()
    };
    let series = Series {
        points: (0..1_001).map(point).collect(),
        limits: places.clone().map(|n| (n, vec![(0.0, 128)])).collect(),
    };
    let mut review = hostile();
    review.lasted_s = 86_486.4;
    review.episodes = vec![review.episodes[0].clone(); 500];
    review.listeners =
        places.map(|n| ListenerReview { port: n as u16, ..review.listeners[0].clone() }).collect();
    let page = watch_html(&watched(&review), &series);
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
    assert!(page.len() > 100_000);
}

#[test]
fn a_night_across_midnight_names_its_days() {
    let mut review = hostile();
    review.lasted_s = 20.0 * 3_600.0;
    review.host = "web1".into();
    let text = watch_text(&watched(&review), TextStyle { colour: false, width: 150 });
    assert!(text.contains("23 Nov 2026 09:36:00 to 24 Nov 05:36:00 CET"), "{text}");
}

#[test]
fn an_episode_ends_with_the_record_or_was_at_one_look_and_is_never_said_to_go_on() {
    let mut review = hostile();
    let one = Episode { id: "accept-queue-full".into(), ..review.episodes[0].clone() };
    let lasting = Episode { ongoing: true, from_s: 2.0, to_s: 9.0, active_s: 7.0, ..one.clone() };
    let first = Episode { from_s: 0.001, to_s: 0.001, active_s: 0.0, ..one };
    review.episodes = vec![first, lasting];
    let text = watch_text(&watched(&review), TextStyle { colour: false, width: 150 });
    assert!(text.contains("09:36:00, at one look accept-queue-full"), "{text}");
    assert!(text.contains("09:36:02 until the end of the record (7 s) accept"), "{text}");
    let markdown = watch_markdown(&watched(&review));
    assert!(markdown.contains("| 09:36:02 | end of the record | 7 s |"), "{markdown}");
    assert!(markdown.contains("| at one look |"), "{markdown}");
    for page in [text, markdown] {
        assert!(
            !page.contains("goes on") && !page.contains("(0 s)") && !page.contains("| 0 s"),
            "{page}"
        );
    }
}

#[test]
fn a_record_without_an_end_says_each_reason_that_it_may_have() {
    let mut review = hostile();
    review.killed = true;
    let text =
        |review: &Review| watch_text(&watched(review), TextStyle { colour: false, width: 150 });
    let said = "the watch was killed, the disk was full, or the watch still runs";
    assert!(text(&review).contains(said), "{}", text(&review));
    (review.killed, review.stopped) = (false, Some("No space left on device".into()));
    let said = "Recording stopped after 09:36:09: No space left on device.";
    assert!(text(&review).contains(said), "{}", text(&review));
    assert!(!text(&review).contains("killed"));
}

#[test]
fn one_of_a_thing_is_not_written_as_many() {
    let mut review = hostile();
    (review.looks, review.missed, review.listeners_idle) = (1, Some(1), 1);
    (review.listeners_left_out, review.gaps_left_out) = (1, 1);
    review.listeners[0].drops = 1;
    let text = watch_text(&watched(&review), TextStyle { colour: false, width: 200 });
    for said in [
        "1 look, one every",
        "1 look was due",
        "1 listener had an empty queue",
        "1 more listener had a queue or a drop.",
        "1 shorter gap is not shown.",
        "at the only look",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("1 looks") && !text.contains("1 listeners"), "{text}");
}

#[test]
fn segments_retransmitted_are_counted_without_syns_in_every_format() {
    let record = kept();
    let review = record.review().unwrap();
    let count = |name: &str| review.counts[name];
    let data = count("retransmitted") - count("syns_retransmitted");
    assert_eq!(count("data_retransmitted"), data);
    assert!(count("syns_retransmitted") > 0 && data > 0);
    let watched = watched(&review);
    let text = watch_text(&watched, TextStyle { colour: false, width: 150 });
    let row = text.lines().find(|line| line.contains("segments retransmitted, SYNs ex")).unwrap();
    assert!(row.contains(&format!(" {data} ")), "{row}");
    let page = watch_html(&watched, &record.series(&review).unwrap());
    assert!(page.contains(&format!("{data} segments retransmitted, SYNs excluded")));
}

#[test]
fn a_record_without_its_last_bytes_lacks_the_summary_alone() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records/watch.json");
    let bytes = std::fs::read(path).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes[..bytes.len() - 30]).unwrap();
    let cut = WatchRecord::open(file.path()).unwrap().unwrap().review().unwrap();
    let whole = kept().review().unwrap();
    assert!(cut.cut && cut.killed && !whole.cut && !whole.killed);
    assert_eq!(cut.counts, whole.counts, "the summary alone was cut");
}
