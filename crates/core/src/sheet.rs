//! Everything that is shown is a [`Sheet`]: a run, a watch, an examination, a search. Makers fill it, and the renderers
//! of `show` write it as text, page or Markdown.
//!
//! A maker says what there is to see, in which order, and in which forms. Renderers alone know widths, markup and
//! colours, and they alone clean: a text of a sheet may hold what a hostile peer sent.

use serde::{Serialize, Serializer};

/// What a colour stands for; the words say it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    #[default]
    Plain,
    Strong,
    Dim,
    Bad,
    Doubt,
    Client,
    Wire,
    Server,
}

/// The forms in which a part is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms(u8);

impl Forms {
    /// A terminal.
    pub const TEXT: Self = Self(1);
    /// An HTML page.
    pub const PAGE: Self = Self(2);
    /// Markdown for an issue.
    pub const MARKDOWN: Self = Self(4);
    /// Terminal and Markdown.
    pub const TEXT_AND_MARKDOWN: Self = Self(5);
    /// Page and Markdown.
    pub const WRITTEN: Self = Self(6);
    /// All three.
    pub const ALL: Self = Self(7);

    /// Whether a part of these forms is shown in `one`.
    #[must_use]
    pub fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

/// One thing to see: a question, its answer, what casts doubt on it, and the parts that carry it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sheet {
    /// Of the window in which the page is shown.
    pub title: String,
    /// What made it: `tcptoll watch`.
    pub kicker: String,
    /// What was asked, one sentence.
    pub question: String,
    /// The answer, and what goes with it; each may be empty.
    pub answer: [String; 2],
    /// Of the answer.
    pub tone: Tone,
    /// Limits of the user's that were broken, a sentence each: the first thing to read.
    pub failed: Vec<String>,
    /// Why it is not valid for its question, a sentence each.
    pub invalid: Vec<String>,
    /// What the reader must know before believing it.
    pub doubts: Vec<Note>,
    /// Where and how, a phrase each.
    pub place: Vec<String>,
    /// When, for the page.
    pub time: String,
    /// What was typed and on which machine, for the page.
    pub command: [String; 2],
    /// Where the record is, for a terminal.
    pub record: Option<String>,
    /// More of where and how it was measured: stands with the place.
    pub about: Parts,
    /// What the page shows between answer and place.
    pub lead: Parts,
    /// Everything else, in order.
    pub parts: Parts,
    /// Under which name the page offers the figures that it holds as JSON.
    pub file_name: String,
    /// The last line of the page: version and format.
    pub footer: String,
}

/// Parts with their forms, in order.
#[derive(Clone, Debug, Default)]
pub struct Parts(pub Vec<(Forms, Part)>);

impl Serialize for Parts {
    /// Those of the page.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.shown_in(Forms::PAGE))
    }
}

impl Parts {
    /// Adds a part in these forms.
    pub fn put(&mut self, forms: Forms, part: Part) {
        self.0.push((forms, part));
    }

    /// Adds parts in these forms.
    pub fn extend(&mut self, forms: Forms, parts: impl IntoIterator<Item = Part>) {
        self.0.extend(parts.into_iter().map(|part| (forms, part)));
    }

    /// The parts that are shown in a form.
    pub fn shown_in(&self, form: Forms) -> impl Iterator<Item = &Part> {
        self.0.iter().filter(move |(forms, _)| forms.has(form)).map(|(_, part)| part)
    }
}

/// A part of a sheet.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Part {
    /// A heading; what follows stands below it, until the next.
    Heading { text: String },
    /// A heading below a heading; the class of the colour of the arm that it names.
    Title { text: String, class: String },
    /// An empty line, unless there is one.
    Blank,
    /// A line of pieces as it is, for a terminal.
    Line { pieces: Vec<(Tone, String)> },
    /// Words, on a terminal after so many blanks.
    Prose { text: String, indent: usize, tone: Tone },
    /// Words beside a label, which on a terminal has so many columns.
    Labelled { label: String, indent: usize, text: String, tone: Tone },
    /// Names and values.
    Pairs { pairs: Vec<[String; 2]> },
    /// Rows under headings.
    Table(Table),
    /// A drawing.
    Picture(Picture),
    /// What is wrong, and what to change.
    Finding(Box<Article>),
    /// A list.
    Notes { notes: Vec<Note> },
    /// A list whose label a terminal has beside it, and a page over it if it casts doubt.
    List { label: String, notes: Vec<Note>, tone: Tone },
    /// Lines to copy in one piece.
    Code { text: String },
    /// What to do next: what to type, and why.
    Next { steps: Vec<[String; 2]> },
    /// What is shown when it is asked for; the class of the colour of the arm that it is about.
    Folded { title: String, small: String, class: String, parts: Vec<Part> },
}

