//! The HTML report of the records: whole, alone, and deaf to what is written in it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;

use super::{all, load};
use tcptoll_core::record::Summary;
use tcptoll_measure::experiments::REPORTS;

/// What stands between `from` and `to`, after the first `from`.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to} after {from}")).0
}

/// A tag without its quoted values, which hold text.
fn without_values(tag: &str) -> String {
    tag.split('"').step_by(2).collect()
}

/// The tags of a page, without what stands in style and script elements.
pub(super) fn tags(page: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').expect("every tag ends");
        tags.push(tag);
        rest = match tag.split([' ', '\n']).next() {
            Some(name @ ("script" | "style")) => {
                let end = after.find(&format!("</{name}>")).expect("it ends");
                &after[end..]
            }
            _ => after,
        };
    }
    tags
}

/// Elements that end where the next begins, or hold nothing.
const NOT_CLOSED: [&str; 7] = ["meta", "br", "tr", "th", "td", "dt", "dd"];

/// All other elements are closed in order.
pub(super) fn is_closed_in_order(name: &str, text: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in tags(text) {
        let element = tag.split([' ', '\n', '/']).next().unwrap();
        if let Some(closing) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closing), "{name}");
        } else if !(tag.starts_with('!') || tag.ends_with('/') || NOT_CLOSED.contains(&element)) {
            open.push(element);
        }
    }
    assert!(open.is_empty(), "{name}: {open:?}");
}

#[test]
fn every_element_is_closed_in_order() {
    for name in all() {
        is_closed_in_order(name, &REPORTS.html(&load(name)));
    }
}

#[test]
fn the_first_picture_is_a_file_of_its_own_that_loads_nothing() {
    let mut drawn = 0;
    for name in all() {
        let summary = load(name);
        let page = REPORTS.html(&summary);
        let Ok(svg) = REPORTS.svg(&summary) else { continue };
        drawn += 1;
        is_closed_in_order(name, &svg);
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox="), "{name}");
        assert!(!svg.contains("url(") && !svg.contains("@import"), "{name}");
        for tag in tags(&svg) {
            let bare = without_values(tag);
            assert!(!bare.contains(" src=") && !bare.contains(" href="), "{name}: {tag}");
        }
        // It is the page's own picture: the wide one of the first figure that is drawn there.
        let body =
            between(&svg, "<g transform=\"translate(0 ", "</svg>").split_once('>').unwrap().1;
        assert!(page.contains(body.trim_end_matches("</g>")), "{name}");
    }
    assert!(drawn > 20, "{drawn}");
}

#[test]
fn the_embedded_numbers_are_the_summary() {
    for name in all() {
        let summary = load(name);
        let page = REPORTS.html(&summary);
        let json = between(&page, "<script type=\"application/json\" id=\"summary\">", "</script>");
        assert!(!json.contains('<') && !json.contains('\u{2028}'), "{name}");
        assert_eq!(serde_json::from_str::<Summary>(json).unwrap(), summary, "{name}");
    }
}

#[test]
fn nothing_is_fetched() {
    for name in all() {
        let page = REPORTS.html(&load(name));
        assert!(page.contains("default-src 'none'"), "{name}");
        for tag in tags(&page) {
            let bare = without_values(tag);
            for attribute in [" src=", " action=", " srcset=", " xlink:href="] {
                assert!(!bare.contains(attribute), "{name}: {tag}");
            }
            let link = bare.contains(" href=").then(|| tag.split_once(" href="));
            assert!(link.flatten().is_none_or(|(_, v)| v.starts_with("\"#")), "{name}: {tag}");
        }
        let style = between(&page, "<style>", "</style>");
        assert!(!style.contains("url(") && !style.contains("@import"), "{name}");
    }
}

#[test]
fn hostile_strings_stay_text() {
    let page = REPORTS.html(&load("hostile"));
    let tags = tags(&page);
    assert!(!tags.iter().any(|tag| tag.starts_with("img")), "an img was injected");
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("script")).count(), 2);
    assert!(
        !tags.iter().any(|tag| without_values(tag).contains("onerror")),
        "a handler was injected"
    );
    let json = between(&page, "<script type=\"application/json\" id=\"summary\">", "</script>");
    let shown = page.replace(json, "");
    assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{2028}']), "a control is shown");
    assert!(!page.contains(">49<"), "a template was evaluated");
}

#[test]
fn pictures_have_names_and_tables_have_scopes() {
    for name in all() {
        let page = REPORTS.html(&load(name));
        for tag in tags(&page) {
            let bare = tag == "th" || (tag.starts_with("svg") && !tag.contains("aria-label=\""));
            assert!(!bare, "{name}: {tag}");
        }
        let data = between(&page, "<script type=\"application/json\" id=\"summary\">", "</script>");
        let shown = page.replace(data, "");
        assert!(!shown.contains("NaN") && !shown.contains("inf\""), "{name}");
    }
}

