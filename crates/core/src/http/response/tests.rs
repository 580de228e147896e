//! Each rule with bytes made by hand; each case in one piece and byte by byte.

use super::*;

/// How a response ended, its content, and how many bytes it took (0 with a fault).
type Outcome = (Result<(), Fault>, Vec<u8>, usize);

fn read(reader: &mut ResponseReader, pieces: &[&[u8]], limits: &Limits) -> Outcome {
    let (mut content, mut taken) = (Vec::new(), 0);
    for piece in pieces {
        let mut sink = |bytes: &[u8]| {
            assert!(!bytes.is_empty());
            content.extend_from_slice(bytes);
        };
        match reader.feed(piece, limits, &mut sink) {
            Ok(Progress::More) => taken += piece.len(),
            Ok(Progress::Done { taken: last }) => return (Ok(()), content, taken + last),
            Err(fault) => return (Err(fault), content, 0),
        }
    }
    let result = reader.end();
    (result, content, if result.is_ok() { taken } else { 0 })
}

fn both(input: &[u8], to_head: bool, limits: &Limits) -> (Outcome, Option<Head>) {
    let (mut whole, mut split) = (ResponseReader::default(), ResponseReader::default());
    whole.begin(to_head);
    split.begin(to_head);
    let outcome = read(&mut whole, &[input], limits);
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    let in_bytes = read(&mut split, &bytes, limits);
    let shown = String::from_utf8_lossy(input);
    assert_eq!(outcome, in_bytes, "{shown}");
    assert_eq!(whole.head(), split.head(), "{shown}");
    assert_eq!((whole.partial.capacity(), split.partial.capacity()), (0, 0), "{shown}");
    (outcome, whole.head())
}

/// Reads what must be a response.
fn good(input: &str, content: &str, left_over: usize) -> Head {
    let ((result, bytes, taken), head) = both(input.as_bytes(), false, &Limits::default());
    assert_eq!(result, Ok(()), "{input}");
    assert_eq!(
        (String::from_utf8_lossy(&bytes).as_ref(), taken),
        (content, input.len() - left_over)
    );
    head.unwrap()
}

fn fault_within(input: &str, limits: &Limits) -> Fault {
    both(input.as_bytes(), false, limits).0.0.expect_err(input)
}

/// Reads what must be malformed, by a rule whose text has this part.
fn bad(input: &str, rule: &str) {
    let fault = fault_within(input, &Limits::default());
    assert!(matches!(fault, Fault::Malformed(text) if text.contains(rule)), "{input:?}: {fault}");
}

fn truncated(input: &str) {
    assert_eq!(fault_within(input, &Limits::default()), Fault::Truncated, "{input:?}");
}

#[test]
fn an_idle_reader_is_small_and_holds_no_heap_memory() {
    assert!(size_of::<ResponseReader>() <= 96, "{}", size_of::<ResponseReader>());
    let mut reader = ResponseReader::default();
    for (piece, held) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Le"[..], true),
        (b"ngth: 3\r\n", true),
        (b"\r\na", false),
        (b"bc", false),
    ] {
        reader.feed(piece, &Limits::default(), &mut |_| ()).unwrap();
        assert_eq!(reader.partial.capacity() > 0, held);
    }
    reader.feed(b"x", &Limits::default(), &mut |_| ()).unwrap();
    reader.begin(false);
    assert!(!reader.has_begun() && reader.head().is_none());
}

#[test]
fn content_ends_where_its_length_says() {
    let head = good("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1", "hello", 8);
    assert_eq!(head, Head { status: 200, minor: 1, close: false, persists: true });
    good("HTTP/1.1 404\r\ncontent-LENGTH:\t0 \r\n\r\n", "", 0);
    good("HTTP/1.1 200 \r\nContent-Length: 005\r\n\r\nhello", "hello", 0);
    truncated("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell");
    truncated("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r");
    truncated("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n");
    truncated("H");
    truncated("");
}

