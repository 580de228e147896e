//! What a head says of itself and of the content after it.

use std::mem::MaybeUninit;

use httparse::{EMPTY_HEADER, Error, Header, ParserConfig, Response, Status};

use super::{Fault, Head};

/// Fields for which there is room on the stack, 2 KiB: more than common servers send.
const FIELDS_ON_STACK: usize = 64;

/// Bytes of the shortest field line: `a:` and LF.
const FIELD_MIN: usize = 3;

/// A whole head.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) head: Head,
    pub(super) framing: Framing,
    pub(super) fields: u32,
}

/// How the end of the content is found (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// The head is not the final one.
    Interim,
    Nothing,
    Length(u64),
    Chunked,
    Close,
}

/// Parses a head from its first byte, and its length; `None`: it is not whole yet.
///
/// Errors: against RFC 9112; [`Fault::HeadLimit`] with more than `fields` fields.
#[inline]
pub(super) fn parse(
    bytes: &[u8],
    fields: u32,
    to_head: bool,
) -> Result<Option<(usize, Whole)>, Fault> {
    // httparse skips empty lines before the status line; section 2.2 has them before requests only.
    // The type of a record (an alert, a handshake) and TLS's major version (RFC 8446, section 5.1).
    if matches!(bytes, [0x15 | 0x16, 3, ..]) {
        return Err(Fault::Malformed("a TLS record came instead of a status line"));
    }
    if bytes.first().is_some_and(|&first| first != b'H') {
        return Err(Fault::Malformed(
            "the status line does not begin with HTTP/ (RFC 9112, section 4)",
        ));
    }
    let room = room(bytes, fields);
    let mut few = [const { MaybeUninit::uninit() }; FIELDS_ON_STACK];
    match parse_into(bytes, &mut few[..room.min(FIELDS_ON_STACK)], to_head) {
        Err(Error::TooManyHeaders) if room > FIELDS_ON_STACK => {
            let mut many = Vec::with_capacity(room);
            parse_into(bytes, many.spare_capacity_mut(), to_head).map_err(fault)?
        }
        result => result.map_err(fault)?,
    }
}

/// Parses a trailer section and its number of fields, the empty line at its end with it.
///
/// Its field lines follow the rules of those in a head: a lone LF may end a line (section 2.2), a
/// line may be folded (section 5.2).
#[inline]
pub(super) fn parse_trailers(bytes: &[u8], fields: u32) -> Result<Option<(usize, u32)>, Fault> {
    // httparse allows folded lines in responses only; trailers that are not empty are rare enough
    // for a copy behind a status line.
    const STATUS_LINE: &[u8] = b"HTTP/1.1 200\n";
    for empty in [&b"\r\n"[..], b"\n"] {
        if bytes.starts_with(empty) {
            return Ok(Some((empty.len(), 0)));
        }
    }
    let response = [STATUS_LINE, bytes].concat();
    let mut headers = vec![EMPTY_HEADER; room(bytes, fields)];
    let mut parsed = Response::new(&mut headers);
    let status = config().parse_response(&mut parsed, &response).map_err(fault)?;
    Ok(match status {
        Status::Complete(length) => Some((length - STATUS_LINE.len(), parsed.headers.len() as u32)),
        Status::Partial => None,
    })
}

/// Folded lines are read as one: httparse leaves the line ends and blanks in the value, and
/// whoever reads a value takes them for blanks (RFC 9112, section 5.2).
#[inline]
fn config() -> ParserConfig {
    let mut config = ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true);
    config
}

/// How many fields are allowed and possible.
#[inline]
fn room(bytes: &[u8], fields: u32) -> usize {
    (fields as usize).min(bytes.len() / FIELD_MIN + 1)
}

/// Errors: outside, of httparse, which may be met with more room; inside, what counts.
type Parsed = Result<Result<Option<(usize, Whole)>, Fault>, Error>;

#[inline]
fn parse_into<'b>(
    bytes: &'b [u8],
    fields: &mut [MaybeUninit<Header<'b>>],
    to_head: bool,
) -> Parsed {
    let mut response = Response::new(&mut []);
    match config().parse_response_with_uninit_headers(&mut response, bytes, fields)? {
        Status::Partial => Ok(Ok(None)),
        Status::Complete(length) => {
            Ok(judge(&response, to_head).map(|whole| Some((length, whole))))
        }
    }
}

#[inline]
fn fault(error: Error) -> Fault {
    Fault::Malformed(match error {
        Error::TooManyHeaders => return Fault::HeadLimit,
        Error::Version => "the version is not HTTP/1.0 or HTTP/1.1 (RFC 9112, section 2.3)",
        Error::Status | Error::Token => {
            "the status line lacks three digits, or has a control character (RFC 9112, section 4)"
        }
        Error::HeaderName => {
            "a field line has no name, or a blank before its name or colon (RFC 9112, section 5)"
        }
        Error::HeaderValue => "a field value has a control character (RFC 9110, section 5.5)",
        Error::NewLine => "a CR is not followed by LF (RFC 9112, section 2.2)",
    })
}

/// What the fields that matter here say.
#[derive(Default)]
struct Fields {
    close: bool,
    keep_alive: bool,
    /// Codings named by `Transfer-Encoding`; absent: there is no such field.
    codings: Option<Codings>,
    length: Length,
}

