//! What does the page of a run show, in which order? The lead picture, figures, comparisons, causes, counters, and how
//! to repeat it.

use serde_json::Value as Json;
use tcptoll_core::experiment::column::Form;
use tcptoll_core::experiment::figures::SERVER_CPU;
use tcptoll_core::record::{Advice, Arm, Cause, Comparison, PlaceKind};
use tcptoll_core::sheet::{Finding, Forms, Note, Part, Sheet, Table, Tone};

use super::picture::{Picture, each_arm};
use super::{distribution, forest, levels, picture, rounds as in_order, tables};
use crate::figures::{self, Primary};
use crate::number::{self, ABSENT};
use crate::run::{Run, Section};
use crate::svg::{Svg, arm_class};
use crate::{columns, effect, findings, points, published, rounds};

/// The picture that the page begins with: of a run in rounds one of the metric that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Ratios,
    Forests,
    Levels,
    Rounds,
    Own,
    Distribution,
}

/// A picture under a heading of its own, which may be empty.
type Titled = (String, Picture);

fn all(list: &[Titled]) -> Vec<(&str, &Picture)> {
    list.iter().map(|(title, picture)| (title.as_str(), picture)).collect()
}

fn one(picture: Option<&Picture>) -> Vec<(&str, &Picture)> {
    picture.into_iter().map(|picture| ("", picture)).collect()
}

/// What a page draws of a run.
struct Drawn {
    first: First,
    ratios: Vec<Titled>,
    forests: Vec<Titled>,
    over_levels: Option<Titled>,
    in_order: Option<Picture>,
    own: Option<Picture>,
    distribution: Option<Picture>,
}

impl Drawn {
    fn new(run: &Run, primary: &Primary) -> Self {
        let titled = |title: String, svg: Svg, caption: &str| (title, Picture::new(svg, caption));
        let level = |one: levels::OverLevels| titled(one.title, one.svg, &one.caption);
        let leads = (run.own.leads)(run);
        let over_levels = levels::of_metric(run).filter(|_| !leads).map(level);
        let ratios: Vec<Titled> = levels::of_ratio(run).into_iter().map(level).collect();
        let forests = forest::pictures(run).into_iter();
        let forests: Vec<Titled> =
            forests.map(|one| titled(one.title, one.svg, &one.caption)).collect();
        let in_order = in_order::picture(run)
            .map(|svg| Picture::new(svg, &in_order::caption(run)))
            .map(|picture| picture.of_arms(run, |_, arm| !arm.rounds.is_empty()));
        let metric = rounds::metric(run);
        let with_interval = |c: &Comparison| c.ci95.is_some() && metric == Some(c.metric.as_str());
        let drawn = run.comparisons.iter().any(with_interval);
        let own = (run.own.picture)(run).map(|picture| Picture::from_own(picture, run));
        let first = if points::are_units(run) && !forests.is_empty() {
            First::Forests
        } else if (run.rounds.is_none() || leads) && own.is_some() {
            First::Own
        } else if run.rounds.is_none() {
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
        let distribution = distribution::picture(run, primary)
            .map(|svg| Picture::new(svg, &distribution::caption(run, primary)))
            .map(|picture| picture.of_arms(run, |_, arm| distribution::is_drawn(arm, primary)));
        Self { first, ratios, forests, over_levels, in_order, own, distribution }
    }

    /// What the page begins with.
    fn lead(&self) -> Vec<(&str, &Picture)> {
        match self.first {
            First::Ratios => all(&self.ratios),
            First::Forests => all(&self.forests),
            First::Levels => all(self.over_levels.as_slice()),
            First::Rounds => one(self.in_order.as_ref()),
            First::Own => one(self.own.as_ref()),
            First::Distribution => one(self.distribution.as_ref()),
        }
    }
}

/// The picture that the page begins with, and its heading.
pub(super) fn lead(run: &Run) -> Option<(String, Picture)> {
    let drawn = Drawn::new(run, &figures::primary(run));
    let (title, picture) = drawn.lead().into_iter().next()?;
    let title = if title.is_empty() { &run.question } else { title };
    Some((title.to_owned(), picture.clone()))
}

/// The parts of a page, gathered.
struct Page<'a> {
    run: &'a Run,
    parts: Vec<Part>,
}

impl Page<'_> {
    fn heading(&mut self, text: &str) {
        self.parts.push(Part::heading(text));
    }

    fn title(&mut self, text: &str) {
        if !text.is_empty() {
            self.parts.push(Part::title(text));
        }
    }

    fn note(&mut self, text: impl Into<String>) {
        self.parts.push(Part::prose(0, text, Tone::Dim));
    }

    fn picture(&mut self, picture: &Picture) {
        self.parts.push(picture.part());
    }

    fn titled(&mut self, all: &[Titled]) {
        for (title, picture) in all {
            self.title(title);
            self.picture(picture);
        }
    }

    fn rows(&mut self, heads: &[&str], rows: Vec<Vec<String>>, words: &[usize]) {
        self.parts.push(Part::Table(Table::texts(heads, words, rows)));
    }
}

