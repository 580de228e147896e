//! A watch as lines of text: one when a fault begins, and one when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tcptoll_core::units::{plural, text_time};
use tcptoll_live::watch::diagnoses::{is_lasting, says_too};
use tcptoll_live::watch::{State, WatchSummary};

use super::Sink;
use super::text::{fix_in_a_line, is_over, nothing_wrong};
use crate::exit::say;

/// Whether these are two stages of one fault, of which only one holds at a time.
fn are_stages(one: &str, other: &str) -> bool {
    says_too(one, other) || says_too(other, one)
}

/// Says what begins and what ends.
#[derive(Debug, Default)]
pub(super) struct Lines {
    interval: Duration,
    network: Option<String>,
    looks: u64,
    /// What is wrong now: by name and subject, since when, s.
    active: BTreeMap<(String, String), f64>,
    /// Overloads of these that were stated to be lasting.
    lasting: BTreeSet<(String, String)>,
}

impl Lines {
    /// Lines about looks at this interval. `network`: the namespace that is watched, if it is not ours.
    pub(super) fn new(interval: Duration, network: Option<&str>) -> Self {
        Self { interval, network: network.map(str::to_owned), ..Self::default() }
    }

    /// What a state begins and ends, each a line.
    fn changes(&mut self, state: &State) -> Vec<String> {
        let mut lines = Vec::new();
        self.looks += 1;
        if self.looks == 1 {
            lines.push(self.first(state));
        }
        // The first state has no rates, so the second is the first that can say anything.
        if self.looks == 2 && state.diagnoses.is_empty() {
            lines.push(format!("{} {}", state.time, nothing_wrong(state)));
        }
        let mut now = BTreeMap::new();
        for one in state.diagnoses.iter().filter(|one| !is_over(one)) {
            let key = (one.id.clone(), one.subject.clone());
            let since = self.active.get(&key).copied();
            // A burst that becomes a lasting overload has another fix.
            let lasts = is_lasting(one) && self.lasting.insert(key.clone());
            if since.is_none() || lasts {
                let fix = fix_in_a_line(one).map(|fix| format!("; fix: {fix}"));
                let fix = fix.unwrap_or_default();
                let was = self.was(state, &one.id, &one.subject).unwrap_or_default();
                lines.push(format!("{} {}: {}{was}{fix}", state.time, one.id, one.text));
            }
            now.insert(key, since.unwrap_or(state.at_s));
        }
        // One that is held has not ended for good: see `live::watch::diagnoses::HOLD_S`.
        for one in state.diagnoses.iter().filter(|one| is_over(one)) {
            let key = (one.id.clone(), one.subject.clone());
            if let Some(since) = self.active.get(&key) {
                now.insert(key, *since);
            }
        }
        for ((id, subject), since) in &self.active {
            // One that became another has not ended: the line of the other says so.
            let became = now
                .keys()
                .any(|(other, its_subject)| its_subject == subject && are_stages(other, id));
            if !became && !now.contains_key(&(id.clone(), subject.clone())) {
                let lasted = state.at_s - since;
                lines.push(format!("{} {id}: {subject}: ended after {lasted:.0} s", state.time));
            }
        }
        self.lasting.retain(|key| now.contains_key(key));
        self.active = now;
        lines
    }

    /// What it was before it became a diagnosis by this name.
    fn was(&self, state: &State, id: &str, subject: &str) -> Option<String> {
        let gone = |name: &str| {
            !state.diagnoses.iter().any(|one| one.id == name && one.subject == subject)
        };
        let mut before = self.active.iter().filter(|((name, its_subject), _)| {
            its_subject == subject && are_stages(name, id) && gone(name)
        });
        let ((name, _), since) = before.next()?;
        Some(format!(" (was {name} for {:.0} s)", state.at_s - since))
    }

