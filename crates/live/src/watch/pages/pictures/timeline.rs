//! What was wrong when, as bars.

use crate::diagnosis::Severity;
use crate::watch::review::Episode;

use super::Picture;
use super::chart::{BANDS_MAX, left_of, time_axis};
use crate::watch::pages::CleanReview;
use tcptoll_show::clean;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::svg::{Anchor, Screen, for_both};

/// Rows of the timeline, at most.
const ROWS_MAX: usize = 24;

/// What was wrong when: a row for each cause and subject, each bar a link to its article.
pub(crate) fn timeline(view: &CleanReview<'_>) -> Option<Picture> {
    let mut rows: Vec<((&str, &str), Vec<&Episode>)> = Vec::new();
    for one in &view.review.episodes {
        let key = (one.id.as_str(), one.subject.as_str());
        match rows.iter_mut().find(|(known, _)| *known == key) {
            Some((_, all)) => all.push(one),
            None => rows.push((key, vec![one])),
        }
    }
    if rows.is_empty() {
        return None;
    }
    let worst = |all: &[&Episode]| all.iter().map(|one| one.severity).min();
    rows.sort_by_key(|(_, all)| worst(all));
    let more = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let draw = |screen: Screen| {
        let height = 34.0;
        let frame = Frame::across(screen, left_of(screen), 8.0, 14.0 + height * rows.len() as f64);
        let x = Scale::from_zero(view.review.lasted_s, frame.left, frame.right);
        let mut plot = Plot::of_rows(frame, 26.0, x);
        time_axis(&mut plot, view, if screen == Screen::Wide { 8 } else { 4 });
        plot.base();
        for (at, ((id, subject), all)) in rows.iter().enumerate() {
            let top = frame.top + height * at as f64;
            let width = if screen == Screen::Wide { 110 } else { 46 };
            let name = clean::shorten(&format!("{id}: {subject}"), width);
            plot.svg.text("name", (4.0, top + 14.0), Anchor::Start, &name);
            plot.svg.line("lane", (frame.left, top + 23.0), (frame.right, top + 23.0));
            for one in all.iter().take(BANDS_MAX) {
                let (from, to) = (plot.x.at(one.from_s), plot.x.at(one.to_s));
                let tooltip =
                    format!("{} to {}: {}", view.at(one.from_s), view.at(one.to_s), one.text);
                plot.svg.open_link(&format!("#{}", anchor(one)));
                let size = ((to - from).max(3.0), 10.0);
                plot.svg.rect(&format!("{} solid", class(one)), (from, top + 18.0), size, &tooltip);
                plot.svg.close_link();
            }
        }
        plot.svg
    };
    let more = if more > 0 { format!(" {more} more are in the table.") } else { String::new() };
    let caption = format!(
        "Red: connections were harmed. Yellow: a warning, nothing was harmed yet. A bar links to its explanation and fix.{more}"
    );
    let both_svg = for_both("What was wrong over time", draw);
    Some(Picture { title: "What was wrong".into(), both_svg, caption, folded: false })
}

/// Where the article of a cause is on the page. Names of causes are kebab case; a record may hold others.
pub(crate) fn anchor(one: &Episode) -> String {
    let kept = |c: char| c.is_ascii_lowercase() || c == '-';
    format!("cause-{}", one.id.chars().filter(|c| kept(*c)).take(60).collect::<String>())
}

fn class(one: &Episode) -> &'static str {
    if one.severity == Severity::Problem { "problem" } else { "warned" }
}
