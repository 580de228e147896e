//! `--prove`: the found setting and the present one in turn, on a server of the user's.
//!
//! It switches by commands of the user's. A tool that writes a server's configuration over ssh would need the
//! server's layout, root and a way back; two commands know all three.

use std::time::Duration;

use crate::tune::found::Proof;
use anyhow::bail;
use serde_json::Value;
use tcptoll_core::experiment::option::Only;
use tcptoll_core::record::Verdict;
use tcptoll_core::study::{Compare, NamedArm, RoundsAsked, Study};
use tcptoll_core::units::text_time;
use tcptoll_lab::lab::Interrupt;
use tcptoll_measure::runner::Schedule;

use super::load::Load;
use super::search::stored;
use crate::cli::TuneArgs;
use crate::output;
use crate::tune_studies::{search, spec};

/// The names of the two arms.
const ARMS: [&str; 2] = ["found", "present"];

/// Rounds: a verdict of no difference needs fifteen.
const ROUNDS: [u32; 2] = [6, 30];

/// What is proven, and how the server is switched.
pub(super) struct Wanted<'a> {
    pub(super) url: &'a str,
    /// Commands that switch to the found setting, and to the present one.
    pub(super) switches: [&'a str; 2],
    pub(super) time: Duration,
}

impl Wanted<'_> {
    /// The study of a proof. Options of the lab have no effect on a server of the user's.
    fn study(&self, load: &Load) -> Study {
        let mut study = search();
        "Are pages shorter with the found setting than with the present one?"
            .clone_into(&mut study.question);
        let of_lab = |name: &str| {
            spec().option(name).is_some_and(|option| {
                option.only.iter().any(|only| matches!(only, Only::Lab | Only::With(..)))
            })
        };
        study.settings = load
            .settings
            .iter()
            .filter(|(n, _)| !of_lab(n))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        study.settings.insert("url".to_owned(), Value::from(self.url));
        study.named_arms = ARMS
            .iter()
            .zip(self.switches)
            .map(|(name, switch)| NamedArm {
                name: (*name).to_owned(),
                settings: [("before".to_owned(), Value::from(switch))].into(),
                ..NamedArm::default()
            })
            .collect();
        study.compare = vec![Compare { against: Some(Value::from(ARMS[1])), ..Compare::default() }];
        study.rounds = RoundsAsked {
            target: Some("verdict".to_owned()),
            min: Some(ROUNDS[0]),
            max: Some(ROUNDS[1]),
            max_time: Some(text_time(self.time)),
            ..RoundsAsked::default()
        };
        study
    }

    /// Checks what can be checked without a connection.
    pub(super) fn check(&self, load: &Load) -> anyhow::Result<()> {
        Schedule::from_study(&self.study(load))?;
        Ok(())
    }

    /// Runs it.
    ///
    /// Errors: nothing was measured.
    pub(super) fn run(
        &self,
        load: &Load,
        args: &TuneArgs,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Proof> {
        let tolerance = &args.link_tolerance;
        let run = output::measure(&self.study(load), Some(tolerance), args.quiet, None, interrupt)?;
        let none = run.summary.arms.iter().find(|arm| arm.ok == 0);
        if let (Some(arm), None) = (none, run.signal) {
            let classes: Vec<&str> = arm.errors.keys().map(String::as_str).collect();
            bail!(
                "no page succeeded with the {} setting ({} failed: {}); nothing is proved",
                arm.name,
                arm.attempts,
                classes.join(", ")
            );
        }
        let comparison = run.summary.comparisons.first().cloned();
        let failed: Vec<String> = run
            .summary
            .arms
            .iter()
            .filter(|arm| arm.attempts > arm.ok)
            .map(|arm| {
                format!(
                    "{} of {} pages failed with the {} setting",
                    arm.attempts - arm.ok,
                    arm.attempts,
                    arm.name
                )
            })
            .collect();
        let verdict = comparison.as_ref().map_or(Verdict::NotEnough, |one| one.verdict);
        let ratio = comparison.as_ref().and_then(|one| Some((one.ratio?, one.ci95)));
        let figures = match ratio {
            Some((ratio, Some([low, high]))) => {
                format!(
                    "{ratio:.2}× the p95 page time of the present one (95 % CI {low:.2}–{high:.2})"
                )
            }
            Some((ratio, None)) => format!("{ratio:.2}× the p95 page time of the present one"),
            None => "no ratio".to_owned(),
        };
        let words = match verdict {
            Verdict::Lower => "pages are shorter with the found setting",
            Verdict::Higher => "pages are longer with the found setting: keep the present one",
            Verdict::NoDifference => "no difference found",
            Verdict::NotEnough => "not enough evidence: give it more time (--prove-time)",
        };
        let mut text = format!("Found setting: {figures}: {words}.");
        if !failed.is_empty() {
            text += &format!(" {}.", failed.join("; "));
        }
        Ok(Proof { url: self.url.to_owned(), comparison, text, record: stored(&run) })
    }
}

/// Whether the proof speaks against the found setting.
pub(super) fn is_worse(proof: &Proof) -> bool {
    proof.comparison.as_ref().is_some_and(|one| one.verdict == Verdict::Higher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_takes_visitors_and_leaves_the_lab() {
        let settings = [("rate", "3"), ("memory", "512M"), ("link", "rtt=5ms"), ("duration", "4s")];
        let settings = settings.map(|(n, v)| (n.to_owned(), Value::from(v))).into();
        let load = Load { settings, ..Load::default() };
        let wanted = Wanted {
            url: "http://127.0.0.1:8080/",
            switches: ["true", "false"],
            time: Duration::from_mins(1),
        };
        wanted.check(&load).unwrap();
        let study = wanted.study(&load);
        assert_eq!(study.settings.keys().collect::<Vec<_>>(), ["duration", "rate", "url"]);
        let before: Vec<&Value> =
            study.named_arms.iter().map(|arm| &arm.settings["before"]).collect();
        assert_eq!(before, ["true", "false"]);
        let bad = Wanted { url: "ftp://a/", ..wanted };
        assert!(bad.check(&load).is_err());
    }
}
