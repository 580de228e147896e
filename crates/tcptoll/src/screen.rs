//! The terminal: its width, its colours, progress on stderr, and where a line of words ends.

use std::cell::Cell;
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressStyle};
use textwrap::core::display_width;

use crate::exit::say;
use crate::stdout::{has_unicode, in_locale};
use tcptoll_core::units::human_us;
use tcptoll_lab::messages::Live;
use tcptoll_measure::runner::{ATTEMPTS_MAX, Progress};
use tcptoll_show::TextStyle;

/// How text is to look on stdout: colour only on a terminal and without `NO_COLOR`.
pub(crate) fn style() -> TextStyle {
    let term = Term::stdout();
    let width = term.size_checked().map(|(_, columns)| usize::from(columns));
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    TextStyle { colour: term.is_term() && wanted, width: width.unwrap_or(80) }
}

/// Whether somebody sees on stderr what a run is doing.
pub(crate) fn shows_progress(quiet: bool) -> bool {
    !quiet && Term::stderr().is_term()
}

/// Columns of the terminal that stdout is; `None`: it is none.
pub(crate) fn terminal() -> Option<usize> {
    let term = Term::stdout();
    term.is_term().then(|| usize::from(term.size().1))
}

/// A line on stderr that says which arm runs and how long the run will still take.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    /// Whether repetitions are said in lines of their own.
    announces: bool,
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
        Self { bar, announces: !quiet && !terminal, trial_begun: Cell::new(Instant::now()) }
    }

    /// Shows how far the run has come.
    pub(crate) fn show(&self, progress: &Progress<'_>) {
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
        if let Some(live) = &progress.live {
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
    let p99 = live.p99_us.map_or_else(String::new, |us| format!(" · p99 {}", human_us(us)));
    let failed =
        if live.failed == 1 { "1 error".to_owned() } else { format!("{} errors", live.failed) };
    format!(" · {:.0}/s{p99} · {failed}", live.ok_per_s)
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

/// Lines longer than this are hard to read; help is as wide.
const WIDTH_MAX: usize = 100;
/// Tables need some room, also on a terminal that has less.
const WIDTH_MIN: usize = 60;

/// Columns that words take on a terminal of this width.
pub(crate) fn room(width: usize) -> usize {
    width.clamp(WIDTH_MIN, WIDTH_MAX)
}

/// One paragraph in lines of at most `width` columns, each with its indent.
pub(crate) fn filled(text: &str, first: &str, others: &str, width: usize) -> String {
    textwrap::fill(text, options(width).initial_indent(first).subsequent_indent(others))
}

/// A text of several lines: lines that are too long are wrapped and keep their indent. A path that is
/// longer than a line stays in one piece, so that it can be copied.
pub(crate) fn narrowed(text: &str, width: usize) -> String {
    let narrow = |line: &str| {
        if display_width(line) <= width {
            return line.to_owned();
        }
        let words = line.trim_start_matches(' ');
        let indent = " ".repeat(line.len() - words.len());
        let options = options(width).initial_indent(&indent).subsequent_indent(&indent);
        textwrap::fill(words, options.break_words(false))
    };
    text.split('\n').map(narrow).collect::<Vec<_>>().join("\n")
}

fn options<'a>(width: usize) -> textwrap::Options<'a> {
    // Names are looked for, and pasted: `keep-alive` stays in one piece.
    textwrap::Options::new(width).word_splitter(textwrap::WordSplitter::NoHyphenation)
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

    #[test]
    fn long_lines_are_wrapped_with_their_indent_and_short_ones_stay_as_they_are() {
        let text = "error: one two three four\n\n  tip: five six seven eight\nshort  line\n";
        assert_eq!(
            narrowed(text, 16),
            "error: one two\nthree four\n\n  tip: five six\n  seven eight\nshort  line\n"
        );
    }

    #[test]
    fn a_path_longer_than_a_line_stays_in_one_piece() {
        let text = narrowed("record /a/long-folder/with-a-long-name/run.jsonl: not there", 20);
        assert_eq!(text, "record\n/a/long-folder/with-a-long-name/run.jsonl:\nnot there");
    }

    #[test]
    fn colours_take_no_columns() {
        let text = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m one two";
        assert_eq!(narrowed(text, 14), text);
    }
}
