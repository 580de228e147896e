//! The studies that come with the program, files like them, and how a command line becomes one: an option with several
//! values is a factor.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cli::{RoundArgs, Typed};
use tcptoll_core::experiment::option::Levels;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::error::line_of;
use tcptoll_core::study::{Compare, Study, StudyError, did_you_mean, level_text, suggestion};
use tcptoll_lab::files::{is_too_large, read_at_most};
use tcptoll_measure::experiments;
use tcptoll_measure::kit::TrialError;
use tcptoll_measure::runner::RunError;
use tcptoll_measure::runner::Schedule;

/// Studies of the tour in their order, and what to run for more.
pub(crate) const TOUR: [(&str, &str); 9] = [
    ("tour-connect", "tcptoll connect HOST:PORT"),
    ("tour-queue", "tcptoll accept-queue"),
    ("tour-reuse", "tcptoll http --reuse keep-alive,client-close URL"),
    ("tour-dead-peer", "tcptoll keepalive --detect-within 30s"),
    ("tour-buffers", "tcptoll stream"),
    ("tour-nagle", "tcptoll messages"),
    ("tour-ports", "tcptoll time-wait"),
    ("tour-page", "tcptoll page URL"),
    ("tour-verdict", "tcptoll http URL URL"),
];

/// What each study built in is about, in a line of a list; those of the tour are one line.
pub(crate) const PHRASES: [(&str, &str); 27] = [
    ("avalanche-2021", "Redis stops for 1 s: do all workers hang?"),
    ("backlog", "does a longer accept queue cost anything?"),
    ("backlog-clients", "from how many clients on is a queue too short?"),
    ("connect-2021", "cost of a connection at four distances"),
    ("connection-memory", "kernel memory of idle and full connections"),
    ("dedicated-2016", "KeepAlive of Apache with 8 GB and peaks"),
    ("http-keepalive-2019", "keep-alive or close: who closes, what it costs"),
    ("http-keepalive-jruby", "keep-alive or close, on JRuby"),
    ("http-reuse", "when does reuse of connections matter?"),
    ("java-2008", "message sizes with which Java fills 1 Gbit/s"),
    ("keepalive-2003", "does SO_KEEPALIVE slow down a busy connection?"),
    ("keepalive-cost", "cost of probing 1,000 to 50,000 connections"),
    ("keepalive-sayings", "when does a program detect a lost connection?"),
    ("keepalive-select", "cost of select() on many idle sockets"),
    ("message-2008", "message sizes that fill 1 Gbit/s; Nagle"),
    ("page-2016", "a page of 21 files, with KeepAlive on or off"),
    ("page-2016-long", "the same at round trips of 10 to 20 ms"),
    ("page-loss", "a page on a lossy link: HTTP/1.1 or HTTP/2"),
    ("queue-overflow-2021", "a too slow server: which fix helps clients?"),
    ("requests-per-visitor", "MaxKeepAliveRequests / 6: is the rule right?"),
    ("shipped-defaults", "workers held with the defaults of Debian, RHEL"),
    ("time-wait-2021", "2,000 requests/s and no ports left: which fix?"),
    ("time-wait-service", "how long do ports last at 2,000 requests/s?"),
    ("vps-2016", "KeepAlive of Apache with 512 MB"),
    ("window-2008", "socket buffers that fill 1 Gbit/s on a LAN"),
    ("window-today", "the same on long links; BBR or CUBIC"),
    ("tour-*", "9 short studies: tcptoll tour runs them all"),
];

