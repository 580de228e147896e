//! When has a run seen enough?

use std::fmt;
use std::time::Duration;

use crate::number;
use crate::stats::sequence::ROUNDS_TO_BE_NARROW;
use crate::study::{RoundsAsked, Study, StudyError, percentage};
use crate::units::{parse_time, plural};

/// What a run is after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// A number of rounds, whatever they show.
    Rounds,
    /// A verdict for every comparison.
    Verdicts,
    /// Every interval reaches at most this far to each side, relative: 0.01 is 1 %.
    Interval(f64),
}

impl Target {
    /// Reads `verdict` or `ci 1%`.
    ///
    /// Errors: anything else, as a clause that says what to write.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const REMEDY: &str = "write \"ci 1%\" or \"verdict\"";
        match text.trim() {
            "verdict" => Ok(Self::Verdicts),
            other => {
                other.strip_prefix("ci ").and_then(percentage).map(Self::Interval).ok_or(REMEDY)
            }
        }
    }
}

/// When to stop.
#[derive(Clone, Debug, PartialEq)]
pub struct StopRule {
    /// What is sought.
    pub target: Target,
    /// Rounds run before the target is looked for.
    pub min: u32,
    /// Most rounds.
    pub max: u32,
    /// Time that no round but the first is expected to end after.
    pub max_time: Option<Duration>,
}

/// Fewest rounds with a target, unless the study says other.
///
/// An interval has an end from 5 rounds on ([`crate::stats::sequence`]), and a difference may be told
/// there. But a mode not seen yet fakes a difference as well as a narrow interval, and below 8 rounds
/// no diagnostic can speak: who wants to stop earlier says so.
pub const MIN_ROUNDS: u32 = ROUNDS_TO_BE_NARROW as u32;
/// Most rounds with a target, unless the study says other.
pub const MAX_ROUNDS: u32 = 30;
/// Most rounds of any study.
pub const ROUNDS_MAX: u32 = 1_000;
/// Time limit where neither rounds nor time are asked for.
pub const MAX_TIME: Duration = Duration::from_mins(1);

impl StopRule {
    /// What a study asks for. Without `[rounds]`: until every comparison has its verdict, 15 to 30
    /// rounds, at most a minute; once, where nothing is compared. A smaller `min` than 15, or a `max`
    /// below it, is taken at its word: higher and lower are told from 5 rounds on.
    pub fn from_study(study: &Study) -> Result<Self, StudyError> {
        let RoundsAsked { fixed, target, min, max, max_time } = &study.rounds;
        for (name, count) in [("fixed", fixed), ("min", min), ("max", max)] {
            if let Some(count) = count.filter(|count| !(1..=ROUNDS_MAX).contains(count)) {
                return Err(StudyError::key(
                    format!("rounds.{name}"),
                    format!("{count} rounds: write a number from 1 to {ROUNDS_MAX}"),
                ));
            }
        }
        let limit = max_time
            .as_ref()
            .map(|text| {
                parse_time(text).map_err(|error| {
                    let problem = error.remedy().replace("37ms", "2m");
                    StudyError::text("rounds.max_time", text, problem)
                })
            })
            .transpose()?;
        if let Some(fixed) = *fixed {
            let others =
                [("target", target.is_some()), ("min", min.is_some()), ("max", max.is_some())];
            if let Some((other, _)) = others.iter().find(|(_, given)| *given) {
                return Err(StudyError::key(
                    "rounds.fixed",
                    format!("cannot be combined with rounds.{other}; remove one of them"),
                ));
            }
            return Ok(Self { target: Target::Rounds, min: fixed, max: fixed, max_time: limit });
        }
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            return Err(StudyError::key(
                "rounds.min",
                format!("{min} rounds exceed rounds.max ({max}); lower min or raise max"),
            ));
        }
        let sought = match target {
            Some(text) => Target::parse(text)
                .map_err(|problem| StudyError::text("rounds.target", text, problem))?,
            None if study.compare.is_empty() => Target::Rounds,
            None => Target::Verdicts,
        };
        if sought == Target::Verdicts && study.compare.is_empty() {
            return Err(StudyError::text(
                "rounds.target",
                "verdict",
                "nothing is compared; add a [[compare]] table, or write \"ci 1%\"",
            ));
        }
        let asked_nothing = min.is_none() && max.is_none() && limit.is_none();
        if sought == Target::Rounds && asked_nothing {
            return Ok(Self { target: sought, min: 1, max: 1, max_time: None });
        }
        let max = max.unwrap_or_else(|| MAX_ROUNDS.max(min.unwrap_or(0)));
        Ok(Self {
            target: sought,
            min: min.unwrap_or(MIN_ROUNDS).min(max),
            max,
            max_time: limit.or_else(|| asked_nothing.then_some(MAX_TIME)),
        })
    }

    /// Fewest rounds after which the rule can end a run, its time limit apart.
    pub fn fewest(&self) -> u32 {
        match self.target {
            Target::Rounds => self.max,
            Target::Verdicts => self.min,
            Target::Interval(_) => self.min.max(ROUNDS_TO_BE_NARROW as u32).min(self.max),
        }
    }

    /// Before what a run ended after `done` rounds. Verdicts are given from the 5th round on, but
    /// end a run only from the fewest rounds on.
    pub(crate) fn not_reached(&self, done: u32) -> String {
        let fewest = self.fewest();
        match self.target {
            Target::Verdicts if done < fewest => {
                format!("before round {fewest}, the first at which verdicts can end a run")
            }
            Target::Interval(_) if done < fewest => {
                format!("before round {fewest}, the first at which intervals can end a run")
            }
            Target::Rounds => format!("before all {} were run", plural(self.max.into(), "round")),
            Target::Verdicts => "before every comparison had its verdict".to_owned(),
            Target::Interval(width) => {
                format!("before every interval was within ±{}", number::percent(width))
            }
        }
    }
}