impl Part {
    /// A heading.
    pub fn heading(text: impl Into<String>) -> Self {
        Self::Heading { text: text.into() }
    }

    /// A heading below a heading.
    pub fn title(text: impl Into<String>) -> Self {
        Self::Title { text: text.into(), class: String::new() }
    }

    /// What is shown when it is asked for.
    pub fn folded(title: impl Into<String>, small: impl Into<String>, parts: Vec<Self>) -> Self {
        Self::Folded { title: title.into(), small: small.into(), class: String::new(), parts }
    }

    /// A list.
    pub fn notes(texts: impl IntoIterator<Item = String>) -> Self {
        Self::Notes { notes: texts.into_iter().map(Note::from).collect() }
    }

    /// A line of pieces.
    #[must_use]
    pub fn pieces(pieces: Vec<(Tone, String)>) -> Self {
        Self::Line { pieces }
    }

    /// Words.
    pub fn prose(indent: usize, text: impl Into<String>, tone: Tone) -> Self {
        Self::Prose { text: text.into(), indent, tone }
    }

    /// Words beside a label.
    pub fn labelled(
        label: impl Into<String>,
        indent: usize,
        text: impl Into<String>,
        tone: Tone,
    ) -> Self {
        Self::Labelled { label: label.into(), indent, text: text.into(), tone }
    }

    /// A list with a label.
    pub fn list(label: &str, notes: impl IntoIterator<Item: Into<Note>>, tone: Tone) -> Self {
        let notes = notes.into_iter().map(Into::into).collect();
        Self::List { label: label.to_owned(), notes, tone }
    }

    /// A line in one tone.
    pub fn line(text: impl Into<String>, tone: Tone) -> Self {
        Self::Line { pieces: vec![(tone, text.into())] }
    }
}

/// A remark in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Note {
    /// What it is about, which may be empty.
    pub about: String,
    /// What it says.
    pub text: String,
    /// What to type, which may be empty.
    pub command: String,
    /// Whether it is a doubt or a fault.
    pub bad: bool,
}

impl Note {
    /// A remark, and whether it is a doubt or a fault.
    pub fn new(text: impl Into<String>, bad: bool) -> Self {
        Self { text: text.into(), bad, ..Self::default() }
    }
}

impl<T: Into<String>> From<T> for Note {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// Markup of a picture: SVG, whose texts are escaped where it is drawn.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Markup(pub String);

/// A drawing with its caption.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Picture {
    /// Over the drawing; may be empty.
    pub title: String,
    /// For a page.
    pub svg: Markup,
    /// One or a few sentences that say what to see.
    pub caption: String,
    /// Places of the arms in it with their names, whose colours are named above it.
    pub drawn: Vec<Arm>,
}

/// An arm by its name and colour.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Arm {
    /// As it is called.
    pub name: String,
    /// Class of its colour.
    pub class: String,
}

/// Which side of a column its cells keep to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Align {
    /// Words.
    Left,
    /// Counts, and words about them.
    #[default]
    Right,
    /// Figures: decimal points stand in one line.
    Point,
}

/// Where a column is shown, from everywhere to nowhere but in files. A tidy table for programs has every column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Serialize)]
pub enum Room {
    /// Everywhere.
    #[default]
    Always,
    /// Where at least one row has something in it.
    Present,
    /// As [`Room::Present`]; the first to go where a terminal is narrow.
    Wide,
    /// On pages and in Markdown.
    Page,
    /// In a tidy table alone.
    File,
}

/// A column.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Column {
    /// Its heading; may be empty.
    pub head: String,
    /// Heading over this and the following columns with the same.
    pub group: String,
    /// Its heading where it stands for both; empty: both, one after the other.
    pub whole: String,
    /// Its side.
    pub align: Align,
    /// Where it is shown.
    pub room: Room,
    /// Blanks to the left on a terminal.
    pub gap: usize,
    /// Columns of one part stay together where a terminal is too narrow for all.
    pub part: usize,
    /// Neighbours with the same, which is not empty, have their cells' unit once on a terminal, after the last of them.
    pub shares_unit: String,
    /// Whether its cells are names, which a narrow terminal shortens.
    pub names: bool,
    /// Whether it is drawn with letters: a page has a picture in its place.
    pub letters: bool,
}

impl Column {
    /// A column two blanks from its neighbour.
    pub fn new(head: impl Into<String>, align: Align) -> Self {
        Self { head: head.into(), align, gap: 2, ..Self::default() }
    }

