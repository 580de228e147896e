//! The documentation as a site, and whether its links lead somewhere.
//!
//! The generator is `MkDocs`, which knows files; anchors are checked here, as `GitHub` makes them from headings.
//!
//! The site is a copy of the repository's pages (`cargo xtask docs --site`), so links are the same in both.
//! `MkDocs`, which Debian has, builds it with search and without loading anything from elsewhere. Version 1.4
//! does not check anchors.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::process::{Line, Outcome};

/// Files and folders that the site has, besides what they link to.
const PAGES: [&str; 7] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs",
    "crates/heartbeat/README.md",
    "crates/heartbeat/FRAMING.md",
];
/// What pages link to and is no page.
const LINKED: [&str; 8] = [
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "studies",
    "bench",
    "deny.toml",
    "crates/heartbeat/examples",
    "examples",
    "packaging",
];
/// Where the copy of the pages is; `mkdocs.yml` names it too.
const COPY: &str = "target/site/pages";
const SITE: &str = "target/site/html";

/// Writes the site.
pub(crate) fn build() -> anyhow::Result<Outcome> {
    if links()? != Outcome::Passed {
        return Ok(Outcome::Failed);
    }
    let copy = Path::new(COPY);
    if copy.exists() {
        fs::remove_dir_all(copy).with_context(|| format!("removing {COPY}"))?;
    }
    for from in PAGES.iter().chain(&LINKED).map(Path::new).filter(|from| from.exists()) {
        copied(from, &copy.join(from))?;
    }
    let line = Line::new("mkdocs").args(["build", "--quiet", "--strict", "--clean"]);
    let outcome = line.run().context("cargo xtask setup installs mkdocs")?;
    if outcome == Outcome::Passed {
        println!("wrote {SITE}/index.html");
    }
    Ok(outcome)
}

fn copied(from: &Path, to: &Path) -> anyhow::Result<()> {
    let failed = || format!("copying {} to {}", from.display(), to.display());
    if from.is_dir() {
        for entry in fs::read_dir(from).with_context(failed)? {
            let name = entry.with_context(failed)?.file_name();
            copied(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    if from.extension().is_some_and(|ending| ending == "md") {
        let text = fs::read_to_string(from).with_context(failed)?;
        return fs::write(to, without_rustdoc_links(&text)).with_context(failed);
    }
    fs::copy(from, to).map(drop).with_context(failed)
}

/// A crate's README is its documentation too: `[blocking](crate::blocking)` leads somewhere only there.
fn without_rustdoc_links(text: &str) -> String {
    let mut parts = text.split("](crate::");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        if let Some(open) = plain.rfind('[') {
            plain.remove(open);
        }
        plain.push_str(rest.split_once(')').map_or(rest, |(_, after)| after));
    }
    plain
}

/// Checks every link between files of the repository.
pub(crate) fn links() -> anyhow::Result<Outcome> {
    let pages = pages()?;
    let mut broken = 0;
    for page in &pages {
        let text = fs::read_to_string(page).with_context(|| page.display().to_string())?;
        for (line, target) in targets(&text) {
            if let Some(why) = broken_link(page, target)? {
                println!("{}:{line}: ({target}): {why}", page.display());
                broken += 1;
            }
        }
    }
    println!("{} pages, {broken} broken links", pages.len());
    Ok(if broken == 0 { Outcome::Passed } else { Outcome::Failed })
}

/// The pages of the documentation.
pub(crate) fn pages() -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for page in PAGES {
        collect(Path::new(page), &mut pages)?;
    }
    Ok(pages)
}

fn collect(path: &Path, pages: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), pages)?;
        }
    } else if path.extension().is_some_and(|ending| ending == "md") {
        pages.push(path.to_owned());
    }
    Ok(())
}

/// Why a link leads nowhere. None: it leads somewhere, or out of the repository.
fn broken_link(page: &Path, target: &str) -> anyhow::Result<Option<String>> {
    if target.contains("://") || target.starts_with("mailto:") || target.starts_with("crate::") {
        return Ok(None);
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(f, a)| (f, Some(a)));
    let path = match file {
        "" => page.to_owned(),
        file => page.parent().unwrap_or(Path::new("")).join(file),
    };
    if !path.exists() {
        return Ok(Some("there is no such file".to_owned()));
    }
    let Some(anchor) = anchor.filter(|_| path.extension().is_some_and(|ending| ending == "md"))
    else {
        return Ok(None);
    };
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let is_there = anchors(&text).contains(anchor);
    Ok((!is_there).then(|| "there is no such heading".to_owned()))
}

/// The lines of a page outside blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of links, with their lines.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            if let Some(end) = line[at + 2..].find(')') {
                found.push((number, line[at + 2..at + 2 + end].trim()));
            }
        }
    }
    found
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

/// The anchor of a heading: lower case, blanks as hyphens, without punctuation.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_made_of_headings_outside_of_code() {
        let text = "# One two\n```sh\n# not this\n```\n## `listen(2)`: what, and why?\n";
        let expected = ["one-two", "listen2-what-and-why"].map(str::to_owned);
        assert_eq!(anchors(text), expected.into());
    }

    #[test]
    fn links_of_rustdoc_become_plain_text() {
        let text = "see [`blocking`](crate::blocking) and [a](b.md)";
        assert_eq!(without_rustdoc_links(text), "see `blocking` and [a](b.md)");
    }

    #[test]
    fn links_are_found_with_their_lines() {
        let text = "a [b](c.md)\n```\n[d](e)\n```\n[f](g.md#h), [i](j)\n";
        assert_eq!(targets(text), [(1, "c.md"), (5, "g.md#h"), (5, "j")]);
    }

    #[test]
    fn the_links_of_this_repository_lead_somewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = root.join("README.md");
        assert_eq!(broken_link(&page, "ARCHITECTURE.md").unwrap(), None);
        assert!(broken_link(&page, "no-such-file.md").unwrap().is_some());
        assert!(broken_link(&page, "CONTRIBUTING.md#no-such-heading").unwrap().is_some());
    }
}
