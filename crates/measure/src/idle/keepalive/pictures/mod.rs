//! What does `keepalive` show of its own? What died and when that was known, what a shorter time until
//! that costs in packets, and what no column can say.
//!
//! What no column can say is in `words`; `trade` is what the picture shows, `curve` draws it on the
//! page and `scatter` with letters.

mod curve;
mod notes;
mod scatter;
mod trade;

use std::collections::BTreeMap;

use crate::idle::keepalive::columns::{deaths, detection_s, due_s, keepalive, traded, traffic};
use crate::idle::keepalive::{DETECTION, MACHINE_CPU, PACKETS};
use tcptoll_core::experiment::column::value;
use tcptoll_core::record::Arm;
use tcptoll_core::stats::HistogramSummary;

use tcptoll_show::own::{Answer, Block, Failed, Item, Note, Passage, Picture, Section, Tone};
use tcptoll_show::run::{NONE, Own, Run};
use tcptoll_show::{figures, number};

use notes::{notes, setting, settings, to_set};
use trade::{Curve, Trade, Traded, trade};

/// Its parts.
pub(crate) const OWN: Own = Own {
    words: cell,
    failed: Some(failed),
    answer: Some(&Answer {
        histogram: DETECTION.name,
        counts: |arm| deaths(arm).map(|deaths| (deaths.known, deaths.dead)),
        share: "share of dead connections detected within …",
        never: "never detected",
        caption: caption_of_deaths,
    }),
    text: Some(text),
    markdown: Some(markdown),
    picture,
    sections,
    ..NONE
};

/// Ways of checking that are told apart in words; more would push the answer off the screen.
const SETTINGS: usize = 6;

/// Columns of a name beside the trade.
const NAME: usize = 22;

fn failed(Failed { failed, tried }: Failed) -> String {
    let [bad, all] = [failed, tried].map(number::count);
    format!(
        "{bad} of {all} connections could not be established, or ended although no fault hit them."
    )
}

/// Words in columns: how an arm checked, by what deaths were known, false alarms to be expected.
fn cell(key: &str, arm: &Arm) -> Option<String> {
    match key {
        "checking" => Some(settings(keepalive(arm)?)),
        "known_by" => counted(&deaths(arm)?.known_by),
        "read_said" => counted(&deaths(arm)?.read_said),
        "wrongly_closed_expected" => expected_wrongly(arm),
        _ => None,
    }
}

fn caption_of_deaths(h: &HistogramSummary) -> String {
    let word = if h.p50.is_some() { "median" } else { "mean" };
    let middle = figures::middle(h).map(|us| format!("after {} ({word})", number::time(us)));
    let last = h
        .max
        .map(|us| format!("the last of {} after {}", number::count(h.count), number::time(us)));
    let words: Vec<String> = middle.into_iter().chain(last).collect();
    format!("Dead connections were detected {}.", words.join(", "))
}

fn any_died(summary: &Run) -> bool {
    summary.arms.iter().any(|arm| deaths(arm).is_some())
}

/// Arms where something died and the trade between that and packets, then what every arm took: where
/// peers died, when that was known is the answer.
fn text(summary: &Run, width: usize) -> Vec<Block> {
    let mut blocks = how(summary);
    if any_died(summary) {
        blocks.extend([Block::Blank, Block::Table("deaths"), Block::Blank]);
        let tone = |note: &Note| if note.bad { Tone::Doubt } else { Tone::Dim };
        let notes = notes(&summary.arms).into_iter();
        blocks.extend(notes.map(|note| {
            let tone = tone(&note);
            Block::Prose(2, note.text, tone)
        }));
    }
    blocks.extend(trade(summary).map(|trade| traded_text(&trade, width)).unwrap_or_default());
    blocks.extend([Block::Blank, Block::Table("took")]);
    blocks
}

/// The trade as a table and, where it has room, as a picture.
fn traded_text(trade: &Trade<'_>, width: usize) -> Vec<Block> {
    let mut blocks =
        vec![Block::Blank, Block::Named("trade", "time and packets", NAME), Block::Blank];
    let picture = scatter::lines(trade, width);
    let remarks = trade.remarks.iter().cloned();
    let basis = trade.basis().filter(|_| !picture.is_empty());
    blocks.extend(picture.into_iter().map(|line| Block::Line(vec![(Tone::Plain, line)])));
    let basis = basis.map(|basis| format!("Small letters: {basis}."));
    blocks.extend(remarks.chain(basis).map(|text| Block::Prose(2, text, Tone::Dim)));
    blocks
}

/// Each way of checking once, with its settings.
fn how(summary: &Run) -> Vec<Block> {
    let mut ways: Vec<(&str, String)> = Vec::new();
    for arm in &summary.arms {
        let Some(checked) = keepalive(arm) else { continue };
        let way = settings(checked);
        if !way.is_empty() && !ways.iter().any(|(_, known)| *known == way) {
            ways.push((checked.checking.mechanism.name(), way));
        }
    }
    let more = ways.len().saturating_sub(SETTINGS);
    let labelled = |label: String, text: String| Block::Labelled(label, 14, text, Tone::Dim);
    let shown = ways.into_iter().take(SETTINGS);
    let mut blocks: Vec<Block> =
        shown.map(|(mechanism, way)| labelled(format!("  {mechanism}"), way)).collect();
    if more > 0 {
        blocks.push(labelled(String::new(), format!("{more} more settings in the record")));
    }
    blocks.push(Block::Blank);
    blocks
}

