//! `study`, and what every study goes through before it runs.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::{prose, report, runs};
use crate::cli::{Format, OutputArgs, RoundArgs, StudyAction, StudyArgs, StudyRunArgs, TourArgs};
use crate::exit::{Status, say};
use crate::output::{about, spans};
use crate::screen::room;
use crate::studies::TOUR;
use crate::{output, screen, stdout, studies};
use tcptoll_core::number;
use tcptoll_core::record::{RECORD_VERSION, Summary};
use tcptoll_core::sheet::{Forms, Part, Parts, Tone};
use tcptoll_core::study::Study;
use tcptoll_core::study::pairs::Pair;
use tcptoll_core::study::stop::Target;
use tcptoll_lab::lab::Interrupt;
use tcptoll_measure::experiments::REPORTS;
use tcptoll_measure::runner::Run;
use tcptoll_measure::runner::Schedule;
use tcptoll_show::printable;
use tcptoll_show::sheet;

/// Does what `tcptoll study …` says.
pub(super) fn run(args: &StudyArgs) -> anyhow::Result<Status> {
    match &args.action {
        Some(StudyAction::Run(args)) => carry_out(args),
        None if args.run.name.is_some() || args.run.rounds.resume.is_some() => carry_out(&args.run),
        None | Some(StudyAction::List) => list(),
        Some(StudyAction::Show { name }) if screen::terminal().is_some() => {
            stdout::text(&shown(name)?)
        }
        Some(StudyAction::Show { name }) => stdout::data(&shown(name)?),
        Some(StudyAction::Check { name, format }) => {
            let schedule = Schedule::from_study(&studies::load(name)?)?;
            let text = match format {
                Format::Text => prose::parts(plan(&schedule), prose::width()),
                Format::Json => serde_json::to_string(&PlanJson::from_schedule(&schedule))? + "\n",
            };
            stdout::print(&text, *format)
        }
    }
}

fn carry_out(args: &StudyRunArgs) -> anyhow::Result<Status> {
    if let Some(record) = &args.rounds.resume {
        if !args.set.is_empty() {
            bail!("--set has no effect with --resume, which keeps all settings: leave it out");
        }
        return output::resume(&runs::found(record)?, None, &args.output);
    }
    let Some(name) = &args.name else {
        bail!("study run: name a study of `tcptoll study list` or a file, or give --resume FILE");
    };
    let mut study = studies::load(name)?;
    studies::set(&mut study, &args.set)?;
    args.rounds.apply(&mut study);
    start(&study, &args.rounds, &args.output)
}

/// Runs a study, or prints what would be run.
pub(super) fn start(
    study: &Study,
    rounds: &RoundArgs,
    output: &OutputArgs,
) -> anyhow::Result<Status> {
    if rounds.dry_run {
        // What would be refused is refused now, except a name that does not resolve.
        let schedule = output::check(study, output)?.schedule;
        output::announce(&schedule);
        let computed = schedule.computed();
        let computed = if computed.is_empty() {
            String::new()
        } else {
            sheet::parts(&tcptoll_show::computed(&computed, true), screen::style()) + "\n"
        };
        return stdout::text(&(computed + &prose::parts(plan(&schedule), prose::width())));
    }
    output::run(study, output)
}

/// The text of a study; what a file holds cannot steer the terminal.
fn shown(name: &str) -> anyhow::Result<String> {
    let text = studies::text(name)?;
    let built_in = studies::BUILT_IN.iter().any(|(built_in, _)| *built_in == name);
    let text = if built_in { text } else { printable(&text) };
    // What goes into a file is not touched.
    Ok(screen::terminal().map_or_else(|| text.clone(), |width| prose::toml(&text, room(width))))
}

/// A line for each study: its name, its least time, what it is about. The tour is one line.
fn list() -> anyhow::Result<Status> {
    stdout::text(&listed()?)
}

