//! nginx's configuration as a tree of directives, with included files in their places.

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
}

enum Token {
    Word(String),
    End,
    Open,
    Close,
}

/// The text of one file, and how far it is read.
struct Tokens<'t> {
    text: &'t str,
    at: usize,
    line: usize,
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
        let mut word = String::new();
        let mut next = Some(first);
        while let Some(c) = next {
            word.push(c);
            if c == '\\' {
                word.extend(self.next_char());
            }
            // `${name}` is a variable, not a block.
            let variable = c == '$' && self.peek() == Some('{');
            if variable {
                while let Some(c) = self.next_char() {
                    word.push(c);
                    if c == '}' {
                        break;
                    }
                }
            }
            let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '{' | '}');
            next = if self.peek().is_none_or(ends) { None } else { self.next_char() };
        }
        word
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
        self.text(path, &text, depth, true)
    }

    /// The directives of a text that stands at `path`.
    pub(super) fn text(
        &mut self,
        path: &str,
        text: &str,
        depth: usize,
        has_lines: bool,
    ) -> Vec<Directive> {
        let mut tokens = Tokens { text, at: 0, line: 0 };
        let mut all = Vec::new();
        // A bracket too many ends no file.
        while tokens.peek().is_some() {
            all.extend(self.block(path, &mut tokens, depth, 0, has_lines));
        }
        all
    }

    fn block(
        &mut self,
        path: &str,
        tokens: &mut Tokens<'_>,
        depth: usize,
        blocks: usize,
        has_lines: bool,
    ) -> Vec<Directive> {
        let mut all = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut begun = 0;
        loop {
            let Some((token, line)) = tokens.next() else {
                if blocks > 0 {
                    self.reading.missing(format!("{}: a block is not closed", clipped(path)));
                }
                return all;
            };
            let has_block = matches!(token, Token::Open);
            match token {
                Token::Word(word) => {
                    if words.is_empty() {
                        begun = line;
                    }
                    words.push(word);
                    continue;
                }
                Token::Close => return all,
                Token::End | Token::Open => {}
            }
            let mut given = words.drain(..);
            let name = given.next().unwrap_or_default();
            let arguments: Vec<String> = given.collect();
            let Some(left) = self.directives_left.checked_sub(1) else {
                self.reading.missing(format!("{}: too many directives", clipped(path)));
                tokens.at = tokens.text.len();
                return all;
            };
            self.directives_left = left;
            if name == "include" && !has_block {
                for pattern in &arguments {
                    let pattern = join(&self.folder, pattern);
                    for file in self.reading.included(&pattern, depth, false) {
                        all.extend(self.file(&file, depth + 1));
                    }
                }
                continue;
            }
            let inside = if !has_block {
                Vec::new()
            } else if name.ends_with("_by_lua_block") {
                tokens.pass_code();
                Vec::new()
            } else if blocks >= BLOCKS_MAX {
                self.reading.missing(format!("{}: blocks are nested too deeply", clipped(path)));
                tokens.at = tokens.text.len();
                return all;
            } else {
                self.block(path, tokens, depth, blocks + 1, has_lines)
            };
            let at = if has_lines {
                place(path, begun)
            } else {
                ConfigPosition { file: clipped(path), line: None }
            };
            all.push(Directive { name, arguments, at, inside });
        }
    }
}
