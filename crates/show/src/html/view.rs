//! Which words and tables does the page hold? Everything the template shows, ready to be escaped.
//!
//! Only fields that end in `_svg` hold markup; they are made by the drawing modules.

use serde::Serialize;
use serde_json::Value as Json;
use tcptoll_core::experiment::column::Form;
use tcptoll_core::experiment::figures::SERVER_CPU;
use tcptoll_core::experiment::spec::Specs;
use tcptoll_core::record::{Arm, PlaceKind};

use super::picture::{ArmName, Picture, each_arm, keep_units, name};
use super::{Maker, Section, distribution, forest, levels, picture, tables};
use crate::figures::{self, Primary};
use crate::number::{self, ABSENT};
use crate::run::Run;
use crate::svg::{TwoScreens, arm_class};
use crate::{clean, columns, effect, findings, points, published, rounds};

/// The page.
#[derive(Serialize)]
pub(super) struct ReportPage {
    experiment: String,
    study: Option<String>,
    question: String,
    answer: [String; 2],
    place: Vec<String>,
    addresses: Vec<String>,
    forecasts: Vec<String>,
    /// None: no arm has a CPU figure.
    cpu_note: Option<String>,
    started_at: String,
    version: String,
    record_version: u32,
    invalid: Vec<String>,
    doubts: Vec<String>,
    warnings: Vec<Warning>,
    several: bool,
    distribution: Option<Picture>,
    range: Option<Picture>,
    figures: Option<tables::Table>,
    further: Vec<Further>,
    sections: Vec<Section>,
    details: Vec<Section>,
    own: Option<Picture>,
    first: First,
    over_levels: Option<Titled>,
    ratios: Vec<Titled>,
    forests: Vec<Titled>,
    no_interval: Vec<String>,
    comparisons: Vec<Vec<String>>,
    /// What the comparisons have as many of as their column says.
    unit: &'static str,
    points: Option<PointTable>,
    together: Option<String>,
    ending: Option<String>,
    rounds: Option<Picture>,
    left_out: Vec<[String; 4]>,
    warmup: Vec<[String; 2]>,
    published: Vec<Vec<String>>,
    about_sd: Option<String>,
    over_time: Vec<Named>,
    counters: Vec<tables::Counters>,
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
    Own,
    Distribution,
}

/// A table below that of the figures.
#[derive(Serialize)]
struct Further {
    title: &'static str,
    table: tables::Table,
}

/// The vantage points of a merged record.
#[derive(Serialize)]
struct PointTable {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns of words.
    words: Vec<usize>,
    not_merged: Vec<[String; 2]>,
}

fn point_table(summary: &Run) -> Option<PointTable> {
    let (heads, rows) = points::table(summary)?;
    let words = (heads.len() - 3..heads.len()).collect();
    let not_merged = summary.points.iter().flat_map(|points| &points.not_merged);
    let not_merged = not_merged.map(|one| [one.record.clone(), one.reason.clone()]).collect();
    Some(PointTable { heads, rows, words, not_merged })
}

/// A picture under a heading of its own.
#[derive(Serialize)]
struct Titled {
    title: String,
    picture: Picture,
}

impl Titled {
    fn new(title: String, both_svg: TwoScreens, caption: &str) -> Self {
        Self { title, picture: Picture::new(both_svg, caption) }
    }

