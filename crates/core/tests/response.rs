//! Does the reader of responses depend on how bytes were cut, and does it read what was written?
//!
//! `PROPTEST_CASES` makes more cases than the 256 of each run.

use proptest::prelude::*;
use proptest::sample::Index;
use tcptoll_core::http::response::{Fault, Head, Limits, Progress, ResponseReader};

/// Small limits, so that inputs of a test reach them.
const LIMITS: Limits = Limits { head_bytes: 600, fields: 12, body_bytes: 2_000 };

/// Everything a caller learns of a response.
#[derive(Debug, PartialEq)]
struct Outcome {
    result: Result<(), Fault>,
    content: Vec<u8>,
    head: Option<Head>,
    /// Bytes that were its own; absent with a fault.
    taken: Option<usize>,
}

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, to_head: bool, limits: &Limits) -> Outcome {
    let mut reader = ResponseReader::default();
    reader.begin(to_head);
    let (mut content, mut taken) = (Vec::new(), 0);
    for piece in pieces {
        match reader.feed(piece, limits, &mut |bytes| content.extend_from_slice(bytes)) {
            Ok(Progress::More) => taken += piece.len(),
            Ok(Progress::Done { taken: last }) => {
                assert!(last <= piece.len());
                let taken = Some(taken + last);
                return Outcome { result: Ok(()), content, head: reader.head(), taken };
            }
            Err(fault) => {
                return Outcome { result: Err(fault), content, head: reader.head(), taken: None };
            }
        }
    }
    let result = reader.end();
    Outcome { result, content, head: reader.head(), taken: result.is_ok().then_some(taken) }
}

/// Cuts bytes at these places.
fn cut<'a>(bytes: &'a [u8], places: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// A response as a server would write it, and what is to be read of it.
#[derive(Clone, Debug)]
struct Written {
    bytes: Vec<u8>,
    content: Vec<u8>,
    status: u16,
    minor: u8,
    persists: bool,
    to_head: bool,
    until_close: bool,
}

#[derive(Clone, Debug)]
enum Framing {
    Length,
    /// Sizes of the chunks, an extension, trailers.
    Chunked(Vec<usize>, String, Vec<(String, String)>),
    Close,
}

fn field() -> impl Strategy<Value = (String, String)> {
    let value = "([!-~]([ -~\t]{0,30}[!-~])?)?(\r?\n[ \t][!-~]{0,9}){0,2}";
    ("X-[a-zA-Z0-9!#$%&'*+.^_`|~-]{0,10}", value)
}

fn framing() -> impl Strategy<Value = Framing> {
    let extension =
        "([ \t]?;[ \t]?[a-z]{1,4}( ?= ?([a-z]{1,4}|\"([;=, !#a-z]|\\\\[\"\\\\;])*\"))?){0,2}";
    let trailers = prop::collection::vec(field(), 0..3);
    prop_oneof![
        Just(Framing::Length),
        (prop::collection::vec(1_usize..400, 0..6), extension, trailers)
            .prop_map(|(sizes, extension, trailers)| Framing::Chunked(sizes, extension, trailers)),
        Just(Framing::Close),
    ]
}

fn head_line(minor: u8, status: u16, reason: &str, fields: &[(String, String)]) -> String {
    let mut text = format!("HTTP/1.{minor} {status} {reason}\r\n");
    for (name, value) in fields {
        text += &format!("{name}: {value} \r\n");
    }
    text
}

prop_compose! {
    fn written()(
        interim in prop::collection::vec((102_u16..200, prop::collection::vec(field(), 0..2)), 0..3),
        minor in 0_u8..=1,
        status in prop_oneof![5 => 200_u16..1000, 1 => Just(204), 1 => Just(304)],
        reason in "[ -~\t]{0,20}",
        fields in prop::collection::vec(field(), 0..6),
        content in prop::collection::vec(any::<u8>(), 0..1000),
        framing in framing(),
        option in prop::sample::select(vec!["", "close", "Keep-Alive", "keep-alive, x, Close"]),
        to_head in prop::bool::weighted(0.1),
        trailer_end in prop::sample::select(vec!["\r\n", "\n"]),
    ) -> Written {
        let mut text: String = interim
            .iter()
            .map(|(status, fields)| head_line(1, *status, "", fields) + "\r\n")
            .collect();
        let minor = if matches!(framing, Framing::Chunked(..)) { 1 } else { minor };
        text += &head_line(minor, status, &reason, &fields);
        if !option.is_empty() {
            text += &format!("Connection: {option}\r\n");
        }
        let has_content = !to_head && status != 204 && status != 304;
        let mut bytes;
        match &framing {
            Framing::Length => {
                bytes = format!("{text}Content-Length: {}\r\n\r\n", content.len()).into_bytes();
                bytes.extend(has_content.then_some(&content).into_iter().flatten());
            }
            Framing::Close => {
                bytes = format!("{text}\r\n").into_bytes();
                bytes.extend(has_content.then_some(&content).into_iter().flatten());
            }
            Framing::Chunked(sizes, extension, trailers) => {
                bytes = format!("{text}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
                let mut rest = content.as_slice();
                let last = [content.len().max(1)];
                for size in sizes.iter().chain(&last) {
                    let (chunk, after) = rest.split_at((*size).min(rest.len()));
                    rest = after;
                    if has_content && !chunk.is_empty() {
                        bytes.extend(format!("{:x}{extension}\r\n", chunk.len()).bytes());
                        bytes.extend(chunk);
                        bytes.extend(b"\r\n");
                    }
                }
                if has_content {
                    bytes.extend(format!("0{extension}\r\n").bytes());
                    for (name, value) in trailers {
                        bytes.extend(format!("{name}:{value}{trailer_end}").bytes());
                    }
                    bytes.extend(trailer_end.bytes());
                }
            }
        }
        let until_close = has_content && matches!(framing, Framing::Close);
        let wants = match option {
            "" => minor == 1,
            "Keep-Alive" => true,
            _ => false,
        };
        Written {
            bytes,
            content: if has_content { content } else { Vec::new() },
            status,
            minor,
            persists: wants && !until_close,
            to_head,
            until_close,
        }
    }
}

/// A change of one byte.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Insert(Index, u8),
    Delete(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b"\r\n\0 :,;0a\t".to_vec())];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, mask)| Change::Flip(at, mask)),
        (any::<Index>(), byte).prop_map(|(at, byte)| Change::Insert(at, byte)),
        any::<Index>().prop_map(Change::Delete),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        match change {
            Change::Insert(at, byte) => bytes.insert(at.index(bytes.len() + 1), *byte),
            Change::Flip(..) | Change::Delete(_) if bytes.is_empty() => {}
            Change::Flip(at, mask) => {
                let at = at.index(bytes.len());
                bytes[at] ^= mask;
            }
            Change::Delete(at) => {
                bytes.remove(at.index(bytes.len()));
            }
        }
    }
    bytes
}