/// Adds what the page shows of a run.
pub(crate) fn put(sheet: &mut Sheet, run: &Run) {
    let primary = figures::primary(run);
    let drawn = Drawn::new(run, &primary);
    let warnings = findings::warnings(run);
    if let Some(first) = warnings.first() {
        let count = figures::plural(warnings.len() as u64, "warning");
        let more = if warnings.len() > 1 { " …" } else { "" };
        let text = format!("{count}: {}{more}", first.text);
        sheet.lead.put(Forms::PAGE, Part::prose(0, text, Tone::Doubt));
    }
    let lead = drawn.lead();
    for (title, picture) in &lead {
        if !title.is_empty() {
            sheet.lead.put(Forms::PAGE, Part::title(*title));
        }
        sheet.lead.put(Forms::PAGE, picture.part());
    }
    if drawn.first != First::Distribution || !lead.is_empty() {
        let ending = rounds::ending(run).map(|text| Part::prose(0, text, Tone::Dim));
        sheet.lead.extend(Forms::PAGE, ending);
    }
    let about = figures::addresses(run).into_iter().chain(points::about_split(run));
    let about = about.chain((run.own.forecasts)(&run.arms));
    sheet.about.extend(Forms::PAGE, about.map(|text| Part::prose(0, text, Tone::Dim)));
    let mut page = Page { run, parts: Vec::new() };
    page.figures();
    if drawn.first != First::Levels
        && let Some((title, picture)) = &drawn.over_levels
    {
        page.heading(title);
        page.picture(picture);
    }
    if drawn.first != First::Distribution
        && let Some(picture) = &drawn.distribution
    {
        page.heading("Distribution");
        page.picture(picture);
    }
    if let Some(svg) = picture::reaches(run, &primary) {
        page.heading("Arms compared");
        page.picture(&Picture::new(svg, &picture::reaches_caption(run, &primary)));
    }
    let own = drawn.own.as_ref().filter(|_| drawn.first != First::Own);
    page.sections((run.own.sections)(run), own);
    page.comparisons(&drawn);
    page.points();
    page.in_order(&drawn);
    page.published();
    page.findings();
    if !warnings.is_empty() {
        page.heading("Warnings");
        let notes = warnings.into_iter().map(|warned| Note {
            about: warned.arms.unwrap_or_default(),
            text: warned.text,
            ..Note::default()
        });
        page.parts.push(Part::Notes { notes: notes.collect() });
    }
    page.sections((run.own.details)(run), own);
    page.over_time(&primary);
    page.counters();
    page.machine();
    page.repeat();
    sheet.parts.extend(Forms::PAGE, page.parts);
}

/// What stands below the picture of each arm: the first is open, others are folded.
pub fn of_arms(run: &Run, arms: Vec<(usize, Vec<Part>)>) -> Vec<Part> {
    let mut all = Vec::new();
    for (at, parts) in arms {
        let Some(arm) = run.arms.get(at) else { continue };
        let (class, name) = (arm_class(at), arm.name.clone());
        if !all.is_empty() {
            all.push(Part::Folded { title: name, small: String::new(), class, parts });
            continue;
        }
        if run.arms.len() > 1 {
            all.push(Part::Title { text: name, class });
        }
        all.extend(parts);
    }
    all
}

/// The experiment's table of this id under a heading, which may be empty; nothing, if it is empty.
pub fn table(run: &Run, title: &str, id: &str) -> Vec<Part> {
    let table = columns::table(run, Form::Page, id).and_then(|table| tables::fill(run, &table));
    let title = (!title.is_empty()).then(|| Part::title(title));
    table.map_or_else(Vec::new, |table| title.into_iter().chain([Part::Table(table)]).collect())
}

