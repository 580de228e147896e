//! Which words say how often every arm is run, and when to stop?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;

use clap::Args;
use tcptoll_core::study::stop::{ROUNDS_MAX, Target};
use tcptoll_core::study::{RoundsAsked, Study, failures_share, percentage};
use tcptoll_core::units::parse_time;

/// How often every arm is run; the same for every experiment.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Rounds")]
pub struct RoundArgs {
    /// Number of rounds. Each round runs every arm (variant) once, in random order [default: 1 with
    /// one arm; otherwise until every verdict is found, from round 15 on, at most 30 rounds or 60s]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX)),
        conflicts_with_all = ["target", "max_rounds"]
    )]
    pub rounds: Option<u32>,
    /// Stop when every comparison has a verdict ('verdict'), or when every confidence interval
    /// reaches at most 1% to each side ('ci 1%')
    #[arg(long, value_name = "TARGET", value_parser = target)]
    pub target: Option<String>,
    /// Maximum number of rounds [default: 30]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX))
    )]
    pub max_rounds: Option<u32>,
    /// Start no round that would end after this time, e.g. 2m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub max_time: Option<String>,
    /// Smallest difference that matters, e.g. 1%. If the whole interval lies within it, the verdict
    /// is 'no difference found'
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub margin: Option<String>,
    /// Share of operations that may fail, e.g. 60%. If more fail, the run is invalid (exit status
    /// 1) [default: 1%; no limit where failures are the subject, as with a full queue]
    #[arg(long, value_name = "PERCENT", value_parser = failures)]
    pub allow_errors: Option<String>,
    /// Print arms, comparisons, rounds and expected time without running anything
    #[arg(long, alias = "no-proof")]
    pub dry_run: bool,
    /// Continue a run that was stopped or killed: its record, a name from `tcptoll runs`, or latest.
    /// The record contains all other settings
    #[arg(
        long,
        value_name = "RECORD",
        conflicts_with_all =
            ["rounds", "target", "max_rounds", "max_time", "margin", "allow_errors", "dry_run"]
    )]
    pub resume: Option<PathBuf>,
}

impl RoundArgs {
    /// Puts what was typed in the place of what the study says.
    pub fn apply(&self, study: &mut Study) {
        let rounds = &mut study.rounds;
        if let Some(count) = self.rounds {
            // So many, however long they take.
            *rounds = RoundsAsked { fixed: Some(count), ..RoundsAsked::default() };
        }
        if let Some(target) = &self.target {
            rounds.fixed = None;
            rounds.target = Some(target.clone());
        }
        if let Some(most) = self.max_rounds {
            if let Some(fixed) = &mut rounds.fixed {
                *fixed = most.min(*fixed);
            } else {
                rounds.max = Some(most);
                rounds.min = rounds.min.map(|least| least.min(most));
            }
        }
        if let Some(time) = &self.max_time {
            rounds.max_time = Some(time.clone());
        }
        if let Some(margin) = &self.margin {
            study.margin = Some(margin.clone());
        }
        if let Some(share) = &self.allow_errors {
            study.failures = Some(share.clone());
            study.named_arms.iter_mut().for_each(|arm| arm.failures = None);
        }
    }
}

fn target(text: &str) -> Result<String, &'static str> {
    Target::parse(text).map(|_| text.to_owned())
}

fn time(text: &str) -> Result<String, String> {
    parse_time(text).map(|_| text.to_owned()).map_err(|error| error.remedy().replace("37ms", "2m"))
}

fn failures(text: &str) -> Result<String, &'static str> {
    failures_share(text)
        .map(|_| text.to_owned())
        .ok_or("write a percentage from 0% to 100%, like 60%, or expected")
}

pub(super) fn percent(text: &str) -> Result<String, &'static str> {
    percentage(text)
        .map(|_| text.to_owned())
        .ok_or("write a percentage above 0% and below 100%, like 1%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        rounds: RoundArgs,
    }

    fn typed(words: &[&str]) -> Result<RoundArgs, String> {
        Alone::try_parse_from([&["x"], words].concat())
            .map(|alone| alone.rounds)
            .map_err(|error| error.to_string())
    }

    /// What becomes of a study's rounds.
    fn applied(words: &[&str], rounds: RoundsAsked) -> RoundsAsked {
        let mut study = Study { rounds, ..Study::default() };
        typed(words).unwrap().apply(&mut study);
        study.rounds
    }

    #[test]
    fn what_is_typed_takes_the_place_of_what_the_study_says() {
        let fixed = RoundsAsked { fixed: Some(30), ..RoundsAsked::default() };
        let sought = RoundsAsked {
            target: Some("ci 1%".into()),
            min: Some(8),
            max: Some(50),
            ..RoundsAsked::default()
        };
        assert_eq!(applied(&[], sought.clone()), sought);
        let three = RoundsAsked { fixed: Some(3), ..RoundsAsked::default() };
        assert_eq!(applied(&["--rounds", "3"], sought.clone()), three);
        assert_eq!(applied(&["--max-rounds", "3"], fixed.clone()), three);
        assert_eq!(
            applied(&["--target", "verdict", "--max-time", "2m"], fixed),
            RoundsAsked {
                target: Some("verdict".into()),
                max_time: Some("2m".into()),
                ..RoundsAsked::default()
            }
        );
        let fewer = applied(&["--max-rounds", "6"], sought);
        assert_eq!((fewer.min, fewer.max), (Some(6), Some(6)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_option() {
        for (words, says) in [
            (&["--rounds", "0"][..], "--rounds"),
            (&["--rounds", "-1"], "--rounds"),
            (&["--max-rounds", "1001"], "1..=1000"),
            (&["--target", "ci"], "write \"ci 1%\" or \"verdict\""),
            (&["--max-time", "2"], "like 2m"),
            (&["--margin", "0%"], "like 1%"),
            (&["--allow-errors", "60"], "like 60%"),
            (&["--rounds", "3", "--target", "verdict"], "--target"),
            (&["--resume", "x", "--rounds", "3"], "--resume"),
        ] {
            let error = typed(words).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