/// Bytes that look like parts of a response, in any order.
fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: 5,5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\n",
        " , chunked\r\n",
        "Connection: close\r\n",
        "a:\n",
        "\r\n",
        "\n",
        "5\r\nhello\r\n",
        "3;x=y\r\nabc\r\n",
        "3 ; x = \"\\\";\" ; y\r\nabc\r\n",
        "0\r\n",
        "hello",
        "fffff\r\n",
    ]);
    let piece = prop_oneof![
        9 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    let begun = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let begin = prop::sample::select(vec!["", "HTTP/1.1 200 OK\r\n", begun]);
    (begin, prop::collection::vec(piece, 0..30)).prop_map(|(begin, pieces)| {
        let mut bytes = begin.as_bytes().to_vec();
        bytes.extend(pieces.concat());
        bytes
    })
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..12)
}

/// One outcome however the bytes are cut: in one piece, at these places, byte by byte.
fn assert_cuts_make_no_difference(bytes: &[u8], places: &[Index], to_head: bool) {
    for limits in [LIMITS, Limits::default()] {
        let whole = read([bytes], to_head, &limits);
        assert_eq!(read(cut(bytes, places), to_head, &limits), whole);
        assert_eq!(read(bytes.chunks(1), to_head, &limits), whole);
        assert!(whole.content.len() as u64 <= limits.body_bytes);
        assert!(whole.taken.unwrap_or_default() <= bytes.len());
        assert!(whole.head.is_none_or(|head| (200..1000).contains(&head.status)));
        assert!(whole.result.is_err() || whole.head.is_some());
    }
}

proptest! {
    #[test]
    fn any_bytes_come_to_the_same_however_they_are_cut(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        places in cuts(),
        to_head: bool,
    ) {
        assert_cuts_make_no_difference(&bytes, &places, to_head);
    }

    #[test]
    fn parts_of_responses_come_to_the_same_however_they_are_cut(
        bytes in fragments(),
        places in cuts(),
        to_head: bool,
    ) {
        assert_cuts_make_no_difference(&bytes, &places, to_head);
    }

    #[test]
    fn changed_responses_come_to_the_same_however_they_are_cut(
        written in written(),
        changes in prop::collection::vec(change(), 1..5),
        places in cuts(),
    ) {
        assert_cuts_make_no_difference(&changed(written.bytes, &changes), &places, written.to_head);
    }

    #[test]
    fn what_was_written_is_read_however_it_is_cut(
        written in written(),
        after in prop::collection::vec(any::<u8>(), 0..50),
        places in cuts(),
    ) {
        let own = written.bytes.len();
        let mut bytes = written.bytes;
        if !written.until_close {
            bytes.extend(after);
        }
        let outcome = read(cut(&bytes, &places), written.to_head, &Limits::default());
        let head = outcome.head.expect("a head");
        prop_assert_eq!(outcome.result, Ok(()));
        prop_assert_eq!(outcome.taken, Some(own));
        prop_assert_eq!(outcome.content, written.content);
        prop_assert_eq!((head.status, head.minor), (written.status, written.minor));
        prop_assert_eq!(head.persists, written.persists);
    }

    #[test]
    fn a_response_without_its_last_bytes_is_never_done(
        written in written(),
        missing in any::<Index>(),
        places in cuts(),
    ) {
        // Content that ends where the peer closes has no last byte; its head has.
        let own = written.bytes.len();
        let own = if written.until_close { own - written.content.len() } else { own };
        for left in [own - 1, missing.index(own)] {
            let outcome =
                read(cut(&written.bytes[..left], &places), written.to_head, &Limits::default());
            prop_assert_eq!(outcome.result, Err(Fault::Truncated));
        }
    }
}