    /// A column of names.
    pub fn names(head: impl Into<String>) -> Self {
        Self { names: true, ..Self::new(head, Align::Left) }
    }

    /// A column drawn with letters, where a terminal has room.
    pub fn letters(head: impl Into<String>) -> Self {
        Self { letters: true, room: Room::Wide, ..Self::new(head, Align::Left) }
    }

    /// The same, where there is room.
    #[must_use]
    pub fn room(self, room: Room) -> Self {
        Self { room, ..self }
    }

    /// The same, under a group's heading.
    #[must_use]
    pub fn under(self, group: &str) -> Self {
        Self { group: group.to_owned(), ..self }
    }

    /// The same, `gap` blanks from its neighbour.
    #[must_use]
    pub fn gap(self, gap: usize) -> Self {
        Self { gap, ..self }
    }

    /// Its whole heading.
    #[must_use]
    pub fn heading(&self) -> String {
        match (self.whole.is_empty(), self.group.is_empty()) {
            (false, _) => self.whole.clone(),
            (true, true) => self.head.clone(),
            (true, false) => format!("{} {}", self.group, self.head).trim().to_owned(),
        }
    }
}

/// What stands in a row of a column.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// As it is read.
    pub text: String,
    /// Its unit, where it stands apart.
    pub unit: String,
    /// Its interval, for pages and Markdown.
    pub interval: String,
    /// A word beside it.
    pub small: String,
    /// What a page sorts by, and a bar of it in percent.
    pub value: Option<f64>,
    /// Whether a bar shows [`Self::value`], a share in percent; a terminal has room for it in the place of a text.
    pub bar: bool,
    /// Class of the colour of the arm that it names.
    pub class: String,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl Cell {
    /// What stands in a cell without a figure.
    pub const ABSENT: &'static str = "—";

    /// Whether there is nothing in it to read.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.text == Self::ABSENT
    }

    /// With its interval and unit.
    #[must_use]
    pub fn whole(&self) -> String {
        let parts = [&self.text, &self.interval, &self.unit].map(String::as_str);
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// A row: its cells, or a heading over the rows below.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Row {
    /// A cell for each column; whether the row stands out, with an arrow before it.
    Cells { cells: Vec<Cell>, marked: bool },
    /// Heading over rows.
    Group { text: String },
}

/// Rows under headings.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// From the left; the first names the rows.
    pub columns: Vec<Column>,
    /// From the top.
    pub rows: Vec<Row>,
    /// Whether a page lets the reader sort it.
    pub sortable: bool,
    /// What there was no room for, and what else is to be known.
    pub note: Option<String>,
}

impl Table {
    /// Columns with rows of cells.
    pub fn new<C: Into<Cell>>(
        columns: Vec<Column>,
        rows: impl IntoIterator<Item = impl IntoIterator<Item = C>>,
    ) -> Self {
        let row = |cells: Vec<Cell>| Row::Cells { cells, marked: false };
        let rows = rows.into_iter().map(|cells| row(cells.into_iter().map(Into::into).collect()));
        Self { columns, rows: rows.collect(), ..Self::default() }
    }

    /// Rows of texts under these heads; the places of columns of words, the others are figures.
    pub fn texts(
        heads: &[&str],
        words: &[usize],
        rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
    ) -> Self {
        let align = |at| if words.contains(&at) { Align::Left } else { Align::Right };
        let columns = heads.iter().enumerate().map(|(at, head)| Column::new(*head, align(at)));
        Self::new(columns.collect(), rows)
    }

    /// The same, with columns that need room on a terminal.
    #[must_use]
    pub fn wide(mut self, places: &[usize]) -> Self {
        for place in places {
            if let Some(column) = self.columns.get_mut(*place) {
                column.room = Room::Wide;
            }
        }
        self
    }
}

/// What is wrong or to be said of a subject, with what to change.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Article {
    /// Where it stands on the page.
    pub anchor: String,
    /// `problem`, `warning`, `fix`.
    pub severity: String,
    /// Whether connections were harmed.
    pub problem: bool,
    /// Its name.
    pub id: String,
    /// Whom it is about.
    pub subject: String,
    /// One sentence.
    pub text: String,
    /// What it follows from.
    pub evidence: Vec<[String; 2]>,
    /// What to change.
    pub change: String,
    /// How.
    pub commands: Vec<String>,
    /// What that costs, and how to undo it.
    pub words: Vec<[String; 2]>,
    /// What the lab showed of it, as a verdict and a sentence; a terminal has shown it by then.
    pub proof: Option<[String; 2]>,
    /// Further commands: what each is for, and what to type.
    pub more: Vec<[String; 2]>,
}
