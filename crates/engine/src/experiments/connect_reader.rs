//! The settings that `connect` alone has: from text to what they mean.

use super::TrialError;
use super::reader::{Reader, wrong};

impl Reader<'_> {
    pub(super) fn distance(&self) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.get("distance-km") else { return Ok(None) };
        let why = "write kilometres, above 0 and at most 40000";
        let km = typed.parse::<f64>().ok().filter(|km| *km > 0.0 && *km <= 40_000.0);
        km.map(Some).ok_or_else(|| wrong("distance-km", &typed, why))
    }
}

/// `\r`, `\n`, `\t`, `\0`, `\\` and `\xHH` as the bytes they mean; anything else as it is.
pub(super) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, used) = match (first, tail) {
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'0', ..]) => (0, 2),
            (b'\\', [b'\\', ..]) => (b'\\', 2),
            (b'\\', [b'x', high, low, ..]) => {
                let digits = [*high, *low];
                let value =
                    std::str::from_utf8(&digits).ok().and_then(|d| u8::from_str_radix(d, 16).ok());
                value.map_or((b'\\', 1), |value| (value, 4))
            }
            (byte, _) => (*byte, 1),
        };
        bytes.push(byte);
        rest = &rest[used..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_bytes() {
        assert_eq!(unescape("PING\\r\\n\\x41\\\\\\q"), b"PING\r\nA\\\\q");
    }
}
