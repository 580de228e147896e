//! The golden summaries; `tests/make_golden.rs` writes them.

use tcptoll_model::record::Summary;

/// All golden summaries.
pub(crate) const NAMES: [&str; 9] = [
    "one-arm",
    "nine-arms",
    "failure",
    "hostile",
    "study",
    "http",
    "http-open-loop",
    "keepalive",
    "keepalive-faults",
];

/// One golden summary.
pub(crate) fn load(name: &str) -> Summary {
    let path = format!("{}/tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("tests/make_golden.rs has written it");
    serde_json::from_str(&text).expect("it was written from a summary")
}