/// Name and text of each study built in.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("avalanche-2021", include_str!("../studies/avalanche-2021.toml")),
    ("backlog", include_str!("../studies/backlog.toml")),
    ("backlog-clients", include_str!("../studies/backlog-clients.toml")),
    ("connect-2021", include_str!("../studies/connect-2021.toml")),
    ("connection-memory", include_str!("../studies/connection-memory.toml")),
    ("dedicated-2016", include_str!("../studies/dedicated-2016.toml")),
    ("http-keepalive-2019", include_str!("../studies/http-keepalive-2019.toml")),
    ("http-keepalive-jruby", include_str!("../studies/http-keepalive-jruby.toml")),
    ("http-reuse", include_str!("../studies/http-reuse.toml")),
    ("java-2008", include_str!("../studies/java-2008.toml")),
    ("keepalive-2003", include_str!("../studies/keepalive-2003.toml")),
    ("keepalive-cost", include_str!("../studies/keepalive-cost.toml")),
    ("keepalive-sayings", include_str!("../studies/keepalive-sayings.toml")),
    ("keepalive-select", include_str!("../studies/keepalive-select.toml")),
    ("message-2008", include_str!("../studies/message-2008.toml")),
    ("page-2016", include_str!("../studies/page-2016.toml")),
    ("page-2016-long", include_str!("../studies/page-2016-long.toml")),
    ("page-loss", include_str!("../studies/page-loss.toml")),
    ("queue-overflow-2021", include_str!("../studies/queue-overflow-2021.toml")),
    ("requests-per-visitor", include_str!("../studies/requests-per-visitor.toml")),
    ("shipped-defaults", include_str!("../studies/shipped-defaults.toml")),
    ("time-wait-2021", include_str!("../studies/time-wait-2021.toml")),
    ("time-wait-service", include_str!("../studies/time-wait-service.toml")),
    ("tour-buffers", include_str!("../studies/tour-buffers.toml")),
    ("tour-connect", include_str!("../studies/tour-connect.toml")),
    ("tour-dead-peer", include_str!("../studies/tour-dead-peer.toml")),
    ("tour-nagle", include_str!("../studies/tour-nagle.toml")),
    ("tour-page", include_str!("../studies/tour-page.toml")),
    ("tour-ports", include_str!("../studies/tour-ports.toml")),
    ("tour-queue", include_str!("../studies/tour-queue.toml")),
    ("tour-reuse", include_str!("../studies/tour-reuse.toml")),
    ("tour-verdict", include_str!("../studies/tour-verdict.toml")),
    ("vps-2016", include_str!("../studies/vps-2016.toml")),
    ("window-2008", include_str!("../studies/window-2008.toml")),
    ("window-today", include_str!("../studies/window-today.toml")),
];

/// Longest study file that is read.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// The text of a study by its built-in name or file.
pub fn text(name: &str) -> anyhow::Result<String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
        return Ok((*text).to_owned());
    }
    let path = std::path::Path::new(name);
    if !path.exists() {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        let instead = did_you_mean(name, &names).unwrap_or_else(|| suggestion(name, &names));
        bail!("study {name}: it is neither a file nor a built-in study; {instead}");
    }
    let bytes = match read_at_most(path, FILE_MAX_BYTES) {
        Err(error) if is_too_large(&error) => {
            bail!("study {name}: it exceeds {} MiB, the limit for a study", FILE_MAX_BYTES >> 20)
        }
        read => read.with_context(|| format!("study {name}"))?,
    };
    String::from_utf8(bytes).ok().with_context(|| format!("study {name}: it is not UTF-8 text"))
}

/// A study by its built-in name or file, checked.
///
/// Errors: with line, key and remedy.
pub fn load(name: &str) -> anyhow::Result<Study> {
    let text = text(name)?;
    match checked(&text) {
        Ok(study) => Ok(study),
        Err(first) => match all_errors(&text).as_slice() {
            [] | [_] => Err(first).with_context(|| format!("study {name}")),
            several => bail!(
                "study {name}: {} errors\n  {}",
                several.len(),
                several.join("\n  ").replace('\n', "\n  ").replace("\n    line", "\n  line")
            ),
        },
    }
}

/// Most errors of a study that are named together.
const ERRORS_MAX: usize = 20;

