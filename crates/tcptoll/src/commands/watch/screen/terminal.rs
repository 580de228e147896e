//! The terminal while the screen is shown, and afterwards as it was before.

use std::fs::File;
use std::io;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use console::Term;
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGWINCH};

use tcptoll_live::watch::reader::{Keys, Modes, wait_for_keys};

/// After this time without another byte, Esc is a key and not the begin of a sequence.
const ESC_AFTER: Duration = Duration::from_millis(50);
/// A signal that comes just before a wait begins is seen after this time.
const SIGNAL_AFTER: Duration = Duration::from_secs(1);

/// The alternate screen without a cursor, and back (xterm's control sequences).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?1049l\x1b[?25h";
/// A terminal that knows these shows what is between them as one change; others ignore them.
const TOGETHER: [&str; 2] = ["\x1b[?2026h", "\x1b[?2026l"];

/// Whether a screen can be shown: two terminals, and one that can place its cursor.
pub(crate) fn is_there() -> bool {
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
    /// What it shows: its size, and each row as it was written; empty: not known.
    size: [usize; 2],
    rows: Vec<String>,
    keys: File,
    parser: Parser,
    resized: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

/// What came of waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome {
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
        let (size, rows) = ([0; 2], Vec::new());
        Ok(Self { size, rows, keys, parser: Parser::default(), resized, continued })
    }

    /// Columns and rows.
    pub(super) fn size() -> [usize; 2] {
        let (rows, columns) = Term::stdout().size();
        [columns.into(), rows.into()]
    }

    /// Shows these rows, written as the terminal takes them; only those that changed are sent.
    pub(super) fn draw(&mut self, size: [usize; 2], rows: Vec<String>) -> io::Result<()> {
        let mut text = TOGETHER[0].to_owned();
        if size != self.size || self.rows.is_empty() {
            text += "\x1b[2J";
            self.rows = vec![String::new(); rows.len()];
        }
        for (y, (row, shown)) in (1..).zip(rows.iter().zip(&self.rows)) {
            if row != shown {
                text += &format!("\x1b[{y};1H{row}");
            }
        }
        (self.size, self.rows) = (size, rows);
        send(&(text + TOGETHER[1]))
    }

    /// Waits for keys, but not longer than this. Signals end the wait.
    pub(super) fn wait(&mut self, at_most: Duration) -> anyhow::Result<WaitOutcome> {
        let mut at_most = at_most.min(SIGNAL_AFTER);
        let mut keys = Vec::new();
        loop {
            let waits = self.parser.is_waiting();
            if waits {
                at_most = ESC_AFTER;
            }
            let from = Instant::now();
            match wait_for_keys(&self.keys, at_most)? {
                Keys::HungUp => return Ok(WaitOutcome::HungUp),
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
                        return Ok(WaitOutcome::HungUp);
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
        Ok(WaitOutcome::Keys { keys, redraw })
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
        self.rows.clear();
        enter()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        restore();
    }
}

/// The terminal's modes before it was ours; `None`: it is not. Leaving it twice would move the cursor of
/// the shell.
static BEFORE: Mutex<Option<Modes>> = Mutex::new(None);

fn before() -> MutexGuard<'static, Option<Modes>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn enter() -> anyhow::Result<()> {
    // Where it is ours already, the shell may have changed what it is now.
    let taken = before().take();
    let modes = taken.map_or_else(|| Modes::read(io::stdin()), Ok)?;
    modes.raw().set(io::stdin())?;
    *before() = Some(modes);
    let entered = send(ENTER);
    if entered.is_err() {
        restore();
    }
    Ok(entered?)
}

/// The terminal as it was. A terminal that is gone needs nothing.
fn restore() {
    let taken = before().take();
    if let Some(modes) = taken {
        let _ = send(LEAVE);
        let _ = modes.set(io::stdin());
    }
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

// Which keys do the bytes of a terminal mean?
//
// The library's own reader of keys is not used: it waits for the rest of a sequence that may never
// come, and meanwhile nothing is looked at; and it takes all of a CPU once the terminal is gone.

/// Bytes of a sequence that is not complete, at most; more are no key.
const PENDING_MAX: usize = 32;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    /// Held with Ctrl: the letter, lower case.
    Ctrl(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Tab,
    BackTab,
    Backspace,
    Esc,
}

/// Takes bytes as they come, and gives keys.
#[derive(Debug, Default)]
pub(super) struct Parser {
    pending: Vec<u8>,
}

impl Parser {
    /// The keys of what was read. The begin of a sequence is kept for the next bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut rest = self.pending.as_slice();
        while !rest.is_empty() {
            let Some((key, length)) = first(rest) else { break };
            keys.extend(key);
            rest = &rest[length..];
        }
        self.pending = if rest.len() > PENDING_MAX { Vec::new() } else { rest.to_vec() };
        keys
    }

    /// No more bytes came for a while: a sequence that only began with Esc is the key Esc.
    pub(super) fn rest(&mut self) -> Option<Key> {
        let escape = self.pending == [ESC];
        self.pending.clear();
        escape.then_some(Key::Esc)
    }

    /// Whether bytes wait for others.
    fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }
}

