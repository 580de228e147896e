//! Are verdicts honest, and is nothing lost?

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tcptoll_core::record::{Comparison, Summary, Verdict};
use tcptoll_core::stats::{sample, sequence};
use tcptoll_core::study::stop::MIN_ROUNDS;
use tcptoll_measure::record::{ReadError, Record};

use crate::links::tcptoll;
use crate::table::Folder;
use crate::table::Proofs;

/// Numbers from a fixed recurrence (Knuth's MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Runs `tcptoll study …` and reads its summary.
fn study(args: &[&str]) -> anyhow::Result<Summary> {
    let output = Command::new(tcptoll()?)
        .args(["study", "run"])
        .args(args)
        .args(["--quiet", "--format", "json"])
        .output()?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!("study {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr))
    })
}

/// The synthetic sources and the agreement with scipy: tests of the statistics, which print their
/// figures as rows of this table.
pub(crate) fn honesty(table: &mut Proofs) -> anyhow::Result<()> {
    let output = Command::new("cargo")
        .args(["test", "--release", "--locked", "--quiet", "--package", "tcptoll-core"])
        .args(["--test", "honesty", "--test", "scipy", "--", "--nocapture", "--test-threads=1"])
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows = 0;
    // The first of a test stands behind the test's name.
    for (_, line) in text.lines().filter_map(|line| line.split_once("figure: ")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [what, goal, measured, met] = cells.as_slice() else { bail!("row: {line}") };
        table.row(what, goal, measured, *met == "met");
        rows += 1;
    }
    if rows == 0 {
        bail!("the tests printed no figure: {text}");
    }
    Ok(())
}

const AA: &str = "\
question = 'Is an arm different from itself?'
experiment = 'connect'
margin = '1%'
[settings]
link = 'direct'
count = 300
[rounds]
target = 'verdict'
max = 20
[[arm]]
name = 'a'
[[arm]]
name = 'b'
[[compare]]
against = 'a'
";

/// The same arm twice, in the lab; and what its spread says of a true difference of 5 %.
pub(crate) fn itself(table: &mut Proofs) -> anyhow::Result<()> {
    const STUDIES: usize = 100;
    let folder = Folder::new("itself")?;
    let file = folder.file("itself.toml", AA)?;
    let mut told_apart = 0;
    let mut equal = 0;
    let mut ratios: Vec<f64> = Vec::new();
    let mut round_s: Vec<f64> = Vec::new();
    for seed in 0..STUDIES {
        let summary = study(&[&file, "--seed", &seed.to_string(), "--out", "/dev/null"])?;
        let comparison = summary.comparisons.first().context("comparison")?;
        told_apart += usize::from(matches!(comparison.verdict, Verdict::Higher | Verdict::Lower));
        equal += usize::from(comparison.verdict == Verdict::NoDifference);
        let rounds = summary.rounds.as_ref().context("rounds")?;
        round_s.push(rounds.elapsed_s / f64::from(rounds.done));
        ratios.extend(log_ratios(&summary, "connect_us_mean"));
    }
    table.row(
        "A/A in the lab, 100 studies with early stopping: told apart",
        "at most 5",
        &format!(
            "{told_apart}; no difference found {equal}, not enough evidence {}",
            STUDIES - told_apart - equal
        ),
        told_apart <= 5,
    );
    let sd = sample::sd(&ratios).context("spread")?;
    let round_s = sample::mean(&round_s).context("rounds")?;
    Proofs::fact(
        "spread of the paired ratios of these rounds (300 connections each)",
        &format!("{:.1} % in {} rounds of {round_s:.2} s", sd * 100.0, ratios.len()),
    );
    // Whole studies are drawn from the rounds that were measured, with 5 % put in.
    let mut dice = Dice(5);
    let (mut found, mut rounds_needed) = (0, Vec::new());
    for _ in 0..1000 {
        let mut drawn = Vec::new();
        let verdict = loop {
            let at = dice.below(ratios.len() as u64) as usize;
            let sign = if dice.below(2) == 0 { 1.0 } else { -1.0 };
            drawn.push(ratios[at] * sign + 1.05_f64.ln());
            if drawn.len() < MIN_ROUNDS as usize {
                continue;
            }
            match sequence::interval(&drawn, 0.05) {
                Some([low, _]) if low > 0.0 => break Some(drawn.len()),
                _ if drawn.len() >= 300 => break None,
                _ => {}
            }
        };
        if let Some(rounds) = verdict {
            found += 1;
            rounds_needed.push(rounds as f64);
        }
    }
    let rounds = sample::median(&rounds_needed).unwrap_or(300.0);
    table.row(
        "power: 5 % put into those rounds, 1,000 studies drawn from them, at most 300 rounds",
        "found in at least 90 %",
        &format!(
            "{:.1} %, in the median after {rounds} rounds = {:.1} s",
            f64::from(found) / 10.0,
            rounds * round_s
        ),
        found >= 900,
    );
    Ok(())
}

