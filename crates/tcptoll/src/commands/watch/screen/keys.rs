//! Which keys do the bytes of a terminal mean?
//!
//! The library's own reader of keys is not used: it waits for the rest of a sequence that may never
//! come, and meanwhile nothing is looked at; and it takes all of a CPU once the terminal is gone.

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
    pub(super) fn is_waiting(&self) -> bool {
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