fn listed() -> anyhow::Result<String> {
    let longest = studies::PHRASES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut list = format!("{LIST_HEAD}\n\n");
    for (name, phrase) in studies::PHRASES {
        let (mark, least) = match studies::BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            Some((_, text)) => {
                // `studies::load` would look for its servers on this machine; a list does not need them.
                let study = Study::from_toml(text)?;
                let [_, least_s, _] = spans(&Schedule::from_study(&study)?);
                (if study.published.is_empty() { ' ' } else { '*' }, about(least_s))
            }
            None => (' ', "1 min".to_owned()),
        };
        list += &format!("{name:<longest$} {mark} ≥ {least:<6}  {phrase}\n");
    }
    Ok(list)
}

const LIST_HEAD: &str = "tcptoll study NAME runs one; study check NAME lists its arms, rounds and time.\n\
                         *: its report has published figures next to yours.  ≥: the least time.";

/// A plan for programs.
#[derive(Serialize)]
struct PlanJson<'a> {
    experiment: &'a str,
    arms: Vec<&'a str>,
    rounds: PlanRounds,
    round_s: f64,
    least_s: f64,
    most_s: f64,
    /// Servers that tcptoll does not start.
    targets: Vec<&'a str>,
    record_version: u32,
    /// The study as a record's header has it.
    study: &'a Study,
    /// Why its load cannot be split over machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_split: Option<String>,
}

/// Why a study's load cannot be split.
fn not_split(study: &Study) -> Option<String> {
    let mut part = study.clone();
    part.settings.insert("share".to_owned(), "1/1".into());
    let schedule = match Schedule::from_study(&part) {
        Ok(schedule) => schedule,
        Err(error) => return Some(error.to_string()),
    };
    (schedule.rule.target != Target::Rounds)
        .then(|| "it needs a fixed number of rounds, so that all machines run the same".to_owned())
}

#[derive(Serialize)]
struct PlanRounds {
    least: u32,
    most: u32,
}

impl<'a> PlanJson<'a> {
    fn from_schedule(schedule: &'a Schedule) -> Self {
        let [round_s, least_s, most_s] = spans(schedule);
        Self {
            experiment: schedule.spec.name,
            arms: schedule.arms.iter().map(|arm| arm.name.as_str()).collect(),
            rounds: PlanRounds { least: schedule.rule.fewest(), most: schedule.rule.max },
            round_s,
            least_s,
            most_s,
            targets: schedule.target_names(),
            record_version: RECORD_VERSION,
            study: &schedule.study,
            not_split: not_split(&schedule.study),
        }
    }
}

/// What would be run: arms, comparisons, rounds, and the time all that is expected to take.
fn plan(schedule: &Schedule) -> Vec<Part> {
    let Schedule { study, arms, pairs, metric, margin, rule, .. } = schedule;
    let line = |text: String| Part::line(text, Tone::Plain);
    let prose = |indent, text: &str| Part::prose(indent, text, Tone::Plain);
    let mut plan = vec![prose(0, &study.question), Part::Blank, line("arms".to_owned())];
    plan.extend(arms.iter().map(|arm| line(format!("  {}", arm.name))));
    if !pairs.is_empty() {
        plan.push(line(format!("compared, margin {}", number::percent(*margin))));
        let pair = |pair: &Pair| {
            prose(2, &format!("{} / {}, {}", arms[pair.a].name, arms[pair.b].name, pair.metric))
        };
        plan.extend(pairs.iter().map(pair));
    }
    // Nothing is looked at by a fixed number of rounds that compares nothing.
    let first = if pairs.is_empty() && rule.target == Target::Rounds {
        String::new()
    } else {
        format!("; primary metric: {metric}")
    };
    let [round_s, least_s, most_s] = spans(schedule);
    let [round, least, most] = [round_s, least_s, most_s].map(about);
    let all = if arms.len() == 1 { "1 arm".to_owned() } else { format!("{} arms", arms.len()) };
    let time = if rule.max == 1 {
        format!("{all}, at least {round}")
    } else if least_s.round() >= most_s.round() {
        format!("{all}, about {round} a round, at least {most} in all")
    } else {
        format!("{all}, about {round} a round, at least {least} to {most} in all")
    };
    let rounds = prose(2, &format!("{rule}{first}"));
    plan.extend([line("rounds".to_owned()), rounds, line(time), prose(2, NOT_INCLUDED)]);
    plan
}

