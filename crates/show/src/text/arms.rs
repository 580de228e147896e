//! Which figures carry the answer? The tables of the experiment, one row per arm.

use super::Draft;
use crate::columns::Kind;
use crate::layout::{Align, LaidColumn, Lines, lay_out};
use crate::number::ABSENT;
use crate::run::{Own, Run};
use crate::{clean, columns};
use tcptoll_core::experiment::column::{Form, Show, metric_of};
use tcptoll_core::record::Arm;
use tcptoll_core::sheet::Part;
use tcptoll_core::sheet::Tone;

/// Columns that a name may take, from a roomy table to a tight one.
const NAME: [usize; 4] = [32, 24, 18, 12];

/// Columns of a name where columns are shared out among tables.
const SHARED: usize = 18;

/// The tables, or what the experiment shows in their place.
pub(super) fn write(page: &mut Draft, summary: &Run) {
    if summary.arms.is_empty() {
        page.line("  no arm was measured");
        return;
    }
    match summary.own.text {
        Some(parts) => page.parts.extend(parts(summary, page.width)),
        None => {
            for table in columns::tables(summary, Form::Text) {
                in_parts(page, summary, table);
            }
        }
    }
    page.parts.extend((summary.own.text_after)(summary, page.width));
}

/// The experiment's table of this id, for a terminal of this width; nothing, if there is none.
pub fn table(summary: &Run, width: usize, id: &str) -> Vec<Part> {
    let mut page = Draft { parts: Vec::new(), width };
    if let Some(table) = columns::table(summary, Form::Text, id) {
        in_parts(&mut page, summary, table);
    }
    page.parts
}

/// The same with a heading over the names, and so many columns for them.
pub fn named_table(summary: &Run, id: &str, head: &str, width: usize) -> Option<Part> {
    let table = columns::table(summary, Form::Text, id)?;
    let arms: Vec<&Arm> = table.arms(summary).into_iter().map(|(_, arm)| arm).collect();
    let laid = table.parts.iter().flat_map(|part| laid_in(part, &arms, summary.own));
    let mut laid: Vec<LaidColumn> = laid.map(|laid| laid.column).collect();
    laid.insert(0, Names::whole(&arms, head).column(width));
    Some(lay_out(laid).part(Tone::Strong))
}

/// A column with its cells, and when it is shown.
#[derive(Clone, Debug)]
struct Laid {
    column: LaidColumn,
    show: Show,
    /// Heading where its neighbours have no room; may be empty.
    alone: &'static str,
}

impl Laid {
    fn has_figures(&self) -> bool {
        self.column.cells.iter().any(|cell| cell != ABSENT)
    }

    /// As it stands without the neighbours that went for lack of room.
    fn alone(mut self) -> Self {
        if !self.alone.is_empty() {
            // What is left needs no heading over it.
            self.column.head = self.alone.to_owned();
            self.column.group.clear();
        }
        self
    }
}

/// Columns with their cells; neighbours of one distribution share a unit, which stands after them.
fn laid_in(part: &[columns::RunColumn], arms: &[&Arm], own: &Own) -> Vec<Laid> {
    let mut laid = Vec::new();
    for run in
        part.chunk_by(|a, b| a.distribution().is_some() && a.distribution() == b.distribution())
    {
        if run[0].distribution().is_some() {
            laid.extend(with_unit(run, arms));
        } else {
            laid.extend(run.iter().map(|column| one(column, arms, own)));
        }
    }
    laid
}

fn one(column: &columns::RunColumn, arms: &[&Arm], own: &Own) -> Laid {
    let cells = arms.iter().map(|arm| column.text(arm, own, Form::Text)).collect();
    let align = match column.kind() {
        Kind::Words => Align::Left,
        Kind::Right => Align::Right,
        Kind::Number => Align::Point,
    };
    let laid = LaidColumn::new(&column.head, align, cells).under(&column.group);
    Laid { column: laid, show: column.show, alone: column.alone }
}

