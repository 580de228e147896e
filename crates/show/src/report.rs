//! What does a report show of a run, in which order? The answer, the figures that carry it, what casts doubt on it,
//! how to repeat it. Each part says in which forms it stands; what only one form has room for is a picture, letters
//! or a list.

use serde_json::Value as Json;
use tcptoll_core::experiment::columns::FIGURES;
use tcptoll_core::experiment::figures::SERVER_CPU;
use tcptoll_core::record::{Advice, Arm, Cause, PlaceKind, Point, PointArm};
use tcptoll_core::sheet::{
    Align, Article, Cell, Column, Forms, Note, Part, Parts, Room, Sheet, Table, Tone,
};
use tcptoll_core::units::first_sentence;

use crate::figures::{self, Primary};
use crate::html::drawn::{Drawn, First, of_arms};
use crate::html::picture::{self, each_arm};
use crate::number::{self, ABSENT, Estimate};
use crate::run::{Picture, Run, Section};
use crate::svg::arm_class;
use crate::{columns, comparisons, counters, findings, points, published, rounds};

const ALL: Forms = Forms::ALL;
const PAGE: Forms = Forms::PAGE;
const TEXT: Forms = Forms::TEXT;
const MARKDOWN: Forms = Forms::MARKDOWN;
/// Where headings stand: a terminal has no room for them.
const WRITTEN: Forms = Forms::WRITTEN;

/// A report in the making.
struct Report<'a> {
    run: &'a Run,
    primary: Primary,
    drawn: Drawn,
    parts: Parts,
}

/// Adds what there is to see of a run in these forms, letters for a terminal of this width.
pub(crate) fn put(sheet: &mut Sheet, run: &Run, width: usize, forms: Forms) {
    let primary = figures::primary(run);
    let drawn = if forms.has(PAGE) { Drawn::new(run, &primary) } else { Drawn::default() };
    // A forecast comes before what happened.
    let about = figures::addresses(run).into_iter().chain(points::about_split(run));
    let about = about.chain((run.own.forecasts)(&run.arms));
    sheet.about.extend(ALL, about.map(|text| Part::prose(0, text, Tone::Dim)));
    if forms.has(PAGE) {
        lead(sheet, run, &drawn);
    }
    let mut report = Report { run, primary, drawn, parts: Parts::default() };
    report.parts.put(TEXT, Part::Blank);
    report.shares();
    // Of a run in rounds the comparisons are the answer; of any other the figures of its arms.
    let compared_first = run.rounds.is_some() || points::are_units(run);
    if compared_first {
        report.comparisons();
    }
    report.figures();
    if forms.has(PAGE) {
        report.pictures();
    }
    let own = report.drawn.own.take().filter(|_| report.drawn.first != First::Own);
    report.sections((run.own.sections)(run), own.as_ref());
    report.parts.extend(TEXT, (run.own.text_after)(run, width));
    if !compared_first {
        report.comparisons();
    }
    report.points();
    if forms.has(PAGE) {
        report.in_order();
    }
    report.trouble();
    report.published();
    report.findings();
    if forms.has(PAGE) {
        report.sections((run.own.details)(run), own.as_ref());
        report.over_time();
        report.counters();
        report.machine();
    }
    report.repeat();
    sheet.parts = report.parts;
}

/// What a page begins with.
fn lead(sheet: &mut Sheet, run: &Run, drawn: &Drawn) {
    let warnings = findings::warnings(run);
    if let Some(first) = warnings.first() {
        let count = figures::plural(warnings.len() as u64, "warning");
        let more = if warnings.len() > 1 { " …" } else { "" };
        let text = format!("{count}: {}{more}", first.text);
        sheet.lead.put(PAGE, Part::prose(0, text, Tone::Doubt));
    }
    let fix = findings::fix(run).map(|advice| first_sentence(&advice.change));
    let fix = fix.map(|text| Part::labelled("what to change", 0, text, Tone::Strong));
    sheet.lead.extend(PAGE, fix);
    let lead = drawn.lead();
    for (title, picture) in &lead {
        if !title.is_empty() {
            sheet.lead.put(PAGE, Part::title(*title));
        }
        sheet.lead.put(PAGE, picture.part(run));
    }
    if drawn.first != First::Distribution || !lead.is_empty() {
        let ending = rounds::ending(run).map(|text| Part::prose(0, text, Tone::Dim));
        sheet.lead.extend(PAGE, ending);
    }
}

