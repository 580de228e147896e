//! A load that several machines shared: a round of all shares becomes one trial.
//!
//! The rounds stay the units of statistics, as in any run.

use std::collections::BTreeMap;

use tcptoll_core::record::{Arm, Due, Merged, SplitLoad, Summary, Trial, WarningEntry};
use tcptoll_core::verdict::consolidate;
use tcptoll_core::verdict::warning::Warning;

use super::conclusion::{self, RunState};
use super::gathered::split_of;
use super::listing::{
    about_points, is_repeated, lacks_points, listed_points, of_merge, only_of_all, warnings,
};
use super::schedule::Schedule;
use crate::kit::plan::SplitPlan;
use crate::record::PointRecord;

/// The rounds of a split load.
pub(super) struct SplitRounds<'a> {
    /// Of the first point.
    schedule: &'a Schedule,
    /// Shares in all.
    total: u64,
    /// Which shares there are, in the order of the points.
    shares: Vec<u64>,
    /// Trials of the whole load.
    trials: Vec<Trial>,
    /// Rounds that lack a share of an arm, and the first reason of each.
    missing: BTreeMap<u32, String>,
    due: Vec<Due>,
    /// Why the shares were not under way at the same time, or nobody knows.
    not_together: Option<String>,
    /// Largest difference between the beginnings of a trial. `None` also if one of them is not known.
    apart_s: Option<f64>,
}

impl<'a> SplitRounds<'a> {
    /// None: the points do not share a load.
    pub(super) fn new(points: &[PointRecord], schedule: &'a Schedule) -> Option<Self> {
        let total = schedule.plan(0).split()?.share.total();
        let share = |point| Some(split_of(point)?.share.part());
        let shares: Vec<u64> = points.iter().map(share).collect::<Option<_>>()?;
        let mut split = Self {
            total,
            shares,
            trials: Vec::new(),
            missing: BTreeMap::new(),
            due: Vec::new(),
            not_together: not_together(points),
            apart_s: Some(0.0),
            schedule,
        };
        for arm in 0..split.schedule.arms.len() {
            split.take(points, arm);
        }
        let is_known = split.not_together.is_none() && !split.trials.is_empty();
        split.apart_s = split.apart_s.filter(|_| is_known);
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
        for round in 0..self.schedule.rule.max {
            let shares = rounds.remove(&round).unwrap_or_default();
            if let Some(why) = self.incomplete(&shares) {
                let why = format!("{name}, round {}: {why}", round + 1);
                self.missing.entry(round).or_insert(why);
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
            let late: Option<Vec<f64>> = shares.values().map(|trial| trial.start_late_s).collect();
            self.apart_s = self.apart_s.zip(late).map(|(apart, late)| {
                let most = late.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let least = late.iter().copied().fold(f64::INFINITY, f64::min);
                apart.max(most - least)
            });
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
        if let Some(part) = (1..=self.total).find(|part| !shares.contains_key(part)) {
            return Some(format!("share {part}/{} has no trial", self.total));
        }
        let orders: Vec<u32> = shares.values().map(|trial| trial.order).collect();
        if orders.windows(2).any(|pair| pair[0] != pair[1]) {
            return Some("the shares ran the arms in different orders".to_owned());
        }
        let (part, trial) = shares.iter().find(|(_, trial)| !trial.counts())?;
        let failure = trial.arm.failure.as_ref();
        let why = trial.invalid.as_ref().or(failure).map_or("it was stopped", |why| why.as_str());
        Some(format!("share {part}/{}: {why}", self.total))
    }

    /// What the whole load showed.
    pub(super) fn summary(
        self,
        merged: &Merged,
        points: &[PointRecord],
        own: &[Summary],
    ) -> Option<Summary> {
        let header = &points.first()?.header;
        let stopped = points.iter().any(|point| point.source.partial);
        let ended = RunState {
            trials: &self.trials,
            resumed: &[],
            stopped: if stopped || !self.missing.is_empty() {
                "some rounds lack a share"
            } else {
                "every point ended its rounds"
            },
            partial: false,
            steal: None,
        };
        let mut summary = conclusion::summary(header, self.schedule, &ended);
        of_merge(&mut summary, merged, own);
        for arm in &mut summary.arms {
            let rounds = std::mem::take(&mut arm.rounds);
            only_of_all(arm);
            arm.rounds = rounds;
        }
        let mut doubts: Vec<WarningEntry> = about_points(points, merged).collect();
        doubts.extend(self.warnings());
        doubts.append(&mut summary.warnings);
        let of_points = warnings(points, own);
        let others: Vec<WarningEntry> =
            of_points.into_iter().filter(|warning| !is_repeated(warning, &doubts)).collect();
        doubts.extend(others);
        summary.warnings = doubts;
        summary.valid &= !self.trials.is_empty() && self.due.iter().all(|due| due.due == due.asked);
        summary.valid &= self.not_together.is_none();
        summary.partial = !self.missing.is_empty()
            || self.shares.len() as u64 != self.total
            || lacks_points(merged, points);
        let mut listed =
            listed_points(merged, points, own, vec![None; points.len()], self.schedule.arms.len());
        listed.split = Some(SplitLoad {
            shares: self.total as u32,
            present: self.shares.len() as u32,
            clock_bound_s: merged.clock_bound_s,
            apart_s: self.apart_s,
            rounds: self.schedule.rule.max,
            due: self.due,
        });
        summary.points = Some(listed);
        Some(summary)
    }

    fn warnings(&self) -> Vec<WarningEntry> {
        let differs = self.due.iter().filter(|due| due.due != due.asked).map(|due| {
            Warning::DueDiffers { due: due.due, asked: due.asked }.entry(Some(&due.arm))
        });
        let missing = self.missing.values().next().map(|first| {
            let (rounds, all) = (self.missing.len() as u32, self.schedule.rule.max);
            Warning::SharesMissing { rounds, all, why: first.clone() }.entry(None)
        });
        let apart = self
            .not_together
            .iter()
            .map(|why| Warning::SharesApart { why: why.clone() }.entry(None));
        differs.chain(missing).chain(apart).collect()
    }
}

/// Why shares were not under way at the same time, or nobody knows whether they were. Their seed decides which arm
/// runs when.
fn not_together(points: &[PointRecord]) -> Option<String> {
    let (first, others) = points.split_first()?;
    let Some(start) = &first.header.start else {
        return Some("no common time was given: --start-at and --every".to_owned());
    };
    let misfit = |point: &PointRecord| {
        let own = point.header.start.as_ref();
        let name = &point.source.point;
        if own.is_none_or(|own| {
            own.at != start.at || own.every_s.to_bits() != start.every_s.to_bits()
        }) {
            let at = own.map_or("no time", |own| own.at.as_str());
            return Some(format!(
                "{name} was to begin at {at}, {} at {}",
                first.source.point, start.at
            ));
        }
        let differs = point.header.seed != first.header.seed;
        differs.then(|| format!("{name} and {} have different seeds", first.source.point))
    };
    others.iter().find_map(misfit)
}