#[test]
fn a_length_is_digits_and_the_same_each_time() {
    let with = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nhello");
    good(&with("Content-Length: 5, 5"), "hello", 0);
    good(&with("Content-Length: 5\r\nContent-Length: 5,05"), "hello", 0);
    good(&with("Content-Length: ,5"), "hello", 0);
    for value in ["+5", "-5", "5 5", "0x5", "5.", "five", "\"5\"", "5;5", "\u{b2}"] {
        bad(&with(&format!("Content-Length: {value}")), "not all digits");
    }
    bad(&with("Content-Length: 5, 6"), "lengths differ");
    bad(&with("Content-Length: 5\r\nContent-Length: 6"), "lengths differ");
    bad(&with("Content-Length: 5\r\nContent-Length: x"), "not all digits");
    bad(&with("Content-Length:"), "empty");
    bad(&with("Content-Length: ,"), "empty");
    bad(&with("Content-Length: 18446744073709551616"), "2^64");
    bad(&with("Content-Length: 99999999999999999999999"), "2^64");
    let most = fault_within(&with("Content-Length: 18446744073709551615"), &Limits::default());
    assert_eq!(most, Fault::BodyLimit);
}

#[test]
fn some_responses_have_no_content_whatever_their_fields_say() {
    for status in ["204 No Content", "304 Not Modified"] {
        good(&format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nhello"), "", 5);
        good(&format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n0"), "", 1);
    }
    let to_head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx";
    let ((result, content, taken), head) = both(to_head, true, &Limits::default());
    assert_eq!((result, content.len(), taken), (Ok(()), 0, to_head.len() - 1));
    assert!(head.unwrap().persists);
}

#[test]
fn without_a_length_content_goes_on_until_the_peer_closes() {
    let head = good("HTTP/1.1 200 OK\r\n\r\nhello", "hello", 0);
    assert!(!head.persists && !head.close);
    good("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", "hello", 0);
    good("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", "", 0);
}

#[test]
fn a_connection_persists_by_version_and_options() {
    let persists = |version: &str, fields: &str| {
        let head =
            good(&format!("HTTP/{version} 200 OK\r\nContent-Length: 0\r\n{fields}\r\n"), "", 0);
        (head.persists, head.close)
    };
    assert_eq!(persists("1.1", ""), (true, false));
    assert_eq!(persists("1.1", "Connection: close\r\n"), (false, true));
    assert_eq!(persists("1.1", "connection: foo , CLOSE\r\n"), (false, true));
    assert_eq!(persists("1.1", "Connection: foo\r\nConnection: close\r\n"), (false, true));
    assert_eq!(persists("1.1", "Connection: keep-alive, close\r\n"), (false, true));
    assert_eq!(persists("1.1", "Connection: closed\r\n"), (true, false));
    assert_eq!(persists("1.1", "X-Connection: close\r\n"), (true, false));
    assert_eq!(persists("1.0", ""), (false, false));
    assert_eq!(persists("1.0", "Connection: Keep-Alive\r\n"), (true, false));
    assert_eq!(persists("1.0", "Connection: Keep-Alive, close\r\n"), (false, true));
}

#[test]
fn interim_responses_are_skipped() {
    let input = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: close\r\n\r\n\
                 HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let head = good(input, "ok", 0);
    assert_eq!((head.status, head.persists), (200, true));
    truncated("HTTP/1.1 100 Continue\r\n\r\n");
    bad("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "101");
    let endless = "HTTP/1.1 100 Continue\r\n\r\n".repeat(20_000);
    assert_eq!(both(endless.as_bytes(), false, &Limits::default()).0.0, Err(Fault::HeadLimit));
}

#[test]
fn a_status_line_is_what_the_grammar_says() {
    for version in ["HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "HTTP/1,1", "HTTPS/1.1"] {
        bad(&format!("{version} 200 OK\r\nContent-Length: 0\r\n\r\n"), "version");
    }
    for line in ["http/1.1 200 OK", "\r\nHTTP/1.1 200 OK", " HTTP/1.1 200 OK", "ICY 200 OK", "{}"] {
        bad(&format!("{line}\r\nContent-Length: 0\r\n\r\n"), "begin with HTTP/");
    }
    for code in ["099", "000", "001"] {
        bad(&format!("HTTP/1.1 {code} OK\r\nContent-Length: 0\r\n\r\n"), "below 100");
    }
    for code in ["20", "2000", "20x", " 200", "-20", ""] {
        bad(&format!("HTTP/1.1 {code} OK\r\nContent-Length: 0\r\n\r\n"), "status line");
    }
    bad("HTTP/1.1 200 O\rK\r\n\r\n", "status line");
    bad("HTTP/1.1 200 O\0K\r\n\r\n", "status line");
    assert_eq!(good("HTTP/1.1 999 \u{e9}\r\nContent-Length: 0\r\n\r\n", "", 0).status, 999);
}

#[test]
fn a_field_line_is_what_the_grammar_says() {
    let with = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n");
    for fields in
        ["A : b\r\n", " A: b\r\n", "\tA: b\r\n", "A\r\n", ": b\r\n", "A\0: b\r\n", "(A): b\r\n"]
    {
        bad(&with(fields), "field line");
    }
    for fields in ["A: b\rc\r\n", "A: b\0\r\n", "A: \x01\r\n", "A: b\x7f\r\n", "A:\r\r\n"] {
        bad(&with(fields), "field value");
    }
    bad("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\rx", "CR");
    good(&with("A:\r\nB:b\tc \u{fc}\t\r\n!#$%&'*+-.^_`|~9z: \"\\\r\n"), "", 0);
}

#[test]
fn a_lone_lf_may_end_the_lines_of_a_head() {
    good("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "ok", 0);
    good("HTTP/1.1 200\nContent-Length: 2\r\n\nok", "ok", 0);
}

#[test]
fn a_lone_lf_may_end_the_lines_of_a_trailer_section() {
    let with =
        |end: &str| format!("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\r\nok\r\n0\r\n{end}");
    good(&with("\nx"), "ok", 1);
    good(&with("A: b\n\nx"), "ok", 1);
    good(&with("A: b\n\r\nx"), "ok", 1);
    good(&with("A: b\r\n\nx"), "ok", 1);
    good(&with("A: b\nB: c\r\n\nx"), "ok", 1);
    bad(&with("\rx"), "CR");
    truncated(&with("A: b\n"));
}

#[test]
fn folded_lines_are_read_as_one() {
    let with = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nhello");
    for fields in [
        "A: b\r\n c\r\nContent-Length: 5",
        "A: b\n\tc\n \n  d\nContent-Length: 5",
        "A:\r\n b\r\nContent-Length: 5",
        "A:\r\n \r\nContent-Length: 5",
        "Content-Length:\r\n 5",
        "Content-Length: 5\r\n\t",
        "Content-Length: 5\r\n , \r\n 5",
    ] {
        good(&with(fields), "hello", 0);
    }
    // A blank stands where the fold was: these are two digits, not a number of two.
    bad(&with("Content-Length: 1\r\n 2"), "not all digits");
    bad(&with("Content-Length: 5\r\n x\0"), "field value");
    truncated("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n");
    let chunked = "1\r\nx\r\n0\r\n\r\n";
    for codings in
        ["chunked", "\r\n chunked", "gzip\r\n\t,\r\n chunked", "gzip\r\n ;a=b,chunked\r\n "]
    {
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {codings}\r\n\r\n");
        good(&format!("{head}{chunked}"), "x", 0);
    }
    let head = good(&with("Connection: x,\r\n  close\r\nContent-Length: 5"), "hello", 0);
    assert!(head.close && !head.persists);
    let head = good(&with("Connection: clo\r\n se\r\nContent-Length: 5"), "hello", 0);
    assert!(!head.close && head.persists);
}

#[test]
fn a_folded_trailer_is_one_field() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    good(&format!("{head}A: b\r\n c\r\nB:\n\td\n\r\nx"), "", 1);
    bad(&format!("{head} c\r\n\r\n"), "field line");
    let limits = Limits { fields: 2, ..Limits::default() };
    let folded = format!("{head}A: b\r\n c\r\n d\r\n\r\n");
    assert_eq!(both(folded.as_bytes(), false, &limits).0.0, Ok(()));
}

#[test]
fn chunks_are_put_together() {
    let with =
        |chunks: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
    let head = good(&with("5\r\nhello\r\n0\r\n\r\nrest"), "hello", 4);
    assert!(head.persists);
    good(
        &with("00000000000000a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\n"),
        "01234567890123456789",
        0,
    );
    good(&with("1;a\r\nx\r\n1 ; b=\"c;\t\u{fc}\"\r\ny\r\n0;c\r\n\r\n"), "xy", 0);
    good(&with("0\r\nExpires: now\r\nB: c\n\r\nx"), "", 1);
    for cut in 0..16 {
        truncated(&with(&"5;a\r\nhello\r\n0\r\nA: b\r\n\r\n"[..cut]));
    }
}

#[test]
fn the_chunked_coding_is_what_the_grammar_says() {
    let with =
        |chunks: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
    for size in
        ["\r\n", "g\r\n", " 5\r\n", "-5\r\n", "+5\r\n", "0x5\r\n", "5\n", ";a\r\n", "5_\r\n"]
    {
        bad(&with(&format!("{size}hello\r\n0\r\n\r\n")), "not hexadecimal");
    }
    bad(&with("00000000000000005\r\nhello\r\n0\r\n\r\n"), "16 digits");
    bad(&with("5 \r\nhello\r\n0\r\n\r\n"), "neither an extension nor");
    bad(&with("5;a\nhello\r\n0\r\n\r\n"), "control character");
    bad(&with("5\rhello\r\n0\r\n\r\n"), "followed by LF");
    bad(&with("5\r\nhello!\r\n0\r\n\r\n"), "not followed by CRLF");
    bad(&with("5\r\nhello\n0\r\n\r\n"), "not followed by CRLF");
    bad(&with("5\r\nhello\rx0\r\n\r\n"), "not followed by CRLF");
    bad(&with("0\r\nA b\r\n\r\n"), "field line");
    bad(&with("0\r\nA: \0\r\n\r\n"), "field value");
    let most = fault_within(&with("ffffffffffffffff\r\nhello"), &Limits::default());
    assert_eq!(most, Fault::BodyLimit);
    let second = fault_within(&with("5\r\nhello\r\nffffffffffffffff\r\nhello"), &Limits::default());
    assert_eq!(second, Fault::BodyLimit);
}

#[test]
fn a_chunk_extension_has_a_name_and_perhaps_a_value() {
    let with = |extension: &str| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{head}2{extension}\r\nok\r\n0{extension}\r\n\r\n")
    };
    for extension in [
        ";a",
        "\t; a",
        ";a=b",
        ";a = b ;\tc",
        ";a;b=c;d",
        ";a=\"\"",
        ";a=\"x;y\"",
        ";a=\"x\\\"; ;y\" ; b",
        ";a=\"\\\\\";b",
        ";a=\"=, \t\u{fc}\"",
        ";!#$%&'*+-.^_`|~9z=0",
    ] {
        good(&with(extension), "ok", 0);
    }
    for extension in [";", ";;a", "; =x", ";=", "; ", ";a;", ";a=b;;c", ";\"a\"", ";a=\"x\";"] {
        bad(&with(extension), "no name");
    }
    for extension in [";a=", ";a= ", ";a=b\"c\"", ";a=\"b\"c", ";a=b=c", ";a,b", ";a=;b", ";\u{fc}"]
    {
        let fault = fault_within(&with(extension), &Limits::default());
        assert!(matches!(fault, Fault::Malformed(_)), "{extension:?}");
    }
    for extension in [";a b", ";a=b c", ";a ", ";a=b ", ";a=\"b\" "] {
        bad(&with(extension), "neither an extension nor");
    }
    for extension in [";a=\"b", ";a=\"b\\", ";a=\"b\\\""] {
        bad(&with(extension), "no end");
    }
    for extension in [";\n", ";a\n", ";a=\"\0\"", ";a=\"\\\x7f\""] {
        bad(&with(extension), "control character");
    }
}

#[test]
fn where_chunked_is_not_the_last_coding_content_goes_on_until_the_peer_closes() {
    for codings in [
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: gzip, chunked, br",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip;a=b",
    ] {
        let input = format!("HTTP/1.1 200 OK\r\n{codings}\r\n\r\n0\r\n\r\nhello");
        assert!(!good(&input, "0\r\n\r\nhello", 0).persists);
    }
}

#[test]
fn chunked_comes_once_and_without_parameters() {
    let with = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n0\r\n\r\n");
    good(&with("Transfer-Encoding: gzip, Chunked"), "", 0);
    good(&with("Transfer-Encoding: gzip;a=b\r\ntransfer-encoding: , chunked"), "", 0);
    bad(&with("Transfer-Encoding: chunked, gzip, chunked"), "twice");
    bad("HTTP/1.0 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.0");
    bad(&with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), "twice");
    bad(&with("Transfer-Encoding: chunked;a=b"), "parameters");
    bad(&with("Transfer-Encoding: chun ked"), "not a list");
    bad(&with("Transfer-Encoding:"), "names no coding");
    bad(&with("Transfer-Encoding: chunked\r\nContent-Length: 5"), "rule 3");
    bad(&with("Content-Length: 5\r\nTransfer-Encoding: gzip"), "rule 3");
    bad("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.0");
}

#[test]
fn heads_trailers_and_extensions_share_one_limit() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let input = format!("HTTP/1.1 100 \r\n\r\n{head}1;abc\r\nx\r\n0\r\nA: b\r\n\r\n");
    // The interim head, the head, `;abc`, and `A: b` with both line ends.
    let exact = 17 + head.len() as u32 + 4 + 8;
    for (head_bytes, result) in [
        (exact, Ok(())),
        (exact - 1, Err(Fault::HeadLimit)),
        (20, Err(Fault::HeadLimit)),
        (0, Err(Fault::HeadLimit)),
    ] {
        let limits = Limits { head_bytes, ..Limits::default() };
        assert_eq!(both(input.as_bytes(), false, &limits).0.0, result, "{head_bytes}");
    }
    for (fields, result) in [(2, Ok(())), (1, Err(Fault::HeadLimit)), (0, Err(Fault::HeadLimit))] {
        let limits = Limits { fields, ..Limits::default() };
        assert_eq!(both(input.as_bytes(), false, &limits).0.0, result, "{fields}");
    }
    let extension = format!("{head}1;{}", "a".repeat(400 << 10));
    assert_eq!(fault_within(&extension, &Limits::default()), Fault::HeadLimit);
}