impl Report<'_> {
    fn heading(&mut self, forms: Forms, text: &str) {
        self.parts.put(forms, Part::heading(text));
    }

    fn picture(&mut self, title: &str, picture: &Picture) {
        if !title.is_empty() {
            self.parts.put(PAGE, Part::title(title));
        }
        self.parts.put(PAGE, picture.part(self.run));
    }

    /// What each machine did of a load that several shared.
    fn shares(&mut self) {
        let run = self.run;
        let Some(shared) = run.points.as_ref().filter(|points| points.split.is_some()) else {
            return;
        };
        let all = shared.points.iter();
        let all: Vec<(&Point, &PointArm)> =
            all.flat_map(|point| point.arms.iter().map(move |arm| (point, arm))).collect();
        let rows = &all[..all.len().min(points::LISTED)];
        let mut columns = vec![Column::names("point"), Column::names("arm")];
        columns.extend(["requests", "failed"].map(|head| Column::new(head, Align::Right)));
        let metric = rounds::metric(run);
        columns.extend(
            metric.map(|metric| Column::new(run.specs.words_of_metric(metric), Align::Point)),
        );
        let value = |metric| {
            let of_arm = |(_, arm): &(&Point, &PointArm)| Some((*arm.metrics.get(metric)?, None));
            let values: Vec<_> = rows.iter().map(of_arm).collect();
            Estimate::column(&values, rounds::unit(run, metric))
        };
        let values = metric.map(value).unwrap_or_default();
        let row = |(at, (point, arm)): (usize, &(&Point, &PointArm))| {
            let failed = number::count(arm.attempts.saturating_sub(arm.ok));
            let cells = [point.name.clone(), arm.name.clone(), number::count(arm.attempts), failed];
            let value = values.get(at).map(|value| match value {
                Some(one) => Cell { unit: one.symbol.clone(), ..Cell::from(one.value.as_str()) },
                None => ABSENT.into(),
            });
            cells.map(Cell::from).into_iter().chain(value).collect::<Vec<Cell>>()
        };
        let mut table = Table::new(columns, rows.iter().enumerate().map(row));
        if all.len() > rows.len() {
            let more = all.len() - rows.len();
            table.note = Some(format!("{more} rows are not listed; --csv has all."));
        }
        self.parts.put(ALL, Part::Table(table));
        self.parts.put(TEXT, Part::Blank);
    }

    fn figures(&mut self) {
        let run = self.run;
        if run.arms.is_empty() {
            return self.parts.put(TEXT, Part::line("  no arm was measured", Tone::Plain));
        }
        let said = columns::in_rounds(run);
        let filled =
            |table: columns::RunTable| Some((table.title, table.without(said).filled(run)?));
        // The experiment says where tables without a title stand, but of the figures.
        let is_placed = |table: &columns::RunTable| table.id == FIGURES || !table.title.is_empty();
        let all: Vec<_> = columns::tables(run).into_iter().filter(is_placed).collect();
        let cpu = cpu_note(run, &all);
        self.heading(WRITTEN, "Figures");
        for (title, table) in all.into_iter().filter_map(filled) {
            self.parts.put(TEXT, Part::Blank);
            if !title.is_empty() {
                let in_text = table.columns.iter().any(|c| !c.names && c.room < Room::Page);
                self.parts.put(if in_text { ALL } else { WRITTEN }, Part::title(title));
            }
            self.parts.put(ALL, Part::Table(table));
        }
        let one_machine = run.place.kind == PlaceKind::Lab;
        let both =
            "Both ends run on one machine, so the client's kernel time includes work for both.";
        let cpu = cpu.map(|note| {
            format!(" {note}.{}", if one_machine { format!(" {both}") } else { String::new() })
        });
        let absent = "— : not measured, or fewer than ten values beyond the quantile.";
        let text = format!("{absent}{}", cpu.unwrap_or_default());
        self.parts.put(PAGE, Part::prose(0, text, Tone::Dim));
    }

    fn pictures(&mut self) {
        let Drawn { first, over_levels, distribution, .. } = &self.drawn;
        let levels = over_levels.clone().filter(|_| *first != First::Levels);
        let distribution = distribution.clone().filter(|_| *first != First::Distribution);
        if let Some((title, picture)) = levels {
            self.heading(PAGE, &title);
            self.picture("", &picture);
        }
        if let Some(picture) = distribution {
            self.heading(PAGE, "Distribution");
            self.picture("", &picture);
        }
        if let Some(svg) = picture::reaches(self.run, &self.primary) {
            self.heading(PAGE, "Arms compared");
            let caption = picture::reaches_caption(self.run, &self.primary);
            self.picture("", &Picture::new(svg, &caption));
        }
    }

    /// Sections of the experiment that have anything to show.
    fn sections(&mut self, sections: Vec<Section>, lead: Option<&Picture>) {
        for Section { title, forms, leads, parts } in sections {
            let lead = lead.filter(|_| leads).map(|picture| picture.part(self.run));
            if lead.is_some() || !parts.is_empty() {
                self.heading(if parts.is_empty() { PAGE } else { forms }, title);
                self.parts.extend(PAGE, lead);
                self.parts.extend(forms, parts);
            }
        }
    }

    /// What the rounds gave, and each comparison.
    fn comparisons(&mut self) {
        let run = self.run;
        let rounds = comparisons::of_rounds(run);
        if rounds.is_empty() && run.comparisons.is_empty() {
            return self.parts.extend(Forms::TEXT_AND_MARKDOWN, comparisons::ending(run));
        }
        self.heading(WRITTEN, if run.comparisons.is_empty() { "Rounds" } else { "Comparisons" });
        self.parts.0.extend(rounds);
        let Drawn { first, forests, ratios, .. } = &self.drawn;
        let forests = forests.clone().into_iter().filter(|_| *first != First::Forests);
        let ratios = ratios.clone().into_iter().filter(|_| *first != First::Ratios);
        for (title, picture) in forests.chain(ratios).collect::<Vec<_>>() {
            self.picture(&title, &picture);
        }
        self.parts.extend(ALL, comparisons::all(run));
        self.parts.extend(Forms::TEXT_AND_MARKDOWN, comparisons::ending(run));
        self.parts.put(TEXT, Part::Blank);
    }

    /// The vantage points of a merged record.
    fn points(&mut self) {
        let Some(table) = points::table(self.run) else { return };
        self.heading(WRITTEN, "Vantage points");
        self.parts.put(WRITTEN, Part::Table(table));
        let not_merged = self.run.points.iter().flat_map(|points| &points.not_merged);
        let not_merged: Vec<[String; 2]> =
            not_merged.map(|one| [one.record.clone(), one.reason.clone()]).collect();
        if !not_merged.is_empty() {
            self.parts.put(WRITTEN, Part::title("Files that were not merged"));
            let table = Table::texts(&["file", "reason"], &[0, 1], not_merged);
            self.parts.put(WRITTEN, Part::Table(table));
        }
    }

    fn in_order(&mut self) {
        let run = self.run;
        let picture = self.drawn.in_order.take().filter(|_| self.drawn.first != First::Rounds);
        let (left_out, warmup) = (rounds::left_out(run), comparisons::warmups(run));
        if picture.is_none() && left_out.is_empty() && warmup.is_empty() {
            return;
        }
        self.heading(PAGE, "Rounds in run order");
        if let Some(picture) = picture {
            self.picture("", &picture);
        }
        if !left_out.is_empty() {
            let count = left_out.len().to_string();
            let heads = ["arm", "round", "began after", "reason"];
            let table = Table::texts(&heads, &[0, 3], left_out);
            let folded = Part::folded("Excluded trials", count, vec![Part::Table(table)]);
            self.parts.put(PAGE, folded);
        }
        if !warmup.is_empty() {
            let table = Part::Table(Table::texts(&["arm", "warm-up"], &[0, 1], warmup));
            let folded = Part::folded("Warm-up", "not in the figures", vec![table]);
            self.parts.put(PAGE, folded);
        }
    }

    /// Errors by class and what kernel and wire counted, where it is not as it should be.
    fn trouble(&mut self) {
        let forms = Forms::TEXT_AND_MARKDOWN;
        let several = self.run.arms.len() > 1;
        for arm in &self.run.arms {
            let errors = findings::errors(arm);
            let counted = findings::trouble(arm, self.run.own);
            let stopped = (arm.partial && several).then(|| "before it was complete".to_owned());
            let lines = [
                ("  no result", arm.failure.clone(), Tone::Bad),
                ("  errors", errors, Tone::Bad),
                ("  stopped", stopped, Tone::Doubt),
            ];
            let lines = lines
                .into_iter()
                .filter_map(|(label, text, tone)| Some(Part::labelled(label, 14, text?, tone)));
            let counted = counted.into_iter().enumerate().map(|(at, line)| {
                Part::labelled(if at == 0 { "  counted" } else { "" }, 14, line, Tone::Plain)
            });
            let lines: Vec<Part> = lines.chain(counted).collect();
            if lines.is_empty() {
                continue;
            }
            self.parts.put(forms, Part::Blank);
            if several {
                self.parts.put(forms, Part::prose(2, arm.name.clone(), Tone::Strong));
            }
            self.parts.extend(forms, lines);
        }
    }

    fn published(&mut self) {
        let Some(table) = published::table(self.run) else { return };
        self.heading(ALL, "Published figures next to ours");
        self.parts.put(ALL, Part::Table(table));
    }

    /// Causes with their evidence, advice with its price, warnings.
    fn findings(&mut self) {
        let run = self.run;
        let mut found: Vec<Article> = findings::causes(run).into_iter().map(cause).collect();
        for one in &run.advice {
            // What to change stands with the first that it mends.
            let mends = |found: &&mut Article| found.id == one.cause && found.change.is_empty();
            if let Some(found) = found.iter_mut().find(mends) {
                fix(found, one, run);
                continue;
            }
            let (severity, id) = ("fix".to_owned(), one.cause.clone());
            let mut alone = Article { severity, id, ..Article::default() };
            fix(&mut alone, one, run);
            found.push(alone);
        }
        if !found.is_empty() {
            self.heading(WRITTEN, "Causes and fixes");
        }
        for one in found {
            self.parts.put(TEXT, Part::Blank);
            self.parts.put(ALL, Part::Finding(Box::new(one)));
        }
        let warnings = findings::warnings(run).into_iter().map(|warned| Note {
            about: warned.arms.unwrap_or_default(),
            text: warned.text,
            ..Note::default()
        });
        let notes: Vec<Note> = warnings.collect();
        if !notes.is_empty() {
            self.parts.put(TEXT, Part::Blank);
            self.heading(WRITTEN, "Warnings");
            self.parts.put(TEXT, Part::list("warning", notes.clone(), Tone::Doubt));
            self.parts.put(WRITTEN, Part::Notes { notes });
        }
    }

    fn over_time(&mut self) {
        let primary = &self.primary;
        let picture = |at: usize, arm: &Arm| {
            let points = arm.series.get(&primary.key)?;
            let svg = picture::series(points, &primary.name, &arm_class(at), &arm.name)?;
            Some((at, vec![Picture::new(svg, &picture::series_caption(points)).part(self.run)]))
        };
        let arms = each_arm(self.run, picture);
        if !arms.is_empty() {
            self.heading(PAGE, "Latency over time");
            self.parts.extend(PAGE, of_arms(self.run, arms));
        }
    }

    fn counters(&mut self) {
        if self.run.arms.is_empty() {
            return;
        }
        self.heading(PAGE, "Counters of the kernel and the wire");
        for (at, arm) in self.run.arms.iter().enumerate() {
            let (small, parts) = counters::counters(arm, self.run.own);
            let (title, class) = (arm.name.clone(), arm_class(at));
            self.parts.put(PAGE, Part::Folded { title, small, class, parts });
        }
    }

    fn machine(&mut self) {
        let run = self.run;
        // Of a merged record each point has its own.
        let pairs = if run.points.is_some() { Vec::new() } else { counters::passport(run) };
        let links = counters::links(run);
        if !pairs.is_empty() || links.is_some() {
            self.heading(PAGE, "Machine and link");
            self.parts.put(PAGE, Part::Pairs { pairs });
            self.parts.extend(PAGE, links.map(Part::Table));
        }
    }

    fn repeat(&mut self) {
        let run = self.run;
        self.heading(WRITTEN, "Repeat this run");
        self.parts.put(WRITTEN, Part::Code { text: findings::command(&run.command) });
        let machines = run.points.is_none().then(|| counters::machines(run));
        let version = format!("tcptoll {} · {}", run.tcptoll_version, run.started_at);
        for line in [Some(figures::place(run).join(" · ")), machines, Some(version)] {
            self.parts.extend(MARKDOWN, line.map(|line| Part::prose(0, line, Tone::Plain)));
        }
        if !run.next.is_empty() {
            self.parts.put(WRITTEN, Part::title("Next"));
            let step =
                |step: &tcptoll_core::record::NextStep| [step.command.clone(), step.why.clone()];
            self.parts.put(ALL, Part::Next { steps: run.next.iter().map(step).collect() });
        }
    }
}

