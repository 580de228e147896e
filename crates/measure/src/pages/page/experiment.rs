//! How long does a page take to load, and how much of it are connections?

use crate::pages::page::SPEC;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::record::Resolved;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;

use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};
use crate::kit::target::Target;
use crate::pages::page::settings::{Ends, PageSettings};
use crate::pages::page::trial::PageTrial;

/// The experiment.
pub(crate) struct Page;

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
