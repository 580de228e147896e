//! What may an experiment show beyond its tables? The interface between common code, which names no
//! experiment, and `experiments`, where each fills in what is its own.

use tcptoll_core::record::Arm;
use tcptoll_core::stats::HistogramSummary;

use crate::layout::Lines;
use crate::run::Run;
use crate::svg::TwoScreens;

/// The parts of an experiment's own; [`NONE`] has none of them.
#[derive(Clone, Copy)]
pub struct Own {
    /// Cells of columns whose words are found here: the column's key and the arm.
    pub words: fn(&str, &Arm) -> Option<String>,
    /// Lines before the answer: what was computed before the run.
    pub forecasts: fn(&[Arm]) -> Vec<String>,
    /// That operations failed, in a sentence.
    pub failed: Option<fn(Failed) -> String>,
    /// The words with which an answer states what failed, of an arm in which nothing succeeded.
    pub answer_has_failures: Option<&'static str>,
    /// What the distribution of the answer is of, where it is not of operations.
    pub answer: Option<&'static Answer>,
    /// Successes and attempts of the operations that a distribution is of, where they are not all.
    pub part: fn(&Arm, &str) -> Option<(u64, u64)>,
    /// What an arm counted that is not as it should be.
    pub trouble: fn(&Arm) -> Option<String>,
    /// What an arm counted, a label and a figure each, for the page.
    pub counted: fn(&Arm) -> Vec<[String; 2]>,
    /// Whether the page lists every metric of an arm, as the table has no room for all.
    pub lists_metrics: bool,
    /// The terminal's figures, in place of the tables one after another; the width is given.
    pub text: Option<fn(&Run, usize) -> Vec<Block>>,
    /// What the terminal shows after the figures; the width is given.
    pub text_after: fn(&Run, usize) -> Vec<Block>,
    /// Markdown's tables, in place of all one after another.
    pub markdown: Option<fn(&Run) -> Vec<Passage>>,
    /// The picture that the page begins with, unless the run has rounds.
    pub picture: fn(&Run) -> Option<Picture>,
    /// Whether that picture shows the metric of the run over the levels of a factor: then it stands in
    /// place of the common one, and the page begins with it in a run with rounds too.
    pub leads: fn(&Run) -> bool,
    /// Sections of the page after the figures.
    pub sections: fn(&Run) -> Vec<Section>,
    /// Sections of the page after the warnings.
    pub details: fn(&Run) -> Vec<Section>,
}

/// Nothing beyond the tables.
pub const NONE: Own = Own {
    words: |_, _| None,
    forecasts: |_| Vec::new(),
    failed: None,
    answer_has_failures: None,
    answer: None,
    part: |_, _| None,
    trouble: |_| None,
    counted: |_| Vec::new(),
    lists_metrics: true,
    text: None,
    text_after: |_, _| Vec::new(),
    markdown: None,
    picture: |_| None,
    leads: |_| false,
    sections: |_| Vec::new(),
    details: |_| Vec::new(),
};

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

/// What a colour stands for; the words say it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Strong,
    Dim,
    Bad,
    Doubt,
    Client,
    Wire,
    Server,
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
