//! The answer of Redis to GET, in its protocol (RESP). Nothing is read beyond its bounds, whatever the
//! other end sends.

/// Longest value, bytes.
const VALUE_MAX: usize = 64 << 10;

/// Longest first line, its end included: a type, a length, CR LF.
const LINE_MAX: usize = 16;

/// Most bytes of an answer.
pub(super) const ANSWER_MAX: usize = LINE_MAX + VALUE_MAX + 2;

/// The value of an answer to GET. `Ok(None)`: more bytes must come.
///
/// Errors: what is wrong with the answer.
pub(super) fn value(bytes: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    match bytes.first() {
        None => return Ok(None),
        Some(b'$') => {}
        Some(b'-') => return Err("an error"),
        Some(_) => return Err("an answer of another type"),
    }
    let start = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = start.windows(2).position(|two| two == b"\r\n") else {
        return if bytes.len() < LINE_MAX { Ok(None) } else { Err("a length without an end") };
    };
    let digits = &bytes[1..end];
    if digits == b"-1" {
        return Err("no value");
    }
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err("a length that is not a number");
    }
    let length = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<usize>().ok());
    let length = length.filter(|length| *length <= VALUE_MAX).ok_or("a value that is too long")?;
    let (begin, whole) = (end + 2, end + 2 + length + 2);
    if bytes.len() < whole {
        return Ok(None);
    }
    if bytes.len() > whole {
        return Err("bytes after the answer");
    }
    if &bytes[whole - 2..] != b"\r\n" {
        return Err("a value without an end");
    }
    Ok(Some(&bytes[begin..whole - 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_once_all_of_it_has_come() {
        let answer = b"$5\r\nvalue\r\n";
        for length in 0..answer.len() {
            assert_eq!(value(&answer[..length]), Ok(None), "{length}");
        }
        assert_eq!(value(answer), Ok(Some(&b"value"[..])));
        assert_eq!(value(b"$0\r\n\r\n"), Ok(Some(&b""[..])));
    }

    #[test]
    fn a_hostile_answer_is_refused_before_its_length_is_believed() {
        for (answer, why) in [
            (&b"-ERR unknown\r\n"[..], "an error"),
            (b"+PONG\r\n", "an answer of another type"),
            (b"HTTP/1.1 200 OK\r\n", "an answer of another type"),
            (b"$-1\r\n", "no value"),
            (b"$\r\n", "a length that is not a number"),
            (b"$+5\r\nvalue\r\n", "a length that is not a number"),
            (b"$-5\r\n", "a length that is not a number"),
            (b"$65537\r\n", "a value that is too long"),
            (b"$9999999999999\r\n", "a value that is too long"),
            (b"$99999999999999999999999\r\n", "a length without an end"),
            (b"$5\r\nvalueXX", "a value without an end"),
            (b"$5\r\nvalue\r\n$", "bytes after the answer"),
        ] {
            assert_eq!(value(answer), Err(why), "{}", String::from_utf8_lossy(answer));
        }
        assert_eq!(value(b"$65536\r\n"), Ok(None));
    }
}
