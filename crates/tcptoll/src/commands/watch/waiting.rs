//! A wait on stderr: how long `--once` will still take.

use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressStyle};

/// A line on stderr that says how long a wait will still take; a short wait shows nothing.
pub(super) struct Waiting {
    bar: ProgressBar,
}

impl Waiting {
    /// A shorter wait shows nothing.
    const SHORT: Duration = Duration::from_millis(1_500);

    /// Begins to wait for so long.
    pub(super) fn begin(lasts: Duration) -> Self {
        let shown = lasts >= Self::SHORT && Term::stderr().is_term();
        let bar = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar }
    }

    /// Says how long the wait will still take.
    pub(super) fn show(&self, left: Duration) {
        let left = left.as_secs_f64().ceil() as u64;
        self.bar.set_message(format!("looking · {:02}:{:02} left", left / 60, left % 60));
        self.bar.tick();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