#[test]
fn an_arm_has_one_colour_in_every_picture() {
    let page = REPORTS.html(&load("connect_nine"));
    let of_fifth: Vec<&str> = page
        .split("<g class=\"")
        .filter(|group| {
            let (_, title) = group.split_once("\"><title>").unwrap_or_default();
            title.starts_with("loopback, paced:")
        })
        .collect();
    assert!(of_fifth.len() >= 2, "{}", of_fifth.len());
    assert!(of_fifth.iter().all(|g| g.starts_with("a4\"")));
}

#[test]
fn a_study_is_drawn_over_its_levels_in_both_figures() {
    let page = REPORTS.html(&load("http_study"));
    assert!(page.contains("Requests per second over connections"));
    assert!(page.contains(
        "Ratio of requests per second, reuse server-close against reuse keep-alive, per connections"
    ));
    // Published: two arms, and one pair of which both have a figure.
    assert_eq!(page.matches("<rect class=\"hollow\"").count(), 2 + 1);
}

#[test]
fn what_does_not_count_is_a_cross_with_its_reason() {
    let mut summary = load("http_study");
    summary.arms[0].rounds[1].left_out = Some("the client was the bottleneck".into());
    let failed = &mut summary.arms[1].rounds[0];
    failed.metrics.clear();
    failed.left_out = Some("failed: the server did not start".into());
    let page = REPORTS.html(&summary);
    assert_eq!(page.matches("excluded: the client was the bottleneck").count(), 1);
    assert_eq!(page.matches("no value; excluded: failed: the server did not start").count(), 1);
}

#[test]
fn a_comparison_without_interval_is_listed_and_not_drawn() {
    let mut summary = load("http_study");
    let [first, second, third] = &mut summary.comparisons[..] else { panic!("three levels") };
    let ratio = third.ratio.unwrap();
    first.ci95 = Some([0.8, 0.9]);
    second.ci95 = Some([0.3, 0.4]);
    let page = REPORTS.html(&summary);
    assert!(page.contains(&format!("×{ratio:.3}, no interval yet")));
    let drawn = page.matches("<rect class=\"margin\"").count();
    // Two rows of the forest and one band over the levels.
    assert_eq!(drawn, 2 + 1);
}

#[test]
fn a_run_in_rounds_begins_with_its_metric_and_not_with_a_ratio_of_it() {
    let first = |summary: &Summary| {
        let page = REPORTS.html(summary);
        assert_eq!(page.matches("Requests per second over connections</h").count(), 1);
        between(&page, "The answer as a picture\">", "</figure>").to_owned()
    };
    let mut summary = load("http_study");
    for c in &mut summary.comparisons {
        c.ci95 = c.ratio.map(|ratio| [ratio * 0.9, ratio * 1.1]);
    }
    assert!(first(&summary).contains("Requests per second over connections"));
    for c in &mut summary.comparisons {
        c.ci95 = None;
    }
    assert!(first(&summary).contains("Requests per second over connections"));
    summary.arms.iter_mut().for_each(|arm| arm.factors.clear());
    let page = REPORTS.html(&summary);
    let picture = between(&page, "The answer as a picture\">", "</figure>");
    assert!(picture.contains("since the start of the run"));
    assert!(!page.contains("is fastest"), "arms are ranked without their intervals");
    assert!(page.contains("the arms range from"));
}

#[test]
fn the_metric_of_the_run_stands_with_its_rounds_and_not_in_the_figures() {
    let page = REPORTS.html(&load("http_study"));
    let rounds = between(&page, "<h2>Comparisons</h2>", "</thead>");
    assert!(rounds.contains(">requests per second<"), "{rounds}");
    let figures = between(&page, "<h2>Figures</h2>", "</thead>");
    assert!(!figures.contains("requests/s"), "it stands there twice: {figures}");
}