const ESC: u8 = 0x1b;

/// The first key and its length; a sequence that is none of ours is no key. None: it is not complete.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let one = |key| Some((Some(key), 1));
    match *bytes.first()? {
        ESC => escape(bytes),
        b'\r' | b'\n' => one(Key::Enter),
        b'\t' => one(Key::Tab),
        0x08 | 0x7f => one(Key::Backspace),
        byte @ 1..=26 => one(Key::Ctrl(char::from(b'a' + byte - 1))),
        0 | 0x1c..=0x1f => Some((None, 1)),
        byte @ 0x20..=0x7e => one(Key::Char(char::from(byte))),
        byte => utf8(bytes, byte),
    }
}

fn utf8(bytes: &[u8], begin: u8) -> Option<(Option<Key>, usize)> {
    let length = match begin {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Some((None, 1)),
    };
    match std::str::from_utf8(bytes.get(..length)?) {
        Ok(text) => Some((text.chars().next().map(Key::Char), length)),
        Err(_) => Some((None, 1)),
    }
}

/// `ESC [ … final` and `ESC O final`; Alt and a key is `ESC key`, which is no key of ours.
fn escape(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match *bytes.get(1)? {
        b'[' => {
            let is_final = |byte: &u8| (0x40..=0x7e).contains(byte);
            let at = 2 + bytes[2..].iter().position(is_final)?;
            Some((sequence(&bytes[2..at], bytes[at]), at + 1))
        }
        b'O' => Some((sequence(&[], *bytes.get(2)?), 3)),
        ESC => Some((Some(Key::Esc), 1)),
        _ => Some((None, 2)),
    }
}

fn sequence(parameters: &[u8], last: u8) -> Option<Key> {
    Some(match (last, parameters) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'Z', _) => Key::BackTab,
        (b'M', []) => Key::Enter, // Enter of the keypad
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => return None,
    })
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

    fn keys(bytes: &[u8]) -> Vec<Key> {
        Parser::default().take(bytes)
    }

    #[test]
    fn letters_arrows_and_pages_of_both_modes_are_keys() {
        assert_eq!(keys(b"q/"), [Key::Char('q'), Key::Char('/')]);
        assert_eq!(keys("é日🙂".as_bytes()), ['é', '日', '🙂'].map(Key::Char));
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[1;5C\x1b[D"),
            [Key::Up, Key::Down, Key::Right, Key::Left]
        );
        assert_eq!(
            keys(b"\x1b[5~\x1b[6~\x1b[1~\x1bOF\x1b[Z"),
            [Key::PageUp, Key::PageDown, Key::Home, Key::End, Key::BackTab]
        );
        assert_eq!(
            keys(b"\t\r\x7f\x03\x1a"),
            [Key::Tab, Key::Enter, Key::Backspace, Key::Ctrl('c'), Key::Ctrl('z')]
        );
    }

    #[test]
    fn a_sequence_may_come_in_pieces_and_one_that_never_ends_is_no_key() {
        let mut parser = Parser::default();
        assert_eq!(parser.take(b"\x1b"), []);
        assert!(parser.is_waiting());
        assert_eq!(parser.take(b"["), []);
        assert_eq!(parser.take(b"Aq"), [Key::Up, Key::Char('q')]);
        assert!(!parser.is_waiting());
        assert_eq!(parser.take(b"\x1b["), []);
        assert_eq!(parser.rest(), None);
        assert_eq!(parser.take(b"q"), [Key::Char('q')]);
        assert_eq!(parser.take(&[b"\x1b[", [b'1'; 99].as_slice()].concat()), []);
        assert_eq!(parser.take(b"q"), [Key::Char('q')], "too long a sequence is forgotten");
    }

    #[test]
    fn esc_alone_is_a_key_once_nothing_follows() {
        let mut parser = Parser::default();
        assert_eq!(parser.take(b"\x1b"), []);
        assert_eq!(parser.rest(), Some(Key::Esc));
        assert_eq!(parser.rest(), None);
        assert_eq!(keys(b"\x1b\x1b[A"), [Key::Esc, Key::Up]);
    }

    #[test]
    fn bytes_that_are_no_text_and_unknown_sequences_are_no_keys() {
        assert_eq!(keys(b"\xff\xc0\xe2\x28\xa1q"), [Key::Char('('), Key::Char('q')]);
        assert_eq!(
            keys(b"\x1b[200~a\x1b[201~\x1bx\x1b[<0;1;1mq"),
            [Key::Char('a'), Key::Char('q')]
        );
    }
}