impl Page<'_> {
    fn figures(&mut self) {
        let mut all = columns::tables(self.run, Form::Page).into_iter();
        let Some(first) = all.next() else { return };
        let cpu = cpu_note(self.run, &first);
        let Some(figures) = tables::figures(self.run, first) else { return };
        self.heading("Figures");
        self.parts.push(Part::Table(figures));
        // The experiment says where tables without a title stand.
        for table in all.filter(|table| !table.title.is_empty()) {
            if let Some(filled) = tables::fill(self.run, &table) {
                self.title(table.title);
                self.parts.push(Part::Table(filled));
            }
        }
        let one_machine = self.run.place.kind == PlaceKind::Lab;
        let both =
            "Both ends run on one machine, so the client's kernel time includes work for both.";
        let cpu = cpu.map(|note| {
            format!(" {note}.{}", if one_machine { format!(" {both}") } else { String::new() })
        });
        self.note(format!(
            "— : not measured, or fewer than ten values beyond the quantile.{}",
            cpu.unwrap_or_default()
        ));
    }

    /// Sections of the experiment that have anything to show.
    fn sections(&mut self, sections: Vec<Section>, lead: Option<&Picture>) {
        for Section { title, leads, parts } in sections {
            let lead = lead.filter(|_| leads).map(Picture::part);
            if lead.is_some() || !parts.is_empty() {
                self.heading(title);
                self.parts.extend(lead);
                self.parts.extend(parts);
            }
        }
    }

    fn comparisons(&mut self, drawn: &Drawn) {
        let run = self.run;
        if run.comparisons.is_empty() {
            return;
        }
        self.heading("Comparisons");
        if drawn.first != First::Forests {
            self.titled(&drawn.forests);
        }
        if drawn.first != First::Ratios {
            self.titled(&drawn.ratios);
        }
        let missing = forest::without_interval(run);
        if !missing.is_empty() {
            let text = "Not drawn, because the ratio has no interval:";
            self.parts.push(Part::prose(0, text, Tone::Plain));
            self.parts.push(Part::notes(missing));
        }
        let unit = if points::are_units(run) { "points" } else { "rounds" };
        let heads = [
            "metric",
            "arm",
            "against",
            "ratio",
            "95 % interval",
            "difference",
            "margin",
            unit,
            "verdict",
        ];
        let row = |c: &Comparison| comparison(c, run);
        self.rows(&heads, run.comparisons.iter().map(row).collect(), &[1, 2, 8]);
        let together = effect::together(&run.comparisons).map(|text| format!("{text} "));
        self.note(format!(
            "{}“No difference found” means that the whole interval lies within the margin. “Not enough evidence” \
             means that the interval contains both no difference and a difference that matters.",
            together.unwrap_or_default()
        ));
    }

    /// The vantage points of a merged record.
    fn points(&mut self) {
        let Some((heads, rows)) = points::table(self.run) else { return };
        self.heading("Vantage points");
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let words: Vec<usize> = (heads.len() - 3..heads.len()).collect();
        self.rows(&heads, rows, &words);
        let not_merged = self.run.points.iter().flat_map(|points| &points.not_merged);
        let not_merged: Vec<Vec<String>> =
            not_merged.map(|one| vec![one.record.clone(), one.reason.clone()]).collect();
        if !not_merged.is_empty() {
            self.title("Files that were not merged");
            self.rows(&["file", "reason"], not_merged, &[1]);
        }
    }

    fn in_order(&mut self, drawn: &Drawn) {
        let run = self.run;
        let picture = drawn.in_order.as_ref().filter(|_| drawn.first != First::Rounds);
        let (left_out, warmup) = (rounds::left_out(run), warmups(run));
        if picture.is_none() && left_out.is_empty() && warmup.is_empty() {
            return;
        }
        self.heading("Rounds in run order");
        if let Some(picture) = picture {
            self.picture(picture);
        }
        if !left_out.is_empty() {
            let count = left_out.len().to_string();
            let table = Table::texts(&["arm", "round", "began after", "reason"], &[3], left_out);
            self.parts.push(Part::folded("Excluded trials", count, vec![Part::Table(table)]));
        }
        if !warmup.is_empty() {
            let table = Part::Table(Table::texts(&["arm", "warm-up"], &[1], warmup));
            self.parts.push(Part::folded("Warm-up", "not in the figures", vec![table]));
        }
    }

    fn published(&mut self) {
        let beside = published::beside_ours(self.run);
        let about = published::about_sd(&beside);
        let row = |row: published::Beside<'_>| {
            let source = match row.note {
                Some(note) => format!("{} ({note})", row.source),
                None => row.source.to_owned(),
            };
            let ratio = row.ratio.map_or_else(|| ABSENT.to_owned(), number::ratio);
            let ours = row.ours_with_interval();
            vec![row.arm, row.metric, row.published, ours, ratio, source]
        };
        let rows: Vec<Vec<String>> = beside.into_iter().map(row).collect();
        if !rows.is_empty() {
            self.heading("Published figures next to ours");
            let heads = ["arm", "metric", "published", "ours", "ours / published", "source"];
            self.rows(&heads, rows, &[1, 5]);
            if let Some(about) = about {
                self.note(about);
            }
        }
    }

    fn findings(&mut self) {
        if self.run.causes.is_empty() && self.run.advice.is_empty() {
            return;
        }
        self.heading("Causes and fixes");
        let causes = findings::causes(self.run).into_iter().map(cause);
        self.parts.extend(causes.chain(self.run.advice.iter().map(advice)));
    }

    fn over_time(&mut self, primary: &Primary) {
        let picture = |at: usize, arm: &Arm| {
            let points = arm.series.get(&primary.key)?;
            let svg = picture::series(points, &primary.name, &arm_class(at), &arm.name)?;
            Some((at, vec![Picture::new(svg, &picture::series_caption(points)).part()]))
        };
        let arms = each_arm(self.run, picture);
        if !arms.is_empty() {
            self.heading("Latency over time");
            self.parts.extend(of_arms(self.run, arms));
        }
    }

    fn counters(&mut self) {
        if self.run.arms.is_empty() {
            return;
        }
        self.heading("Counters of the kernel and the wire");
        for (at, arm) in self.run.arms.iter().enumerate() {
            let (small, parts) = tables::counters(arm, self.run.own);
            let (title, class) = (arm.name.clone(), arm_class(at));
            self.parts.push(Part::Folded { title, small, class, parts });
        }
    }

    fn machine(&mut self) {
        let run = self.run;
        // Of a merged record each point has its own.
        let passport = if run.points.is_some() { Vec::new() } else { tables::passport(run) };
        let links = run.arms.iter().filter_map(|arm| Some(tables::link(arm, arm.link.as_ref()?)));
        let links: Vec<Vec<String>> = links.collect();
        if passport.is_empty() && links.is_empty() {
            return;
        }
        self.heading("Machine and link");
        self.parts.push(Part::Pairs { pairs: passport });
        if !links.is_empty() {
            let heads = [
                "arm",
                "link",
                "RTT asked",
                "RTT measured",
                "rate out / back",
                "loss asked",
                "lost, 95 % interval",
                "late p99",
                "unintended drops",
            ];
            self.rows(&heads, links, &[1]);
        }
    }

    fn repeat(&mut self) {
        self.heading("Repeat this run");
        self.parts.push(Part::Code { text: findings::command(&self.run.command) });
        if !self.run.next.is_empty() {
            self.title("Next");
            for step in &self.run.next {
                self.parts.push(Part::Code { text: step.command.clone() });
                self.parts.push(Part::prose(0, step.why.clone(), Tone::Plain));
            }
        }
    }
}

