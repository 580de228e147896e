//! What does the reader see of a run? A [`Summary`] comes in; terminal text, HTML, CSV or Markdown
//! goes out.
//!
//! Nothing here measures, reads a file or knows the time, so the same summary always gives the same
//! bytes. Every string of a summary may come from a peer: what writes a form cleans it (`sheet`, `svg`, `csv`).
//! Read `report` for what is shown in which order, `columns` for what is said of an arm, `sheet` for how.
//!
//! It names no experiment: `run::Reports`, which the caller hands in, has their descriptions and, behind the optional
//! functions of `run::Own`, what each shows of its own. An experiment needs neither tables nor `Own`: it is shown by its
//! metrics and distributions.

pub mod between;
mod brief;
pub mod clean;
mod columns;
mod comparisons;
mod counters;
pub mod csv;
pub mod effect;
pub mod figures;
pub mod findings;
pub mod html;
pub mod number;
mod points;
pub mod published;
mod report;
pub mod rounds;
pub mod run;
pub mod sheet;
pub mod svg;

use std::path::Path;

use tcptoll_core::record::Summary;
use tcptoll_core::sheet::{Forms, Note, Sheet, Tone};

pub use self::brief::{SCREEN, first_that_fits};
pub use self::clean::ascii;
pub use self::columns::table;
pub use self::report::computed;
use self::run::Run;
pub use self::run::{Own, Reports};

/// `text` without what steers a terminal, as it may come from a file, a peer or a command line.
///
/// Shape:   lines as they were, with their tabs; CR LF is a line end. Other control characters
///          become `·`, characters that show nothing or turn the direction round go.
#[must_use]
pub fn printable(text: &str) -> String {
    clean::lines(text)
}

/// As [`printable`], in one line: line ends and tabs become blanks.
#[must_use]
pub fn printable_line(text: &str) -> String {
    clean::line(text)
}

/// One argument of a command to paste into a POSIX shell: printable, and quoted if it needs to be.
#[must_use]
pub fn shell_argument(argument: &str) -> String {
    tcptoll_core::printable::shell_argument(&clean::line(argument))
}

/// How the terminal text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Whether ANSI colours underline what the words already say.
    pub colour: bool,
    /// Columns of the terminal; 80 if unknown. Less than 60 is treated as 60.
    pub width: usize,
}

impl Default for TextStyle {
    fn default() -> Self {
        Self { colour: false, width: 80 }
    }
}

impl Reports {
    /// What there is to see of a run in these forms.
    ///
    /// `record` is where it is kept, which is shown and not opened; `width` the columns of a terminal.
    #[must_use]
    pub fn sheet(
        &self,
        summary: &Summary,
        record: Option<&Path>,
        width: usize,
        forms: Forms,
    ) -> Sheet {
        let run = self.run(summary.clone());
        let mut sheet = self.head(&run, record);
        report::put(&mut sheet, &run, width.max(60), forms);
        sheet
    }

    /// What every form begins and ends with.
    fn head(&self, run: &Run, record: Option<&Path>) -> Sheet {
        let study = run.study.as_ref().map(|study| format!(" · study {study}"));
        let doubts = findings::verdict_on_run(run).into_iter();
        Sheet {
            title: format!("{} · tcptoll", run.question),
            kicker: format!("tcptoll {}{}", run.experiment, study.unwrap_or_default()),
            question: run.question.clone(),
            answer: [run.answer.clone(), String::new()],
            tone: Tone::Strong,
            failed: (self.broken)(run, self.specs),
            invalid: findings::invalid(run, run.own),
            doubts: doubts.map(|text| Note::new(text, true)).collect(),
            place: figures::place(run),
            time: run.started_at.clone(),
            command: [findings::command_by_name(&run.command), counters::machines(run)],
            record: record.map(|record| record.display().to_string()),
            file_name: file_name(run),
            footer: format!(
                "tcptoll {} · record version {}",
                run.tcptoll_version, run.record_version
            ),
            ..Sheet::default()
        }
    }

    /// The run on one screen of a terminal: the answer, the figures that carry it, the cause with its fix, what is next.
    ///
    /// `details` is the command that shows everything.
    ///
    /// Shape:   at most [`SCREEN`] lines of text at 80 columns, in which there is no control character of the summary's own.
    #[must_use]
    pub fn brief(&self, summary: &Summary, details: &str, style: TextStyle) -> String {
        let run = self.run(summary.clone());
        brief::text(&run, self.head(&run, None), details, style)
    }