/// Figures of one distribution, and their unit in each row that has any.
fn with_unit(run: &[columns::RunColumn], arms: &[&Arm]) -> Vec<Laid> {
    let rows: Vec<Vec<Option<f64>>> =
        arms.iter().map(|arm| run.iter().map(|column| column.value(arm)).collect()).collect();
    let unit = run[0].time_unit;
    let mut laid: Vec<Laid> = Vec::new();
    for (at, column) in run.iter().enumerate() {
        let cell = |(arm, row): (&&Arm, &Vec<Option<f64>>)| {
            let figure = row[at].zip(unit).map(|(us, unit)| unit.figure(us));
            figure.map_or_else(|| ABSENT.to_owned(), |text| column.sign(arm).to_owned() + &text)
        };
        let cells = arms.iter().zip(&rows).map(cell).collect();
        let column_of_cells =
            LaidColumn::new(&column.head, Align::Point, cells).under(&column.group);
        laid.push(Laid { column: column_of_cells, show: column.show, alone: column.alone });
    }
    if let Some(unit) = unit {
        let symbol = |row: &Vec<Option<f64>>| {
            if row.iter().any(Option::is_some) { unit.symbol() } else { "" }
        };
        let symbols = rows.iter().map(|row| symbol(row).to_owned());
        let last = &run[run.len() - 1];
        let group = if last.over_unit { last.group.as_str() } else { "" };
        let column = LaidColumn::new("", Align::Left, symbols.collect()).gap(1).under(group);
        laid.push(Laid { column, show: Show::Always, alone: "" });
    }
    laid
}

/// Parts that stay together, in one table where the width allows it, else in as many as it takes.
fn in_parts(page: &mut Draft, summary: &Run, table: columns::RunTable) {
    // What stands in the table of rounds, with its interval, is not said again.
    let in_rounds = summary.rounds.as_ref().and_then(|_| metric_of(summary));
    let table = table.without(in_rounds);
    let arms: Vec<&Arm> = table.arms(summary).into_iter().map(|(_, arm)| arm).collect();
    if arms.is_empty() {
        return;
    }
    let names = Names::from_arms(&arms);
    let room = page.width;
    let filled = |laid: &Laid| laid.has_figures();
    let kept = |parts: &[Vec<Laid>], keep: &dyn Fn(&Laid) -> bool| -> Vec<Vec<Laid>> {
        let kept =
            parts.iter().map(|part| part.iter().filter(|laid| keep(laid)).cloned().collect());
        kept.filter(|part: &Vec<Laid>| !part.is_empty()).collect()
    };
    let all: Vec<Vec<Laid>> =
        table.parts.iter().map(|part| laid_in(part, &arms, summary.own)).collect();
    // A column of dashes is worth its room only while there is room.
    let roomy = kept(&all, &|laid| laid.show == Show::Always || filled(laid));
    let parts = kept(&all, &filled);
    let mut fewer = kept(&parts, &|laid| laid.show != Show::Room);
    for part in &mut fewer {
        *part = std::mem::take(part).into_iter().map(Laid::alone).collect();
    }
    for candidate in [&roomy, &parts, &fewer] {
        if let Some(lines) = fitting(&names, &columns_of(&candidate.concat()), room) {
            return page.table(&lines, Tone::Dim);
        }
    }
    let mut tables: Vec<Vec<LaidColumn>> = Vec::new();
    for part in parts {
        let part = columns_of(&part);
        let with = |table: &Vec<LaidColumn>| [table.as_slice(), part.as_slice()].concat();
        let fits = |table: &Vec<LaidColumn>| {
            lay_out(with_names(&names, SHARED, with(table))).width() <= room
        };
        match tables.last_mut().filter(|table| fits(table)) {
            Some(table) => table.extend(part),
            None => tables.push(part),
        }
    }
    for table in tables {
        let narrowest = || lay_out(with_names(&names, 12, table.clone()));
        let lines = fitting(&names, &table, room).unwrap_or_else(narrowest);
        page.table(&lines, Tone::Dim);
        page.blank();
    }
}

fn columns_of(laid: &[Laid]) -> Vec<LaidColumn> {
    laid.iter().map(|laid| laid.column.clone()).collect()
}

/// The table with names as long as the width allows, or `None` if it is too wide with short ones.
fn fitting(names: &Names, columns: &[LaidColumn], room: usize) -> Option<Lines> {
    let with = |name| lay_out(with_names(names, name, columns.to_vec()));
    NAME.into_iter().map(with).find(|lines| lines.width() <= room)
}

fn with_names(names: &Names, width: usize, mut columns: Vec<LaidColumn>) -> Vec<LaidColumn> {
    columns.insert(0, names.column(width));
    columns
}

// What are the rows of a table called? By their arms' names; factors that all of them have stand once,
// in the heading: `link` over `metro` and `transatlantic`.

/// Heading of names.
const ARM: &str = "arm";

/// Columns that any heading may take.
const NAME_MIN: usize = 16;

/// Names of arms, as a column shows them.
#[derive(Clone, Debug)]
pub(super) struct Names {
    head: String,
    cells: Vec<String>,
}

