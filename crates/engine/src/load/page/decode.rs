//! Undoes the compression of content, piece by piece.

use std::io::Write as _;

use flate2::write::{GzDecoder, ZlibDecoder};

/// Decoded content of one piece at most, bytes: a piece of 16 KiB becomes at most a thousand times
/// as long.
const PIECE_MAX: usize = 32 << 20;

/// How content is encoded.
#[derive(Debug, Default)]
pub(super) enum Decoder {
    /// Not.
    #[default]
    Identity,
    /// `gzip`.
    Gzip(Box<GzDecoder<Bounded>>),
    /// `deflate`, which is the format of zlib.
    Deflate(Box<ZlibDecoder<Bounded>>),
}

/// Takes what is decoded, up to a limit.
#[derive(Debug, Default)]
pub(super) struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > PIECE_MAX {
            return Err(std::io::Error::other("it decodes to more than a piece may"));
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
            "gzip" | "x-gzip" => Some(Self::Gzip(Box::new(GzDecoder::new(Bounded::default())))),
            "deflate" => Some(Self::Deflate(Box::new(ZlibDecoder::new(Bounded::default())))),
            _ => None,
        }
    }

    /// Decodes a piece.
    ///
    /// Errors: it is not of that encoding, or too long.
    pub(super) fn decode(&mut self, piece: &[u8]) -> std::io::Result<Vec<u8>> {
        let out = match self {
            Self::Identity => return Ok(piece.to_vec()),
            Self::Gzip(decoder) => {
                decoder.write_all(piece)?;
                decoder.flush()?;
                decoder.get_mut()
            }
            Self::Deflate(decoder) => {
                decoder.write_all(piece)?;
                decoder.flush()?;
                decoder.get_mut()
            }
        };
        Ok(std::mem::take(&mut out.0))
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
    fn other_encodings_are_unknown() {
        assert!(Decoder::named("br").is_none());
    }
}