/// What is wrong with a study, by line: where an error is found, its line is taken out and the rest checked again.
fn all_errors(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut found: Vec<(usize, String)> = Vec::new();
    while let Err(error) = checked(&lines.join("\n")) {
        let said = format!("{error:#}");
        let number =
            said.strip_prefix("line ").and_then(|rest| rest.split(':').next()?.parse().ok());
        let Some(number) = number.filter(|at| found.iter().all(|(known, _)| known != at)) else {
            break;
        };
        let line: &mut String = &mut lines[number - 1];
        let instead = without_error(line, &said);
        found.push((number, said));
        match instead {
            Some(instead) if found.len() < ERRORS_MAX => *line = instead,
            _ => break,
        }
    }
    found.sort();
    found.into_iter().map(|(_, said)| said).collect()
}

/// A line of a study that can stand where a wrong one was; `None`: what follows from it is not known, so that errors
/// after this one would be errors of ours.
fn without_error(line: &str, said: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let count = |c: char| value.matches(c).count();
    let goes_on = count('[') != count(']') || value.contains("\"\"\"") || value.contains("'''");
    if line.trim_start().starts_with('[') || goes_on {
        return None;
    }
    if said.contains("there is no such key") || said.contains("has no such setting") {
        return Some(String::new());
    }
    match key.trim() {
        "question" => Some("question = 'what?'".to_owned()),
        "experiment" | "name" | "against" | "factor" | "all_pairs" => None,
        _ => Some(String::new()),
    }
}

/// A study from its text, checked as far as it can be without running it.
fn checked(text: &str) -> anyhow::Result<Study> {
    let study = Study::from_toml(text)?;
    names(&study).map_err(|error| error.in_text(text))?;
    match Schedule::from_study(&study).and_then(|mut schedule| schedule.prepare()) {
        Ok(()) => Ok(study),
        Err(RunError::Study(error)) => Err(error.in_text(text).into()),
        Err(error) => Err(match line(text, &study, &error) {
            Some(line) => anyhow::anyhow!("line {line}: {error}"),
            None => error.into(),
        }),
    }
}

/// Checks every name in a study that only its experiment knows.
fn names(study: &Study) -> Result<(), StudyError> {
    let Some(spec) = experiments::find(&study.experiment) else {
        let names: Vec<&str> = experiments::ALL.iter().map(|known| known.name).collect();
        let problem =
            format!("there is no such experiment; {}", suggestion(&study.experiment, &names));
        return Err(StudyError::text("experiment", &study.experiment, problem));
    };
    if study.warmup.is_some() {
        option(spec, "warmup", "warmup")?;
    }
    for name in study.settings.keys() {
        option(spec, &format!("settings.{name}"), name)?;
    }
    for name in study.factors.keys() {
        option(spec, &format!("factors.{name}"), name)?;
    }
    for (arm, number) in study.named_arms.iter().zip(1..) {
        for name in arm.settings.keys() {
            option(spec, &format!("arm[{number}].{name}"), name)?;
        }
    }
    let metrics = spec.metric_names();
    let metrics: Vec<&str> = metrics.iter().map(String::as_str).collect();
    let compared = study.compare.iter().zip(1..).filter_map(|(compare, n)| {
        Some((format!("compare[{n}].metric"), compare.metric.as_ref()?))
    });
    let published = study
        .published
        .iter()
        .zip(1..)
        .map(|(published, n)| (format!("published[{n}].metric"), &published.metric));
    let primary = study.metric.iter().map(|metric| ("metric".to_owned(), metric));
    for (key, metric) in primary.chain(compared).chain(published) {
        if !metrics.contains(&metric.as_str()) {
            let problem = format!("there is no such metric; {}", suggestion(metric, &metrics));
            return Err(StudyError::text(key, metric, problem));
        }
    }
    Ok(())
}

fn option(spec: &Spec, key: &str, name: &str) -> Result<(), StudyError> {
    if spec.option(name).is_some() {
        return Ok(());
    }
    let options = suggestion(name, &spec.option_names());
    let problem = format!("`{}` has no such setting; {options}", spec.name);
    Err(StudyError::key(key, problem))
}