impl Names {
    /// Of the arms of a table.
    pub(super) fn from_arms(arms: &[&Arm]) -> Self {
        by_factor(arms).unwrap_or_else(|| Self::whole(arms, ARM))
    }

    /// Whole names of arms, under a heading of the experiment's.
    pub(super) fn whole(arms: &[&Arm], head: &str) -> Self {
        let cells = arms.iter().map(|arm| arm.name.clone()).collect();
        Self { head: head.to_owned(), cells }
    }

    /// The column, its cells in at most `width` columns each.
    pub(super) fn column(&self, width: usize) -> LaidColumn {
        let cells: Vec<&str> = self.cells.iter().map(String::as_str).collect();
        let cells = clean::shorten_all(&cells, width);
        let widest = cells.iter().map(|cell| clean::columns(cell)).max().unwrap_or(0);
        let head = clean::shorten(&self.head, width.max(widest).max(NAME_MIN));
        LaidColumn::new(&head, Align::Left, cells)
    }
}

/// Names without the factors that all of them have at the same place. None: there is none.
fn by_factor(arms: &[&Arm]) -> Option<Names> {
    let parts: Vec<Vec<&str>> = arms.iter().map(|arm| arm.name.split(", ").collect()).collect();
    let [first, rest @ ..] = parts.as_slice() else { return None };
    if rest.is_empty() || rest.iter().any(|one| one.len() != first.len()) {
        return None;
    }
    let factors: Vec<Option<&str>> = (0..first.len())
        .map(|at| {
            let (factor, _) = first[at].split_once(' ')?;
            let is_of = |(arm, parts): (&&Arm, &Vec<&str>)| {
                let level = parts[at].strip_prefix(factor).and_then(|rest| rest.strip_prefix(' '));
                level.is_some() && arm.factors.contains_key(factor)
            };
            arms.iter().zip(&parts).all(is_of).then_some(factor)
        })
        .collect();
    factors.iter().any(Option::is_some).then_some(())?;
    let mut heads: Vec<&str> = factors.iter().map(|factor| factor.unwrap_or(ARM)).collect();
    heads.dedup();
    let cell = |parts: &Vec<&str>| -> String {
        let levels = parts.iter().zip(&factors).map(|(&part, factor)| match factor {
            Some(factor) => &part[factor.len() + 1..],
            None => part,
        });
        levels.collect::<Vec<_>>().join(", ")
    };
    Some(Names { head: heads.join(", "), cells: parts.iter().map(cell).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str], factors: &[&str]) -> Names {
        let arms: Vec<Arm> = names
            .iter()
            .map(|name| {
                let factors = factors.iter().map(|factor| ((*factor).to_owned(), 1.into()));
                Arm { name: (*name).into(), factors: factors.collect(), ..Arm::default() }
            })
            .collect();
        Names::from_arms(&arms.iter().collect::<Vec<_>>())
    }

    #[test]
    fn factors_of_all_arms_stand_once_in_the_heading() {
        let names = named(&["message 1, nagle on", "message 64, nagle off"], &["message", "nagle"]);
        assert_eq!(
            (names.head.as_str(), names.cells.join("|")),
            ("message, nagle", "1, on|64, off".into())
        );
    }

    #[test]
    fn a_name_of_its_own_stands_next_to_a_factor() {
        let names = named(&["KeepAlive on, port 80", "KeepAlive off, port 81"], &["port"]);
        assert_eq!(
            (names.head.as_str(), names.cells),
            ("arm, port", vec!["KeepAlive on, 80".to_owned(), "KeepAlive off, 81".to_owned()])
        );
    }

    #[test]
    fn names_of_their_own_and_a_single_arm_stay_as_they_are() {
        for names in [
            &["link metro"] as &[&str],
            &["link metro", "as it was"],
            &["new pool", "new one"],
            &["link", "link metro, far"],
        ] {
            assert_eq!(named(names, &["link"]).cells, names);
            assert_eq!(named(names, &["link"]).head, "arm");
        }
    }

    #[test]
    fn a_heading_is_shortened_with_its_cells_and_no_further() {
        let names =
            named(&["congestion 1, link 1", "congestion 4, link 1"], &["congestion", "link"]);
        assert_eq!(names.column(18).head, "congestion, link");
        assert_eq!(names.column(12).head, "congestion, link");
        let names =
            named(&["congestion 1, window 1", "congestion 4, window 1"], &["congestion", "window"]);
        assert_eq!(names.column(12).head, "conges…n, window");
    }
}
