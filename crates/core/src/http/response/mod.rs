//! When does a response end, and was it one? RFC 9112 decides.
//!
//! Bytes go in as they arrive, in pieces of any size; how they were cut makes no difference to what
//! comes of them. Heads are parsed by `httparse` and judged in `head`, chunks and their
//! extensions in `chunked`; what holds them together is here. Content is handed on as it came: no
//! coding but chunked is undone.

mod chunked;
mod head;

use chunked::Chunk;
use head::Framing;

/// What is read at most before a response is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all heads of one response, interim ones and trailers too.
    pub head_bytes: u32,
    /// Fields of all heads of one response.
    pub fields: u32,
    /// Bytes of content.
    pub body_bytes: u64,
}

impl Default for Limits {
    /// Heads as curl has them; 64 MiB of content.
    fn default() -> Self {
        Self { head_bytes: 300 << 10, fields: 5_000, body_bytes: 64 << 20 }
    }
}

/// Why a response is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The peer closed before the end.
    #[error("the connection closed before the response was complete")]
    Truncated,
    /// Not what RFC 9112 allows; which rule.
    #[error("{0}")]
    Malformed(&'static str),
    /// Longer or more heads than the limit.
    #[error("the head is longer than the limit")]
    HeadLimit,
    /// More content than the limit.
    #[error("the content is longer than the limit")]
    BodyLimit,
}

impl Fault {
    /// The class it is counted in.
    pub fn class(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Malformed(_) => "malformed",
            Self::HeadLimit => "header-limit",
            Self::BodyLimit => "body-limit",
        }
    }
}

/// What the final head said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code, 200 to 999.
    pub status: u16,
    /// 0 or 1: HTTP/1.0 or HTTP/1.1.
    pub minor: u8,
    /// `Connection: close` was there.
    pub close: bool,
    /// The connection may carry another request after this response (RFC 9112, section 9.3).
    pub persists: bool,
}

/// How far the response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes were taken, and more must come.
    More,
    /// The response has ended; `taken` bytes of the input were its own. What is left over belongs
    /// to no request.
    Done {
        /// Bytes of the input that were taken.
        taken: usize,
    },
}

/// Reads one response after another.
///
/// Cost: about 0.2 µs for a small response that comes in one piece, and no allocation. Between
/// responses nothing is held on the heap; within one, a head that has come in part is.
#[derive(Debug, Default)]
pub struct ResponseReader {
    /// A head or a trailer section that is not whole yet.
    partial: Vec<u8>,
    /// Bytes that still come: of all content where its length is known, of this chunk otherwise.
    left: u64,
    /// Bytes of content that came, or were announced by chunks.
    body: u64,
    /// Bytes of whole heads, trailers and chunk extensions.
    head_bytes: u32,
    /// Fields of whole heads.
    fields: u32,
    head: Option<Head>,
    at: At,
    to_head: bool,
}

/// Which part of the response comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Head,
    Length,
    Close,
    Chunk(Chunk),
    Trailers,
    Done,
    Failed,
}

impl ResponseReader {
    /// Begins a response; `to_head`: it answers a HEAD request, and so has no content.
    #[inline]
    pub fn begin(&mut self, to_head: bool) {
        *self = Self { to_head, ..Self::default() };
    }

    /// Takes bytes as they arrived. `content` is called with each piece of content, chunk framing
    /// taken off. Must not be called again after `Done` or a fault before [`ResponseReader::begin`].
    ///
    /// Content up to a fault or a limit has been handed on before the fault is told.
    #[inline]
    pub fn feed(
        &mut self,
        input: &[u8],
        limits: &Limits,
        content: &mut dyn FnMut(&[u8]),
    ) -> Result<Progress, Fault> {
        let result = self.advance(input, limits, content);
        if result.is_err() {
            self.fail();
        }
        result
    }

    /// The peer has closed: `Ok` if that is how this response ends (RFC 9112, section 6.3, rule 8).
    #[inline]
    pub fn end(&mut self) -> Result<(), Fault> {
        let at = self.at;
        if matches!(at, At::Close | At::Done) {
            self.at = At::Done;
            return Ok(());
        }
        // A long line that had no end yet may not have been looked at.
        let looked = match at {
            At::Head => head::parse(&self.partial, u32::MAX, self.to_head).map(|_| ()),
            At::Trailers => head::parse_trailers(&self.partial, u32::MAX).map(|_| ()),
            _ => Ok(()),
        };
        self.fail();
        looked.and(Err(Fault::Truncated))
    }

