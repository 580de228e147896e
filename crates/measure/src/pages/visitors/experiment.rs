//! What do the waiting connections of visitors hold on a server, and how long do pages take meanwhile?

use std::net::Ipv4Addr;

use crate::pages::visitors::SPEC;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::record::Resolved;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;
use tcptoll_lab::servers;

use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};
use crate::kit::target::Target;
use crate::pages::visitors::settings::{Ends, VisitorSettings};
use crate::pages::visitors::trial::{PORT, VisitorTrial};

/// The experiment.
pub(crate) struct VisitorsOfASite;

impl Experiment for VisitorsOfASite {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(VisitorSettings::from(settings)?))
    }
}

impl Plan for VisitorSettings {
    fn target(&self) -> Option<&Target> {
        match &self.ends {
            Ends::Lab(_) => None,
            Ends::Target(theirs) => Some(&theirs.target),
        }
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let Ends::Target(theirs) = &mut self.ends {
            theirs.target.take(resolved);
        }
    }

    fn prepare(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        self.read_files(files)
    }

    fn installed(&self) -> Result<(), TrialError> {
        let Ends::Lab(lab) = &self.ends else { return Ok(()) };
        if lab.spec.remote.is_some() {
            return Ok(());
        }
        let served = lab.content.served(self.manner(), Ipv4Addr::LOCALHOST.into(), PORT)?;
        servers::site_installed(lab.kind, served.site.is_dynamic(), lab.limits.php_in_worker)
            .map_err(TrialError::Setting)
    }

    fn public_load(&self) -> Option<PublicLoad> {
        let target = Plan::target(self).filter(|target| target.is_public())?;
        let pages = (self.visitors_about() * self.pages_mean).ceil();
        Some(PublicLoad {
            target: target.typed.clone(),
            size: pages,
            load: format!("about {pages:.0} pages will be loaded from it in each trial"),
            options: "--rate, --pages and --duration set other figures",
        })
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        VisitorTrial::outcome(arm, self, context)
    }
}