/// What checking took, what died, and the trade between the two.
fn markdown(summary: &Run) -> Vec<Passage> {
    let mut passages = vec![Passage::Table("took"), Passage::Table("deaths")];
    passages.push(Passage::List(notes(&summary.arms).into_iter().map(|n| n.text).collect()));
    passages.extend(trade(summary).map(|_| Passage::Table("trade")));
    passages
}

/// Deaths, the trade, and what checking took.
fn sections(summary: &Run) -> Vec<Section> {
    if summary.arms.iter().all(|arm| keepalive(arm).is_none()) {
        return Vec::new();
    }
    let mut sections = Vec::new();
    if any_died(summary) {
        sections.push(Section {
            title: "Dead connections, and when they were detected",
            items: vec![
                Item::Table("", "deaths"),
                Item::Table("What detection took, and by what", "spent"),
                Item::Notes(notes(&summary.arms)),
            ],
        });
    }
    if let Some(trade) = trade(summary) {
        let mut items = vec![Item::Lead, Item::Table("", "trade")];
        if let Some(basis) = trade.basis() {
            let computed = computed(&trade);
            items.push(Item::Small(figures::capital(&basis) + "."));
            items.push(Item::Details(
                "The computed lines as a table".to_owned(),
                format!("{} settings", computed.len()),
                vec![Item::Rows(
                    vec!["mechanism", "detected within", "packets per hour", "setting"],
                    computed,
                    vec![3],
                )],
            ));
        }
        sections.push(Section { title: "Detection time and packets", items });
    }
    let details = |title: &str, items| Item::Details(title.to_owned(), String::new(), items);
    let mut items = vec![
        Item::Table("", "traffic"),
        Item::Table("Per hour", "hourly"),
        details("Bytes by kind, and retransmissions", vec![Item::Table("", "more")]),
    ];
    let to_set = to_set(&summary.arms);
    if !to_set.is_empty() {
        let heads = vec!["arm", "where", "name", "value"];
        let rows = Item::Rows(heads, to_set.into_iter().map(Vec::from).collect(), vec![1, 2, 3]);
        items.push(details("Settings", vec![rows]));
    }
    items.push(Item::Table("CPU and memory", "cost"));
    if summary.arms.iter().any(|arm| value(arm, MACHINE_CPU.name).is_some()) {
        let words = "Machine: CPU of all programs on the machine except the link emulator, which \
                     also does the work of receiving packets.";
        items.push(Item::Small(words.to_owned()));
    }
    sections.push(Section { title: "Cost of checking", items });
    sections
}

/// What the lines of the picture say: mechanism, known after, packets per hour, the setting.
fn computed(trade: &Trade<'_>) -> Vec<Vec<String>> {
    let rows = |curve: &Curve| {
        let mechanism = curve.mechanism;
        let row = move |p: &tcptoll_core::tcp::checking::Point| {
            vec![
                mechanism.name().to_owned(),
                number::time(p.detect_s * 1e6),
                number::three(p.packets_per_hour),
                setting(&p.checking),
            ]
        };
        curve.points.iter().map(row).collect::<Vec<_>>()
    };
    trade.curves.iter().flat_map(rows).collect()
}

/// The picture of the trade.
fn picture(summary: &Run) -> Option<Picture> {
    let trade = trade(summary)?;
    let drawn = trade.drawn.iter().map(|arm| arm.at).collect();
    Some(Picture { both_svg: curve::picture(&trade)?, caption: curve::caption(&trade), drawn })
}

/// Packets that checking took for an hour and one connection, as measured.
///
/// None: it was not counted, or the window was shorter than the time between two checks. Then the
/// counts of the window say nothing of an hour.
fn packets_per_hour(arm: &Arm) -> Option<f64> {
    value(arm, PACKETS.name)
}

/// `ETIMEDOUT (998), ECONNRESET (2)`, most frequent first.
fn counted(counts: &BTreeMap<String, u64>) -> Option<String> {
    let mut counts: Vec<(&String, &u64)> = counts.iter().filter(|(_, n)| **n > 0).collect();
    counts.sort_by(|a, b| b.1.cmp(a.1));
    let words: Vec<String> =
        counts.into_iter().map(|(what, n)| format!("{what} ({})", number::count(*n))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Expected false alarms: `2.1 [0, 6]`.
fn expected_wrongly(arm: &Arm) -> Option<String> {
    let [least, mean, most] = deaths(arm)?.expected_wrongly?;
    Some(format!("{} [{}, {}]", number::figure(mean), number::figure(least), number::figure(most)))
}