/// What the times of a plan leave out, because nobody knows it before the run.
const NOT_INCLUDED: &str = "Not included: link checks, witness trials (first round only) and repeats of invalid trials (up \
                            to 3 each).";

// The tour: a short study for each question, one after another, and one report of all.
//
// Each study has its own record, because a record has one experiment. The page is made from the summaries,
// as `tcptoll report A B --html` makes one, so there is one way to put several runs on a page.

/// The report's name where nobody names it.
const REPORT: &str = "tcptoll-report.html";

pub(super) fn tour(args: &TourArgs) -> anyhow::Result<Status> {
    let page = page(args)?;
    let interrupt = output::on_signals()?;
    let style = screen::style();
    if args.format == Format::Text {
        stdout::text(&format!(
            "The tour measures {} answers on this machine, in a lab of its own: about a minute, with load on \
             two CPUs.\nReport: {}\n",
            TOUR.len(),
            printable(&page.display().to_string())
        ))?;
    }
    let mut summaries: Vec<Summary> = Vec::new();
    let mut status = Status::Met;
    for (number, (name, more)) in (1..).zip(TOUR) {
        match part(name, args, &interrupt) {
            Ok(tour) => {
                let is_met =
                    tour.nothing.is_none() && tour.summary.valid && tour.not_stored.is_none();
                status = if is_met { status } else { Status::Missed };
                let text = match args.format {
                    Format::Text => {
                        format!("\n{}", sheet::parts(&answer(number, &tour.summary, more), style))
                    }
                    Format::Json => serde_json::to_string(&tour.summary)? + "\n",
                };
                stdout::print(&text, args.format)?;
                summaries.push(tour.summary);
            }
            Err(_) if interrupt.signal().is_some() => {}
            // Without a lab no part can be measured.
            Err(error) if number == 1 => return Err(error),
            Err(error) => {
                say(&format!("not measured: {error:#}"));
                status = Status::Missed;
            }
        }
        if let Some(signal) = interrupt.signal() {
            status = Status::Stopped(u8::try_from(signal).unwrap_or(0));
            break;
        }
    }
    if summaries.is_empty() {
        return Ok(status);
    }
    let written = report::page_of(&page, &summaries);
    let invalid = summaries.iter().filter(|summary| !summary.valid).count();
    if invalid > 0 {
        say(&format!(
            "{invalid} of {} answers are invalid, with their reasons above: repeat the tour on a quieter machine",
            summaries.len()
        ));
    }
    if let Err(error) = written {
        say(&format!("error: measured, but the report cannot be written: {error:#}"));
        return Ok(Status::NotStored);
    }
    say(&format!("report with pictures: {}", page.display()));
    Ok(status)
}

/// Where the report goes: where it was asked for, else into the current folder, else to the records.
fn page(args: &TourArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.html {
        let option = format!("--html {}", path.display());
        output::check_place(&option, path)?;
        output::check_writable(path).context(option)?;
        return Ok(std::path::absolute(path)?);
    }
    let here = std::path::absolute(REPORT).ok().filter(|path| output::check_writable(path).is_ok());
    match here {
        Some(path) => Ok(path),
        None => Ok(output::record_folder()?.join(REPORT)),
    }
}

/// Measures one part.
fn part(name: &str, args: &TourArgs, interrupt: &Interrupt) -> anyhow::Result<Run> {
    let study = studies::load(name)?;
    output::measure(&study, args.link_tolerance.as_deref(), args.quiet, args.seed, interrupt)
}

