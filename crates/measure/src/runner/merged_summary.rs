//! What stands in the summary of any merge: its points, what they have in common, and the doubts of all.

use tcptoll_core::record::{
    Arm, Merged, Passport, Place, Point, PointArm, Points, Summary, Trial, WarningEntry,
};
use tcptoll_core::verdict::warning::Warning;

use super::conclusion;
use crate::merged::PointRecord;

/// The points of a merged record as its summary shows them.
pub(super) fn listed_points(
    merged: &Merged,
    points: &[PointRecord],
    own: &[Summary],
    left_out: Vec<Option<String>>,
    arms: usize,
) -> Points {
    let each = points.iter().zip(own).zip(left_out);
    Points {
        points: each
            .map(|((point, own), left_out)| described(point, own, left_out, arms))
            .collect(),
        missing: merged.missing.clone(),
        not_merged: merged.not_merged.clone(),
        split: None,
    }
}

/// Leaves out what is of one point alone: `consolidate` takes it from the first.
pub(super) fn only_of_all(arm: &mut Arm) {
    // What stands there are points, which have a place of their own.
    arm.rounds.clear();
    arm.series.clear();
    arm.client.tcp_info = None;
    if let Some(server) = &mut arm.server {
        server.tcp_info = None;
    }
    (arm.link, arm.path, arm.timeline, arm.expectation) = (None, None, None, None);
}

/// What the summary of any merge says of itself: the merge, and no machine, because each point has its own.
pub(super) fn of_merge(summary: &mut Summary, merged: &Merged, own: &[Summary]) {
    summary.tcptoll_version.clone_from(&merged.tcptoll_version);
    summary.command.clone_from(&merged.command);
    summary.passport = Passport::default();
    summary.place = place(own);
    summary.vantage = None;
    summary.next.clear();
}

/// Whether points are missing, files were left out, or a point's run was stopped early.
pub(super) fn lacks_points(merged: &Merged, points: &[PointRecord]) -> bool {
    !merged.missing.is_empty()
        || !merged.not_merged.is_empty()
        || points.iter().any(|point| point.source.partial)
}

/// Where the points measured, as far as it is the same for all.
fn place(own: &[Summary]) -> Place {
    let Some(first) = own.first().map(|summary| &summary.place) else { return Place::default() };
    let all = |same: &dyn Fn(&Place) -> bool| own.iter().all(|summary| same(&summary.place));
    Place {
        kind: first.kind,
        link: first.link.clone().filter(|_| all(&|place| place.link == first.link)),
        target: first.target.clone().filter(|_| all(&|place| place.target == first.target)),
    }
}

fn described(point: &PointRecord, own: &Summary, left_out: Option<String>, arms: usize) -> Point {
    let count = |wanted: &dyn Fn(&Trial) -> bool| {
        point.trials.iter().filter(|trial| wanted(trial)).count() as u32
    };
    let arm = |arm: &Arm| PointArm {
        name: arm.name.clone(),
        attempts: arm.attempts,
        ok: arm.ok,
        metrics: arm.metrics.iter().map(|(name, metric)| (name.clone(), metric.value)).collect(),
    };
    Point {
        name: point.source.point.clone(),
        record: point.source.record.clone(),
        started_at: point.header.started_at.clone(),
        tcptoll_version: point.header.tcptoll_version.clone(),
        seed: point.header.seed,
        place: own.place.clone(),
        passport: point.header.passport.clone(),
        rounds: conclusion::whole_rounds(arms, &point.trials),
        trials: point.trials.len() as u32,
        excluded: count(&|trial| trial.invalid.is_some()),
        failed: count(&|trial| trial.arm.failure.is_some()),
        partial: point.source.partial,
        left_out,
        arms: own.arms.iter().map(arm).collect(),
    }
}

/// Whether two doubts are one, with other figures.
fn is_same(a: &WarningEntry, b: &WarningEntry) -> bool {
    a.id == b.id && a.arm == b.arm && a.about == b.about
}

/// The doubts of all points, each once per arm or whatever it is about.
pub(super) fn warnings(points: &[PointRecord], own: &[Summary]) -> Vec<WarningEntry> {
    let mut all: Vec<(WarningEntry, Vec<&str>)> = Vec::new();
    for (point, own) in points.iter().zip(own) {
        let name = point.source.point.as_str();
        for warning in &own.warnings {
            match all.iter_mut().find(|(known, _)| is_same(known, warning)) {
                Some((_, names)) => names.push(name),
                None => all.push((warning.clone(), vec![name])),
            }
        }
    }
    let named = |(mut warning, names): (WarningEntry, Vec<&str>)| {
        let at = match names.as_slice() {
            [only] => format!(" (at {only})"),
            [first, others @ ..] => format!(" (figures of {first}; also at {})", listed(others)),
            [] => String::new(),
        };
        warning.text += &at;
        warning
    };
    all.into_iter().map(named).collect()
}

/// Whether the merge has a doubt of its own that is this one of a point: it stands on the figures of all.
pub(super) fn is_repeated(of_point: &WarningEntry, of_all: &[WarningEntry]) -> bool {
    of_all.iter().any(|own| is_same(own, of_point))
}

/// The doubts about the points themselves, which come first.
pub(super) fn about_points<'a>(
    points: &'a [PointRecord],
    merged: &'a Merged,
) -> impl Iterator<Item = WarningEntry> + 'a {
    let missing = merged.missing.iter().map(|one| format!("{} ({})", one.point, one.reason));
    let missing: Vec<String> = missing.collect();
    let missing = (!missing.is_empty()).then(|| Warning::PointsMissing {
        missing: missing.len(),
        all: missing.len() + points.len(),
        which: listed(&missing),
    });
    let files = merged.not_merged.iter().map(|one| format!("{}: {}", one.record, one.reason));
    let files: Vec<String> = files.collect();
    let files = (!files.is_empty())
        .then(|| Warning::NotMerged { files: files.len(), which: listed(&files) });
    let mut versions: Vec<&str> =
        points.iter().map(|point| point.header.tcptoll_version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    let versions =
        (versions.len() > 1).then(|| Warning::VersionsDiffer { versions: listed(&versions) });
    [missing, files, versions].into_iter().flatten().map(|warning| warning.entry(None))
}

/// Names that a sentence lists.
const NAMED: usize = 5;

pub(super) fn listed(names: &[impl AsRef<str>]) -> String {
    let mut words: Vec<String> =
        names.iter().take(NAMED).map(|name| name.as_ref().to_owned()).collect();
    if names.len() > NAMED {
        words.push(format!("and {} more", names.len() - NAMED));
    }
    words.join(", ")
}
