//! How does a command line become a study? An option with several values is a factor.

use anyhow::bail;
use serde_json::Value;
use tcptoll_core::experiment::option::Levels;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::{Compare, Study};

use crate::cli::{RoundArgs, Typed};

/// The study that options of an experiment are: one with several values is a factor, and the first
/// arm is what the others are compared against.
///
/// Errors: a list that seems to be one number.
pub fn from_typed(spec: &Spec, typed: &Typed, rounds: &RoundArgs) -> anyhow::Result<Study> {
    let mut study =
        Study { question: spec.question.into(), experiment: spec.name.into(), ..Study::default() };
    for option in spec.options {
        let Some(values) = typed.get(option.name) else { continue };
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

/// Adds the values of an option: one is a setting, several are a factor.
fn add(study: &mut Study, name: &str, levels: Vec<String>) -> anyhow::Result<()> {
    if let Some(number) = in_thousands(&levels) {
        let plain = number.replace(',', "");
        bail!("--{name} {number}: a comma separates values; write {plain} for one number");
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
pub fn check_alone(typed: &Typed) -> anyhow::Result<()> {
    if typed.is_empty() {
        return Ok(());
    }
    bail!(
        "--resume keeps the settings of the record: leave out all other settings, or start a new run without --resume"
    )
}

/// The study of a command line, like `connect --count 5`, for tests of what becomes of it.
#[cfg(test)]
pub(crate) fn study(line: &str) -> anyhow::Result<Study> {
    let args = tests::parsed(line);
    from_typed(args.spec, &args.typed, &args.rounds)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use tcptoll_measure::runner::Schedule;

    use super::*;
    use crate::cli::{Cli, Command, ExperimentArgs};

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
