//! The pieces of which an experiment makes what it shows beyond its tables: blocks of text, pictures, sections.
//! Where they go says `run::Own`.

use tcptoll_core::record::Arm;
use tcptoll_core::stats::HistogramSummary;

pub use tcptoll_core::sheet::Tone;

use crate::layout::Lines;
use crate::svg::TwoScreens;

/// How many operations failed; some succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// Operations that failed; above 0.
    pub failed: u64,
    /// Operations begun.
    pub tried: u64,
}

/// The words for a distribution that is not of operations.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The distribution.
    pub histogram: &'static str,
    /// Values that there are, and that there could be.
    pub counts: fn(&Arm) -> Option<(u64, u64)>,
    /// What its axis shows.
    pub share: &'static str,
    /// What became of the others.
    pub never: &'static str,
    /// What is to be seen of one arm, in a sentence.
    pub caption: fn(&HistogramSummary) -> String,
}

/// A piece of text on the terminal.
pub enum Block {
    /// An empty line, unless there is one.
    Blank,
    /// A line of pieces.
    Line(Vec<(Tone, String)>),
    /// Words wrapped at the width, each line after some blanks.
    Prose(usize, String, Tone),
    /// A label, then words wrapped beside it from a column on.
    Labelled(String, usize, String, Tone),
    /// Lines in columns, with the tone of the headings.
    Lines(Lines, Tone),
    /// The experiment's table of this id.
    Table(&'static str),
    /// The same with a heading over the names, and so many columns for them.
    Named(&'static str, &'static str, usize),
}

/// A piece of Markdown.
pub enum Passage {
    /// The experiment's table of this id.
    Table(&'static str),
    /// A list.
    List(Vec<String>),
}

/// A picture with its caption.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Both forms.
    pub both_svg: TwoScreens,
    /// One sentence that says what to see.
    pub caption: String,
    /// Places of the arms in it, whose colours are named above it.
    pub drawn: Vec<usize>,
}

/// A line beside the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it says.
    pub text: String,
    /// Whether it is a doubt or a fault: a bound that did not hold, a death never known.
    pub bad: bool,
}

/// A section of the page.
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// What stands below.
    pub items: Vec<Item>,
}

/// A piece of a section.
pub enum Item {
    /// The experiment's table of this id under this heading, which may be empty.
    Table(&'static str, &'static str),
    /// The leading picture of the experiment, unless the page began with it.
    Lead,
    /// A picture.
    Picture(Picture),
    /// Doubts and remarks as a list.
    Notes(Vec<Note>),
    /// A paragraph.
    Paragraph(String),
    /// A small line.
    Small(String),
    /// Rows under headings; the places of columns of words.
    Rows(Vec<&'static str>, Vec<Vec<String>>, Vec<usize>),
    /// To be opened: a heading, a word beside it, and what is inside.
    Details(String, String, Vec<Item>),
    /// The same for several arms, by their places: the first is open.
    Arms(Vec<(usize, Vec<Item>)>),
}
