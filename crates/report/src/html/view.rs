//! Which words and tables does the page hold? Everything the template shows, ready to be escaped.
//!
//! Only fields that end in `_svg` hold markup; they are made by the drawing modules.

use serde::Serialize;
use serde_json::Value as Json;
use tcptoll_model::record::{Arm, PlaceKind, Summary, WarningEntry};

use super::svg::arm_class;
use super::{counted, distribution, forest, keepalive, levels, range, series, table, timeline};
use crate::figures::{self, Primary};
use crate::number::{self, ABSENT};
use crate::{clean, effect, findings, requests, rounds};

/// The page.
#[derive(Serialize)]
pub(super) struct View {
    title: String,
    experiment: String,
    study: Option<String>,
    question: String,
    answer: [String; 2],
    place: Vec<String>,
    addresses: Vec<String>,
    forecasts: Vec<String>,
    cpu_note: &'static str,
    started_at: String,
    version: String,
    record_version: u32,
    invalid: Vec<String>,
    doubts: Vec<String>,
    warnings: Vec<Warning>,
    several: bool,
    distribution: Option<Picture>,
    range: Option<Picture>,
    figures: table::Table,
    connections: Option<table::Table>,
    keepalive: Option<keepalive::View>,
    trade: Option<Picture>,
    first: First,
    over_levels: Option<Titled>,
    ratios: Vec<Titled>,
    forests: Vec<Titled>,
    no_interval: Vec<String>,
    comparisons: Vec<Vec<String>>,
    together: Option<String>,
    ending: Option<String>,
    rounds: Option<Picture>,
    left_out: Vec<[String; 4]>,
    warmup: Vec<[String; 2]>,
    published: Vec<Vec<String>>,
    about_sd: Option<String>,
    timelines: Vec<TimelineView>,
    over_time: Vec<Named>,
    counters: Vec<counted::Counters>,
    causes: Vec<CauseView>,
    advice: Vec<AdviceView>,
    next: Vec<[String; 2]>,
    passport: Vec<[String; 2]>,
    links: Vec<Vec<String>>,
    command: String,
    file_name: String,
    one_machine: bool,
}

/// The picture that the page begins with: of a run in rounds one of the metric that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum First {
    Ratios,
    Forests,
    Levels,
    Rounds,
    Trade,
    Distribution,
}

/// A name with its colour.
#[derive(Serialize)]
pub(super) struct ArmName {
    class: String,
    name: String,
}

#[derive(Serialize)]
struct Picture {
    both_svg: String,
    caption: String,
    /// Arms in it, where their colours are named above it.
    legend: Vec<ArmName>,
}

impl Picture {
    fn new(both_svg: String, caption: &str) -> Self {
        Self { both_svg, caption: keep_units(caption), legend: Vec::new() }
    }

    /// The same, with a legend of the arms that are drawn, where there are several to tell apart.
    fn of_arms(self, summary: &Summary, drawn: impl Fn(usize, &Arm) -> bool) -> Self {
        let legend = each_arm(summary, |at, arm| drawn(at, arm).then(|| name(at, arm)));
        if summary.arms.len() > 1 { Self { legend, ..self } } else { self }
    }
}

/// A picture under a heading of its own.
#[derive(Serialize)]
struct Titled {
    title: String,
    picture: Picture,
}

impl Titled {
    fn new(title: String, both_svg: String, caption: &str) -> Self {
        Self { title, picture: Picture::new(both_svg, caption) }
    }
}

impl From<levels::OverLevels> for Titled {
    fn from(picture: levels::OverLevels) -> Self {
        Self::new(picture.title, picture.both_svg, &picture.caption)
    }
}

#[derive(Serialize)]
struct Named {
    arm: ArmName,
    picture: Picture,
}

#[derive(Serialize)]
struct Warning {
    arm: Option<String>,
    text: String,
}

#[derive(Serialize)]
struct TimelineView {
    arm: ArmName,
    picture: Picture,
    steps: Vec<Vec<String>>,
    views: Vec<Vec<String>>,
    expected: Option<String>,
    source: String,
}

#[derive(Serialize)]
struct CauseView {
    id: String,
    arm: String,
    text: String,
    evidence: Vec<[String; 2]>,
}

#[derive(Serialize)]
struct AdviceView {
    cause: String,
    change: String,
    cost: String,
    undo: String,
    proof: Option<String>,
}

