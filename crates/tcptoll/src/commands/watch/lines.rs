//! A watch as lines of text: one when something begins or ends to be wrong.

use std::collections::BTreeSet;

use tcptoll_model::watch::{State, WatchSummary};

use super::Sink;
use crate::exit::say;

/// Says what begins and what ends.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// What is wrong now, by name and subject.
    active: BTreeSet<(String, String)>,
}

impl Sink for Lines {
    fn state(&mut self, state: &State) -> anyhow::Result<()> {
        let now = state.diagnoses.iter().map(|one| (one.id.clone(), one.subject.clone()));
        let now: BTreeSet<_> = now.collect();
        for one in &state.diagnoses {
            if !self.active.contains(&(one.id.clone(), one.subject.clone())) {
                say(&format!("{} {}: {}", state.time, one.id, one.text));
            }
        }
        for (id, subject) in self.active.difference(&now) {
            say(&format!("{} {id}: {subject}: ended", state.time));
        }
        self.active = now;
        Ok(())
    }

    fn end(&mut self, _: &WatchSummary) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A state as text.
pub(super) fn text(state: &State) -> String {
    let lines = state.diagnoses.iter().map(|one| one.text.clone() + "\n");
    tcptoll_report::printable(&lines.collect::<String>())
}
