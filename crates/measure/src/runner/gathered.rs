//! Which records belong together? What cannot be merged is left out and named. And a load that several machines
//! shared: a round of all shares becomes one trial; the rounds stay the units of statistics, as in any run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tcptoll_core::printable::line;
use tcptoll_core::record::{
    Arm, Due, Line, Merged, Missing, NotMerged, RECORD_VERSION, Source, SplitLoad, Summary, Trial,
    WarningEntry,
};
use tcptoll_core::stats::{Histogram, HistogramSummary};
use tcptoll_core::study::{Study, points};
use tcptoll_core::verdict::consolidate;
use tcptoll_core::verdict::warning::Warning;

use super::conclusion;
use super::conclusion::RunState;
use super::merged_summary::{
    about_points, is_repeated, lacks_points, listed_points, of_merge, only_of_all, warnings,
};
use super::schedule::Schedule;
use crate::kit::plan::SplitPlan;
use crate::merged::{MergedRecord, PointRecord};
use crate::record::{ReadError, Record};

/// Most vantage points of a merged record.
const POINTS_MAX: usize = 1_000;
/// Most bytes of all files together: in memory they take eight times as much.
const BYTES_MAX: u64 = 512 << 20;

/// What was found in several files.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The runs that belong together, in the order given.
    pub(super) points: Vec<PointRecord>,
    /// Their shares of a load, in the same order.
    splits: Vec<Option<SplitPlan>>,
    /// The files that were left out, with the reason.
    pub(super) not_merged: Vec<NotMerged>,
    /// What merged records among the files said of points without a record.
    pub(super) missing: Vec<Missing>,
    /// The margins that they were merged with, if not those of the studies.
    pub(super) margins: Vec<f64>,
    /// The bound of the clocks of a split load, s, if one merged record has all of its shares.
    pub(super) clock_bound_s: Option<f64>,
}

impl Gathered {
    /// Reads records and merged records. What cannot be read, what is of another study than most, and what would
    /// count a point twice is left out.
    #[must_use]
    pub(super) fn from_paths(paths: &[PathBuf], has_margin: bool) -> Self {
        let mut gathered = Self::default();
        let mut found = Vec::new();
        let mut bytes = 0_u64;
        for path in paths {
            bytes = bytes.saturating_add(path.metadata().map_or(0, |about| about.len()));
            if bytes > BYTES_MAX || found.len() > POINTS_MAX {
                let why = format!(
                    "the files before it have {POINTS_MAX} points, or more than {} MiB in all",
                    BYTES_MAX >> 20
                );
                gathered.leave_out(&path.display().to_string(), why);
                continue;
            }
            match gathered.read(path) {
                Ok(points) => found.extend(points),
                Err(error) => gathered.leave_out(&path.display().to_string(), error.to_string()),
            }
        }
        found.retain(|point| match unusable(point) {
            None => true,
            Some(why) => {
                gathered.leave_out(&point.source.record, why);
                false
            }
        });
        let Some(study) = most_common(&found, has_margin) else { return gathered };
        for point in found {
            let split = split_of(&point);
            let why = points::difference(&study, &point.header.study, !has_margin)
                .map(|what| format!("its study is not that of the other records: {what}"))
                .or_else(|| gathered.repeated(&point))
                .or_else(|| gathered.of_another_split(split))
                .or_else(|| {
                    let is_full = gathered.points.len() >= POINTS_MAX;
                    is_full.then(|| format!("more than {POINTS_MAX} points"))
                });
            if let Some(why) = why {
                gathered.leave_out(&point.source.record, why);
            } else {
                gathered.points.push(point);
                gathered.splits.push(split);
            }
        }
        // What a merge before this one left out may be among the points now.
        let merged: BTreeSet<&str> =
            gathered.points.iter().map(|point| point.source.record.as_str()).collect();
        gathered.not_merged.retain(|one| !merged.contains(one.record.as_str()));
        // A bound between the clocks of some points says nothing of those of others.
        if paths.len() > 1 {
            gathered.clock_bound_s = None;
        }
        gathered
    }

    /// The points of a file, and what a merged record says of others.
    fn read(&mut self, path: &Path) -> Result<Vec<PointRecord>, ReadError> {
        let record = line(&path.display().to_string());
        let Some(MergedRecord { merged, points, .. }) = MergedRecord::open(path)? else {
            return Ok(vec![one(path, record)?]);
        };
        self.missing.extend(merged.missing);
        self.not_merged.extend(merged.not_merged);
        self.margins.extend(merged.margin);
        self.clock_bound_s = merged.clock_bound_s;
        Ok(points)
    }