    /// The run for a terminal with everything that there is to say.
    ///
    /// The text ends with a line feed and holds no control character of the summary's own.
    #[must_use]
    pub fn text(&self, summary: &Summary, record: Option<&Path>, style: TextStyle) -> String {
        sheet::text(&self.sheet(summary, record, style.width, Forms::TEXT), style)
    }

    /// The run as one self-contained HTML file: no network, light and dark, for screens and paper.
    ///
    /// The summary is embedded unchanged as JSON, in `<script type="application/json" id="summary">`.
    #[must_use]
    pub fn html(&self, summary: &Summary) -> String {
        self.html_of(&[summary])
    }

    /// Why a run is invalid, a sentence each; none of a valid one.
    #[must_use]
    pub fn invalid(&self, summary: &Summary) -> Vec<String> {
        let run = self.run(summary.clone());
        findings::invalid(&run, run.own)
    }

    /// Several runs as one such file, with a table of contents. Their summaries are `summary-1`, `summary-2`, …,
    /// each as JSON, gzipped and in base64.
    #[must_use]
    pub fn html_of(&self, summaries: &[&Summary]) -> String {
        let sheets: Vec<(Sheet, &Summary)> =
            summaries.iter().map(|one| (self.sheet(one, None, 80, Forms::PAGE), *one)).collect();
        let title = match sheets.as_slice() {
            [(sheet, _)] => sheet.title.clone(),
            all => format!("{} answers · tcptoll", all.len()),
        };
        sheet::html_of(&title, sheets)
    }

    /// The picture that the HTML report begins with, as one SVG file in light and dark.
    ///
    /// Errors: a sentence, if the run has no picture.
    pub fn svg(&self, summary: &Summary) -> Result<String, String> {
        html::picture(&self.run(summary.clone()))
            .ok_or_else(|| "too little was measured for a picture".to_owned())
    }

    /// The run as one tidy CSV table, to draw its figures again or to reckon with.
    ///
    /// Shape:   a heading and one row per figure; `kind` says what a row is.
    ///
    /// - `arm`: one per arm and metric, `value` with `median`, interval and `n`: a mean over rounds,
    ///   where the run has rounds, also of a quantile. Of requests also counts, over all rounds: of
    ///   connections, of who closed them, of local ports; and in `note` what the server says of its
    ///   version and what the client waited with. Of idle connections what checking them sent and
    ///   took, measured and computed, what died, and in `note` by what that was known.
    /// - `arm_merged`: one per arm, histogram and quantile, as `connect_us_p99`, of the values of all
    ///   rounds together; `n` is their number. No interval.
    /// - `round`: one per arm, round and metric, in order of running; `left_out` says why it does not
    ///   count. A round without any value has one row, without `metric`.
    /// - `point`: in a merged record, one per vantage point, arm and metric; `note` is the point, `n` its rounds.
    /// - `comparison_point`: one per vantage point and comparison; `note` is the point, `n` its rounds.
    /// - `comparison`: `arm` is the numerator, `against` the denominator, `value` their ratio,
    ///   `difference` theirs in `unit`; the `factor_` columns hold the levels that both share.
    /// - `published`: a published figure that stands beside the arm, from `source`.
    ///
    /// Unit:    that of `unit`; `began_s` in seconds after the run began. Figures are not rounded.
    /// None:    an empty cell.
    ///
    /// Each factor is a column `factor_NAME`. Text that a spreadsheet would take for a formula begins
    /// with an apostrophe.
    #[must_use]
    pub fn csv(&self, summary: &Summary) -> String {
        csv::render(&self.run(summary.clone()))
    }

    /// The run as GitHub-flavoured Markdown, to paste into an issue: the answer, arms, comparisons,
    /// warnings, and how it was run.
    #[must_use]
    pub fn markdown(&self, summary: &Summary) -> String {
        sheet::markdown(&self.sheet(summary, None, 80, Forms::MARKDOWN))
    }
}

/// A name for the file of the numbers: letters, digits and hyphens only.
fn file_name(summary: &Summary) -> String {
    let plain = |text: &str| {
        text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect::<String>()
    };
    let (experiment, began) =
        (plain(&clean::line(&summary.experiment)), plain(&summary.started_at));
    format!("tcptoll-{experiment}-{began}.json")
}