/// Of what the CPU times are. None: no arm has a CPU figure.
fn cpu_note(run: &Run, shown: &[columns::RunTable]) -> Option<String> {
    if run.arms.iter().all(|arm| arm.client.cpu_us_per_op.is_none()) {
        return None;
    }
    let mut columns = shown.iter().flat_map(|table| table.parts.iter().flatten());
    let both = columns.any(|column| column.key == SERVER_CPU.name);
    Some(if both {
        format!("CPU is per {}", columns::noun(run).one)
    } else {
        "CPU is the client's, per operation".to_owned()
    })
}

fn cause((cause, others): (&Cause, Option<String>)) -> Article {
    let evidence = |(name, value): (&String, &Json)| [name.clone(), findings::plain(value)];
    let others = others.map(|others| ["others".to_owned(), others]);
    Article {
        severity: "cause".to_owned(),
        problem: true,
        id: cause.id.clone(),
        subject: cause.arm.clone(),
        text: cause.text.clone(),
        evidence: cause.evidence.iter().map(evidence).chain(others).collect(),
        more: vec![["explain".to_owned(), format!("tcptoll explain {}", cause.id)]],
        ..Article::default()
    }
}

/// Adds what to change.
fn fix(finding: &mut Article, advice: &Advice, run: &Run) {
    let Advice { change, cost, undo, proof, .. } = advice.clone();
    let proof = proof.map_or_else(
        || "not proven in this run".to_owned(),
        |proof| format!("{}: {proof}", findings::proof_word(run)),
    );
    let words = [("cost", cost), ("undo", undo), ("proof", proof)];
    finding.words = words.map(|(name, text)| [name.to_owned(), text]).to_vec();
    finding.change = change;
}

// What can be computed before anything is measured, for a terminal.
//
// What can be computed is printed before it is measured (`Plan::computed`): the settings for
// `--detect-within` are arithmetic, their proof takes a minute. `--no-proof` is another name for
// `--dry-run`.

/// Columns of the labels.
const INDENT: usize = 10;

/// Each setting with its price and its undo; without `details` the first alone, and how many others there are.
#[must_use]
pub fn computed(all: &[Advice], details: bool) -> Parts {
    let mut parts = Parts::default();
    let mut put = |label, text: &str, tone| {
        parts.put(Forms::TEXT, Part::labelled(label, INDENT, text, tone));
    };
    if !details {
        if let Some(advice) = all.first() {
            put("computed", first_sentence(&advice.change), Tone::Strong);
            put("  costs", first_sentence(&advice.cost), Tone::Plain);
        }
        let others = all.len().saturating_sub(1) as u64;
        if others > 0 {
            put("", &format!("{}: --details", figures::plural(others, "alternative")), Tone::Dim);
        }
        return parts;
    }
    for advice in all {
        put("computed", &advice.change, Tone::Strong);
        put("  costs", &advice.cost, Tone::Plain);
        put("  undo", &advice.undo, Tone::Plain);
    }
    parts
}