impl fmt::Display for StopRule {
    /// One clause: `30 rounds`, `until every verdict is found, 15 to 30 rounds, at most 60 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target {
            Target::Rounds => f.write_str(&plural(self.max.into(), "round"))?,
            Target::Verdicts => f.write_str("until every verdict is found")?,
            Target::Interval(width) => {
                write!(f, "until every interval is within ±{}", number::percent(width))?;
            }
        }
        if self.target != Target::Rounds {
            if self.min == self.max {
                write!(f, ", {}", plural(self.max.into(), "round"))?;
            } else {
                write!(f, ", {} to {}", self.min, plural(self.max.into(), "round"))?;
            }
        }
        self.max_time.map_or(Ok(()), |limit| {
            write!(f, ", at most {}", number::tick(limit.as_secs_f64(), "s"))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::study::Compare;

    fn study(rounds: RoundsAsked, compared: bool) -> Study {
        let compare = compared.then(|| Compare { all_pairs: true, ..Compare::default() });
        Study { rounds, compare: compare.into_iter().collect(), ..Study::default() }
    }

    pub(crate) fn rule(rounds: RoundsAsked, compared: bool) -> StopRule {
        StopRule::from_study(&study(rounds, compared)).unwrap()
    }

    pub(crate) fn asked() -> RoundsAsked {
        RoundsAsked::default()
    }

    #[test]
    fn without_a_word_what_is_compared_runs_until_it_is_sure_and_what_is_not_runs_once() {
        assert_eq!(
            rule(asked(), true),
            StopRule { target: Target::Verdicts, min: 15, max: 30, max_time: Some(MAX_TIME) }
        );
        let once = rule(asked(), false);
        assert_eq!((once.target, once.min, once.max, once.max_time), (Target::Rounds, 1, 1, None));
    }

    #[test]
    fn what_is_asked_for_takes_the_place_of_the_default() {
        let fixed = rule(RoundsAsked { fixed: Some(12), ..asked() }, true);
        assert_eq!((fixed.target, fixed.min, fixed.max), (Target::Rounds, 12, 12));
        let ci = rule(RoundsAsked { target: Some("ci 0.5%".into()), ..asked() }, false);
        assert_eq!((ci.target, ci.max_time), (Target::Interval(0.005), Some(MAX_TIME)));
        let long = rule(RoundsAsked { min: Some(40), ..asked() }, true);
        assert_eq!((long.min, long.max, long.max_time), (40, 40, None), "rounds were asked for");
        let early = rule(RoundsAsked { min: Some(5), ..asked() }, true);
        assert_eq!((early.min, early.max), (5, 30));
        let short = rule(RoundsAsked { max: Some(3), ..asked() }, true);
        assert_eq!((short.min, short.max), (3, 3));
        let timed = rule(RoundsAsked { max_time: Some("2m".into()), ..asked() }, true);
        assert_eq!((timed.max, timed.max_time), (30, Some(Duration::from_mins(2))));
    }

    #[test]
    fn what_cannot_be_names_its_key_and_what_to_write() {
        let cases = [
            (RoundsAsked { target: Some("ci".into()), ..asked() }, "write \"ci 1%\" or"),
            (RoundsAsked { target: Some("ci 1".into()), ..asked() }, "rounds.target \"ci 1\""),
            (RoundsAsked { target: Some("ci 0%".into()), ..asked() }, "rounds.target"),
            (RoundsAsked { fixed: Some(0), ..asked() }, "rounds.fixed: 0 rounds: write a number"),
            (RoundsAsked { max: Some(1_001), ..asked() }, "rounds.max: 1001 rounds"),
            (RoundsAsked { min: Some(9), max: Some(8), ..asked() }, "rounds.min: 9 rounds"),
            (RoundsAsked { max_time: Some("2".into()), ..asked() }, "rounds.max_time \"2\": write"),
            (
                RoundsAsked { fixed: Some(3), target: Some("verdict".into()), ..asked() },
                "rounds.fixed: cannot be combined with rounds.target",
            ),
        ];
        for (rounds, says) in cases {
            let error = StopRule::from_study(&study(rounds, true)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let verdict = RoundsAsked { target: Some("verdict".into()), ..asked() };
        let error = StopRule::from_study(&study(verdict, false)).unwrap_err().to_string();
        assert!(error.contains("nothing is compared"), "{error}");
    }

    #[test]
    fn a_rule_reads_as_a_clause() {
        let text = |rounds: RoundsAsked, compared| rule(rounds, compared).to_string();
        assert_eq!(text(RoundsAsked { fixed: Some(30), ..asked() }, true), "30 rounds");
        assert_eq!(text(asked(), false), "1 round");
        assert_eq!(
            text(asked(), true),
            "until every verdict is found, 15 to 30 rounds, at most 60 s"
        );
        let ci = RoundsAsked { target: Some("ci 1%".into()), max: Some(5), ..asked() };
        assert_eq!(text(ci, true), "until every interval is within ±1 %, 5 rounds");
    }
}
