//! How long does a page take to load, and how much of it are connections?

mod observation;
mod settings;
mod trial;

use tcptoll_lab::files::Shared;
use tcptoll_model::experiments::page::SPEC;
use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::record::Resolved;
use tcptoll_model::study::{PlannedArm, Settings};

use self::settings::{Ends, PageSettings};
use self::trial::PageTrial;
use crate::experiments::bench::target::Target;
use crate::experiments::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};

/// The experiment.
pub struct Page;

impl Experiment for Page {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(PageSettings::from(settings)?))
    }
}

impl Plan for PageSettings {
    fn target(&self) -> Option<&Target> {
        match &self.ends {
            Ends::Lab(_) => None,
            Ends::Target(_, target) => Some(target),
        }
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let Ends::Target(_, target) = &mut self.ends {
            target.take(resolved);
        }
    }

    fn prepare(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        self.read_files(files)
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn public_load(&self) -> Option<PublicLoad> {
        let target = Plan::target(self).filter(|target| target.is_public())?;
        let loads = self.loads + 1;
        Some(PublicLoad {
            target: target.typed.clone(),
            size: loads as f64,
            load: format!("its page will be loaded {loads} times in each trial"),
            options: "--loads and --rounds set other figures",
        })
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        PageTrial::outcome(arm, self, context)
    }
}
