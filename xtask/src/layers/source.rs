//! Source text in, the paths it names out: enough of Rust's grammar for that, and no more.
//!
//! Comments and the contents of texts are left out, groups in `use` are multiplied out, and each
//! path knows its line and the `mod name { ... }` it stands in. Macros are read as ordinary code.

/// A path that the source names: `crate::lab::Link` is three words, a lone word is one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Its words, from left to right; `*` is one.
    pub(super) path: Vec<String>,
    /// Line of its first word, from 1.
    pub(super) line: usize,
    /// Modules written out in this file around it, from the outermost.
    pub(super) inline_modules: Vec<String>,
}

/// One file, read.
#[derive(Debug)]
pub(super) struct Source {
    names: Vec<Name>,
}

impl Source {
    /// Reads a file's text.
    pub(super) fn of(text: &str) -> Self {
        let tokens = tokens(&without_comments_and_texts(text));
        let mut reader = Reader { tokens: &tokens, at: 0, names: Vec::new(), modules: Vec::new() };
        reader.file();
        Self { names: reader.names }
    }

    /// Every path, in the order of the text.
    pub(super) fn names(&self) -> &[Name] {
        &self.names
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `::`
    Path,
    Open,
    Close,
    Comma,
    Star,
    Other,
}

/// Tokens with their lines.
fn tokens(code: &str) -> Vec<(Token, usize)> {
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut characters = line.chars().peekable();
        while let Some(first) = characters.next() {
            let token = match first {
                _ if first.is_whitespace() => continue,
                _ if first == '_' || first.is_alphanumeric() => {
                    let mut word = String::from(first);
                    while let Some(next) =
                        characters.next_if(|next| *next == '_' || next.is_alphanumeric())
                    {
                        word.push(next);
                    }
                    // `r#lab` is the name `lab`.
                    if word == "r" && characters.next_if_eq(&'#').is_some() {
                        continue;
                    }
                    Token::Word(word)
                }
                ':' if characters.next_if_eq(&':').is_some() => Token::Path,
                '{' => Token::Open,
                '}' => Token::Close,
                ',' => Token::Comma,
                '*' => Token::Star,
                _ => Token::Other,
            };
            tokens.push((token, index + 1));
        }
    }
    tokens
}

struct Reader<'a> {
    tokens: &'a [(Token, usize)],
    at: usize,
    names: Vec<Name>,
    /// Open inline modules, each with the depth of braces outside it.
    modules: Vec<(String, usize)>,
}