    /// Why a record would count a point twice.
    fn repeated(&self, point: &PointRecord) -> Option<String> {
        let find = |is: &dyn Fn(&PointRecord) -> bool| self.points.iter().find(|known| is(known));
        if let Some(known) = find(&|known| is_same_run(known, point)) {
            return Some(format!("it is the same run as {}", known.source.record));
        }
        let name = &point.source.point;
        let known = find(&|known| known.source.point == *name)?;
        let other = &known.source.record;
        Some(format!("{other} is of the same point, {name}: merge one record of each point"))
    }

    /// Why a point is no part of the load of the others.
    fn of_another_split(&self, own: Option<SplitPlan>) -> Option<String> {
        match (*self.splits.first()?, own) {
            (None, None) => None,
            (Some(first), Some(own)) if first.share.total() == own.share.total() => {
                let same = self.splits.iter().position(|known| *known == Some(own))?;
                let (other, share) = (&self.points[same].source.record, own.share);
                Some(format!("{other} has the same share of the load, {share}"))
            }
            (_, Some(own)) => {
                let share = own.share;
                Some(format!("it has share {share} of a load, unlike the first record"))
            }
            (Some(_), None) => Some("it has a whole load, the first record a share".to_owned()),
        }
    }

    fn leave_out(&mut self, record: &str, reason: String) {
        self.not_merged.push(NotMerged { record: line(record), reason });
    }
}

fn one(path: &Path, record: String) -> Result<PointRecord, ReadError> {
    let read = Record::read(path)?;
    let header = read.header().ok_or(ReadError::NoHeader)?.clone();
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let point = header.vantage.clone().or(stem).unwrap_or_default();
    let partial = read.summary().is_none_or(|summary| summary.partial);
    let source = Source { point, record, partial };
    let (mut trials, mut resumed) = (Vec::new(), Vec::new());
    for line in read.lines {
        match line {
            Line::Trial(trial) => trials.push(*trial),
            Line::Resumed(one) => resumed.push(*one),
            _ => {}
        }
    }
    Ok(PointRecord { source, header, trials, resumed })
}

/// Why a run cannot be merged, whatever the others are.
fn unusable(point: &PointRecord) -> Option<String> {
    if !points::is_name(&point.source.point) {
        return Some(format!(
            "{:?} is not a valid point name: rename the file, or measure with --vantage. A name has 1 to {} ASCII letters, digits, dots, hyphens or underscores",
            line(&point.source.point),
            points::NAME_MAX
        ));
    }
    if point.header.record_version != RECORD_VERSION {
        return Some(format!(
            "its format is version {}, of which rates and latencies mean something else",
            point.header.record_version
        ));
    }
    if point.trials.is_empty() {
        return Some("its run was stopped before its first trial ended".to_owned());
    }
    if let Err(error) = Schedule::from_study(&point.header.study) {
        return Some(format!("its study is not known to this tcptoll: {error}"));
    }
    // One that cannot be read would be left out of the merged distribution in silence.
    let damaged = point.trials.iter().find_map(|trial| {
        let is_damaged = |summary: &HistogramSummary| {
            let read = Histogram::from_summary(summary);
            summary.count > 0
                && !matches!(read, Ok(Some(histogram)) if histogram.count() == summary.count)
        };
        let histogram = trial.arm.histograms.iter().find(|(_, summary)| is_damaged(summary));
        histogram.map(|(name, _)| (trial, name))
    });
    damaged.map(|(trial, name)| {
        let (arm, round) = (line(&trial.arm.name), trial.round + 1);
        format!("the histogram {} of {arm} in round {round} is damaged", line(name))
    })
}

/// The share of a load that a point had.
fn split_of(point: &PointRecord) -> Option<SplitPlan> {
    Schedule::from_study(&point.header.study).ok()?.plan(0).split()
}

/// The study that most of them have; of several, the first.
fn most_common(found: &[PointRecord], has_margin: bool) -> Option<Study> {
    let mut kinds: Vec<(&Study, usize)> = Vec::new();
    for study in found.iter().map(|point| &point.header.study) {
        match kinds
            .iter_mut()
            .find(|(known, _)| points::difference(known, study, !has_margin).is_none())
        {
            Some((_, count)) => *count += 1,
            None => kinds.push((study, 1)),
        }
    }
    // The last of equal maxima is taken.
    kinds.into_iter().rev().max_by_key(|(_, count)| *count).map(|(study, _)| study.clone())
}

/// A copy of a record is no second point, whatever its name: no two runs take the same time to the nanosecond.
fn is_same_run(a: &PointRecord, b: &PointRecord) -> bool {
    let first = |point: &PointRecord| {
        point.trials.first().map(|trial| (trial.began_s.to_bits(), trial.took_s.to_bits()))
    };
    first(a) == first(b)
}

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