fn comparison(c: &Comparison, run: &Run) -> Vec<String> {
    let [ratio, interval] = effect::ratio(c);
    let absent = || ABSENT.to_owned();
    vec![
        run.specs.words_of_metric(&c.metric),
        c.a.clone(),
        c.b.clone(),
        ratio,
        interval,
        effect::difference(c).unwrap_or_else(absent),
        if c.margin > 0.0 { number::percent(c.margin) } else { absent() },
        if c.rounds > 0 { c.rounds.to_string() } else { absent() },
        effect::judged(c, run.specs),
    ]
}

/// Of what the CPU times are. None: no arm has a CPU figure.
fn cpu_note(run: &Run, figures: &columns::RunTable) -> Option<String> {
    if run.arms.iter().all(|arm| arm.client.cpu_us_per_op.is_none()) {
        return None;
    }
    let both = figures.parts.iter().flatten().any(|column| column.key == SERVER_CPU.name);
    Some(if both {
        format!("CPU is per {}", columns::noun(run).one)
    } else {
        "CPU is the client's, per operation".to_owned()
    })
}

/// What each arm did before the measurement.
fn warmups(run: &Run) -> Vec<[String; 2]> {
    let (noun, answers) = (columns::noun(run), figures::answers(run));
    let row = |arm: &Arm| Some([arm.name.clone(), rounds::warmup(arm, noun, &answers)?]);
    run.arms.iter().filter_map(row).collect()
}

fn cause((cause, others): (&Cause, Option<String>)) -> Part {
    let evidence = |(name, value): (&String, &Json)| [name.clone(), findings::plain(value)];
    let others = others.map(|others| ["others".to_owned(), others]);
    Part::Finding(Box::new(Finding {
        severity: "cause".to_owned(),
        problem: true,
        id: cause.id.clone(),
        subject: cause.arm.clone(),
        text: cause.text.clone(),
        evidence: cause.evidence.iter().map(evidence).chain(others).collect(),
        more: vec![["explain".to_owned(), format!("tcptoll explain {}", cause.id)]],
        ..Finding::default()
    }))
}

fn advice(advice: &Advice) -> Part {
    let Advice { cause, change, cost, undo, proof, .. } = advice.clone();
    let proof = proof.unwrap_or_else(|| "not proven in this run".to_owned());
    let words = [("cost", cost), ("undo", undo), ("proof", proof)];
    Part::Finding(Box::new(Finding {
        severity: "fix".to_owned(),
        id: cause,
        change,
        words: words.map(|(name, text)| [name.to_owned(), text]).to_vec(),
        ..Finding::default()
    }))
}