impl Reader<'_> {
    fn file(&mut self) {
        let mut depth = 0_usize;
        while let Some((token, _)) = self.tokens.get(self.at) {
            match token {
                Token::Open => depth += 1,
                Token::Close => {
                    depth = depth.saturating_sub(1);
                    self.modules.pop_if(|(_, outside)| *outside == depth);
                }
                Token::Word(word) if word == "mod" => {
                    if let (Some((Token::Word(name), _)), Some((Token::Open, _))) =
                        (self.tokens.get(self.at + 1), self.tokens.get(self.at + 2))
                    {
                        self.modules.push((name.clone(), depth));
                    }
                }
                Token::Word(_) => {
                    self.path(&[]);
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// One path from a word on, or, after `::{`, each branch of the group with `stem` before it.
    fn path(&mut self, stem: &[String]) {
        let mut path = stem.to_vec();
        let line = self.tokens.get(self.at).map_or(0, |(_, line)| *line);
        loop {
            match self.tokens.get(self.at) {
                Some((Token::Word(word), _)) => path.push(word.clone()),
                Some((Token::Star, _)) if !path.is_empty() => path.push("*".to_owned()),
                Some((Token::Open, _)) if !path.is_empty() => return self.group(&path),
                // `Vec::<u8>`: what follows is a path of its own.
                _ => break,
            }
            self.at += 1;
            if !matches!(self.tokens.get(self.at), Some((Token::Path, _))) {
                break;
            }
            self.at += 1;
        }
        let inline_modules = self.modules.iter().map(|(name, _)| name.clone()).collect();
        self.names.push(Name { path, line, inline_modules });
    }

    fn group(&mut self, stem: &[String]) {
        self.at += 1;
        while let Some((token, _)) = self.tokens.get(self.at) {
            match token {
                Token::Close => {
                    self.at += 1;
                    return;
                }
                // The new name after `as` becomes a path too; no rule knows such a name.
                Token::Word(_) | Token::Star => self.path(stem),
                _ => self.at += 1,
            }
        }
    }
}

/// The code with everything that is not code blanked; lines stay where they are.
fn without_comments_and_texts(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let rest = &characters[at..];
        let length = blank_length(rest, at.checked_sub(1).map(|before| characters[before]));
        if length == 0 {
            code.push(rest[0]);
            at += 1;
        } else {
            let blanked = rest.iter().take(length);
            code.extend(blanked.map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at += length;
        }
    }
    code
}

/// How many characters from here on are a comment, a text or a character; 0: this is code.
fn blank_length(rest: &[char], before: Option<char>) -> usize {
    let in_word = before.is_some_and(|c| c == '_' || c.is_alphanumeric());
    match rest {
        ['/', '/', ..] => rest.iter().take_while(|c| **c != '\n').count(),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => text_with_escapes(rest),
        ['r', '"' | '#', ..] if !in_word => raw_text(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !in_word => raw_text(rest, 2),
        // A character, not a lifetime.
        ['\'', '\\', ..] => {
            let tail = rest.iter().skip(3).take_while(|c| **c != '\'').count();
            (4 + tail).min(rest.len())
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn text_with_escapes(rest: &[char]) -> usize {
    let mut at = 1;
    while let Some(c) = rest.get(at) {
        match c {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"..."`, `r#"..."#`; 0 if it is none, as in `r#name`.
fn raw_text(rest: &[char], prefix: usize) -> usize {
    let hashes = rest.iter().skip(prefix).take_while(|c| **c == '#').count();
    let start = prefix + hashes;
    if rest.get(start) != Some(&'"') {
        return 0;
    }
    let closing = |at: &usize| {
        rest[*at] == '"'
            && rest[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    (start + 1..rest.len()).find(closing).map_or(rest.len(), |end| end + 1 + hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        Source::of(text).names().iter().map(|name| name.path.join("::")).collect()
    }

    #[test]
    fn groups_are_multiplied_out() {
        assert_eq!(
            paths("use a::{b, c::{self, d as e}, *};\nx"),
            ["use", "a::b", "a::c::self", "a::c::d", "a::c::as", "a::c::e", "a::*", "x"]
        );
    }

    #[test]
    fn comments_texts_and_characters_are_no_code() {
        let text = r##"// a
            /* b /* c */ d */ e("f \" g", r#"h " i"#, b"j", '"', '\'', 'k') 'l: m"##;
        assert_eq!(paths(text), ["e", "b", "l", "m"]);
    }

    #[test]
    fn a_text_over_two_lines_does_not_shift_the_lines() {
        let source = Source::of("\"a\nb\"\nc");
        assert_eq!(source.names()[0].line, 3);
    }

    #[test]
    fn a_name_knows_the_modules_written_around_it() {
        let source = Source::of("mod tests { mod inner { a } b } c");
        let of = |word: &str| {
            let name = source.names().iter().find(|name| name.path == [word]).unwrap();
            name.inline_modules.join("::")
        };
        assert_eq!(
            (of("a"), of("b"), of("c")),
            ("tests::inner".into(), "tests".into(), String::new())
        );
    }

    #[test]
    fn an_open_end_does_not_hang_or_panic() {
        for text in ["\"", "r#\"", "/*", "'\\", "use a::{", "a::", "mod m {", "r#"] {
            let _ = Source::of(text);
        }
    }
}