/// The line of the setting that a trial would refuse: its sentence begins with `--OPTION`.
fn line(text: &str, study: &Study, error: &RunError) -> Option<usize> {
    let (arm, refused) = match error {
        RunError::Trial(refused) => (None, refused),
        RunError::Arm { arm, error } => (Some(arm), error),
        _ => return None,
    };
    let TrialError::Setting(sentence) = refused else { return None };
    let option = sentence.strip_prefix("--")?.split([' ', ':']).next()?;
    let arms = study.arms().ok()?;
    let index = arm.and_then(|name| arms.iter().position(|arm| arm.name == *name)).unwrap_or(0);
    let named = index * study.named_arms.len() / arms.len();
    let own = study.named_arms.get(named).filter(|arm| arm.settings.contains_key(option));
    let key = if study.factors.contains_key(option) {
        format!("factors.{option}")
    } else if own.is_some() {
        format!("arm[{}].{option}", named + 1)
    } else if study.settings.contains_key(option) {
        format!("settings.{option}")
    } else {
        option.to_owned()
    };
    line_of(text, &key)
}

/// Puts `OPTION=VALUE` of `--set` into a study: every arm has it, also one that has its own.
pub fn set(study: &mut Study, assignments: &[String]) -> anyhow::Result<()> {
    let options = experiments::find(&study.experiment).map(Spec::option_names).unwrap_or_default();
    for assignment in assignments {
        let Some((option, value)) = assignment.split_once('=') else {
            bail!("--set {assignment}: write OPTION=VALUE, like count=5000");
        };
        let option = option.trim();
        if !options.contains(&option) {
            bail!(
                "--set {assignment}: `{}` has no setting {option}; {}",
                study.experiment,
                suggestion(option, &options)
            );
        }
        if let Some(levels) = study.factors.get(option) {
            let levels: Vec<String> = levels.iter().map(level_text).collect();
            bail!(
                "--set {assignment}: {option} is a factor of the study, with the levels {}: save the study with `tcptoll study show`, change the levels in the file and run it",
                levels.join(", ")
            );
        }
        if option == "warmup" {
            study.warmup = None;
        }
        for arm in &mut study.named_arms {
            arm.settings.remove(option);
        }
        study.settings.insert(option.to_owned(), Value::from(value.trim()));
    }
    Ok(())
}

/// The study that options of an experiment are: one with several values is a factor, and the first
/// arm is what the others are compared against.
///
/// Errors: a list that seems to be one number.
pub(crate) fn from_typed(spec: &Spec, typed: &Typed, rounds: &RoundArgs) -> anyhow::Result<Study> {
    let mut study =
        Study { question: spec.question.into(), experiment: spec.name.into(), ..Study::default() };
    for option in spec.options {
        let Some(values) = typed.get(option.name) else { continue };
        if spec.target == Some(option.name) {
            check_servers(values)?;
        }
        let levels = match option.levels {
            Levels::Each | Levels::EachOr(_) => values.clone(),
            Levels::Split(split) => values.iter().flat_map(|text| split(text)).collect(),
            Levels::One | Levels::Arguments | Levels::Setting => vec![values.join(" ")],
            Levels::Flag => {
                study.settings.insert(option.name.to_owned(), Value::from(true));
                continue;
            }
            Levels::Together => {
                study.settings.insert(option.name.to_owned(), Value::from(values.clone()));
                continue;
            }
        };
        add(&mut study, option.name, levels)?;
    }
    rounds.apply(&mut study);
    (spec.complete)(&mut study);
    if study.compare.is_empty() && !study.factors.is_empty() && (spec.compares)(&study) {
        // What is wrong with the arms is said once the study is checked.
        let first = study.arms().ok().and_then(|arms| Some(arms.first()?.name.clone()));
        study.compare = first
            .map(|name| Compare { against: Some(Value::from(name)), ..Compare::default() })
            .into_iter()
            .collect();
    }
    Ok(study)
}

