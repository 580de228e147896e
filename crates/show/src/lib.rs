//! What does the reader see of a run? A [`Summary`] comes in; terminal text, HTML, CSV or Markdown
//! goes out.
//!
//! Nothing here measures, reads a file or knows the time, so the same summary always gives the same
//! bytes. Every string of a summary may come from a peer and is cleaned before it is shown
//! (`clean`). Read `columns` for what is said of an arm, `text` and `html` for how.
//!
//! It names no experiment: `run::Reports`, which the caller hands in, has their descriptions and, behind the optional
//! functions of `run::Own`, what each shows of its own. An experiment needs neither tables nor `Own`: it is shown by its
//! metrics and distributions.

pub mod clean;
mod columns;
pub mod csv;
pub mod effect;
pub mod figures;
pub mod findings;
pub mod html;
pub mod layout;
pub mod markdown;
pub mod number;
pub mod over_time;
pub mod own;
mod points;
pub mod published;
pub mod rounds;
pub mod run;
pub mod sheet;
pub mod svg;
pub mod text;

use std::path::Path;

use tcptoll_core::record::{Comparison, Summary, WarningEntry};
use tcptoll_core::sheet::{Note, Sheet, Tone};

pub use self::clean::ascii;
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

/// Two runs, and what their rounds allow one to say of A against B.
#[derive(Clone, Copy, Debug)]
pub struct Between<'a> {
    /// The run of the numerator.
    pub a: &'a Summary,
    /// The run of the denominator.
    pub b: &'a Summary,
    /// What the reader calls A: the file's name.
    pub a_name: &'a str,
    /// What the reader calls B.
    pub b_name: &'a str,
    /// A over B, for arms and metrics that both have.
    pub comparisons: &'a [Comparison],
    /// Doubts about comparing the two.
    pub warnings: &'a [WarningEntry],
}

impl Reports {
    /// What there is to see of a run.
    ///
    /// `record` is where it is kept, which is shown and not opened; `width` the columns of a terminal. Errors: a
    /// figure that is not a number cannot be represented, so there is nothing to show.
    pub fn sheet(
        &self,
        summary: &Summary,
        record: Option<&Path>,
        width: usize,
    ) -> Result<Sheet, serde_json::Error> {
        let run = self.run(summary)?;
        let study = run.study.as_ref().map(|study| format!(" · study {study}"));
        let doubts = findings::verdict_on_run(&run).into_iter();
        let mut sheet = Sheet {
            title: format!("{} · tcptoll", run.question),
            kicker: format!("tcptoll {}{}", run.experiment, study.unwrap_or_default()),
            question: run.question.clone(),
            answer: [run.answer.clone(), String::new()],
            tone: Tone::Strong,
            invalid: findings::invalid(&run, run.own),
            doubts: doubts.map(|text| Note::new(text, true)).collect(),
            place: figures::place(&run),
            time: run.started_at.clone(),
            record: record.map(|record| record.display().to_string()),
            file_name: file_name(&run),
            footer: format!(
                "tcptoll {} · record version {}",
                run.tcptoll_version, run.record_version
            ),
            ..Sheet::default()
        };
        text::put(&mut sheet, &run, width.max(60));
        markdown::put(&mut sheet, &run);
        html::put(&mut sheet, &run);
        Ok(sheet)
    }

    /// The run for a terminal: the answer, the figures, the doubts, what to do next.
    ///
    /// The text ends with a line feed and holds no control character of the summary's own.
    #[must_use]
    pub fn text(&self, summary: &Summary, record: Option<&Path>, style: TextStyle) -> String {
        match self.sheet(summary, record, style.width) {
            Ok(sheet) => sheet::text(&sheet, style),
            Err(error) => format!("{}\n", clean::cannot_show(&error)),
        }
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
        self.run(summary).map_or_else(|_| Vec::new(), |clean| findings::invalid(&clean, clean.own))
    }

    /// Several runs as one such file, with a table of contents. Their summaries are `summary-1`, `summary-2`, ….
    #[must_use]
    pub fn html_of(&self, summaries: &[&Summary]) -> String {
        let made = summaries.iter().map(|one| Ok((self.sheet(one, None, 80)?, *one)));
        match made.collect::<Result<Vec<_>, serde_json::Error>>() {
            Ok(sheets) => {
                let title = match sheets.as_slice() {
                    [(sheet, _)] => sheet.title.clone(),
                    all => format!("{} answers · tcptoll", all.len()),
                };
                sheet::html_of(&title, sheets)
            }
            Err(error) => sheet::cannot_show(&error),
        }
    }

    /// The picture that the HTML report begins with, as one SVG file in light and dark.
    ///
    /// Errors: a sentence, if the run has no picture or cannot be shown.
    pub fn svg(&self, summary: &Summary) -> Result<String, String> {
        let clean = self.run(summary).map_err(|error| clean::cannot_show(&error))?;
        html::picture(&clean).ok_or_else(|| "too little was measured for a picture".to_owned())
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
    /// with an apostrophe. Errors: a summary that cannot be shown gives a table that says so.
    #[must_use]
    pub fn csv(&self, summary: &Summary) -> String {
        match self.run(summary) {
            Ok(clean) => csv::render(&clean),
            Err(error) => csv::cannot_show(&error),
        }
    }

    /// The run as GitHub-flavoured Markdown, to paste into an issue: the answer, arms, comparisons,
    /// warnings, and how it was run.
    #[must_use]
    pub fn markdown(&self, summary: &Summary) -> String {
        match self.sheet(summary, None, 80) {
            Ok(sheet) => sheet::markdown(&sheet),
            Err(error) => format!("{}\n", clean::cannot_show(&error)),
        }
    }

    /// Two runs for a terminal: what moved, what differs between the machines, each arm of both.
    ///
    /// As `text()`, it ends with a line feed and holds no control character of the summaries' own.
    #[must_use]
    pub fn between(&self, view: &Between<'_>, style: TextStyle) -> String {
        let cleaned = || {
            let a = self.run(view.a)?;
            let b = self.run(view.b)?;
            let comparisons: Vec<Comparison> = clean::copy(&view.comparisons.to_vec())?;
            let warnings: Vec<WarningEntry> = clean::copy(&view.warnings.to_vec())?;
            Ok((a, b, comparisons, warnings))
        };
        match cleaned() {
            Ok((a, b, comparisons, warnings)) => {
                let (a_name, b_name) = (clean::line(view.a_name), clean::line(view.b_name));
                let runs = text::Runs {
                    a: &a,
                    b: &b,
                    a_name: &a_name,
                    b_name: &b_name,
                    comparisons: &comparisons,
                    warnings: &warnings,
                };
                sheet::text(&text::between(&runs, style.width.max(60)), style)
            }
            Err(error) => format!("{}\n", clean::cannot_show(&error)),
        }
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
