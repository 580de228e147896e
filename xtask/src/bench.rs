//! tcptoll beside its peers: built in release, run alone on the machine, kept in `bench/RESULTS.md`.
//!
//! What is compared stands in `crates/tcptoll/examples/bench/`, and for people in
//! `bench/README.md`. Each comparison has a part of the page, which only it writes.

use anyhow::Context as _;

use crate::process::{Line, Outcome};

const RESULTS: &str = "bench/RESULTS.md";

/// Where a comparison leaves its part.
const PART: &str = "target/bench-part.md";

/// What can be compared, in the order of the page.
const NAMES: &[(&str, &str)] = &[
    (
        "http",
        "client CPU per request and per connection, requests/s and memory per idle connection: \
         wrk, ab, h2load, hey, and oha and fortio where they are",
    ),
    (
        "stream",
        "goodput and CPU per GB of one stream: iperf3; latency and CPU of an exchange of one byte: \
         sockperf, qperf and bare sockets",
    ),
];

/// `cargo xtask bench [NAME] [--rounds N]`.
pub(crate) fn run(words: &[String]) -> anyhow::Result<Outcome> {
    let Some(name) = words.first() else {
        print!("{}", list());
        return Ok(Outcome::Passed);
    };
    if NAMES.iter().all(|(known, _)| known != name) {
        anyhow::bail!("{name}: there is no such comparison; available:\n{}", list());
    }
    let release =
        |subcommand| Line::cargo(subcommand).args(["--release", "--package", "tcptoll"]).locked();
    if release("build").args(["--example", "bench"]).run()? != Outcome::Passed {
        return Ok(Outcome::NotPossible);
    }
    let line = release("run").args(["--quiet", "--example", "bench", "--"]).args(words.to_vec());
    if line.args(["--out", PART]).run()? != Outcome::Passed {
        eprintln!("{RESULTS} is unchanged");
        return Ok(Outcome::NotPossible);
    }
    let part = std::fs::read_to_string(PART).with_context(|| format!("reading {PART}"))?;
    let page = std::fs::read_to_string(RESULTS).unwrap_or_default();
    let page = with_part(&page, name, &part);
    std::fs::write(RESULTS, page).with_context(|| format!("writing {RESULTS}"))?;
    eprintln!("wrote {RESULTS}");
    Ok(Outcome::Passed)
}

fn list() -> String {
    let lines: Vec<String> =
        NAMES.iter().map(|(name, what)| format!("  {name}  {what}\n")).collect();
    lines.concat()
}

/// The first line of a comparison's part.
fn head(name: &str) -> String {
    format!("<!-- Written by `cargo xtask bench {name}`. -->")
}

/// The page with another part of this name; the others stay as they are.
fn with_part(page: &str, name: &str, part: &str) -> String {
    let part_of = |known: &str| -> Option<&str> {
        let begun = &page[page.find(&head(known))?..];
        let next = NAMES.iter().filter_map(|(other, _)| begun[1..].find(&head(other))).min();
        Some(&begun[..next.map_or(begun.len(), |next| next + 1)])
    };
    let parts: Vec<String> = NAMES
        .iter()
        .filter_map(|(known, _)| if *known == name { Some(part) } else { part_of(known) })
        .map(|part| format!("{}\n", part.trim_end()))
        .collect();
    parts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_the_names_are_listed() {
        assert_eq!(run(&[]).unwrap(), Outcome::Passed);
        assert!(list().contains("  http  ") && list().contains("  stream  "));
    }

    #[test]
    fn an_unknown_comparison_is_named() {
        let error = run(&["htpt".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("htpt"), "{error}");
    }

    #[test]
    fn each_comparison_writes_its_own_part_of_the_page() {
        let part = |name: &str, text: &str| format!("{}\n\n{text}\n", head(name));
        let (http, stream) = (part("http", "a\n\n| b |"), part("stream", "c"));
        let both = format!("{http}\n{stream}");
        assert_eq!(with_part("", "stream", &stream), stream);
        assert_eq!(with_part(&http, "stream", &stream), both);
        assert_eq!(with_part(&stream, "http", &http), both);
        let (newer, newest) = (part("http", "new"), part("stream", "newest"));
        assert_eq!(with_part(&both, "http", &newer), format!("{newer}\n{stream}"));
        assert_eq!(with_part(&both, "stream", &newest), format!("{http}\n{newest}"));
    }
}