/// Refuses servers that were written in two words, or with a blank in them.
fn check_servers(values: &[String]) -> anyhow::Result<()> {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    for pair in values.windows(2) {
        let [host, port] = pair else { continue };
        if is_port(port) && !host.contains([':', '/']) {
            bail!("{host} {port}: write host and port in one word: {host}:{port}");
        }
    }
    if let Some(server) = values.iter().find(|text| text.trim().contains(char::is_whitespace)) {
        let encoded = server.trim().replace(char::is_whitespace, "%20");
        bail!(
            "'{server}': a blank ends an address; in a path write %20: {encoded}; several servers are separate words"
        );
    }
    Ok(())
}

/// Adds the values of an option: one is a setting, several are a factor.
fn add(study: &mut Study, name: &str, levels: Vec<String>) -> anyhow::Result<()> {
    if let Some(number) = in_thousands(&levels) {
        let plain = number.replace(',', "");
        bail!("--{name} {number}: a comma separates values; write {plain} for one number");
    }
    let mut seen = BTreeSet::new();
    if let Some(twin) = levels.iter().find(|level| !seen.insert(level.as_str())) {
        bail!("--{name} {twin}: given twice; write each value once");
    }
    let mut levels: Vec<Value> = levels.into_iter().map(Value::from).collect();
    match levels.len() {
        0 => {}
        1 => {
            study.settings.insert(name.to_owned(), levels.remove(0));
        }
        _ => {
            study.factors.insert(name.to_owned(), levels);
        }
    }
    Ok(())
}

/// The number among these values that was written with a comma for each thousand, like `20,000`.
///
/// Only `000` and the like give it away: `1,200` may be two values.
fn in_thousands(values: &[String]) -> Option<String> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let three = |text: &str| text.len() == 3 && number(text);
    let odd = values.iter().position(|value| three(value) && value.starts_with('0'))?;
    let head = values[..odd].iter().rposition(|value| !three(value)).unwrap_or(0);
    let tail = values[odd..].iter().take_while(|value| three(value)).count();
    (head < odd && number(&values[head])).then(|| values[head..odd + tail].join(","))
}

