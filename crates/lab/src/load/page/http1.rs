//! HTTP/1.1 on one connection: requests in turn, or several before the first response.
//!
//! [`Decoder`] undoes the compression of content, piece by piece, for both versions of HTTP.

use std::collections::VecDeque;
use std::io::Write as _;

use flate2::write::GzDecoder;
use tcptoll_core::http::response::{Limits, Progress, ResponseReader};
use tcptoll_core::page::loader::Head;
use tcptoll_core::page::resource::{ConnectionId, RequestId};
use tcptoll_core::page::rules;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{Event, Shared, Stream, Wanted};

/// Bytes that are read at a time.
const READ: usize = 64 << 10;

/// Fields of a head that are looked at.
const FIELDS: usize = 256;

/// How responses are read.
const LIMITS: Limits =
    Limits { head_bytes: 300 << 10, fields: 5_000, body_bytes: rules::PAGE_BYTES };

/// The response that is being read.
#[derive(Default)]
struct Response {
    reader: ResponseReader,
    /// Bytes until the head is whole.
    head: Vec<u8>,
    decoder: Decoder,
    begun: bool,
}

/// What comes of bytes.
enum Read {
    More,
    /// The response has ended: bytes of it in the input, and whether the connection persists.
    Done(usize, bool),
    Failed(&'static str, String),
}

/// Speaks until the connection ends, or this is dropped.
pub(super) async fn run(
    connection: ConnectionId,
    mut stream: Box<dyn Stream>,
    shared: &Shared,
    mut orders: UnboundedReceiver<Wanted>,
) {
    let mut waiting: VecDeque<RequestId> = VecDeque::new();
    let mut response = Response::fresh();
    let mut input = vec![0; READ];
    loop {
        tokio::select! {
            biased;
            wanted = orders.recv() => {
                let Some(wanted) = wanted else { return };
                waiting.push_back(wanted.request);
                if stream.write_all(text(&wanted, shared).as_bytes()).await.is_err()
                    || stream.flush().await.is_err()
                {
                    shared.happened(Event::Closed(connection));
                    return;
                }
                shared.happened(Event::Sent(wanted.request));
            }
            read = stream.read(&mut input) => {
                let length = match read {
                    Ok(length) if length > 0 => length,
                    // Also a TLS stream that ends without its notice: what came counts.
                    ended => {
                        end(connection, &mut response, waiting.front().copied(), ended.err(), shared);
                        return;
                    }
                };
                let mut rest = &input[..length];
                while !rest.is_empty() {
                    let Some(&request) = waiting.front() else {
                        // Bytes that no request asked for.
                        shared.happened(Event::Closed(connection));
                        return;
                    };
                    match response.take(request, rest, shared) {
                        Read::More => break,
                        Read::Done(taken, persists) => {
                            waiting.pop_front();
                            shared.happened(Event::Ended(request));
                            if !persists {
                                return;
                            }
                            rest = &rest[taken..];
                            response = Response::fresh();
                        }
                        Read::Failed(class, words) => {
                            shared.happened(Event::Failed(request, class, words));
                            shared.happened(Event::Closed(connection));
                            return;
                        }
                    }
                }
            }
        }
    }
}

/// The peer has closed.
fn end(
    connection: ConnectionId,
    response: &mut Response,
    request: Option<RequestId>,
    error: Option<std::io::Error>,
    shared: &Shared,
) {
    if let Some(request) = request
        && response.begun
    {
        let reset = error.filter(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
        match (response.reader.end(), reset) {
            (_, Some(error)) => {
                shared.happened(Event::Failed(request, "reset", error.to_string()));
            }
            (Ok(()), None) => match response.decoder.end() {
                Ok(()) => shared.happened(Event::Ended(request)),
                Err(error) => {
                    let (class, words) = undecoded(&error);
                    shared.happened(Event::Failed(request, class, words));
                }
            },
            (Err(fault), None) => {
                shared.happened(Event::Failed(request, fault.class(), fault.to_string()));
            }
        }
    }
    shared.happened(Event::Closed(connection));
}

fn text(wanted: &Wanted, shared: &Shared) -> String {
    let encodings = if shared.order.compress { OFFERED } else { "identity" };
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: keep-alive\r\nUser-Agent: {AGENT}\r\n\
         Accept: */*\r\nAccept-Encoding: {encodings}\r\n\r\n",
        wanted.path, wanted.host
    )
}

/// As servers' logs will have it.
pub(super) const AGENT: &str = concat!("tcptoll/", env!("CARGO_PKG_VERSION"));

impl Response {
    fn fresh() -> Self {
        let mut response = Self::default();
        response.reader.begin(false);
        response
    }

    fn take(&mut self, request: RequestId, input: &[u8], shared: &Shared) -> Read {
        if !std::mem::replace(&mut self.begun, true) {
            shared.happened(Event::First(request));
        }
        let failed = |error: &std::io::Error| {
            let (class, words) = undecoded(error);
            Read::Failed(class, words)
        };
        let had_head = self.reader.head().is_some();
        if !had_head {
            self.head.extend_from_slice(input);
        }
        let mut content = Vec::new();
        let progress =
            self.reader.feed(input, &LIMITS, &mut |piece| content.extend_from_slice(piece));
        if let (false, Some(head)) = (had_head, self.reader.head()) {
            let fields = Fields::parse(&std::mem::take(&mut self.head));
            let Some(decoder) = Decoder::named(&fields.encoding) else {
                let words = format!("unknown content encoding {}", fields.encoding);
                return Read::Failed("malformed", words);
            };
            self.decoder = decoder;
            let head = Head {
                status: head.status,
                location: fields.location,
                content_type: fields.content_type,
                keeps: head.persists,
            };
            shared.happened(Event::Head(request, head));
        }
        if !content.is_empty() {
            match self.decoder.decode(&content) {
                Ok(decoded) => {
                    shared.happened(Event::Body(request, decoded, content.len() as u64));
                }
                Err(error) => return failed(&error),
            }
        }
        match progress {
            Ok(Progress::More) => Read::More,
            Ok(Progress::Done { taken }) => match self.decoder.end() {
                Ok(()) => Read::Done(taken, self.reader.head().is_some_and(|head| head.persists)),
                Err(error) => failed(&error),
            },
            Err(fault) => Read::Failed(fault.class(), fault.to_string()),
        }
    }
}

/// Fields of a head that matter to a page.
#[derive(Debug, Default)]
struct Fields {
    location: Option<String>,
    content_type: Option<String>,
    encoding: String,
}

impl Fields {
    /// Of bytes that begin with heads, interim ones too; the reader has found them well formed.
    fn parse(mut bytes: &[u8]) -> Self {
        let mut fields = Self::default();
        loop {
            let mut room = [httparse::EMPTY_HEADER; FIELDS];
            let mut head = httparse::Response::new(&mut room);
            let Ok(httparse::Status::Complete(length)) = head.parse(bytes) else { return fields };
            if head.code.is_some_and(|code| code < 200) {
                bytes = &bytes[length..];
                continue;
            }
            for field in head.headers.iter() {
                let value = || String::from_utf8_lossy(field.value).into_owned();
                match field.name.to_ascii_lowercase().as_str() {
                    "location" => fields.location = Some(value()),
                    "content-type" => fields.content_type = Some(value()),
                    "content-encoding" => fields.encoding = value(),
                    _ => {}
                }
            }
            return fields;
        }
    }
}

/// Decoded content of one piece at most, bytes: a piece of 16 KiB becomes at most a thousand times
/// as long.
const PIECE_MAX: usize = 32 << 20;

/// What a request offers.
pub(super) const OFFERED: &str = "gzip";

/// Class and words of an error of [`Decoder`].
pub(super) fn undecoded(error: &std::io::Error) -> (&'static str, String) {
    ("malformed", format!("content: {error}"))
}

/// How content is encoded.
#[derive(Debug, Default)]
pub(super) enum Decoder {
    /// Not.
    #[default]
    Identity,
    /// `gzip`; whether any of it has come.
    Gzip(Box<GzDecoder<Bounded>>, bool),
}

/// Takes what is decoded, up to a limit.
#[derive(Debug, Default)]
pub(super) struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > PIECE_MAX {
            return Err(std::io::Error::other("the decoded content is larger than the limit"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Decoder {
    /// By the name in `Content-Encoding`. None: unknown.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => {
                Some(Self::Gzip(Box::new(GzDecoder::new(Bounded::default())), false))
            }
            _ => None,
        }
    }

    /// Decodes a piece.
    ///
    /// Errors: it is not of that encoding, or too long.
    pub(super) fn decode(&mut self, piece: &[u8]) -> std::io::Result<Vec<u8>> {
        let Self::Gzip(decoder, begun) = self else { return Ok(piece.to_vec()) };
        *begun |= !piece.is_empty();
        decoder.write_all(piece)?;
        decoder.flush()?;
        Ok(std::mem::take(&mut decoder.get_mut().0))
    }

    /// The content has ended.
    ///
    /// Errors: it is cut short, or its checksum is another one. Without content there is none.
    pub(super) fn end(&mut self) -> std::io::Result<()> {
        match self {
            Self::Gzip(decoder, true) => decoder.try_finish(),
            Self::Gzip(_, false) | Self::Identity => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn pieces_of_any_size_give_the_content() {
        let content: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        for size in [1, 7, 4_096] {
            let mut decoder = Decoder::named("gzip").unwrap();
            let mut all = Vec::new();
            for piece in gzip(&content).chunks(size) {
                all.extend(decoder.decode(piece).unwrap());
            }
            assert!(all == content, "{size}");
        }
    }

    #[test]
    fn a_bomb_is_refused_within_the_limit() {
        let bomb = gzip(&vec![0; PIECE_MAX + 1]);
        assert!(Decoder::named("gzip").unwrap().decode(&bomb).is_err());
    }

    #[test]
    fn content_that_is_cut_short_or_altered_is_an_error_at_its_end() {
        let whole = gzip(b"content of a page");
        let end_of = |bytes: &[u8]| {
            let mut decoder = Decoder::named("gzip").unwrap();
            decoder.decode(bytes).and_then(|_| decoder.end())
        };
        assert!(end_of(&whole).is_ok() && end_of(b"").is_ok());
        for length in 1..whole.len() {
            assert!(end_of(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
        }
        let mut altered = whole.clone();
        altered[whole.len() - 6] ^= 1;
        assert!(end_of(&altered).is_err());
    }

    #[test]
    fn other_encodings_are_unknown() {
        assert!(Decoder::named("br").is_none());
    }
}
