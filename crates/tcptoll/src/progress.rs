//! Progress on stderr: which arm runs, and for how long still.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::say;
use crate::screen::{has_unicode, in_locale};
use tcptoll_core::number;
use tcptoll_lab::messages::{Live, Outstanding};
use tcptoll_measure::runner::{ATTEMPTS_MAX, Progress};

/// A line on stderr that says which arm runs and how long the run will still take.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    /// Whether repetitions are said in lines of their own.
    announces: bool,
    /// How long the run takes, to be said when it begins.
    expected: RefCell<Option<String>>,
    trial_begun: Cell<Instant>,
}

impl ProgressLine {
    /// Shows nothing if `quiet`, and repetitions alone if stderr is no terminal.
    pub(crate) fn new(quiet: bool) -> Self {
        let terminal = Term::stderr().is_term();
        let bar =
            if quiet || !terminal { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(spinner());
        bar.enable_steady_tick(Duration::from_millis(100));
        let (announces, trial_begun) = (!quiet && !terminal, Cell::new(Instant::now()));
        Self { bar, announces, expected: RefCell::default(), trial_begun }
    }

    /// Says first how long the run takes.
    #[must_use]
    pub(crate) fn after(self, expected: Option<String>) -> Self {
        self.expected.replace(expected);
        self
    }

    /// Shows how far the run has come.
    pub(crate) fn show(&self, progress: &Progress<'_>) {
        // A trial that is refused has no progress.
        let goes_on = progress.total > 0 || progress.number > 1 || progress.round > 1;
        if goes_on && let Some(expected) = self.expected.take() {
            self.bar.suspend(|| say(&expected));
        }
        let mut message = tcptoll_show::printable_line(progress.arm);
        if progress.rounds > 1 {
            message += &format!(" · round {} of {}", progress.round, progress.rounds);
        }
        if progress.arms > 1 {
            message += &format!(" · arm {} of {}", progress.number, progress.arms);
        }
        if let Some(why) = progress.repeated_for {
            let why = tcptoll_show::printable_line(why);
            message += &format!(" · attempt {} of {ATTEMPTS_MAX}: {why}", progress.attempt + 1);
        }
        // Operations of one trial, milliseconds of another.
        if let Some(percent) = (100 * progress.done).checked_div(progress.total) {
            message += &format!(" · {} %", percent.min(100));
        }
        if let Some(waits) = &progress.outstanding {
            message += &waiting(waits);
        } else if let Some(live) = &progress.live {
            message += &figures(live);
        }
        // The estimate is of the trial's beginning; meanwhile time goes on.
        if progress.done == 0 && progress.total == 0 {
            self.trial_begun.set(Instant::now());
            if let Some(line) = announcement(progress).filter(|_| self.announces) {
                say(&line);
            }
        }
        let left = progress.left_s - self.trial_begun.get().elapsed().as_secs_f64();
        if left >= 1.0 {
            let left = left.ceil() as u64;
            message += &format!(" · about {:02}:{:02} left", left / 60, left % 60);
        }
        self.bar.set_message(in_locale(&message));
    }
}

/// A spinner and a message, in the characters of the locale.
fn spinner() -> ProgressStyle {
    let style = ProgressStyle::with_template("{spinner} {wide_msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    if has_unicode() { style } else { style.tick_chars("-\\|/ ") }
}

/// A line on stderr while the program waits. It starts no thread: what joins namespaces needs a process
/// with one thread.
pub(crate) struct StatusLine {
    bar: ProgressBar,
}

impl StatusLine {
    /// Shows nothing unless `shown`, or if stderr is no terminal.
    pub(crate) fn new(shown: bool) -> Self {
        let shown = shown && Term::stderr().is_term();
        let bar = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.set_style(spinner());
        Self { bar }
    }

    /// Says what is waited for.
    pub(crate) fn say(&self, message: &str) {
        self.bar.set_message(in_locale(message));
        self.bar.tick();
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Rate, p99 and failures of the last second.
fn figures(live: &Live) -> String {
    let p99 = live.p99_us.map_or_else(String::new, |us| format!(" · p99 {}", number::time(us)));
    let failed =
        if live.failed == 1 { "1 error".to_owned() } else { format!("{} errors", live.failed) };
    format!(" · {:.0}/s{p99} · {failed}", live.ok_per_s)
}

/// What is waited for when the time of a trial is over.
fn waiting(waits: &Outstanding) -> String {
    let most_s = waits.most_s.ceil();
    let responses = number::count(waits.responses);
    let noun = if waits.responses == 1 { "response" } else { "responses" };
    format!(" · waiting up to {most_s:.0} s for {responses} outstanding {noun}")
}

/// A repetition in a line of its own, where no progress is shown; `None`: this is none.
fn announcement(progress: &Progress<'_>) -> Option<String> {
    let why = progress.repeated_for?;
    let arm = if progress.arm.is_empty() { "the trial" } else { progress.arm };
    Some(format!(
        "repeating {}, round {}, attempt {} of {ATTEMPTS_MAX}: {}",
        tcptoll_show::printable_line(arm),
        progress.round,
        progress.attempt + 1,
        tcptoll_show::printable_line(why)
    ))
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_is_announced_with_its_arm_place_and_reason() {
        let first = Progress {
            arm: "link metro",
            number: 1,
            arms: 2,
            round: 3,
            rounds: 5,
            attempt: 0,
            repeated_for: None,
            done: 0,
            total: 0,
            live: None,
            outstanding: None,
            left_s: 9.0,
        };
        assert_eq!(announcement(&first), None);
        let why = Some("a hypervisor took CPU time");
        let again = Progress { attempt: 1, repeated_for: why, ..first };
        let says = "repeating link metro, round 3, attempt 2 of 4: a hypervisor took CPU time";
        assert_eq!(announcement(&again).as_deref(), Some(says));
    }

    #[test]
    fn figures_of_the_last_second_are_a_rate_a_p99_and_errors() {
        let live = Live { ok_per_s: 24_310.4, failed: 0, p99_us: Some(1_905.0) };
        assert_eq!(figures(&live), " · 24310/s · p99 1.91 ms · 0 errors");
        let few = Live { ok_per_s: 3.2, failed: 1, p99_us: None };
        assert_eq!(figures(&few), " · 3/s · 1 error");
    }
}
