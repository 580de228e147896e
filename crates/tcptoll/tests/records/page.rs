//! A page's body over lines, short enough to be read: what is the same on every page is removed.

/// The page without style, script and the embedded summary, one element a line.
pub(super) fn body(page: &str) -> String {
    let body = without(page, "<style>", "</style>");
    without(&body, "<script", "</script>").replace("><", ">\n<")
}

/// `page` without each part from `open` to `close`.
fn without(page: &str, open: &str, close: &str) -> String {
    let mut kept = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(open) {
        let (_, after) = after.split_once(close).expect("every element is closed");
        kept += before;
        rest = after;
    }
    kept + rest
}