#[derive(Clone, Copy, Default)]
enum Length {
    #[default]
    Absent,
    Known(u64),
    Wrong(&'static str),
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Codings {
    #[default]
    None,
    /// None of them is chunked.
    Other,
    /// Chunked is the last.
    Chunked,
    /// Chunked is there, and not the last.
    OverChunked,
    Wrong(&'static str),
}

#[inline]
fn judge(response: &Response<'_, '_>, to_head: bool) -> Result<Whole, Fault> {
    let (status, minor) = (response.code.unwrap_or_default(), response.version.unwrap_or_default());
    let mut fields = Fields::default();
    for Header { name, value } in response.headers.iter() {
        // Most names differ in length already.
        match name.len() {
            10 if name.eq_ignore_ascii_case("connection") => fields.connection(value),
            14 if name.eq_ignore_ascii_case("content-length") => fields.length.add(value),
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                fields.codings.get_or_insert_default().add(value);
            }
            _ => {}
        }
    }
    let framing = match status {
        0..100 => {
            return Err(Fault::Malformed("the status code is below 100 (RFC 9110, section 15)"));
        }
        101 => {
            return Err(Fault::Malformed("101 came without an Upgrade (RFC 9110, section 15.2.2)"));
        }
        100..200 => Framing::Interim,
        204 | 304 => Framing::Nothing,
        _ if to_head => Framing::Nothing,
        _ => fields.framing(minor)?,
    };
    // RFC 9112, section 9.3.
    let wants = !fields.close && (minor == 1 || fields.keep_alive);
    let persists = wants && framing != Framing::Close;
    let head = Head { status, minor, close: fields.close, persists };
    Ok(Whole { head, framing, fields: response.headers.len() as u32 })
}

impl Fields {
    #[inline]
    fn connection(&mut self, value: &[u8]) {
        for option in elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Rules 3 to 5 and 8 of RFC 9112, section 6.3; the others do not get here. Where chunked is not
    /// the last coding the content ends where the peer closes (rule 4).
    #[inline]
    fn framing(&self, minor: u8) -> Result<Framing, Fault> {
        let wrong = |rule| Err(Fault::Malformed(rule));
        match (self.codings, self.length) {
            (Some(_), _) if minor == 0 => {
                wrong("Transfer-Encoding in an HTTP/1.0 response (RFC 9112, section 6.1)")
            }
            (Some(_), Length::Known(_) | Length::Wrong(_)) => {
                wrong("both Transfer-Encoding and Content-Length (RFC 9112, section 6.3, rule 3)")
            }
            (Some(Codings::None), _) => {
                wrong("Transfer-Encoding names no coding (RFC 9112, section 6.1)")
            }
            (Some(Codings::Wrong(rule)), _) | (None, Length::Wrong(rule)) => wrong(rule),
            (Some(Codings::Chunked), _) => Ok(Framing::Chunked),
            (None, Length::Known(bytes)) => Ok(Framing::Length(bytes)),
            (Some(Codings::Other | Codings::OverChunked), _) | (None, Length::Absent) => {
                Ok(Framing::Close)
            }
        }
    }
}

impl Length {
    /// Takes one more field: a number, or a list of the same number (section 6.3, rule 5).
    #[inline]
    fn add(&mut self, value: &[u8]) {
        let mut any = false;
        for text in elements(value) {
            any = true;
            *self = match (*self, number(text)) {
                (Self::Wrong(rule), _) | (_, Err(rule)) => Self::Wrong(rule),
                (Self::Known(before), Ok(now)) if before != now => {
                    Self::Wrong("lengths differ (RFC 9112, section 6.3, rule 5)")
                }
                (_, Ok(now)) => Self::Known(now),
            };
        }
        if !any {
            *self = Self::Wrong("Content-Length is empty (RFC 9110, section 8.6)");
        }
    }
}

#[inline]
fn number(digits: &[u8]) -> Result<u64, &'static str> {
    let mut number = 0_u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err("Content-Length is not all digits (RFC 9110, section 8.6)");
        }
        number = number
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(digit - b'0')))
            .ok_or("Content-Length is above 2^64 - 1 (RFC 9110, section 8.6)")?;
    }
    Ok(number)
}

impl Codings {
    /// Takes one more field: a list of codings, in the order in which they were applied.
    #[inline]
    fn add(&mut self, value: &[u8]) {
        for coding in elements(value) {
            let (name, parameters) = match coding.iter().position(|&byte| byte == b';') {
                Some(at) => (coding[..at].trim_ascii_end(), true),
                None => (coding, false),
            };
            let chunked = name.eq_ignore_ascii_case(b"chunked");
            *self = match *self {
                Self::Wrong(rule) => Self::Wrong(rule),
                _ if !is_token(name) => {
                    Self::Wrong("Transfer-Encoding is not a list (RFC 9112, section 6.1)")
                }
                _ if chunked && parameters => {
                    Self::Wrong("chunked has parameters (RFC 9112, section 7.1)")
                }
                Self::Chunked | Self::OverChunked if chunked => {
                    Self::Wrong("chunked appears twice (RFC 9112, section 6.1)")
                }
                Self::Chunked | Self::OverChunked => Self::OverChunked,
                Self::None | Self::Other if chunked => Self::Chunked,
                Self::None | Self::Other => Self::Other,
            };
        }
    }
}

#[inline]
fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_token_byte(*byte))
}

/// Whether a token may have this byte (RFC 9110, section 5.6.2).
#[inline]
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Elements of a list without the blanks and folds around them; empty ones do not count (RFC 9110,
/// section 5.6.1.2).
#[inline]
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}