/// The page of a cleaned summary.
pub(super) fn of(summary: &Summary) -> View {
    let primary = figures::primary(summary);
    let over_levels = levels::of_metric(summary).map(Titled::from);
    let ratios: Vec<Titled> = levels::of_ratio(summary).into_iter().map(Titled::from).collect();
    let forests: Vec<Titled> = forest::pictures(summary)
        .into_iter()
        .map(|f| Titled::new(f.title, f.both_svg, &f.caption))
        .collect();
    let in_order = super::rounds::picture(summary)
        .map(|both_svg| Picture::new(both_svg, &super::rounds::caption(summary)))
        .map(|picture| picture.of_arms(summary, |_, arm| !arm.rounds.is_empty()));
    let metric = rounds::metric(summary);
    let drawn =
        summary.comparisons.iter().any(|c| c.ci95.is_some() && metric == Some(c.metric.as_str()));
    let trade = keepalive::picture(summary).map(|(both_svg, caption, drawn)| {
        Picture::new(both_svg, &caption).of_arms(summary, |at, _| drawn.contains(&at))
    });
    let first = if summary.rounds.is_none() && trade.is_some() {
        First::Trade
    } else if summary.rounds.is_none() {
        First::Distribution
    } else if drawn && !ratios.is_empty() {
        First::Ratios
    } else if drawn && !forests.is_empty() {
        First::Forests
    } else if over_levels.is_some() {
        First::Levels
    } else if in_order.is_some() {
        First::Rounds
    } else {
        First::Distribution
    };
    View {
        title: format!("{} · tcptoll", summary.question),
        experiment: summary.experiment.clone(),
        study: summary.study.clone(),
        question: summary.question.clone(),
        answer: lead(&summary.answer).map(keep_units),
        place: figures::place(summary),
        addresses: figures::addresses(summary),
        forecasts: requests::forecasts(&summary.arms),
        cpu_note: if crate::keepalive::any(summary) {
            "CPU is per message"
        } else if requests::any(summary) {
            "CPU is per request"
        } else {
            "CPU is the client's, per operation"
        },
        started_at: summary.started_at.clone(),
        version: summary.tcptoll_version.clone(),
        record_version: summary.record_version,
        invalid: findings::invalid(summary),
        doubts: findings::verdict_on_run(summary),
        warnings: summary.warnings.iter().map(|w| warning(w, summary.arms.len())).collect(),
        several: summary.arms.len() > 1,
        distribution: distribution::picture(summary, &primary)
            .map(|both_svg| Picture::new(both_svg, &distribution::caption(summary, &primary)))
            .map(|picture| {
                let has = |_, arm: &Arm| distribution::is_drawn(arm, &primary);
                picture.of_arms(summary, has)
            }),
        range: range::picture(summary, &primary)
            .map(|both_svg| Picture::new(both_svg, &range::caption(summary, &primary))),
        figures: table::of(summary, &primary),
        connections: table::of_connections(summary),
        keepalive: keepalive::of(summary),
        trade,
        first,
        over_levels,
        ratios,
        forests,
        no_interval: forest::without_interval(summary),
        comparisons: summary.comparisons.iter().map(comparison).collect(),
        together: effect::together(&summary.comparisons),
        ending: rounds::ending(summary),
        rounds: in_order,
        left_out: rounds::left_out(summary),
        warmup: warmups(summary),
        published: published(summary),
        about_sd: figures::about_sd(&figures::published(summary)),
        timelines: each_arm(summary, timeline_of),
        over_time: each_arm(summary, |at, arm| over_time(at, arm, &primary)),
        counters: each_arm(summary, |at, arm| Some(counted::of(name(at, arm), arm))),
        causes: summary.causes.iter().map(cause).collect(),
        advice: summary.advice.iter().map(advice).collect(),
        next: summary.next.iter().map(|n| [n.command.clone(), n.why.clone()]).collect(),
        passport: counted::passport(summary),
        links: summary
            .arms
            .iter()
            .filter_map(|arm| Some(counted::link(arm, arm.link.as_ref()?)))
            .collect(),
        command: findings::command(&summary.command),
        file_name: file_name(summary),
        one_machine: summary.place.kind == PlaceKind::Lab,
    }
}

pub(super) fn each_arm<T>(summary: &Summary, of: impl Fn(usize, &Arm) -> Option<T>) -> Vec<T> {
    summary.arms.iter().enumerate().filter_map(|(at, arm)| of(at, arm)).collect()
}

pub(super) fn name(at: usize, arm: &Arm) -> ArmName {
    ArmName { class: arm_class(at), name: arm.name.clone() }
}

fn warning(entry: &WarningEntry, arms: usize) -> Warning {
    Warning { arm: entry.arm.clone().filter(|_| arms > 1), text: entry.text.clone() }
}

fn comparison(c: &tcptoll_model::record::Comparison) -> Vec<String> {
    let [ratio, interval] = effect::ratio(c);
    let absent = || ABSENT.to_owned();
    vec![
        figures::metric_name(&c.metric),
        c.a.clone(),
        c.b.clone(),
        ratio,
        interval,
        effect::difference(c).unwrap_or_else(absent),
        if c.margin > 0.0 { number::plain_percent(c.margin) } else { absent() },
        if c.rounds > 0 { c.rounds.to_string() } else { absent() },
        c.verdict.to_string(),
    ]
}

/// What each arm did before the measurement.
fn warmups(summary: &Summary) -> Vec<[String; 2]> {
    let row = |arm: &Arm| Some([arm.name.clone(), rounds::warmup(arm)?]);
    summary.arms.iter().filter_map(row).collect()
}

