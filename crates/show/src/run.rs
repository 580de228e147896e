//! A run as reports see it: its summary, what is known of its experiment, and what that one shows beyond
//! its tables.
//!
//! [`Own`] is the interface between common code, which names no experiment, and experiments, each of which fills in
//! what is its own.

use std::ops::Deref;

use tcptoll_core::experiment::spec::{Spec, Specs};
use tcptoll_core::record::{Arm, Summary};

use tcptoll_core::sheet::{self, Forms, Part};
use tcptoll_core::stats::HistogramSummary;

use crate::clean;
use crate::svg::{Svg, arm_class};

/// What there is to show of which experiment; common code names none, so it is handed this.
#[derive(Clone, Copy)]
pub struct Reports {
    /// Their descriptions.
    pub specs: Specs,
    /// Experiments with parts of their own, by name.
    pub own: &'static [(&'static str, &'static Own)],
    /// Limits that the command states and the run breaks, a sentence each.
    pub broken: fn(&Summary, Specs) -> Vec<String>,
}

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
    /// What the terminal shows after the figures; the width is given.
    pub text_after: fn(&Run, usize) -> Vec<Part>,
    /// The picture that the page begins with, unless the run has rounds.
    pub picture: fn(&Run) -> Option<Picture>,
    /// Whether that picture shows the metric of the run over the levels of a factor: then it stands in
    /// place of the common one, and the page begins with it in a run with rounds too.
    pub leads: fn(&Run) -> bool,
    /// Sections after the figures.
    pub sections: fn(&Run) -> Vec<Section>,
    /// Sections of the page after the warnings.
    pub details: fn(&Run) -> Vec<Section>,
}

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

/// A drawing with its caption.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The drawing.
    pub svg: Svg,
    /// One sentence that says what to see.
    pub caption: String,
    /// Places of the arms in it, whose colours are named above it.
    pub drawn: Vec<usize>,
}

impl Picture {
    /// A picture in which no arm's colour is named.
    pub(crate) fn new(svg: Svg, caption: &str) -> Self {
        Self { svg, caption: caption.to_owned(), drawn: Vec::new() }
    }

    /// The same with the colours of these arms.
    pub(crate) fn of_arms(self, run: &Run, drawn: impl Fn(usize, &Arm) -> bool) -> Self {
        let arms = run.arms.iter().enumerate();
        Self { drawn: arms.filter(|(at, arm)| drawn(*at, arm)).map(|(at, _)| at).collect(), ..self }
    }

    /// The arms whose colours are named above it, where there are several to tell apart.
    pub(crate) fn legend(&self, run: &Run) -> Vec<sheet::Arm> {
        let arms = run.arms.iter().enumerate().filter(|_| run.arms.len() > 1);
        arms.filter(|(at, _)| self.drawn.contains(at)).map(|(at, arm)| drawn_as(at, arm)).collect()
    }

    /// As a part of the page of the run.
    #[must_use]
    pub fn part(&self, run: &Run) -> Part {
        Part::Picture(sheet::Picture {
            title: String::new(),
            svg: self.svg.clone().into(),
            caption: clean::keep_units(&self.caption),
            drawn: self.legend(run),
        })
    }
}

/// The name of the arm at this place and the class of its colour, wherever it stands on the page.
pub(crate) fn drawn_as(at: usize, arm: &Arm) -> sheet::Arm {
    sheet::Arm { class: arm_class(at), name: arm.name.clone() }
}

/// A section.
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// The forms that have it.
    pub forms: Forms,
    /// Whether the experiment's picture stands first in it, unless the page began with that.
    pub leads: bool,
    /// What stands below.
    pub parts: Vec<Part>,
}

impl Section {
    /// A section of the page.
    #[must_use]
    pub fn new(title: &'static str, parts: Vec<Part>) -> Self {
        Self { title, forms: Forms::PAGE, leads: false, parts }
    }

    /// A section of the page in which the experiment's picture stands first, unless the page began with that.
    #[must_use]
    pub fn led(title: &'static str, parts: Vec<Part>) -> Self {
        Self { leads: true, ..Self::new(title, parts) }
    }

    /// The same in all forms.
    #[must_use]
    pub fn everywhere(self) -> Self {
        Self { forms: Forms::ALL, ..self }
    }
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
    text_after: |_, _| Vec::new(),
    picture: |_| None,
    leads: |_| false,
    sections: |_| Vec::new(),
    details: |_| Vec::new(),
};

/// A run. What its summary has can be read from it.
#[derive(Clone)]
pub struct Run {
    pub summary: Summary,
    /// Of all experiments: two runs may be of different ones.
    pub specs: Specs,
    /// What its experiment shows of its own.
    pub own: &'static Own,
}

impl Reports {
    /// The run of a summary.
    #[must_use]
    pub fn run(&self, summary: Summary) -> Run {
        let own = self.own.iter().find(|(name, _)| *name == summary.experiment);
        Run { specs: self.specs, own: own.map_or(&NONE, |(_, own)| own), summary }
    }
}

impl Run {
    /// None: this build does not know its experiment.
    pub fn spec(&self) -> Option<&'static Spec> {
        self.specs.find(&self.experiment)
    }
}

impl Deref for Run {
    type Target = Summary;

    fn deref(&self) -> &Summary {
        &self.summary
    }
}

#[cfg(test)]
impl From<Summary> for Run {
    /// Of an experiment that nobody described.
    fn from(summary: Summary) -> Self {
        Reports { specs: Specs(&[]), own: &[], broken: |_, _| Vec::new() }.run(summary)
    }
}