#[test]
fn many_fields_are_read_up_to_the_limit() {
    let with =
        |count| format!("HTTP/1.1 200 OK\r\n{}Content-Length: 1\r\n\r\nx", "a:\n".repeat(count));
    for count in [62, 63, 64, 65, 300] {
        good(&with(count), "x", 0);
    }
    let limits = Limits { fields: 101, ..Limits::default() };
    assert_eq!(both(with(100).as_bytes(), false, &limits).0.0, Ok(()));
    assert_eq!(fault_within(&with(101), &limits), Fault::HeadLimit);
    let trailers = |count| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        format!("{head}{}\r\n", "a:\r\n".repeat(count))
    };
    for count in [7, 8, 9, 99] {
        good(&trailers(count), "", 0);
    }
    assert_eq!(both(trailers(100).as_bytes(), false, &limits).0.0, Ok(()));
    assert_eq!(fault_within(&trailers(101), &limits), Fault::HeadLimit);
}

#[test]
fn content_up_to_the_limit_is_handed_on() {
    let limits = Limits { body_bytes: 5, ..Limits::default() };
    let outcome = |input: &str| {
        let (result, content, _) = both(input.as_bytes(), false, &limits).0;
        (result, content.len())
    };
    assert_eq!(outcome("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), (Ok(()), 5));
    assert_eq!(outcome("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"), (Err(Fault::BodyLimit), 0));
    assert_eq!(outcome("HTTP/1.1 200 OK\r\n\r\nhello"), (Ok(()), 5));
    assert_eq!(outcome("HTTP/1.1 200 OK\r\n\r\nhello!!"), (Err(Fault::BodyLimit), 5));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    assert_eq!(outcome(&format!("{chunked}2\r\nde\r\n0\r\n\r\n")), (Ok(()), 5));
    assert_eq!(outcome(&format!("{chunked}3\r\ndef\r\n0\r\n\r\n")), (Err(Fault::BodyLimit), 3));
}

#[test]
fn a_long_line_in_small_pieces_comes_to_the_same_fault() {
    let long = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(5_000));
    truncated(&long);
    bad(&format!("{long}\0"), "field value");
    bad(&format!("{long}\0c\r\n"), "field value");
    assert_eq!(
        fault_within(&format!("{long}{long}"), &Limits { head_bytes: 2_000, ..Limits::default() }),
        Fault::HeadLimit
    );
    bad(
        &format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: {}\0",
            "b".repeat(5_000)
        ),
        "field value",
    );
}

#[test]
fn a_reader_goes_on_only_after_begin() {
    let mut reader = ResponseReader::default();
    let feed = |reader: &mut ResponseReader, input: &[u8]| {
        reader.feed(input, &Limits::default(), &mut |_| ())
    };
    assert_eq!(feed(&mut reader, b""), Ok(Progress::More));
    assert!(!reader.has_begun());
    assert_eq!(feed(&mut reader, b"HTTP/1.1 204 \r\n\r\nrest"), Ok(Progress::Done { taken: 17 }));
    assert_eq!(feed(&mut reader, b"rest"), Ok(Progress::Done { taken: 0 }));
    reader.begin(false);
    assert!(feed(&mut reader, b"rest").is_err());
    assert!(reader.has_begun());
    assert!(feed(&mut reader, b"HTTP/1.1 204 \r\n\r\n").is_err());
    assert_eq!(reader.end(), Err(Fault::Truncated));
}