/// The question, its answer, and where to go on.
fn answer(number: usize, summary: &Summary, more: &str) -> Parts {
    let head = format!("{number}/{}  {}", TOUR.len(), summary.question);
    // Each arm may have said it.
    let doubts = ["own-server", "link-not-measured"]
        .into_iter()
        .filter_map(|id| summary.warnings.iter().find(|warning| warning.id == id));
    let mut said = vec![summary.answer.clone()];
    said.extend(doubts.map(|warning| warning.text.clone()));
    said.extend(REPORTS.invalid(summary).iter().map(|why| format!("invalid: {why}")));
    said.push(format!("more: {more}"));
    let mut parts = Parts::default();
    parts.put(Forms::TEXT, Part::line(head, Tone::Strong));
    parts.extend(Forms::TEXT, said.into_iter().map(|text| Part::prose(5, text, Tone::Plain)));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduled(text: &str) -> Schedule {
        Schedule::from_study(&Study::from_toml(text).unwrap()).unwrap()
    }

    fn plan(body: &str) -> String {
        let text = format!("question = 'what?'\nexperiment = 'connect'\n{body}");
        prose::parts(super::plan(&scheduled(&text)), 80)
    }

    #[test]
    fn a_plan_has_arms_comparisons_rounds_and_time() {
        let text = plan(
            "margin = '0.5%'\n[settings]\nrate = 100\ncount = 500\n[factors]\nbacklog = [1, 2]\n\
             [[compare]]\nall_pairs = true\n",
        );
        let begins = "what?\n\narms\n  backlog 1\n  backlog 2\ncompared, margin 0.5 %\n  \
                      backlog 2 / backlog 1, connect_us_mean\nrounds\n  until every verdict is \
                      found, ";
        let goes_on = " to 30 rounds, at most 60 s; primary metric:\n  connect_us_mean\n2 \
                       arms, about 10 s a round, ";
        assert!(text.starts_with(begins) && text.contains(goes_on), "{text}");
        let ends = "60 s in all\n  Not included: link checks, witness trials (first round only) and repeats of\n  \
                    invalid trials (up to 3 each).\n";
        assert!(text.ends_with(ends) && text.contains(" a round, at least "), "{text}");
    }

    #[test]
    fn what_a_file_says_cannot_steer_the_terminal() {
        let file = "question = \"what\\u001b[2J\\n\\u202e?\"\nexperiment = 'connect'\n\
                    [settings]\ncount = 50\n[[arm]]\nname = \"a\\u2066\\u009b1m\"\n\
                    [[arm]]\nname = \"b\\u0007\"\n[[compare]]\nall_pairs = true\n";
        let text = prose::parts(super::plan(&scheduled(file)), 80);
        assert!(text.starts_with("what·[2J ?\n\narms\n  a·1m\n  b·\ncompared, "), "{text:?}");
        assert!(text.contains("\n  b· / a·1m, connect_us_mean\n"), "{text:?}");

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# \u{1b}[2J\u{202e}\n[settings]\n\tcount = 1\n").unwrap();
        let text = shown(&file.path().display().to_string()).unwrap();
        assert_eq!(text, "# ·[2J\n[settings]\n\tcount = 1\n");
        let (name, built_in) = studies::BUILT_IN[0];
        assert_eq!(shown(name).unwrap(), built_in);
    }

    #[test]
    fn a_plan_of_one_round_has_one_time() {
        let text = plan("[settings]\ncount = 50\n");
        assert!(text.contains("1 arm, at least ") && !text.contains("in all"), "{text}");
        assert!(text.contains("rounds\n  1 round\n"), "nothing looks at a metric: {text}");
        let text = plan("[rounds]\nfixed = 3\n[settings]\ncount = 50\n");
        assert!(text.contains(" a round, at least ") && !text.contains(" s to "), "{text}");
    }

    #[test]
    fn each_study_has_a_line_of_80_columns_that_says_what_it_is_about() {
        let list = listed().unwrap();
        for (name, _) in studies::BUILT_IN.iter().filter(|(name, _)| !name.starts_with("tour-")) {
            assert!(list.lines().any(|line| line.split(' ').next() == Some(name)), "{name}");
        }
        for line in list.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(list.contains(&format!("{} short studies", TOUR.len())), "{list}");
    }

    #[test]
    fn every_part_is_a_study_and_what_follows_is_a_command() {
        for (name, more) in TOUR {
            studies::load(name).unwrap();
            assert!(more.starts_with("tcptoll "), "{more}");
        }
    }
}
