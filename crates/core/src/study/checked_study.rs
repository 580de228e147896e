//! A study, read from a file and checked as a whole: its arms, what it compares, how long it runs.
//!
//! The parts are in [`crate::study`], [`crate::study::pairs`] and [`crate::study::stop`].

use crate::study::pairs::pairs;
use crate::study::stop::StopRule;
use crate::study::{Study, StudyError, file, suggestion};
use crate::units::echo;

impl Study {
    /// Reads a study file.
    ///
    /// Errors: with line, key and remedy. What only the experiment knows (its options, its
    /// metrics) is not looked at.
    pub fn from_toml(text: &str) -> Result<Self, StudyError> {
        let study = file::read(text)?;
        study.check().map_err(|error| error.in_text(text))?;
        Ok(study)
    }

    /// Checks all that can be told without the experiment.
    pub fn check(&self) -> Result<(), StudyError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !self.name.chars().all(plain) || self.name.starts_with('-') {
            let problem = "write lower-case letters, digits and hyphens";
            return Err(StudyError::text("name", &self.name, problem));
        }
        let arms = self.arms()?;
        self.check_lost()?;
        for (published, number) in self.published.iter().zip(1..) {
            if !arms.iter().any(|arm| arm.name == published.arm) {
                let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
                return Err(StudyError::text(
                    format!("published[{number}].arm"),
                    &published.arm,
                    format!("no such arm; {}", suggestion(&published.arm, &names)),
                ));
            }
        }
        self.margin()?;
        StopRule::from_study(self)?;
        let metric = self.metric.as_deref().unwrap_or("the primary metric");
        pairs(self, &arms, metric).map(drop)
    }

    /// Refuses a setting that is given in two places of which one has no say. That a named arm has
    /// its own instead of the study's is no loss.
    fn check_lost(&self) -> Result<(), StudyError> {
        let lost = |key: String, by: String| {
            Err(StudyError::key(key, format!("overridden in every arm by {by}; remove it here")))
        };
        for factor in self.factors.keys() {
            let by = format!("the factor {}", echo(factor));
            if factor == "warmup" && self.warmup.is_some() {
                return lost("warmup".to_owned(), by);
            }
            if self.settings.contains_key(factor) {
                return lost(format!("settings.{factor}"), by);
            }
            let arm = self.named_arms.iter().position(|arm| arm.settings.contains_key(factor));
            if let Some(arm) = arm {
                return lost(format!("arm[{}].{factor}", arm + 1), by);
            }
        }
        if self.warmup.is_some() && self.settings.contains_key("warmup") {
            return lost("warmup".to_owned(), "settings.warmup".to_owned());
        }
        Ok(())
    }
}
