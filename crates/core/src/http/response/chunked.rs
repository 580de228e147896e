//! The chunked coding (RFC 9112, section 7.1): lines that say how long the next piece is. Extensions
//! of a chunk (names, some with a value) are checked and ignored.
//!
//! Trailers are parsed by the parser of heads, behind a fixed status line, because `httparse` allows folded
//! lines in responses only.

use super::head::is_token_byte;
use super::{At, Fault, Limits, ResponseReader};

/// Most digits of a size: they fill 64 bits.
const DIGITS_MAX: u8 = 16;

/// Which byte of a chunk comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// A digit of the size, after so many; or what ends it.
    Size(u8),
    /// A byte of the extensions or of the blanks before one, or the CR after them.
    Extension(Extension),
    /// The LF of the line.
    LineEnd,
    /// Content.
    Data,
    /// The CR after the content.
    DataCr,
    /// The LF after the content.
    DataLf,
}

impl Chunk {
    /// The beginning of a chunk.
    pub(super) const FIRST: Self = Self::Size(0);
}

impl ResponseReader {
    /// Takes content, or bytes around it until there is content; returns the rest.
    #[inline]
    pub(super) fn take_chunk<'a>(
        &mut self,
        chunk: Chunk,
        input: &'a [u8],
        limits: &Limits,
        content: &mut dyn FnMut(&[u8]),
    ) -> Result<&'a [u8], Fault> {
        if chunk == Chunk::Data {
            let rest = self.take_content(input, content);
            if self.left == 0 {
                self.at = At::Chunk(Chunk::DataCr);
            }
            return Ok(rest);
        }
        let (mut chunk, mut rest) = (chunk, input);
        while let [byte, after @ ..] = rest {
            rest = after;
            chunk = match self.step(chunk, *byte, limits)? {
                At::Chunk(next) if next != Chunk::Data => next,
                at => {
                    self.at = at;
                    return Ok(rest);
                }
            };
        }
        self.at = At::Chunk(chunk);
        Ok(rest)
    }

    /// Takes one byte that is no content.
    #[inline]
    fn step(&mut self, chunk: Chunk, byte: u8, limits: &Limits) -> Result<At, Fault> {
        let wrong = |rule| Err(Fault::Malformed(rule));
        Ok(At::Chunk(match (chunk, byte) {
            (Chunk::Size(digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == DIGITS_MAX {
                    return wrong("a chunk size has more than 16 digits (RFC 9112, section 7.1)");
                }
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                self.left = self.left << 4 | u64::from(digit);
                Chunk::Size(digits + 1)
            }
            (Chunk::Size(1..), b'\r') => Chunk::LineEnd,
            (Chunk::Size(1..), b' ' | b'\t' | b';') => {
                self.take_extension(Extension::Blank, byte, limits)?
            }
            (Chunk::Size(_), _) => {
                return wrong(
                    "a chunk size is not hexadecimal, or has no CRLF (RFC 9112, section 7.1)",
                );
            }
            (Chunk::Extension(extension), b'\r') if extension.may_end() => Chunk::LineEnd,
            (Chunk::Extension(extension), _) => self.take_extension(extension, byte, limits)?,
            (Chunk::LineEnd, b'\n') => return self.begin_chunk(limits),
            (Chunk::LineEnd, _) => {
                return wrong(
                    "the CR of a chunk line is not followed by LF (RFC 9112, section 7.1)",
                );
            }
            (Chunk::DataCr, b'\r') => Chunk::DataLf,
            (Chunk::DataLf, b'\n') => Chunk::FIRST,
            (Chunk::DataCr | Chunk::DataLf, _) => {
                return wrong("chunk data is not followed by CRLF (RFC 9112, section 7.1)");
            }
            (Chunk::Data, _) => Chunk::Data, // taken before this is called
        }))
    }

    /// Extensions are no content and could go on for ever: they count as part of the heads.
    #[inline]
    fn take_extension(
        &mut self,
        extension: Extension,
        byte: u8,
        limits: &Limits,
    ) -> Result<Chunk, Fault> {
        if self.head_bytes >= limits.head_bytes {
            return Err(Fault::HeadLimit);
        }
        self.head_bytes += 1;
        extension.step(byte).map(Chunk::Extension).map_err(Fault::Malformed)
    }

    #[inline]
    fn begin_chunk(&mut self, limits: &Limits) -> Result<At, Fault> {
        if self.left == 0 {
            return Ok(At::Trailers);
        }
        if self.left > limits.body_bytes.saturating_sub(self.body) {
            return Err(Fault::BodyLimit);
        }
        self.body += self.left;
        Ok(At::Chunk(Chunk::Data))
    }
}

/// Which byte of the extensions comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extension {
    /// A blank after the size or a value, or the `;` of the next extension.
    Blank,
    /// A blank after `;`, or the first byte of a name.
    Begin,
    /// A byte of a name, or what follows a name.
    Name,
    /// A blank after a name, or the `=` or `;` after it.
    NameBlank,
    /// A blank after `=`, or the first byte of a value.
    Equals,
    /// A byte of a value that is a token, or what follows it.
    Token,
    /// A byte of a value in quotes.
    Quoted,
    /// The byte after a backslash in quotes.
    Escaped,
    /// What follows the closing quote.
    QuotedEnd,
}

impl Extension {
    /// Whether the line may end here.
    #[inline]
    fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::QuotedEnd)
    }

    /// Takes one byte that is not the CR of the line's end.
    ///
    /// Errors: the rule that the byte breaks.
    #[inline]
    fn step(self, byte: u8) -> Result<Self, &'static str> {
        let is_blank = matches!(byte, b' ' | b'\t');
        if byte.is_ascii_control() && !is_blank && byte != b'\r' {
            return Err("a chunk extension has a control character (RFC 9112, section 7.1.1)");
        }
        Ok(match (self, byte) {
            (Self::Begin, _) if is_blank => Self::Begin,
            (Self::Begin | Self::Name, _) if is_token_byte(byte) => Self::Name,
            (Self::Begin, _) => {
                return Err("a chunk extension has no name (RFC 9112, section 7.1.1)");
            }
            (Self::Name | Self::NameBlank, b'=') => Self::Equals,
            (Self::Name | Self::NameBlank, _) if is_blank => Self::NameBlank,
            (Self::Equals, _) if is_blank => Self::Equals,
            (Self::Equals, b'"') => Self::Quoted,
            (Self::Equals | Self::Token, _) if is_token_byte(byte) => Self::Token,
            (Self::Quoted, b'"') => Self::QuotedEnd,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, b'\r') => {
                return Err(
                    "a quoted value of a chunk extension has no end (RFC 9112, section 7.1.1)",
                );
            }
            (Self::Quoted | Self::Escaped, _) => Self::Quoted,
            (Self::Blank | Self::Token | Self::QuotedEnd, _) if is_blank => Self::Blank,
            (Self::Blank | Self::Name | Self::NameBlank | Self::Token | Self::QuotedEnd, b';') => {
                Self::Begin
            }
            (Self::Blank | Self::NameBlank, _) => {
                return Err(
                    "blanks in a chunk line have neither an extension nor a value after them (RFC 9112, section 7.1)",
                );
            }
            (Self::Name | Self::Equals | Self::Token | Self::QuotedEnd, _) => {
                return Err(
                    "a chunk extension is neither NAME nor NAME=VALUE (RFC 9112, section 7.1.1)",
                );
            }
        })
    }
}
