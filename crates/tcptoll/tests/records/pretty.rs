//! JSON over several lines, for people: what fits in a line stays in it, numbers stay as
//! written, and of points and histograms only the length and a fingerprint are left.

/// Columns of a line, unless a single value is longer.
const WIDTH: usize = 110;

/// Bytes of an array, as of the points of a curve, that are too many to be read within an arm of a summary.
const ROWS: usize = 1_000;
/// Indentation within an arm of a summary.
const WITHIN: usize = 6;

/// `compact`, JSON without blanks between its tokens, over lines.
pub(super) fn json(compact: &str) -> String {
    let mut out = String::new();
    value(compact, 0, &mut out);
    out
}

fn value(text: &str, indent: usize, out: &mut String) {
    let (open, inner) = match text.as_bytes() {
        [open @ (b'{' | b'['), .., b'}' | b']'] => (*open, &text[1..text.len() - 1]),
        _ if is_bulk(text) => return out.push_str(&bulk(text)),
        _ => return out.push_str(text),
    };
    if indent + text.len() <= WIDTH {
        return out.push_str(text);
    }
    if is_bulk(text) || (open == b'[' && indent >= WITHIN && text.len() > ROWS) {
        return out.push_str(&bulk(text));
    }
    let end = "\n".to_owned() + &" ".repeat(indent);
    out.push(char::from(open));
    for (at, part) in parts(inner, b',').into_iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        out.push_str(&end);
        out.push_str("  ");
        let (key, rest) = match parts(part, b':').as_slice() {
            [key, _] if open == b'{' => part.split_at(key.len() + 1),
            _ => ("", part),
        };
        out.push_str(key);
        value(rest, indent + 2, out);
    }
    out.push_str(&end);
    out.push(if open == b'{' { '}' } else { ']' });
}

/// Whether a person reads nothing in it: more numbers than fit in a line, or a long string without blanks.
fn is_bulk(text: &str) -> bool {
    let numbers = text.starts_with('[') && !text.contains(['"', '{']);
    text.len() > WIDTH && !text.contains(' ') && (numbers || text.starts_with('"'))
}

fn bulk(text: &str) -> String {
    format!("({} bytes, {})", text.len(), fingerprint(text))
}

/// The text between separators that stand in no string, object or array.
fn parts(text: &str, separator: u8) -> Vec<&str> {
    let (mut from, mut depth, mut in_string, mut escaped) = (0, 0, false, false);
    let mut parts = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ if byte == separator && depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// 64 bits that differ where `text` does (FNV-1a), the same on every machine.
pub(super) fn fingerprint(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[test]
fn lines_hold_what_fits_and_the_value_is_the_same() {
    let long = "x\\\",{[ ".repeat(20);
    let compact = format!(r#"{{"a":[1.50,{{"b":"{long}"}}],"c":{{}}}}"#);
    let pretty = json(&compact);
    let expected = format!(
        "{{\n  \"a\":[\n    1.50,\n    {{\n      \"b\":\"{long}\"\n    }}\n  ],\n  \"c\":{{}}\n}}"
    );
    assert_eq!(pretty, expected);
    let read = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&pretty), read(&compact));
    let points = format!("[{}0]", "1.5,".repeat(40));
    assert!(json(&format!(r#"{{"points":{points}}}"#)).contains(":(163 bytes, "), "{points}");
}