fn published(summary: &Summary) -> Vec<Vec<String>> {
    let row = |row: figures::Beside<'_>| {
        let source = match row.note {
            Some(note) => format!("{} ({note})", row.source),
            None => row.source.to_owned(),
        };
        let ratio = row.ratio.map_or_else(|| ABSENT.to_owned(), number::ratio);
        vec![row.arm.to_owned(), row.metric, row.published, row.ours, ratio, source]
    };
    figures::published(summary).into_iter().map(row).collect()
}

fn timeline_of(at: usize, arm: &Arm) -> Option<TimelineView> {
    let timeline = arm.timeline.as_ref()?;
    let picture =
        Picture::new(timeline::picture(timeline, &arm.name)?, &timeline::caption(timeline));
    let rtt = figures::reference_rtt(arm);
    let steps = timeline.steps.iter().enumerate().map(|(at, step)| {
        vec![
            (at + 1).to_string(),
            step.name.clone(),
            step.at.clone(),
            number::time(step.begins_us),
            number::time(step.p50_us),
            number::time_or_absent(step.p99_us),
        ]
    });
    let views = timeline.views.iter().map(|view| {
        let expected = rtt.map(|rtt| rtt * view.expected_rtts);
        let off = expected.filter(|us| *us > 0.0).map(|us| number::percent_off(view.p50_us / us));
        vec![
            view.name.clone(),
            view.span.clone(),
            number::exact_time(view.p50_us),
            format!("{} RTT", number::trimmed(view.expected_rtts)),
            expected.map_or_else(|| ABSENT.to_owned(), number::exact_time),
            off.unwrap_or_else(|| ABSENT.to_owned()),
        ]
    });
    let floor = figures::floor(arm).map_or_else(String::new, |floor| format!(" {floor}."));
    let expected = figures::expected(arm).map(|e| {
        format!(
            "Expected of the client: {} = {}, with the RTT from {}; measured {} ({}).{floor}",
            e.formula(),
            number::exact_time(e.theory_us),
            e.rtt_from,
            number::exact_time(e.measured_us),
            e.off()
        )
    });
    let matched = figures::plural(timeline.matched, "operation");
    let witness =
        if timeline.source == "witness" { "; from a shorter trial with a packet tap" } else { "" };
    let source = match timeline.unmatched {
        0 => format!("Medians of {matched}, all of them matched{witness}."),
        n => format!(
            "Medians of {matched}; {} left out, a stamp was missing or they were sent again{witness}.",
            number::count(n)
        ),
    };
    Some(TimelineView {
        arm: name(at, arm),
        picture,
        steps: steps.collect(),
        views: views.collect(),
        expected,
        source,
    })
}

fn over_time(at: usize, arm: &Arm, primary: &Primary) -> Option<Named> {
    let points = arm.series.get(&primary.key)?;
    let both_svg = series::picture(points, &primary.name, &arm_class(at), &arm.name)?;
    Some(Named { arm: name(at, arm), picture: Picture::new(both_svg, &series::caption(points)) })
}

fn cause(cause: &tcptoll_model::record::Cause) -> CauseView {
    let evidence = |(name, value): (&String, &Json)| [name.clone(), findings::plain(value)];
    CauseView {
        id: cause.id.clone(),
        arm: cause.arm.clone(),
        text: cause.text.clone(),
        evidence: cause.evidence.iter().map(evidence).collect(),
    }
}

fn advice(advice: &tcptoll_model::record::Advice) -> AdviceView {
    let a = advice.clone();
    AdviceView { cause: a.cause, change: a.change, cost: a.cost, undo: a.undo, proof: a.proof }
}

/// A sentence longer than this is no heading; then its first clause has to do.
const LEAD_MAX: usize = 160;

/// What an answer begins with, and the rest: its first sentence, of a long one the first clause.
fn lead(answer: &str) -> [&str; 2] {
    let sentence = answer
        .match_indices(". ")
        .find(|(at, _)| answer[at + 2..].starts_with(char::is_uppercase))
        .map_or(answer.len(), |(at, _)| at + 1);
    let end = if answer[..sentence].chars().count() <= LEAD_MAX {
        sentence
    } else {
        answer[..sentence].find("; ").map_or(sentence, |at| at + 1)
    };
    [&answer[..end], answer[end..].trim_start()]
}

/// A number and its unit stay on one line.
fn keep_units(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split(' ') {
        let unit =
            matches!(word.trim_matches(|c: char| ".,;:()".contains(c)), "µs" | "ms" | "s" | "%");
        let after_digit = out.ends_with(|c: char| c.is_ascii_digit());
        if !out.is_empty() {
            out.push(if unit && after_digit { '\u{a0}' } else { ' ' });
        }
        out.push_str(word);
    }
    out
}

/// A name for the file of the numbers: letters, digits and hyphens only.
fn file_name(summary: &Summary) -> String {
    let plain = |text: &str| {
        text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect::<String>()
    };
    format!(
        "tcptoll-{}-{}.json",
        plain(&clean::line(&summary.experiment)),
        plain(&summary.started_at)
    )
}
