//! Files of blocks: `name arguments;` and `name arguments { … }` as a tree, with included files in their places.

use super::ConfigPosition;
use super::reading::{Reading, clipped, join, place};

/// Blocks inside each other, at most.
const BLOCKS_MAX: usize = 32;
/// Directives, at most.
const DIRECTIVES_MAX: usize = 200_000;

/// One directive: `name arguments;` or `name arguments { … }`.
#[derive(Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    pub(super) at: ConfigPosition,
    pub(super) inside: Vec<Directive>,
}

impl Directive {
    pub(super) fn first(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    /// Directives of this name inside.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.inside.iter().filter(move |one| one.name == name)
    }
}

enum Token {
    Word(String),
    End,
    Open,
    Close,
}

/// The text of one file, and how far it is read.
struct Tokens<'t> {
    path: &'t str,
    text: &'t str,
    at: usize,
    line: usize,
    /// Files that include this one.
    depth: usize,
}

impl Tokens<'_> {
    fn next_char(&mut self) -> Option<char> {
        let c = self.text.get(self.at..)?.chars().next()?;
        self.at += c.len_utf8();
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn next(&mut self) -> Option<(Token, usize)> {
        loop {
            let line = self.line;
            let token = match self.next_char()? {
                c if c.is_whitespace() => continue,
                '#' => {
                    while self.next_char().is_some_and(|c| c != '\n') {}
                    continue;
                }
                ';' => Token::End,
                '{' => Token::Open,
                '}' => Token::Close,
                quote @ ('"' | '\'') => Token::Word(self.quoted(quote)),
                first => Token::Word(self.bare(first)),
            };
            return Some((token, line));
        }
    }

    fn quoted(&mut self, quote: char) -> String {
        let mut word = String::new();
        while let Some(c) = self.next_char() {
            match c {
                _ if c == quote => break,
                '\\' => word.extend(self.next_char()),
                _ => word.push(c),
            }
        }
        word
    }

    fn bare(&mut self, first: char) -> String {
        let mut word = String::from(first);
        let mut last = first;
        loop {
            if last == '\\' {
                word.extend(self.next_char());
            }
            // `${name}` is a variable, not a block.
            if last == '$' && self.peek() == Some('{') {
                while let Some(c) = self.next_char() {
                    word.push(c);
                    if c == '}' {
                        break;
                    }
                }
            }
            match self.peek() {
                Some(c) if !c.is_whitespace() && !matches!(c, ';' | '{' | '}') => last = c,
                _ => return word,
            }
            word.extend(self.next_char());
        }
    }

    /// Passes over a block of Lua, whose brackets are its own.
    fn pass_code(&mut self) {
        let mut open = 1_usize;
        while open > 0 {
            match self.next_char() {
                Some('{') => open += 1,
                Some('}') => open -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }
}

/// Reads trees of files within one bound.
pub(super) struct Tree<'r, 'a> {
    pub(super) reading: &'r mut Reading<'a>,
    /// Folder that included paths are relative to.
    pub(super) folder: String,
    directives_left: usize,
}

impl<'r, 'a> Tree<'r, 'a> {
    pub(super) fn new(reading: &'r mut Reading<'a>, folder: String) -> Self {
        Self { reading, folder, directives_left: DIRECTIVES_MAX }
    }

    /// The directives of a file.
    pub(super) fn file(&mut self, path: &str, depth: usize) -> Vec<Directive> {
        let Some(text) = self.reading.text(path) else { return Vec::new() };
        self.text(path, &text, depth)
    }

    /// The directives of a text that stands at `path`.
    pub(super) fn text(&mut self, path: &str, text: &str, depth: usize) -> Vec<Directive> {
        let mut tokens = Tokens { path, text, at: 0, line: 0, depth };
        let mut all = Vec::new();
        // A bracket too many ends no file.
        while tokens.peek().is_some() {
            self.block(&mut tokens, 0, &mut all);
        }
        all
    }

    /// Ends the reading of a file.
    fn give_up(&mut self, tokens: &mut Tokens<'_>, why: &str) {
        self.reading.missing(format!("{}: {why}", clipped(tokens.path)));
        tokens.at = tokens.text.len();
    }

    fn block(&mut self, tokens: &mut Tokens<'_>, blocks: usize, all: &mut Vec<Directive>) {
        let mut words: Vec<String> = Vec::new();
        let mut begun = 0;
        while let Some((token, line)) = tokens.next() {
            let has_block = match token {
                Token::Word(word) => {
                    if words.is_empty() {
                        begun = line;
                    }
                    words.push(word);
                    continue;
                }
                Token::Close => return,
                Token::End => false,
                Token::Open => true,
            };
            let mut arguments = std::mem::take(&mut words);
            let name = if arguments.is_empty() { String::new() } else { arguments.remove(0) };
            let Some(left) = self.directives_left.checked_sub(1) else {
                return self.give_up(tokens, "too many directives");
            };
            self.directives_left = left;
            let mut inside = Vec::new();
            match name.as_str() {
                "include" if !has_block => {
                    for pattern in &arguments {
                        let pattern = join(&self.folder, pattern);
                        for file in self.reading.included(&pattern, tokens.depth, false) {
                            all.extend(self.file(&file, tokens.depth + 1));
                        }
                    }
                    continue;
                }
                name if has_block && name.ends_with("_by_lua_block") => tokens.pass_code(),
                _ if has_block && blocks >= BLOCKS_MAX => {
                    return self.give_up(tokens, "blocks are nested too deeply");
                }
                _ if has_block => self.block(tokens, blocks + 1, &mut inside),
                _ => {}
            }
            all.push(Directive { name, arguments, at: place(tokens.path, begun), inside });
        }
        if blocks > 0 {
            self.reading.missing(format!("{}: a block is not closed", clipped(tokens.path)));
        }
    }
}
