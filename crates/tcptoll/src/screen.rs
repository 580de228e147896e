//! The terminal: its width, its colours, progress on stderr.

use std::cell::Cell;
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressStyle};
use tcptoll_engine::runner::Progress;
use tcptoll_report::TextStyle;

/// How text is to look on stdout: colour only on a terminal and without `NO_COLOR`.
pub(crate) fn style() -> TextStyle {
    let term = Term::stdout();
    let width = term.size_checked().map(|(_, columns)| usize::from(columns));
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    TextStyle { colour: term.is_term() && wanted, width: width.unwrap_or(80) }
}

/// A line on stderr that says which arm runs and how long the run will still take.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    trial_begun: Cell<Instant>,
}

impl ProgressLine {
    /// Shows nothing if `quiet`, or if stderr is no terminal.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = if quiet || !Term::stderr().is_term() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new_spinner()
        };
        let style = ProgressStyle::with_template("{spinner} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, trial_begun: Cell::new(Instant::now()) }
    }

    /// Shows how far the run has come.
    pub(crate) fn show(&self, progress: &Progress<'_>) {
        let mut message = tcptoll_report::printable_line(progress.arm);
        if progress.rounds > 1 {
            message += &format!(" · round {} of {}", progress.round, progress.rounds);
        }
        if progress.arms > 1 {
            message += &format!(" · arm {} of {}", progress.number, progress.arms);
        }
        if progress.attempt > 0 {
            message += &format!(" · again, for the {} time", ordinal(progress.attempt));
        }
        // Operations of one trial, milliseconds of another.
        if let Some(percent) = (100 * progress.done).checked_div(progress.total) {
            message += &format!(" · {} %", percent.min(100));
        }
        // The estimate is of the trial's beginning; meanwhile time goes on.
        if progress.done == 0 && progress.total == 0 {
            self.trial_begun.set(Instant::now());
        }
        let left = progress.left_s - self.trial_begun.get().elapsed().as_secs_f64();
        if left >= 1.0 {
            let left = left.ceil() as u64;
            message += &format!(" · about {:02}:{:02} left", left / 60, left % 60);
        }
        self.bar.set_message(message);
    }
}

fn ordinal(number: u32) -> &'static str {
    match number {
        1 => "second",
        2 => "third",
        _ => "last",
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