/// With `--resume` the record holds every setting; one that is given as well would be lost.
pub(crate) fn check_alone(typed: &Typed) -> anyhow::Result<()> {
    if typed.is_empty() {
        return Ok(());
    }
    bail!(
        "--resume keeps the settings of the record: leave out all other settings, or start a new run without --resume"
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser as _;

    use crate::cli::{Cli, Command, ExperimentArgs};
    use crate::schema::Schema;

    const HEAD: &str = "question = 'what?'\nexperiment = 'connect'\n";

    /// The study of a command line, like `connect --count 5`, for tests of what becomes of it.
    pub(crate) fn study(line: &str) -> anyhow::Result<Study> {
        let args = parsed(line);
        from_typed(args.spec, &args.typed, &args.rounds)
    }

    fn refused(body: &str) -> String {
        checked(&format!("{HEAD}{body}")).unwrap_err().to_string()
    }

    #[test]
    fn every_built_in_study_is_right() {
        for (name, _) in BUILT_IN {
            let study = load(name).unwrap();
            assert_eq!(study.name, *name);
            assert!(study.source.is_some() || name.starts_with("tour"), "{name}");
        }
        assert!(BUILT_IN.is_sorted());
    }

    #[test]
    fn every_built_in_study_is_valid_against_the_published_schema() {
        let schema = serde_json::from_str(Schema::Study.published()).unwrap();
        jsonschema::meta::validate(&schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for (name, text) in BUILT_IN {
            // As written, and as the record has it.
            let written: Value = toml::from_str(text).unwrap();
            for json in [written, serde_json::to_value(load(name).unwrap()).unwrap()] {
                let errors: Vec<String> =
                    validator.iter_errors(&json).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{name}: {errors:?}");
            }
        }
        let slip = serde_json::json!({"question": "what?", "experiment": "connect", "rouds": 3});
        assert!(!validator.is_valid(&slip), "a slip is found by the schema too");
    }

    #[test]
    fn names_that_only_the_experiment_knows_have_their_line() {
        for (body, says) in [
            (
                "[settings]\ncuont = 3",
                "line 4: settings.cuont: `connect` has no such setting; did you mean count?",
            ),
            ("[factors]\nbaklog = [1, 2]", "line 4: factors.baklog: `connect` has"),
            ("[[arm]]\nname = 'a'\nlnik = 'x'", "line 5: arm[1].lnik: `connect` has"),
            (
                "metric = 'connect_us'",
                "line 3: metric \"connect_us\": there is no such metric; available: ",
            ),
            (
                "metric = 'connect_us_maen'",
                "line 3: metric \"connect_us_maen\": there is no such metric; did you mean connect_us_mean?",
            ),
            (
                "[factors]\nbacklog = [1, 2]\n[[compare]]\nall_pairs = true\nmetric = 'x'",
                "line 7: compare[1].metric \"x\": there is no such metric",
            ),
            ("answer = '{connect: x}'", "line 3: answer \"{connect: x}\": there is no metric x"),
            ("[settings]\nrate = -1", "line 4: --rate -1"),
            ("[[arm]]\nname = 'a'\n[[arm]]\nname = 'b'\nrate = 0", "line 7: arm b: --rate 0"),
        ] {
            let error = refused(body);
            assert!(error.starts_with(says), "{body}: {error}");
        }
        let text = "question = 'what?'\nexperiment = 'conect'\n";
        let error = checked(text).unwrap_err().to_string();
        assert!(error.starts_with("line 2: experiment \"conect\""), "{error}");
        checked(&format!("{HEAD}metric = 'connect_us_p99'\nanswer = '{{connect}}'")).unwrap();
    }

    #[test]
    fn a_study_is_told_all_that_is_wrong_with_it() {
        let text = "question = 'what'\nexperiment = 'connect'\nrouds = 3\n[settings]\ncuont = 3\n\
                    link = 'moon'\nrate = 5\n[factors]\nbaklog = [1,\n2]\n";
        let errors = all_errors(text);
        let begins: Vec<&str> =
            errors.iter().map(|error| error.split(": ").next().unwrap()).collect();
        assert_eq!(begins, ["line 1", "line 3", "line 5", "line 9"], "{errors:?}");
        assert_eq!(all_errors(&format!("{HEAD}[settings]\nrate = -1\nlink = 'moon'")).len(), 2);
        assert_eq!(all_errors(&format!("{HEAD}a = = 3")).len(), 1);
        assert_eq!(all_errors(HEAD), Vec::<String>::new());
        // What is missing once a line is out is not an error of the user's.
        let arm = format!("{HEAD}[[arm]]\nname = ''\n[[arm]]\nname = 'b'\nrate = 0");
        assert_eq!(all_errors(&arm).len(), 1, "{:?}", all_errors(&arm));
    }

    #[test]
    fn a_setting_of_the_command_line_is_of_every_arm() {
        let mut study = Study::from_toml(&format!(
            "{HEAD}[settings]\ncount = 5\n[factors]\nbacklog = [1, 2]\n[[arm]]\nname = 'a'\ncount = 7\n"
        ))
        .unwrap();
        set(&mut study, &["count=9".into(), "link = rtt=1ms,loss=1%".into()]).unwrap();
        for arm in study.arms().unwrap() {
            assert_eq!(arm.settings["count"], "9");
            assert_eq!(arm.settings["link"], "rtt=1ms,loss=1%");
        }
        for (assignment, says) in [
            ("count", "write OPTION=VALUE"),
            ("cuont=3", "did you mean count?"),
            ("backlog=3", "a factor of the study, with the levels 1, 2"),
        ] {
            let error = set(&mut study, &[assignment.to_owned()]).unwrap_err().to_string();
            assert!(error.starts_with("--set ") && error.contains(says), "{error}");
        }
    }

    pub(super) fn parsed(line: &str) -> ExperimentArgs {
        let words = std::iter::once("tcptoll").chain(line.split_whitespace());
        match Cli::parse_from(words).command {
            Some(Command::Experiment(args)) => *args,
            other => panic!("no experiment: {other:?}"),
        }
    }

    #[test]
    fn one_level_is_a_setting_and_two_are_a_factor_compared_against_the_first() {
        let study = study("connect --backlog 4,128 --count 10").unwrap();
        assert_eq!(study.settings["count"], "10");
        assert_eq!(study.factors["backlog"].len(), 2);
        let arms = study.arms().unwrap();
        assert_eq!(arms[1].name, "backlog 128");
        let schedule = Schedule::from_study(&study).unwrap();
        let compared: Vec<_> = schedule.pairs.iter().map(|pair| (pair.a, pair.b)).collect();
        assert_eq!(compared, [(1, 0)]);
        assert_eq!(schedule.rule.max, 30, "the default stop rule");
    }

    #[test]
    fn one_arm_is_compared_with_nothing_and_runs_once() {
        let study = study("connect").unwrap();
        assert!(study.compare.is_empty());
        assert_eq!(Schedule::from_study(&study).unwrap().rule.max, 1);
    }

    #[test]
    fn max_time_limits_the_connections_of_one_arm_against_a_server_of_yours() {
        let one = study("connect --to 127.0.0.1:9 --max-time 30s").unwrap();
        assert_eq!(one.settings["max-time"], "30s");
        assert_eq!(one.rounds.max_time, None);
        assert_eq!(Schedule::from_study(&one).unwrap().rule.max, 1, "one trial");
        for line in [
            "connect --max-time 30s",
            "connect --to 127.0.0.1:9 --max-time 30s --max-rounds 20",
            "connect --to 127.0.0.1:9 --max-time 30s --concurrency 1,2",
            "connect --to 127.0.0.1:9 --max-time 30s --duration 1s",
        ] {
            let study = study(line).unwrap();
            assert_eq!(study.rounds.max_time.as_deref(), Some("30s"), "{line}");
            assert!(!study.settings.contains_key("max-time"), "{line}");
        }
    }

    #[test]
    fn a_resumed_run_takes_no_other_setting() {
        for name in ["connect", "http", "keepalive"] {
            check_alone(&parsed(&format!("{name} --resume run.jsonl")).typed).unwrap();
        }
        let more = parsed("connect --resume run.jsonl --count 10");
        check_alone(&more.typed).unwrap_err();
    }

    #[test]
    fn a_server_in_two_words_or_with_a_blank_is_told_how_to_write_it() {
        let refused = |servers: &[&str]| {
            let servers: Vec<String> = servers.iter().map(|&text| text.to_owned()).collect();
            check_servers(&servers).err().map(|error| error.to_string())
        };
        let says = "127.0.0.1 80: write host and port in one word: 127.0.0.1:80";
        assert_eq!(refused(&["127.0.0.1", "80"]).as_deref(), Some(says));
        let blank = refused(&["http://h/a b"]).unwrap();
        assert!(blank.contains("'http://h/a b'") && blank.contains("http://h/a%20b"), "{blank}");
        assert_eq!(refused(&["a:1", "b:2"]), None);
    }

    #[test]
    fn several_servers_are_an_arm_each_in_every_experiment_that_takes_one() {
        for spec in experiments::ALL.iter().filter(|spec| spec.target.is_some()) {
            let typed: Typed =
                [(spec.target.unwrap(), vec!["a:1".to_owned(), "http://b:2/".to_owned()])].into();
            let study = from_typed(spec, &typed, &RoundArgs::default()).unwrap();
            let arms = study.arms().unwrap();
            assert_eq!(arms.len(), 2, "{}: {study:?}", spec.name);
            assert!(arms[0].name.contains("a:1") && arms[1].name.contains("b:2"), "{arms:?}");
            Schedule::from_study(&study).unwrap();
        }
    }

    #[test]
    fn a_number_with_a_comma_for_each_thousand_is_not_two_values() {
        for (list, number) in [
            ("20,000", Some("20,000")),
            ("100,1,000,000", Some("1,000,000")),
            ("1,500,000", Some("1,500,000")),
            ("5,20,050,7", Some("20,050")),
            ("100,1000", None),
            ("1,200", None),
            ("0,10", None),
            ("000", None),
            ("1s,000", None),
        ] {
            let list: Vec<String> = list.split(',').map(str::to_owned).collect();
            assert_eq!(in_thousands(&list).as_deref(), number, "{list:?}");
        }
        let error = study("connect --count 20,000").unwrap_err().to_string();
        let says = "--count 20,000: a comma separates values; write 20000 for one number";
        assert_eq!(error, says);
    }

    #[test]
    fn ways_of_using_connections_are_arms_compared_against_the_first() {
        let study = study(
            "http --reuse keep-alive,server-close,client-close -H A:1,2 --insecure \
             --server nginx,puma http://127.0.0.1:8080/a http://127.0.0.1:8080/b",
        )
        .unwrap();
        assert_eq!(study.experiment, "http");
        assert_eq!(study.settings["url"], "http://127.0.0.1:8080/a http://127.0.0.1:8080/b");
        assert_eq!(study.settings["header"], serde_json::json!(["A:1,2"]));
        assert_eq!(study.settings["insecure"], true);
        assert_eq!(study.factors["server"], ["nginx", "puma"]);
        let names: Vec<String> = study.arms().unwrap().into_iter().map(|arm| arm.name).collect();
        assert_eq!((names.len(), names[0].as_str()), (6, "reuse keep-alive, server nginx"));
        let against: Vec<_> = study.compare.iter().map(|c| c.against.clone()).collect();
        assert_eq!(against, [Some(Value::from(names[0].as_str()))]);
    }

    #[test]
    fn servers_are_arms_compared_against_the_first_for_each_level_of_other_options() {
        let two = study("http http://127.0.0.1:81/ 127.0.0.1:82").unwrap();
        let pairs = |study: &Study| {
            let pairs = Schedule::from_study(study).unwrap().pairs;
            pairs.iter().map(|pair| (pair.a, pair.b)).collect::<Vec<_>>()
        };
        assert_eq!(pairs(&two), [(1, 0)]);
        assert_eq!(two.arms().unwrap()[1].name, "127.0.0.1:82");
        let four = study("http --connections 1,2 127.0.0.1:81,127.0.0.1:82").unwrap();
        assert_eq!(pairs(&four), [(2, 0), (3, 1)]);
    }

    #[test]
    fn keepalive_measures_all_mechanisms_with_a_fault_and_compares_writers_only() {
        for (line, mechanisms, fault, compares) in [
            ("keepalive", &["none", "tcp", "heartbeat", "lazy"][..], true, false),
            ("keepalive --detect-within 30s", &["tcp", "heartbeat", "lazy"], true, false),
            ("keepalive --to 127.0.0.1:9 --detect-within 30s", &["tcp", "heartbeat"], false, false),
            ("keepalive --to 127.0.0.1:9", &[], false, false),
            ("keepalive --mechanism none,tcp", &["none", "tcp"], false, true),
            ("keepalive --mechanism none,tcp --writer off", &["none", "tcp"], false, false),
            ("keepalive --mechanism none,tcp --fault cut", &["none", "tcp"], true, false),
        ] {
            let study = study(line).unwrap();
            assert_eq!(study.values("mechanism"), mechanisms, "{line}");
            assert_eq!(study.values("fault").len(), usize::from(fault), "{line}");
            assert_eq!(!study.compare.is_empty(), compares, "{line}");
        }
    }
}
