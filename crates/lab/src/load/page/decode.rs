//! Undoes the compression of content, piece by piece.

use std::io::Write as _;

use flate2::write::GzDecoder;

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
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

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
