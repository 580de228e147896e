//! Which records belong together? What cannot be merged is left out and named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tcptoll_model::points;
use tcptoll_model::printable::line;
use tcptoll_model::record::{Missing, NotMerged, RECORD_VERSION, Source};
use tcptoll_model::study::Study;

use super::Schedule;
use crate::experiments::SplitPlan;
use crate::record::{MergedRecord, PointRecord, ReadError, Record};

/// Most vantage points of a merged record.
const POINTS_MAX: usize = 1_000;

/// What was found in several files.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The runs that belong together, in the order given.
    pub(super) points: Vec<PointRecord>,
    /// The files that were left out, with the reason.
    pub(super) not_merged: Vec<NotMerged>,
    /// What merged records among the files said of points without a record.
    pub(super) missing: Vec<Missing>,
}

impl Gathered {
    /// Reads records and merged records. What cannot be read, what is of another study than most, and what would
    /// count a point twice is left out.
    #[must_use]
    pub(super) fn of(paths: &[PathBuf]) -> Self {
        let mut gathered = Self::default();
        let mut found = Vec::new();
        for path in paths {
            match read(path) {
                Ok((points, missing)) => {
                    found.extend(points);
                    gathered.missing.extend(missing);
                }
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
        let Some(study) = most_common(&found) else { return gathered };
        for point in found {
            let why = points::difference(&study, &point.header.study)
                .map(|what| format!("its study is not that of the other records: {what}"))
                .or_else(|| gathered.repeated(&point))
                .or_else(|| gathered.of_another_split(&point))
                .or_else(|| {
                    let is_full = gathered.points.len() >= POINTS_MAX;
                    is_full.then(|| format!("more than {POINTS_MAX} points"))
                });
            match why {
                Some(why) => gathered.leave_out(&point.source.record, why),
                None => gathered.points.push(point),
            }
        }
        let present: BTreeSet<&str> =
            gathered.points.iter().map(|point| point.source.point.as_str()).collect();
        gathered.missing.retain(|missing| !present.contains(missing.point.as_str()));
        gathered
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
    fn of_another_split(&self, point: &PointRecord) -> Option<String> {
        let (first, own) = (split_of(self.points.first()?), split_of(point));
        match (first, own) {
            (None, None) => None,
            (Some(first), Some(own)) if first.share.of() == own.share.of() => {
                let same = self.points.iter().find(|known| split_of(known) == Some(own))?;
                let (other, share) = (&same.source.record, own.share);
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

type Read = (Vec<PointRecord>, Vec<Missing>);

fn read(path: &Path) -> Result<Read, ReadError> {
    let record = line(&path.display().to_string());
    if let Some(merged) = MergedRecord::open(path)? {
        return Ok((merged.points, merged.merged.missing));
    }
    let read = Record::read(path)?;
    let header = read.header().ok_or(ReadError::NoHeader)?.clone();
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let point = header.vantage.clone().or(stem).unwrap_or_default();
    let partial = read.summary().is_none_or(|summary| summary.partial);
    let source = Source { point, record, partial };
    let trials = read.trials().cloned().collect();
    let resumed = read.resumed().cloned().collect();
    Ok((vec![PointRecord { source, header, trials, resumed }], Vec::new()))
}

/// Why a run cannot be merged, whatever the others are.
fn unusable(point: &PointRecord) -> Option<String> {
    if !points::is_name(&point.source.point) {
        return Some(format!(
            "{:?} is no name of a point: write 1 to {} letters, digits, dots, hyphens or underscores",
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
    Schedule::of(&point.header.study)
        .err()
        .map(|error| format!("its study is not known to this tcptoll: {error}"))
}

/// The share of a load that a point had.
fn split_of(point: &PointRecord) -> Option<SplitPlan> {
    Schedule::of(&point.header.study).ok()?.plan(0).split()
}

/// The study that most of them have; of several, the first.
fn most_common(found: &[PointRecord]) -> Option<Study> {
    let mut kinds: Vec<(&Study, usize)> = Vec::new();
    for study in found.iter().map(|point| &point.header.study) {
        match kinds.iter_mut().find(|(known, _)| points::difference(known, study).is_none()) {
            Some((_, count)) => *count += 1,
            None => kinds.push((study, 1)),
        }
    }
    // The last of equal maxima is taken.
    kinds.into_iter().rev().max_by_key(|(_, count)| *count).map(|(study, _)| study.clone())
}

/// A copy of a record is no second point.
fn is_same_run(a: &PointRecord, b: &PointRecord) -> bool {
    let key = |point: &PointRecord| {
        let header = &point.header;
        (header.seed, header.started_at.clone(), header.command.clone())
    };
    let first =
        |point: &PointRecord| point.trials.first().map(|trial| (trial.began_s, trial.took_s));
    key(a) == key(b) && first(a) == first(b)
}
