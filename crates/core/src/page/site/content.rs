//! What the files of a made page hold: valid for a browser, of exactly the bytes asked for, and
//! compressible about as far as such files are.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::super::resource::Kind;
use super::{MadePage, resource_path, url};

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// This text.
    Text(String),
    /// So many bytes without a meaning.
    Bytes(u64),
    /// A file of this kind that a browser accepts, so many bytes long, or as few as it needs.
    Made {
        /// What it is.
        kind: Kind,
        /// Its length, bytes.
        bytes: u64,
    },
}

impl Content {
    /// Its length, bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Bytes(bytes) => *bytes,
            Self::Made { kind, bytes } => {
                let (head, tail, _) = frame(*kind);
                (*bytes).max((head.len() + tail.len()) as u64)
            }
        }
    }

    /// The bytes themselves.
    ///
    /// Cost: allocates all of them; [`Site::check`](super::Site::check) bounds their number.
    pub fn made(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Bytes(bytes) => vec![b'x'; *bytes as usize],
            Self::Made { kind, .. } => {
                let (head, tail, line) = frame(*kind);
                filled(head, tail, line, self.bytes())
            }
        }
    }
}

/// A kind's beginning and end, and what fills it between them; a line is written with its number.
fn frame(kind: Kind) -> (&'static str, &'static str, fn(u64) -> String) {
    match kind {
        // Rules that no element of the page matches: they are parsed and change nothing.
        Kind::Stylesheet => ("", "", |n| format!(".r{n}{{margin:{}px;color:#{n:06x}}}\n", n % 97)),
        Kind::Script => ("", "", |n| format!("var r{n}={};\n", n * 31 % 9973)),
        Kind::Image => {
            ("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\">", "</svg>", |n| {
                format!("<g id=\"r{n}\"/>\n")
            })
        }
        Kind::Document => ("<!doctype html>\n<title>made</title>\n", "", |n| {
            format!("<p>Paragraph {n} of {}.\n", n * 31 % 9973)
        }),
        Kind::Font | Kind::Other => ("", "", |n| format!("{n:08x}")),
    }
}

/// Whole lines while they fit, and then spaces, which mean nothing in each of these kinds.
fn filled(head: &str, tail: &str, line: fn(u64) -> String, bytes: u64) -> Vec<u8> {
    let bytes = bytes as usize;
    let mut text = Vec::with_capacity(bytes);
    text.extend(head.bytes());
    for number in 0.. {
        let line = line(number);
        if text.len() + line.len() + tail.len() > bytes {
            break;
        }
        text.extend(line.bytes());
    }
    text.resize(bytes.saturating_sub(tail.len()), b' ');
    text.extend(tail.bytes());
    text
}

/// The document of a made page: names all resources, asks for no icon, and fills its size with paragraphs.
pub(super) fn document(page: &MadePage, extension: &str) -> String {
    let mut head = "<!doctype html>\n<html><head><meta charset=utf-8><title>made page</title>\n\
                    <link rel=icon href=data:,>\n"
        .to_owned();
    let mut body = "</head><body>\n".to_owned();
    let shards = page.shards.len();
    for number in 1..=page.resources {
        let path = resource_path(number, extension);
        let url = match (number as usize - 1).checked_rem(shards) {
            Some(shard) => url(page.tls, &page.shards[shard], page.port, &path),
            None => path,
        };
        // Writing to a string cannot fail.
        let _ = match page.kind {
            Kind::Script => writeln!(head, "<script src=\"{url}\"></script>"),
            Kind::Image => writeln!(body, "<img src=\"{url}\" alt=\"\">"),
            Kind::Font => {
                let _ = writeln!(body, "<p style=\"font-family:f{number}\">x");
                writeln!(head, "<style>@font-face{{font-family:f{number};src:url({url})}}</style>")
            }
            Kind::Stylesheet | Kind::Document | Kind::Other => {
                writeln!(head, "<link rel=stylesheet href=\"{url}\">")
            }
        };
    }
    let text = head + &body;
    let (_, _, line) = frame(Kind::Document);
    let bytes = page.page_bytes.min(super::BYTES_MAX).max((text.len() + END.len()) as u64);
    String::from_utf8(filled(&text, END, line, bytes)).expect("made of ASCII alone")
}

/// The end of a made document.
const END: &str = "</body></html>\n";