#[test]
fn who_closed_and_how_many_ports_there_were_stand_on_the_page() {
    let page = REPORTS.html(&load("http_reuse"));
    for words in [
        "<dt>connections closed by the client first<dd>150</div>",
        "<dt>server sockets in TIME-WAIT after the load, mean over rounds<dd>49</div>",
        "<dt>server<dd>nginx/1.22.1</div>",
        "<dt>server processes<dd>2</div>",
        "ports (reuse client-close): 28,232 local ports",
        "closed first",
        "Connections of these requests",
        "CPU is per request",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let mut ignoring = load("http_reuse");
    ignoring.arms[1].closing.as_mut().unwrap().ignored = 1_200;
    let page = REPORTS.html(&ignoring);
    assert!(page.contains("kept the connection open 1,200 times"));
    let page = REPORTS.html(&load("http_rate"));
    let first = between(&page, "Figures</h2>", "<td");
    assert!(first.ends_with("<tr><th scope=\"row\">intended/s"), "{first}");
}

#[test]
fn the_trade_is_drawn_with_a_line_per_mechanism_and_a_point_per_arm() {
    let page = REPORTS.html(&load("keepalive_cut"));
    let picture = between(&page, "The answer as a picture\">", "</figure>");
    // Heartbeats have no line so near to the arms.
    assert_eq!(picture.matches(">tcp, computed</text>").count(), 1);
    // What nobody knew and what sends nothing has no place in it; where the window was shorter
    // than the time between two checks, packets are computed.
    let points = ["full", "hollow"].map(|c| picture.matches(&format!("class=\"{c}\"")).count());
    assert_eq!(points, [0, 2]);
    let legend = between(&page, "The answer as a picture\">", "</ul>");
    assert_eq!(legend.matches("<li>").count(), 2, "only what is drawn has a colour");
    assert!(picture.contains("mechanism lazy: costs no packets"), "it is forgotten");
    let table = between(&page, "The computed lines as a table", "</table>");
    assert!(table.contains("<th scope=\"row\">heartbeat<td"), "its values are in no table");
}

#[test]
fn an_answer_begins_with_its_first_sentence_whole() {
    let mut summary = load("keepalive_cut");
    let mut begins = |answer: &str| {
        summary.answer = answer.to_owned();
        let page = REPORTS.html(&summary);
        let answer = between(&page, "<p class=\"answer\">", "</p>").to_owned();
        let (first, rest) = answer.split_once(" <span>").unwrap_or((&answer, ""));
        [first.to_owned(), rest.trim_end_matches("</span>").to_owned()]
    };
    assert_eq!(begins("One. Two; three."), ["One.", "Two; three."]);
    assert_eq!(begins("Linux 6.1 vs. 5.4; both."), ["Linux 6.1 vs. 5.4; both.", ""]);
    let long = "a".repeat(170);
    let long = format!("One; {long}.");
    assert_eq!(begins(&format!("{long} Two.")), [long, "Two.".to_owned()]);
}

#[test]
fn what_was_never_known_is_said_and_why() {
    let page = REPORTS.html(&load("keepalive_freeze"));
    let why = "kernel answers probes";
    assert!(page.contains(why) && page.contains("tcp-heartbeat"));
    assert!(REPORTS.html(&load("keepalive_cut")).contains("TCP_KEEPIDLE"));
}

#[test]
fn a_page_speaks_of_checking_only_where_it_was_done() {
    for name in all() {
        let page = REPORTS.html(&load(name));
        assert_eq!(page.contains("Cost of checking"), name.starts_with("keepalive"), "{name}");
    }
    let page = REPORTS.html(&load("keepalive_window"));
    assert!(!page.contains("when they were detected"));
    assert!(!page.contains("Detection time and packets"));
}

#[test]
fn the_curve_of_deaths_ends_where_nobody_knew_of_the_others() {
    let mut summary = load("keepalive_cut");
    let deaths = summary.arms[1].own.keepalive.as_mut().and_then(|k| k.deaths.as_mut()).unwrap();
    deaths.known = 3;
    let page = REPORTS.html(&summary);
    assert!(page.contains("share of dead connections detected within"));
    assert!(page.contains("ends here: 40 % never detected"));
}

#[test]
fn a_run_that_measured_nothing_has_a_page() {
    let mut summary = load("connect_errors");
    summary.arms.clear();
    assert!(REPORTS.html(&summary).contains("</html>"));
    let mut summary = load("connect_errors");
    summary.arms[0] = tcptoll_core::record::Arm { name: "a".into(), ..Default::default() };
    assert!(REPORTS.html(&summary).contains("no\u{a0}attempts"));
}

/// Writes the pages to look at: `TCPTOLL_PAGES=/tmp/pages cargo test -p tcptoll --test records pages`.
#[test]
fn pages_to_look_at() {
    let Some(folder) = std::env::var_os("TCPTOLL_PAGES") else { return };
    std::fs::create_dir_all(&folder).unwrap();
    for name in all() {
        let path = std::path::Path::new(&folder).join(format!("{name}.html"));
        std::fs::write(path, REPORTS.html(&load(name))).unwrap();
    }
}

#[test]
fn several_runs_are_one_page_with_contents_and_no_name_twice() {
    let (one, two) = (load("connect"), load("http_reuse"));
    let page = REPORTS.html_of(&[&one, &two]);
    let ids: Vec<&str> =
        page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let unique: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    for id in ["run-1", "run-2", "summary-1", "summary-2"] {
        assert!(ids.contains(&id), "{id}");
    }
    for link in page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(ids.contains(&link), "#{link} leads nowhere");
    }
    for (id, run) in [("summary-1", &one), ("summary-2", &two)] {
        let from = format!("<script type=\"application/gzip\" id=\"{id}\">");
        let held = STANDARD.decode(between(&page, &from, "</script>")).unwrap();
        let summary: Summary = serde_json::from_reader(GzDecoder::new(held.as_slice())).unwrap();
        assert_eq!(summary, *run, "{id}");
    }
    let alone = REPORTS.html(&one);
    assert!(!alone.contains("class=\"contents\"") && alone.contains("id=\"summary\""));
}
