//! The studies that come with the program, and files like them. `options` says how a command line
//! becomes one.

use anyhow::{Context as _, bail};
use serde_json::Value;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::error::line_of;
use tcptoll_core::study::{Study, StudyError, did_you_mean, level_text, suggestion};
use tcptoll_lab::files::{is_too_large, read_at_most};
use tcptoll_measure::experiments;
use tcptoll_measure::kit::plan::TrialError;
use tcptoll_measure::runner::{RunError, Schedule};

mod options;

pub use options::{check_alone, from_typed};

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

/// Name and text of each study built in.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("avalanche-2021", include_str!("../../studies/avalanche-2021.toml")),
    ("backlog", include_str!("../../studies/backlog.toml")),
    ("backlog-clients", include_str!("../../studies/backlog-clients.toml")),
    ("connect-2021", include_str!("../../studies/connect-2021.toml")),
    ("connection-memory", include_str!("../../studies/connection-memory.toml")),
    ("dedicated-2016", include_str!("../../studies/dedicated-2016.toml")),
    ("http-keepalive-2019", include_str!("../../studies/http-keepalive-2019.toml")),
    ("http-keepalive-jruby", include_str!("../../studies/http-keepalive-jruby.toml")),
    ("http-reuse", include_str!("../../studies/http-reuse.toml")),
    ("java-2008", include_str!("../../studies/java-2008.toml")),
    ("keepalive-2003", include_str!("../../studies/keepalive-2003.toml")),
    ("keepalive-cost", include_str!("../../studies/keepalive-cost.toml")),
    ("keepalive-sayings", include_str!("../../studies/keepalive-sayings.toml")),
    ("keepalive-select", include_str!("../../studies/keepalive-select.toml")),
    ("message-2008", include_str!("../../studies/message-2008.toml")),
    ("page-2016", include_str!("../../studies/page-2016.toml")),
    ("page-2016-long", include_str!("../../studies/page-2016-long.toml")),
    ("page-loss", include_str!("../../studies/page-loss.toml")),
    ("queue-overflow-2021", include_str!("../../studies/queue-overflow-2021.toml")),
    ("requests-per-visitor", include_str!("../../studies/requests-per-visitor.toml")),
    ("shipped-defaults", include_str!("../../studies/shipped-defaults.toml")),
    ("time-wait-2021", include_str!("../../studies/time-wait-2021.toml")),
    ("time-wait-service", include_str!("../../studies/time-wait-service.toml")),
    ("tour-buffers", include_str!("../../studies/tour-buffers.toml")),
    ("tour-connect", include_str!("../../studies/tour-connect.toml")),
    ("tour-dead-peer", include_str!("../../studies/tour-dead-peer.toml")),
    ("tour-nagle", include_str!("../../studies/tour-nagle.toml")),
    ("tour-page", include_str!("../../studies/tour-page.toml")),
    ("tour-ports", include_str!("../../studies/tour-ports.toml")),
    ("tour-queue", include_str!("../../studies/tour-queue.toml")),
    ("tour-reuse", include_str!("../../studies/tour-reuse.toml")),
    ("tour-verdict", include_str!("../../studies/tour-verdict.toml")),
    ("vps-2016", include_str!("../../studies/vps-2016.toml")),
    ("window-2008", include_str!("../../studies/window-2008.toml")),
    ("window-today", include_str!("../../studies/window-today.toml")),
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
    checked(&text(name)?).with_context(|| format!("study {name}"))
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

#[cfg(test)]
pub(crate) use options::study;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    const HEAD: &str = "question = 'what?'\nexperiment = 'connect'\n";

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
}