    fn first(&self, state: &State) -> String {
        let network = self.network.as_ref().map(|network| format!(", network namespace {network}"));
        format!(
            "{} watching {} of {}{}, a look every {}. A line follows when a fault begins and when it \
             ends; Ctrl-C stops.",
            state.time,
            plural(state.listeners.len() as u64 + state.listeners_left_out, "listener"),
            state.host,
            network.unwrap_or_default(),
            text_time(self.interval)
        )
    }
}

impl Sink for Lines {
    fn state(&mut self, state: &State) -> anyhow::Result<()> {
        self.changes(state).iter().for_each(|line| say(line));
        Ok(())
    }

    fn end(&mut self, summary: &WatchSummary) -> anyhow::Result<()> {
        say(&format!(
            "watched for {:.0} s: {}, {} missed",
            summary.lasted_s,
            plural(summary.looks, "look"),
            summary.missed
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tcptoll_live::diagnosis::{Diagnosis, Severity};

    use super::*;

    fn state(at_s: f64, wrong: &[bool]) -> State {
        let diagnosis = |over: &bool| Diagnosis {
            id: "accept-queue-full".into(),
            severity: Severity::Problem,
            subject: "10.0.0.7:80".into(),
            text: "9.0 drops/s".into(),
            evidence: [if *over { "ended_s_ago" } else { "drops_per_s" }]
                .map(|name| (name.to_owned(), 9.into()))
                .into(),
            fix: None,
        };
        let diagnoses = wrong.iter().map(diagnosis).collect();
        let rates = (at_s > 0.0).then(Default::default);
        State {
            at_s,
            time: format!("T{at_s}"),
            host: "web1".into(),
            diagnoses,
            rates,
            ..State::default()
        }
    }

    #[test]
    fn a_fault_is_said_when_it_begins_and_when_it_has_ended_for_good() {
        let mut lines = Lines::new(Duration::from_secs(1), Some("4711"));
        let mut changes = |state: State| lines.changes(&state);
        let first = changes(state(0.0, &[]));
        assert_eq!(first.len(), 1);
        assert!(first[0].contains("web1, network namespace 4711, a look every 1s"), "{first:?}");
        assert_eq!(changes(state(1.0, &[])), ["T1 Nothing is wrong: no listener here."]);
        assert_eq!(changes(state(2.0, &[false])), ["T2 accept-queue-full: 9.0 drops/s"]);
        assert_eq!(changes(state(3.0, &[true])), [""; 0], "held");
        assert_eq!(changes(state(4.0, &[false])), [""; 0], "the same fault again");
        let near = |at_s| {
            let mut near = state(at_s, &[false]);
            near.diagnoses[0].id = "accept-queue-near".into();
            near
        };
        let ended = changes(state(20.0, &[]));
        assert_eq!(ended, ["T20 accept-queue-full: 10.0.0.7:80: ended after 18 s"]);
        let mut lasting = state(20.5, &[false]);
        lasting.diagnoses[0].evidence.insert("overload".into(), "lasting".into());
        lasting.diagnoses[0].subject = "10.0.0.7:81".into();
        let mut burst = lasting.clone();
        burst.diagnoses[0].evidence.clear();
        assert_eq!([changes(burst.clone()).len(), changes(burst.clone()).len()], [1, 0]);
        assert_eq!(
            [changes(lasting.clone()).len(), changes(lasting).len(), changes(burst).len()],
            [1, 0, 0]
        );
        assert_eq!(changes(state(20.6, &[])).len(), 1);
        assert_eq!(changes(near(21.0)), ["T21 accept-queue-near: 9.0 drops/s"]);
        assert_eq!(
            changes(state(24.0, &[false])),
            ["T24 accept-queue-full: 9.0 drops/s (was accept-queue-near for 3 s)"],
            "one becomes the other, and none has ended"
        );
        assert_eq!(
            changes(near(25.0)),
            ["T25 accept-queue-near: 9.0 drops/s (was accept-queue-full for 1 s)"]
        );
    }
}
