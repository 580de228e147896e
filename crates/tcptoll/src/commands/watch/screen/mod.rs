//! The screen of `watch`: what the machine's connections do now, and did in the last minutes.
//!
//! [`view`] has the user's choices and what keys change of them, [`paint`] and [`pages`] draw them, and
//! [`terminal`] is the edge: it takes the terminal over and gives it back. The screen is drawn after a
//! look, a key and a change of size, and at no other time.

mod ink;
mod keys;
mod pages;
mod paint;
pub(crate) mod terminal;
mod view;

use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT};
use tcptoll_live::watch::History;

use self::paint::Painter;
pub(super) use self::terminal::is_there;
use self::terminal::{Shown, WaitOutcome};
use self::view::{KeyAction, ScreenState};
use super::text::Watched;
use crate::exit;

/// The screen, on a terminal that is given back when this is dropped.
pub(super) struct Screen {
    shown: Shown,
    view: ScreenState,
    painter: Painter,
}

impl Drop for Screen {
    fn drop(&mut self) {
        // First the terminal as it was: what is said now is to stay there.
        self.shown.close();
        exit::release();
    }
}

/// How the watch goes on after keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It goes on.
    GoOn,
    /// The user wants to end it.
    Quit,
    /// As a signal of this number would end it.
    Signal(i32),
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn open(watched: &Watched) -> anyhow::Result<Self> {
        let painter = Painter { colours: terminal::colours(), watched: watched.clone() };
        let shown = Shown::open()?;
        exit::hold();
        Ok(Self { shown, view: ScreenState::default(), painter })
    }

    /// Draws what is to be seen.
    pub(super) fn draw(&mut self, history: &History) -> anyhow::Result<()> {
        let Self { shown, view, painter } = self;
        view.notice = exit::held();
        let size = Shown::size();
        shown.draw(size, painter.rows(size, view, history))?;
        Ok(())
    }

    /// A sentence about the watch itself, for the last line until the next key or look.
    pub(super) fn say(&mut self, sentence: &str) {
        self.view.message = Some(tcptoll_show::printable_line(sentence));
    }

    /// Waits for keys, but not longer than this, and does what they say.
    pub(super) fn wait(&mut self, at_most: Duration, history: &History) -> anyhow::Result<After> {
        let (keys, mut redraw) = match self.shown.wait(at_most)? {
            WaitOutcome::Keys { keys, redraw } => (keys, redraw),
            WaitOutcome::HungUp => return Ok(After::Signal(SIGHUP)),
        };
        for key in keys {
            redraw = true;
            match self.view.press(key, history) {
                KeyAction::Nothing => {}
                KeyAction::Quit => return Ok(After::Quit),
                KeyAction::Interrupt => return Ok(After::Signal(SIGINT)),
                KeyAction::Suspend => self.shown.suspend()?,
            }
        }
        if redraw {
            self.draw(history)?;
        }
        Ok(After::GoOn)
    }
}

#[cfg(test)]
mod tests;
