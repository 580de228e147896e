//! Runs the commands whose output the documentation shows, and puts in what they print and draw.
//!
//! A page asks for it with a comment before its block: `<!-- measured: 30 lines, pictures/page.svg -->`,
//! and the block begins with the command: `$ tcptoll study page-2016`. Lines that are not shown are `…`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::process::{Line, Outcome};
use crate::{site, workspace};

const MARK: &str = "<!-- measured: ";
const LEFT_OUT: &str = "…";
/// Columns of the text, as where the output is no terminal.
const COLUMNS: &str = "80";

/// Runs the commands of the pages whose path contains one of `names`; of all pages without names.
///
/// They are measurements: nothing else should run on the machine.
pub(crate) fn run(names: &[String]) -> anyhow::Result<Outcome> {
    let release =
        Line::cargo("build").args(["--release", "--package", "tcptoll", "--bins"]).locked();
    if release.run()? != Outcome::Passed {
        return Ok(Outcome::NotPossible);
    }
    let program: PathBuf = workspace::packages()?.target_directory.join("release/tcptoll").into();
    for page in site::pages()? {
        let text = std::fs::read_to_string(&page)?;
        let shown = page.display().to_string();
        if !text.contains(MARK)
            || !(names.is_empty() || names.iter().any(|name| shown.contains(name)))
        {
            continue;
        }
        let new = renewed(&text, &mut |sample| measured(&program, &page, sample))
            .with_context(|| shown.clone())?;
        std::fs::write(&page, new).with_context(|| format!("writing {shown}"))?;
        println!("wrote {shown}");
    }
    Ok(Outcome::Passed)
}

/// What a page asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    /// Lines of the report at most, from the answer on.
    lines: usize,
    /// File of the picture, seen from the page.
    picture: Option<String>,
    /// Words after `tcptoll`.
    command: Vec<String>,
}

/// The page with each of its blocks anew.
fn renewed(
    page: &str,
    measure: &mut dyn FnMut(&Sample) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = page;
    while let Some(at) = rest.find(MARK) {
        let (before, mark) = rest.split_at(at);
        let (asked, after) =
            mark[MARK.len()..].split_once(" -->").context("a comment has no end")?;
        let (between, block) =
            after.split_once("```text\n").context("no block follows the comment")?;
        let (old, after) = block.split_once("\n```").context("a block has no end")?;
        let command = old.lines().next().and_then(|line| line.strip_prefix("$ tcptoll"));
        let command = command.context("the block does not begin with `$ tcptoll`")?;
        let (lines, picture) = asked.split_once(", ").map_or((asked, None), |(l, p)| (l, Some(p)));
        let lines = lines.strip_suffix(" lines").and_then(|lines| lines.parse().ok());
        let sample = Sample {
            lines: lines
                .with_context(|| format!("{asked:?} is not `N lines` or `N lines, FILE.svg`"))?,
            picture: picture.map(str::to_owned),
            command: command.split_whitespace().map(str::to_owned).collect(),
        };
        let new = measure(&sample)?;
        write!(out, "{before}{MARK}{asked} -->{between}```text\n$ tcptoll{command}\n{new}\n```")?;
        rest = after;
    }
    Ok(out + rest)
}

/// Runs a command; its report as the page shows it. The picture is written next to the page.
fn measured(program: &Path, page: &Path, sample: &Sample) -> anyhow::Result<String> {
    let folder = std::env::temp_dir().join(format!("tcptoll-sample-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let command = sample.command.join(" ");
    println!("running tcptoll {command}");
    let mut run = Command::new(program);
    // The record goes where those of a user go, so that the text names it as theirs does.
    run.args(&sample.command).arg("--quiet").env("COLUMNS", COLUMNS).env("XDG_DATA_HOME", &folder);
    let output = run.output().with_context(|| format!("running tcptoll {command}"))?;
    // Operations that fail are what some of them show.
    if !matches!(output.status.code(), Some(0 | 1)) {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("tcptoll {command} ended with {}: {said}", output.status);
    }
    if let Some(picture) = &sample.picture {
        let file = page.parent().unwrap_or(Path::new(".")).join(picture);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut draw = Command::new(program);
        draw.args(["report", "latest", "--svg"]).arg(&file).env("XDG_DATA_HOME", &folder);
        let draw = draw.output()?;
        if !draw.status.success() {
            bail!("no picture of tcptoll {command}: {}", String::from_utf8_lossy(&draw.stderr));
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(shortened(&String::from_utf8(output.stdout)?, sample.lines))
}

/// A report from its answer on, in at most so many lines.
fn shortened(report: &str, lines: usize) -> String {
    let from_answer = report.split_once("\n\n").map_or(report, |(_, rest)| rest).trim_end();
    let mut kept: Vec<&str> = vec![LEFT_OUT];
    kept.extend(from_answer.lines().take(lines).map(str::trim_end));
    if from_answer.lines().count() > lines {
        while kept.last().is_some_and(|line| line.is_empty()) {
            kept.pop();
        }
        kept.push(LEFT_OUT);
    }
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# page\n\n<!-- measured: 2 lines, pictures/a.svg -->\n![a](pictures/a.svg)\n\n\
                        ```text\n$ tcptoll study a\nold\n```\n\nText.\n";

    #[test]
    fn a_block_is_replaced_and_everything_around_it_stays() {
        let mut asked = Vec::new();
        let page = renewed(PAGE, &mut |sample| {
            asked.push(sample.clone());
            Ok("new".to_owned())
        });
        assert_eq!(page.unwrap(), PAGE.replace("old", "new"));
        assert_eq!(asked.len(), 1);
        assert_eq!((asked[0].lines, asked[0].picture.as_deref()), (2, Some("pictures/a.svg")));
        assert_eq!(asked[0].command, ["study", "a"]);
    }

    #[test]
    fn a_comment_without_lines_or_block_is_named() {
        let none = |_: &Sample| -> anyhow::Result<String> { Ok(String::new()) };
        for (wrong, named) in [
            ("<!-- measured: all -->\n```text\n$ tcptoll\n```", "N lines"),
            ("<!-- measured: 2 lines -->\n", "no block"),
            ("<!-- measured: 2 lines -->\n```text\nls\n```", "$ tcptoll"),
        ] {
            let error = renewed(wrong, &mut { none }).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn a_report_is_shown_from_its_answer_on() {
        let report = "lab · 2 CPUs\nrecord r\n\nAn answer.\n\n  table\n  row\n\n";
        assert_eq!(shortened(report, 2), "…\nAn answer.\n…");
        assert_eq!(shortened(report, 9), "…\nAn answer.\n\n  table\n  row");
    }
}
