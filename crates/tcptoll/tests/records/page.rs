//! A page's body over lines, short enough to be read: what is the same on every page is removed.

use super::pretty::fingerprint;

/// The page without style, script and the embedded summary, one element a line.
///
/// A page has each picture twice. Of the one for narrow screens only its length and a fingerprint
/// are left.
pub(super) fn body(page: &str) -> String {
    let gone = |_: &str| String::new();
    let body = replaced(page, "<style>", "</style>", gone);
    let body = replaced(&body, "<script", "</script>", gone);
    let body = replaced(&body, "<svg class=\"narrow\"", "</svg>", |picture| {
        format!("<svg class=\"narrow\">{} bytes, {}</svg>", picture.len(), fingerprint(picture))
    });
    body.replace("><", ">\n<")
}

/// `page` with each part from `open` to `close` replaced.
fn replaced(page: &str, open: &str, close: &str, by: impl Fn(&str) -> String) -> String {
    let mut kept = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(open) {
        let (inner, after) = after.split_once(close).expect("every element is closed");
        kept += before;
        kept += &by(inner);
        rest = after;
    }
    kept + rest
}