    /// Whether any byte of the response has come.
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.at != At::Head || self.head_bytes > 0 || !self.partial.is_empty()
    }

    /// The final head, once it is whole.
    #[inline]
    pub fn head(&self) -> Option<Head> {
        self.head
    }

    #[inline]
    fn fail(&mut self) {
        self.at = At::Failed;
        self.partial = Vec::new();
    }

    #[inline]
    fn advance(
        &mut self,
        input: &[u8],
        limits: &Limits,
        content: &mut dyn FnMut(&[u8]),
    ) -> Result<Progress, Fault> {
        let mut rest = input;
        loop {
            if self.at == At::Done {
                return Ok(Progress::Done { taken: input.len() - rest.len() });
            }
            if rest.is_empty() {
                return Ok(Progress::More);
            }
            rest = match self.at {
                At::Head => self.take_head(rest, limits)?,
                At::Length => {
                    let rest = self.take_content(rest, content);
                    if self.left == 0 {
                        self.at = At::Done;
                    }
                    rest
                }
                At::Close => {
                    self.left = limits.body_bytes.saturating_sub(self.body);
                    let before = self.left;
                    let rest = self.take_content(rest, content);
                    self.body += before - self.left;
                    if !rest.is_empty() {
                        return Err(Fault::BodyLimit);
                    }
                    rest
                }
                At::Chunk(chunk) => self.take_chunk(chunk, rest, limits, content)?,
                At::Trailers => self.take_trailers(rest, limits)?,
                At::Done | At::Failed => {
                    return Err(Fault::Malformed("bytes came after the response had failed"));
                }
            };
        }
    }

    /// Hands on as many of the bytes as are still to come; returns the others.
    #[inline]
    fn take_content<'a>(&mut self, input: &'a [u8], content: &mut dyn FnMut(&[u8])) -> &'a [u8] {
        let many = usize::try_from(self.left).map_or(input.len(), |left| left.min(input.len()));
        let (own, rest) = input.split_at(many);
        if !own.is_empty() {
            content(own);
        }
        self.left -= many as u64;
        rest
    }

    #[inline]
    fn take_head<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<&'a [u8], Fault> {
        let to_head = self.to_head;
        let parse = |bytes: &[u8], fields| head::parse(bytes, fields, to_head);
        let Some((whole, rest)) = self.section(input, limits, parse)? else { return Ok(&[]) };
        self.fields += whole.fields;
        self.at = match whole.framing {
            Framing::Interim => return Ok(rest),
            Framing::Nothing | Framing::Length(0) => At::Done,
            Framing::Length(bytes) if bytes > limits.body_bytes => return Err(Fault::BodyLimit),
            Framing::Length(bytes) => {
                self.left = bytes;
                At::Length
            }
            Framing::Chunked => At::Chunk(Chunk::FIRST),
            Framing::Close => At::Close,
        };
        self.head = Some(whole.head);
        Ok(rest)
    }

    #[inline]
    fn take_trailers<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<&'a [u8], Fault> {
        let Some((fields, rest)) = self.section(input, limits, head::parse_trailers)? else {
            return Ok(&[]);
        };
        self.fields += fields;
        self.at = At::Done;
        Ok(rest)
    }

    /// Parses a head or a trailer section; `None`: it is not whole, all bytes were kept.
    #[inline]
    fn section<'a, T>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
        parse: impl Fn(&[u8], u32) -> Result<Option<(usize, T)>, Fault>,
    ) -> Result<Option<(T, &'a [u8])>, Fault> {
        let fields = limits.fields.saturating_sub(self.fields);
        let room = limits.head_bytes.saturating_sub(self.head_bytes) as usize;
        let before = self.partial.len();
        let new = &input[..input.len().min(room.saturating_sub(before))];
        let total = before + new.len();
        let parsed = if before == 0 {
            parse(new, fields)?
        } else {
            self.partial.extend_from_slice(new);
            if is_worth_parsing(before, new) || total >= room {
                parse(&self.partial, fields)?
            } else {
                None
            }
        };
        match parsed {
            Some((bytes, value)) => {
                self.head_bytes += bytes as u32;
                self.partial = Vec::new();
                // The end is that of a line, and each piece with one is parsed: it is in this one.
                Ok(Some((value, &input[bytes - before..])))
            }
            None if total >= room => Err(Fault::HeadLimit),
            None => {
                if before == 0 {
                    self.partial = new.to_vec();
                }
                Ok(None)
            }
        }
    }
}

/// Whether a head of which `new` has come after `before` bytes is parsed once more from its
/// beginning.
///
/// A peer that sends a long line byte by byte would cost the square of its length if it always
/// were. Without a line's end nothing can be whole, and a fault in the line may be told later.
#[inline]
fn is_worth_parsing(before: usize, new: &[u8]) -> bool {
    const SHORT: usize = 1024;
    let total = before + new.len();
    total <= SHORT || before.max(1).ilog2() != total.ilog2() || new.contains(&b'\n')
}

#[cfg(test)]
mod tests;