/// Paired log-ratios of the first two arms' rounds.
fn log_ratios(summary: &Summary, metric: &str) -> Vec<f64> {
    let [a, b] = summary.arms.as_slice() else { return Vec::new() };
    let value = |arm: &tcptoll_core::record::Arm, round| {
        let found = arm.rounds.iter().find(|r| r.round == round && r.left_out.is_none())?;
        found.metrics.get(metric).copied()
    };
    (0..).take(1000).filter_map(|r| Some((value(a, r)? / value(b, r)?).ln())).collect()
}

const FIVE_PERCENT: &str = "\
question = 'Is 5 % more distance found?'
experiment = 'connect'
[settings]
count = 300
concurrency = 4
[factors]
link = ['rtt=1000us', 'rtt=1050us']
[rounds]
target = 'verdict'
max = 30
[[compare]]
factor = 'link'
against = 'rtt=1000us'
";

/// A difference of 5 % that is really there.
pub(crate) fn power(table: &mut Proofs) -> anyhow::Result<()> {
    const STUDIES: usize = 20;
    let folder = Folder::new("power")?;
    let file = folder.file("power.toml", FIVE_PERCENT)?;
    let (mut found, mut seconds, mut rounds) = (0, Vec::new(), Vec::new());
    for seed in 0..STUDIES {
        let begun = Instant::now();
        let summary = study(&[&file, "--seed", &seed.to_string(), "--out", "/dev/null"])?;
        seconds.push(begun.elapsed().as_secs_f64());
        found += usize::from(summary.comparisons[0].verdict == Verdict::Higher);
        rounds.push(f64::from(summary.rounds.context("rounds")?.done));
    }
    table.row(
        "power in the lab: round trips of 1.05 against 1.00 ms, 20 studies",
        "found in at least 90 %",
        &format!(
            "{found} of {STUDIES}, in the median after {} rounds, {:.1} s with the link's own measurement",
            sample::median(&rounds).unwrap_or(f64::NAN),
            sample::median(&seconds).unwrap_or(f64::NAN)
        ),
        found * 10 >= STUDIES * 9,
    );
    Ok(())
}

const KILLED: &str = "\
question = 'Is anything lost?'
experiment = 'connect'
[settings]
link = 'direct'
count = 100
[rounds]
fixed = 5
[factors]
backlog = [16, 64, 256]
[[compare]]
all_pairs = true
";

/// `kill -9` at random moments, and `--resume`.
pub(crate) fn resume(table: &mut Proofs) -> anyhow::Result<()> {
    const KILLS: u32 = 200;
    let folder = Folder::new("resume")?;
    let file = folder.file("killed.toml", KILLED)?;
    let mut dice = Dice(20_261_122);
    // How long a whole run takes here: the moments are spread over it.
    let begun = Instant::now();
    study(&[&file, "--out", "/dev/null"])?;
    let whole_us = begun.elapsed().as_micros() as u64;
    let (mut unreadable, mut lost, mut not_completed, mut torn, mut twice) = (0, 0, 0, 0, 0);
    let mut kept = 0;
    for number in 0..KILLS {
        let out = folder.0.join(format!("{number}.jsonl"));
        let path = out.display().to_string();
        let mut child = Command::new(tcptoll()?)
            .args(["study", "run", &file, "--quiet", "--out", &path])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let until = Instant::now() + Duration::from_micros(dice.below(whole_us));
        // What stood in the file before the kill was finished then, and must be there after it.
        let mut seen = 0;
        while Instant::now() < until {
            seen = lines(&out);
            std::thread::sleep(Duration::from_millis(3));
        }
        child.kill()?;
        child.wait()?;
        let (lines_left, trials) = match Record::read(&out) {
            Ok(record) => {
                torn += u32::from(record.torn);
                (record.lines.len(), record.trials().count())
            }
            // Killed before its first trial had ended.
            Err(ReadError::Empty) => (0, 0),
            Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => (0, 0),
            Err(error) => {
                eprintln!("kill {number}: {error}");
                unreadable += 1;
                continue;
            }
        };
        kept += trials;
        lost += u32::from(lines_left < seen);
        if trials == 0 {
            continue;
        }
        let before = fs::read(&out)?;
        let resumed = Command::new(tcptoll()?)
            .args(["study", "--resume", &path, "--quiet", "--format", "json"])
            .output()?;
        let after = fs::read(&out)?;
        let whole = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        lost += u32::from(after.get(..whole) != Some(&before[..whole]));
        let record = Record::read(&out)?;
        let mut done: Vec<(u32, &str)> = record
            .trials()
            .filter(|t| t.counts())
            .map(|t| (t.round, t.arm.name.as_str()))
            .collect();
        let all = done.len();
        done.sort_unstable();
        done.dedup();
        twice += u32::from(done.len() != all);
        // An invalid trial that three repetitions did not mend has been run, too.
        let ended = record.trials().filter(|t| !t.arm.partial);
        let ended: BTreeSet<(u32, &str)> = ended.map(|t| (t.round, t.arm.name.as_str())).collect();
        let complete = matches!(resumed.status.code(), Some(0 | 1))
            && ended.len() == 15
            && record.summary().is_some_and(|summary| !summary.partial);
        if !complete {
            eprintln!("kill {number}: {}", String::from_utf8_lossy(&resumed.stderr));
            not_completed += 1;
        }
    }
    table.row(
        "kill -9 at 200 random moments of a study: records that cannot be read, trials lost, not completed by --resume, run twice",
        "0, 0, 0, 0",
        &format!("{unreadable}, {lost}, {not_completed}, {twice} ({kept} trials kept, {torn} torn lines)"),
        unreadable + lost + not_completed + twice == 0,
    );
    Ok(())
}

