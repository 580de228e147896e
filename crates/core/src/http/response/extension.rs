//! Extensions of a chunk (RFC 9112, section 7.1.1): names, some with a value. They are checked and
//! ignored.

use super::head::is_token_byte;

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
    pub(super) fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::QuotedEnd)
    }

    /// Takes one byte that is not the CR of the line's end.
    ///
    /// Errors: the rule that the byte breaks.
    #[inline]
    pub(super) fn step(self, byte: u8) -> Result<Self, &'static str> {
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
