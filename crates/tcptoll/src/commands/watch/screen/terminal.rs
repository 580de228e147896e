//! The terminal while the screen is shown, and afterwards as it was before.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Stdout, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::{cursor, execute, terminal};
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGWINCH};
use tcptoll_engine::watch::{Keys, wait_for_keys};

use super::keys::{Key, Parser};

/// After this time without another byte, Esc is a key and not the begin of a sequence.
const ESC_AFTER: Duration = Duration::from_millis(50);
/// A signal that comes just before a wait begins is seen after this time.
const SIGNAL_AFTER: Duration = Duration::from_secs(1);

/// Whether a screen can be shown: two terminals, and one that can place its cursor.
pub(in crate::commands::watch) fn is_there() -> bool {
    let able = std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb");
    able && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Whether colours are wanted, and the terminal has them.
pub(super) fn colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let term = std::env::var("TERM").unwrap_or_default();
    !refused && has_colours(&term)
}

fn has_colours(term: &str) -> bool {
    !(term.starts_with("vt") || term.ends_with("-m") || term.contains("mono"))
}

/// A terminal that shows the screen. Dropping it restores the terminal; so does a panic.
pub(super) struct Shown {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    keys: File,
    parser: Parser,
    resized: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

/// What came of waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Keys, maybe none; `redraw`: the terminal was resized or shows something else.
    Keys { keys: Vec<Key>, redraw: bool },
    /// The terminal is gone.
    HungUp,
}

impl Shown {
    /// Takes the terminal over.
    pub(super) fn open() -> anyhow::Result<Self> {
        let keys = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let (resized, continued) = (Arc::default(), Arc::default());
        signal_hook::flag::register(SIGWINCH, Arc::clone(&resized))?;
        signal_hook::flag::register(SIGCONT, Arc::clone(&continued))?;
        restore_after_panic();
        enter()?;
        let terminal = match Terminal::new(CrosstermBackend::new(io::stdout())) {
            Ok(terminal) => terminal,
            Err(error) => {
                restore();
                return Err(error.into());
            }
        };
        Ok(Self { terminal, keys, parser: Parser::default(), resized, continued })
    }

    /// Draws; only cells that changed are written.
    pub(super) fn draw(
        &mut self,
        paint: impl FnOnce(&mut ratatui_core::terminal::Frame<'_>),
    ) -> io::Result<()> {
        self.terminal.draw(paint).map(drop)
    }

    /// Waits for keys, but not longer than this. Signals end the wait.
    pub(super) fn wait(&mut self, at_most: Duration) -> anyhow::Result<Came> {
        let mut at_most = at_most.min(SIGNAL_AFTER);
        let mut keys = Vec::new();
        loop {
            let waits = self.parser.is_waiting();
            if waits {
                at_most = ESC_AFTER;
            }
            let from = Instant::now();
            match wait_for_keys(&self.keys, at_most)? {
                Keys::HungUp => return Ok(Came::HungUp),
                Keys::None => {
                    // A signal may have ended the wait early: then the sequence may go on.
                    if waits && from.elapsed() >= ESC_AFTER {
                        keys.extend(self.parser.rest());
                    }
                    break;
                }
                Keys::Ready => {
                    let mut bytes = [0; 256];
                    let count = self.keys.read(&mut bytes)?;
                    if count == 0 {
                        return Ok(Came::HungUp);
                    }
                    keys.extend(self.parser.take(&bytes[..count]));
                    if !self.parser.is_waiting() {
                        break;
                    }
                }
            }
        }
        let mut redraw = self.resized.swap(false, Ordering::SeqCst);
        if self.continued.swap(false, Ordering::SeqCst) {
            self.again()?;
            redraw = true;
        }
        Ok(Came::Keys { keys, redraw })
    }

    /// Gives the terminal back before this is dropped.
    #[expect(clippy::unused_self)] // only who has the terminal can give it back
    pub(super) fn close(&mut self) {
        restore();
    }

    /// Gives the terminal back to the shell, and stops until the shell continues this process.
    pub(super) fn suspend(&mut self) -> anyhow::Result<()> {
        restore();
        signal_hook::low_level::raise(SIGTSTP)?;
        self.continued.store(false, Ordering::SeqCst);
        self.again()
    }

    /// Takes the terminal over again, whatever it shows.
    fn again(&mut self) -> anyhow::Result<()> {
        // The library remembers to be in raw mode, and the shell may have changed that.
        let _ = terminal::disable_raw_mode();
        enter()?;
        Ok(self.terminal.clear()?)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the terminal is ours. Leaving it twice would move the cursor of the shell.
static ENTERED: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    ENTERED.store(true, Ordering::SeqCst);
    if let Err(error) = terminal::enable_raw_mode() {
        ENTERED.store(false, Ordering::SeqCst);
        return Err(error);
    }
    let entered = execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide);
    if entered.is_err() {
        restore();
    }
    entered
}

/// The terminal as it was. A terminal that is gone needs nothing.
fn restore() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    let _ = execute!(out, terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
    let _ = out.flush();
}

/// What a panic says is to be read on the normal screen.
fn restore_after_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_without_colours_are_known_by_their_names() {
        for term in ["vt100", "vt220", "xterm-m", "xterm-mono", "screen.linux-m"] {
            assert!(!has_colours(term), "{term}");
        }
        for term in ["xterm", "xterm-256color", "tmux", "linux", "screen"] {
            assert!(has_colours(term), "{term}");
        }
    }
}