    fn both(&self) -> (&str, &Picture) {
        (&self.title, &self.picture)
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
struct CauseView {
    id: String,
    arm: String,
    text: String,
    evidence: Vec<[String; 2]>,
    others: Option<String>,
}

#[derive(Serialize)]
struct AdviceView {
    cause: String,
    change: String,
    cost: String,
    undo: String,
    proof: Option<String>,
}

impl ReportPage {
    /// The picture that the page begins with, and its heading.
    pub(super) fn lead(&self) -> Option<(&str, &Picture)> {
        let with_question = |one| (self.question.as_str(), one);
        match self.first {
            First::Ratios => self.ratios.first().map(Titled::both),
            First::Forests => self.forests.first().map(Titled::both),
            First::Levels => self.over_levels.as_ref().map(Titled::both),
            First::Rounds => self.rounds.as_ref().map(with_question),
            First::Own => self.own.as_ref().map(with_question),
            First::Distribution => self.distribution.as_ref().map(with_question),
        }
    }
}

/// The page of a cleaned summary.
pub(super) fn build(summary: &Run) -> ReportPage {
    let primary = figures::primary(summary);
    let leads = (summary.own.leads)(summary);
    let over_levels = levels::of_metric(summary).filter(|_| !leads).map(Titled::from);
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
    let of_own = (summary.own.picture)(summary).map(|picture| Picture::from_own(picture, summary));
    let first = if points::are_units(summary) && !forests.is_empty() {
        First::Forests
    } else if (summary.rounds.is_none() || leads) && of_own.is_some() {
        First::Own
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
    let mut tables = columns::tables(summary, Form::Page).into_iter();
    let of_figures = tables.next();
    let cpu_note = cpu_note(summary, of_figures.as_ref());
    // The experiment says where tables without a title stand.
    let further = tables
        .filter(|table| !table.title.is_empty())
        .map(|table| Further { title: table.title, table: tables::fill(summary, &table) });
    let further = further.filter(|further| !further.table.is_empty()).collect();
    let maker = Maker { summary, lead: of_own.clone().filter(|_| first != First::Own) };
    ReportPage {
        experiment: summary.experiment.clone(),
        study: summary.study.clone(),
        question: summary.question.clone(),
        answer: lead(&summary.answer).map(keep_units),
        place: figures::place(summary),
        addresses: figures::addresses(summary),
        forecasts: points::about_split(summary)
            .into_iter()
            .chain((summary.own.forecasts)(&summary.arms))
            .collect(),
        cpu_note,
        started_at: summary.started_at.clone(),
        version: summary.tcptoll_version.clone(),
        record_version: summary.record_version,
        invalid: findings::invalid(summary, summary.own),
        doubts: findings::verdict_on_run(summary),
        warnings: findings::warnings(summary).into_iter().map(warning).collect(),
        several: summary.arms.len() > 1,
        distribution: distribution::picture(summary, &primary)
            .map(|both_svg| Picture::new(both_svg, &distribution::caption(summary, &primary)))
            .map(|picture| {
                let has = |_, arm: &Arm| distribution::is_drawn(arm, &primary);
                picture.of_arms(summary, has)
            }),
        range: picture::reaches(summary, &primary)
            .map(|both_svg| Picture::new(both_svg, &picture::reaches_caption(summary, &primary))),
        figures: of_figures.map(|table| tables::figures(summary, table)),
        further,
        sections: maker.sections((summary.own.sections)(summary)),
        details: maker.sections((summary.own.details)(summary)),
        own: of_own,
        first,
        over_levels,
        ratios,
        forests,
        no_interval: forest::without_interval(summary),
        comparisons: summary.comparisons.iter().map(|c| comparison(c, summary.specs)).collect(),
        unit: if points::are_units(summary) { "points" } else { "rounds" },
        points: point_table(summary),
        together: effect::together(&summary.comparisons),
        ending: rounds::ending(summary),
        rounds: in_order,
        left_out: rounds::left_out(summary),
        warmup: warmups(summary),
        published: beside_published(summary),
        about_sd: published::about_sd(&published::beside_ours(summary)),
        over_time: each_arm(summary, |at, arm| over_time(at, arm, &primary)),
        counters: each_arm(summary, |at, arm| {
            Some(tables::counters(name(at, arm), arm, summary.own))
        }),
        causes: findings::causes(summary).into_iter().map(cause).collect(),
        advice: summary.advice.iter().map(advice).collect(),
        next: summary.next.iter().map(|n| [n.command.clone(), n.why.clone()]).collect(),
        // Of a merged record each point has its own.
        passport: if summary.points.is_some() { Vec::new() } else { tables::passport(summary) },
        links: summary
            .arms
            .iter()
            .filter_map(|arm| Some(tables::link(arm, arm.link.as_ref()?)))
            .collect(),
        command: findings::command(&summary.command),
        file_name: file_name(summary),
        one_machine: summary.place.kind == PlaceKind::Lab,
    }
}

fn warning(warned: findings::Warned) -> Warning {
    Warning { arm: warned.arms, text: warned.text }
}

fn comparison(c: &tcptoll_core::record::Comparison, specs: Specs) -> Vec<String> {
    let [ratio, interval] = effect::ratio(c);
    let absent = || ABSENT.to_owned();
    vec![
        specs.words_of_metric(&c.metric),
        c.a.clone(),
        c.b.clone(),
        ratio,
        interval,
        effect::difference(c).unwrap_or_else(absent),
        if c.margin > 0.0 { number::plain_percent(c.margin) } else { absent() },
        if c.rounds > 0 { c.rounds.to_string() } else { absent() },
        effect::judged(c, specs),
    ]
}

/// Of what the CPU times are.
fn cpu_note(summary: &Run, figures: Option<&columns::Table>) -> Option<String> {
    if summary.arms.iter().all(|arm| arm.client.cpu_us_per_op.is_none()) {
        return None;
    }
    let both = figures
        .is_some_and(|t| t.parts.iter().flatten().any(|column| column.key == SERVER_CPU.name));
    Some(if both {
        format!("CPU is per {}", columns::noun(summary).one)
    } else {
        "CPU is the client's, per operation".to_owned()
    })
}

/// What each arm did before the measurement.
fn warmups(summary: &Run) -> Vec<[String; 2]> {
    let (noun, answers) = (columns::noun(summary), figures::answers(summary));
    let row = |arm: &Arm| Some([arm.name.clone(), rounds::warmup(arm, noun, &answers)?]);
    summary.arms.iter().filter_map(row).collect()
}

fn beside_published(summary: &Run) -> Vec<Vec<String>> {
    let row = |row: published::Beside<'_>| {
        let source = match row.note {
            Some(note) => format!("{} ({note})", row.source),
            None => row.source.to_owned(),
        };
        let ratio = row.ratio.map_or_else(|| ABSENT.to_owned(), number::ratio);
        let ours = row.ours_with_interval();
        vec![row.arm, row.metric, row.published, ours, ratio, source]
    };
    published::beside_ours(summary).into_iter().map(row).collect()
}

fn over_time(at: usize, arm: &Arm, primary: &Primary) -> Option<Named> {
    let points = arm.series.get(&primary.key)?;
    let both_svg = picture::series(points, &primary.name, &arm_class(at), &arm.name)?;
    Some(Named {
        arm: name(at, arm),
        picture: Picture::new(both_svg, &picture::series_caption(points)),
    })
}

fn cause((cause, others): (&tcptoll_core::record::Cause, Option<String>)) -> CauseView {
    let evidence = |(name, value): (&String, &Json)| [name.clone(), findings::plain(value)];
    CauseView {
        id: cause.id.clone(),
        arm: cause.arm.clone(),
        text: cause.text.clone(),
        evidence: cause.evidence.iter().map(evidence).collect(),
        others,
    }
}

fn advice(advice: &tcptoll_core::record::Advice) -> AdviceView {
    let a = advice.clone();
    AdviceView { cause: a.cause, change: a.change, cost: a.cost, undo: a.undo, proof: a.proof }
}

/// What an answer begins with, and the rest: its first sentence, whole.
fn lead(answer: &str) -> [&str; 2] {
    let sentence = answer
        .match_indices(". ")
        .find(|(at, _)| answer[at + 2..].starts_with(char::is_uppercase))
        .map_or(answer.len(), |(at, _)| at + 1);
    [&answer[..sentence], answer[sentence..].trim_start()]
}

/// A name for the file of the numbers: letters, digits and hyphens only.
fn file_name(summary: &Run) -> String {
    let plain = |text: &str| {
        text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect::<String>()
    };
    format!(
        "tcptoll-{}-{}.json",
        plain(&clean::line(&summary.experiment)),
        plain(&summary.started_at)
    )
}