/// SIGTERM at random moments of a study: how long until its record and summary are whole.
pub(crate) fn stops(table: &mut Proofs) -> anyhow::Result<()> {
    const STOPS: u32 = 20;
    let folder = Folder::new("stops")?;
    let study = KILLED.replace("link = 'direct'", "link = 'cross-region'");
    let file = folder.file("stopped.toml", &study.replace("fixed = 5", "fixed = 50"))?;
    let mut dice = Dice(20_261_123);
    let (mut longest, mut not_whole) = (Duration::ZERO, 0);
    for number in 0..STOPS {
        let out = folder.0.join(format!("{number}.jsonl"));
        let child = Command::new(tcptoll()?)
            .args(["study", "run", &file, "--quiet", "--format", "json", "--out"])
            .arg(&out)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        while lines(&out) < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_micros(dice.below(2_000_000)));
        let asked = Instant::now();
        let kill = format!("kill -s TERM {}", child.id());
        Command::new("sh").args(["-c", &kill]).status()?;
        let output = child.wait_with_output()?;
        longest = longest.max(asked.elapsed());
        let said: Option<Summary> = serde_json::from_slice(&output.stdout).ok();
        let whole = output.status.code() == Some(143)
            && said.is_some_and(|summary| summary.partial)
            && Record::read(&out)?.summary().is_some_and(|summary| summary.partial);
        not_whole += u32::from(!whole);
    }
    table.row(
        "SIGTERM at 20 random moments of a study at 37 ms: longest until record and summary are whole; not whole",
        "1 s; 0",
        &format!("{:.2} s; {not_whole}", longest.as_secs_f64()),
        longest <= Duration::from_secs(1) && not_whole == 0,
    );
    Ok(())
}

fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| {
        let torn = usize::from(bytes.last().is_some_and(|byte| *byte != b'\n'));
        bytes.split_inclusive(|byte| *byte == b'\n').count() - torn
    })
}

/// A study of 4 × 2 arms at 17 s a trial, and the same at 0.5 s.
pub(crate) fn shorter(table: &mut Proofs) -> anyhow::Result<()> {
    let run = |duration: &str| -> anyhow::Result<(Summary, f64)> {
        let begun = Instant::now();
        let setting = format!("duration={duration}");
        let summary =
            study(&["backlog-clients", "--set", &setting, "--rounds", "6", "--out", "/dev/null"])?;
        Ok((summary, begun.elapsed().as_secs_f64()))
    };
    let (long, long_s) = run("17s")?;
    let (short, short_s) = run("0.5s")?;
    let same =
        long.comparisons.iter().zip(&short.comparisons).filter(|(l, s)| l.verdict == s.verdict);
    let same = same.count();
    table.row(
        "4 × 2 study, 6 rounds, trials of 17 s shortened to 0.5 s: verdicts that are the same",
        "all",
        &format!("{same} of {}: {}", long.comparisons.len(), said(&long.comparisons)),
        same == long.comparisons.len(),
    );
    Proofs::fact(
        "total time; what was given up: half widths of the intervals",
        &format!(
            "{long_s:.0} s against {short_s:.0} s; {} against {}",
            widths(&long.comparisons),
            widths(&short.comparisons)
        ),
    );
    Ok(())
}

fn said(comparisons: &[Comparison]) -> String {
    let words: Vec<String> = comparisons.iter().map(|c| c.verdict.to_string()).collect();
    words.join(", ")
}

fn widths(comparisons: &[Comparison]) -> String {
    let words: Vec<String> = comparisons
        .iter()
        .map(|c| match c.ci95 {
            Some([low, high]) if low > 0.0 => {
                format!("{:.1} %", ((high / low).sqrt() - 1.0) * 100.0)
            }
            _ => "no end".to_owned(),
        })
        .collect();
    words.join(", ")
}
