//! A load that several machines shared: a round of all shares becomes one trial.

use std::collections::BTreeMap;

use tcptoll_model::consolidate;
use tcptoll_model::record::{Arm, Due, Merged, Passport, SplitLoad, Summary, Trial, WarningEntry};
use tcptoll_model::warning::Warning;

use super::conclusion::{self, Ended};
use super::listing::{about_points, listed_points, only_of_all, place, warnings};
use super::schedule::Schedule;
use crate::experiments::SplitPlan;
use crate::record::PointRecord;

/// The rounds of a split load.
pub(super) struct SplitRounds {
    schedule: Schedule,
    /// Shares in all.
    of: u64,
    /// Which shares there are, in the order of the points.
    shares: Vec<u64>,
    /// Trials of the whole load.
    trials: Vec<Trial>,
    /// Rounds and arms that lack a share, and why.
    missing: Vec<String>,
    due: Vec<Due>,
    apart_s: Option<f64>,
}

impl SplitRounds {
    /// None: the points do not share a load.
    pub(super) fn of(points: &[PointRecord], schedule: &Schedule) -> Option<Self> {
        let of = schedule.plan(0).split()?.share.of();
        let schedules: Vec<Schedule> = points
            .iter()
            .map(|point| Schedule::of(&point.header.study).ok())
            .collect::<Option<_>>()?;
        let share = |schedule: &Schedule| Some(schedule.plan(0).split()?.share.part());
        let shares: Vec<u64> = schedules.iter().map(share).collect::<Option<_>>()?;
        let schedule = Schedule::of(&points.first()?.header.study).ok()?;
        let mut split = Self {
            of,
            shares,
            trials: Vec::new(),
            missing: Vec::new(),
            due: Vec::new(),
            apart_s: None,
            schedule,
        };
        for arm in 0..split.schedule.arms.len() {
            split.take(points, arm);
        }
        split.trials.sort_by_key(|trial| (trial.round, trial.order));
        Some(split)
    }

    /// Makes the trials of one arm.
    fn take(&mut self, points: &[PointRecord], arm: usize) {
        let name = self.schedule.arms[arm].name.clone();
        let mut rounds: BTreeMap<u32, BTreeMap<u64, &Trial>> = BTreeMap::new();
        for (point, share) in points.iter().zip(&self.shares) {
            for trial in point.trials.iter().filter(|trial| trial.arm.name == name) {
                rounds.entry(trial.round).or_default().insert(*share, trial);
            }
        }
        let operations =
            self.schedule.plan(arm).split().map(|SplitPlan { operations, .. }| operations);
        let mut due = Due { arm: name.clone(), ..Due::default() };
        for (round, shares) in rounds {
            if let Some(why) = self.incomplete(&shares) {
                self.missing.push(format!("{name}, round {}: {why}", round + 1));
                continue;
            }
            let arms: Vec<&Arm> = shares.values().map(|trial| &trial.arm).collect();
            let (Some(whole), Some(first)) =
                (consolidate::of_shares(&arms), shares.values().next())
            else {
                continue;
            };
            due.rounds += 1;
            due.asked = due.asked.saturating_add(operations.unwrap_or(0));
            due.due = due.due.saturating_add(whole.attempts);
            let late = || shares.values().map(|trial| trial.start_late_s);
            if let Some(late) = late().collect::<Option<Vec<f64>>>() {
                let most = late.iter().copied().fold(0.0, f64::max);
                let least = late.iter().copied().fold(f64::INFINITY, f64::min);
                self.apart_s = Some(self.apart_s.unwrap_or(0.0).max(most - least));
            }
            self.trials.push(Trial {
                round,
                order: first.order,
                began_s: first.began_s,
                took_s: shares.values().map(|trial| trial.took_s).fold(0.0, f64::max),
                arm: whole,
                ..Trial::default()
            });
        }
        self.due.push(due);
    }

    /// Why a round of all shares is no trial of the whole load.
    fn incomplete(&self, shares: &BTreeMap<u64, &Trial>) -> Option<String> {
        if let Some(part) = (1..=self.of).find(|part| !shares.contains_key(part)) {
            return Some(format!("share {part}/{} has no trial", self.of));
        }
        let (part, trial) = shares.iter().find(|(_, trial)| !trial.counts())?;
        let failure = trial.arm.failure.as_ref();
        let why = trial.invalid.as_ref().or(failure).map_or("it was stopped", |why| why.as_str());
        Some(format!("share {part}/{}: {why}", self.of))
    }

    /// What the whole load showed.
    pub(super) fn summary(
        self,
        merged: &Merged,
        points: &[PointRecord],
        own: &[Summary],
    ) -> Option<Summary> {
        let header = &points.first()?.header;
        let ended = Ended {
            trials: &self.trials,
            resumed: &[],
            stopped: "every point ended its rounds",
            partial: false,
            steal: None,
        };
        let mut summary = conclusion::of(header, &self.schedule, &ended);
        summary.tcptoll_version.clone_from(&merged.tcptoll_version);
        summary.command.clone_from(&merged.command);
        summary.passport = Passport::default();
        summary.place = place(own);
        summary.next.clear();
        for arm in &mut summary.arms {
            let rounds = std::mem::take(&mut arm.rounds);
            only_of_all(arm);
            arm.rounds = rounds;
        }
        let mut doubts: Vec<WarningEntry> = about_points(points, merged).collect();
        doubts.extend(self.warnings());
        doubts.append(&mut summary.warnings);
        doubts.extend(warnings(points, own));
        summary.warnings = doubts;
        summary.valid &= !self.trials.is_empty() && self.due.iter().all(|due| due.due == due.asked);
        summary.partial = !self.missing.is_empty()
            || self.shares.len() as u64 != self.of
            || !merged.missing.is_empty()
            || !merged.not_merged.is_empty();
        let mut listed = listed_points(merged, points, own, vec![None; points.len()]);
        listed.split = Some(SplitLoad {
            shares: self.of as u32,
            present: self.shares.len() as u32,
            clock_bound_s: merged.clock_bound_s,
            apart_s: self.apart_s,
            due: self.due,
        });
        summary.points = Some(listed);
        Some(summary)
    }

    fn warnings(&self) -> Vec<WarningEntry> {
        let differs = self.due.iter().filter(|due| due.due != due.asked).map(|due| {
            Warning::DueDiffers { due: due.due, asked: due.asked }.entry(Some(&due.arm))
        });
        let missing = self.missing.first().map(|first| {
            let rounds = self.missing.len() as u32;
            let of = rounds + self.trials.len() as u32;
            Warning::SharesMissing { rounds, of, why: first.clone() }.entry(None)
        });
        differs.chain(missing).collect()
    }
}
