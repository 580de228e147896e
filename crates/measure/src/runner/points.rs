//! From the records of several vantage points to one summary, with what is listed of each and the doubts of all.
//! The statistics are [`tcptoll_core::verdict::compare::over_points`].
//!
//! Each point becomes a round, so the code that makes one arm of rounds makes one arm of points. Only the
//! comparison is another, because the value of a point is the mean of paired log-ratios and not a ratio of
//! means.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tcptoll_core::record::{
    Arm, Comparison, Merged, Missing, NotMerged, OverPoints, Passport, Place, Point, PointArm,
    PointRatio, Points, RECORD_VERSION, Summary, Trial, Verdict, WarningEntry,
};
use tcptoll_core::study::answer;
use tcptoll_core::verdict::compare::points::ROUNDS_OF_A_POINT;
use tcptoll_core::verdict::compare::{PointTrials, over_points};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_core::verdict::{bound, consolidate};

use super::conclusion;
use super::conclusion::{RunState, times};
use super::gathered::{Gathered, SplitRounds};
use super::schedule::Schedule;
use crate::experiments::SPECS;
use crate::record::{MergedRecord, PointRecord};

/// What a merge is given besides the files.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// The command line, for the record.
    pub command: Vec<String>,
    /// Version of the program.
    pub version: String,
    /// When, RFC 3339.
    pub merged_at: String,
    /// Points that should have a record.
    pub missing: Vec<Missing>,
    /// The smallest difference that matters, if it is not that of the study, relative.
    pub margin: Option<f64>,
    /// Bound of the clocks by which a split load began, s.
    pub clock_bound_s: Option<f64>,
}

/// Why nothing can be merged, with what was left out.
#[derive(Debug, thiserror::Error)]
#[error("no record can be merged: {}", reasons(.0))]
pub struct NothingToMerge(Vec<NotMerged>);

/// Names of files that an error lists.
const LISTED: usize = 3;

fn reasons(all: &[NotMerged]) -> String {
    let mut words: Vec<String> =
        all.iter().take(LISTED).map(|one| format!("{}: {}", one.record, one.reason)).collect();
    if all.len() > LISTED {
        words.push(format!("and {} more", all.len() - LISTED));
    }
    words.join("; ")
}

/// Reads records of vantage points, and concludes.
///
/// Errors: none of the files can be merged.
pub fn merge(paths: &[PathBuf], options: MergeOptions) -> Result<MergedRecord, NothingToMerge> {
    let gathered = Gathered::from_paths(paths, options.margin.is_some());
    if gathered.points.is_empty() {
        return Err(NothingToMerge(gathered.not_merged));
    }
    let Gathered { points, not_merged, missing: known, margins, clock_bound_s, .. } = gathered;
    // What merged records were merged with goes on to hold, if it is one.
    let same = margins.windows(2).all(|pair| pair[0].total_cmp(&pair[1]).is_eq());
    let margin = options.margin.or_else(|| margins.first().copied().filter(|_| same));
    let mut named: BTreeSet<String> =
        points.iter().map(|point| point.source.point.clone()).collect();
    let missing = options.missing.into_iter().chain(known);
    let missing = missing.filter(|one| named.insert(one.point.clone())).collect();
    let merged = Merged {
        record_version: RECORD_VERSION,
        tcptoll_version: options.version,
        command: options.command,
        merged_at: options.merged_at,
        points: points.iter().map(|point| point.source.clone()).collect(),
        missing,
        not_merged,
        margin,
        clock_bound_s: options.clock_bound_s.or(clock_bound_s),
    };
    let mut record = MergedRecord { merged, points, summary: None };
    record.summary = summarise_points(&record);
    Ok(record)
}

/// The summary of a merged record. None: the study is not one of this build.
pub fn summarise_points(record: &MergedRecord) -> Option<Summary> {
    let MergedRecord { merged, points, .. } = record;
    let first = points.first()?;
    let schedule = Schedule::from_study(&first.header.study).ok()?;
    let own: Vec<Summary> = points.iter().map(of_point).collect::<Option<_>>()?;
    if let Some(split) = SplitRounds::new(points, &schedule) {
        return split.summary(merged, points, &own);
    }
    let left_out: Vec<Option<String>> = own
        .iter()
        .zip(points)
        .map(|(own, point)| why_invalid(own).or_else(|| too_little(own, point, &schedule)))
        .collect();
    let trials = as_rounds(&own, &left_out);
    let margin = merged.margin.unwrap_or(schedule.margin);

    let mut arms = consolidate::arms(&schedule.arms, &trials);
    let mut summary = conclusion::outline(&first.header, &schedule, Vec::new());
    arms.iter_mut().for_each(only_of_all);
    summary.arms = arms;
    if let Some(began) = points.iter().map(|point| &point.header.started_at).min() {
        summary.started_at.clone_from(began);
    }
    for point in points.iter().skip(1) {
        for resolved in &point.header.resolved {
            if !summary.resolved.contains(resolved) {
                summary.resolved.push(resolved.clone());
            }
        }
    }
    summary.primary_metric = Some(schedule.metric.clone());
    let of_points: Vec<PointTrials<'_>> = points
        .iter()
        .zip(&left_out)
        .map(|(point, left_out)| PointTrials {
            name: &point.source.point,
            trials: &point.trials,
            left_out: left_out.as_deref(),
        })
        .collect();
    summary.comparisons = over_points(&schedule.pairs, &schedule.arms, &of_points, margin);
    let of_points = warnings(points, &own);
    summary.warnings.clone_from(&of_points);
    summary.excluded = bound::excluded(points.iter().flat_map(|point| &point.trials));
    summary.partial = lacks_points(merged, points) || left_out.iter().any(Option::is_some);
    summary.valid = left_out.iter().any(Option::is_none);
    (schedule.spec.conclude)(&mut summary);
    let of_point = |warning: &&WarningEntry| of_points.contains(warning);
    let of_all: Vec<WarningEntry> =
        summary.warnings.iter().filter(|warning| !of_point(warning)).cloned().collect();
    summary.warnings.retain(|warning| !of_point(&warning) || !is_repeated(warning, &of_all));
    summary.warnings.splice(0..0, about_points(points, merged));
    if let Some(sentence) = &first.header.study.answer {
        summary.answer = answer::fill(sentence, &summary, &schedule.metric);
    }
    let verdicts: Vec<String> =
        summary.comparisons.iter().take(ANSWERED).map(sentence_of_points).collect();
    let parts: Vec<&str> =
        verdicts.iter().chain([&summary.answer]).map(|part| part.trim()).collect();
    summary.answer = parts.join(" ").trim().into();
    of_merge(&mut summary, merged, &own);
    summary.points = Some(listed_points(merged, points, &own, left_out, schedule.arms.len()));
    Some(summary)
}

/// Comparisons that the answer speaks of; the tables have all.
const ANSWERED: usize = 2;

/// What a point's record says by itself.
fn of_point(point: &PointRecord) -> Option<Summary> {
    let schedule = Schedule::from_study(&point.header.study).ok()?;
    let ended = RunState {
        trials: &point.trials,
        resumed: &point.resumed,
        stopped: "",
        partial: point.source.partial,
        steal: None,
    };
    Some(conclusion::summary(&point.header, &schedule, &ended))
}

/// Why no figure of a point counts; None: they count.
fn why_invalid(own: &Summary) -> Option<String> {
    if own.valid {
        return None;
    }
    let failures = own.warnings.iter().find(|w| w.id == "too-many-failures");
    let excluded = own.excluded.first().map(|one| &one.reason);
    let failed = own.arms.iter().find_map(|arm| arm.failure.as_ref());
    let reason = failures.map(|w| &w.text).or(excluded).or(failed);
    let reason = reason.map_or("an arm has no trial that counts", |text| text.as_str());
    Some(format!("its run is invalid: {reason}"))
}

/// Why a point has too little for a study that compares arms; a figure of it would weigh as much as any other's.
fn too_little(own: &Summary, point: &PointRecord, schedule: &Schedule) -> Option<String> {
    let mut planned = schedule.arms.iter().map(|arm| &arm.name);
    let absent = planned.find(|name| own.arms.iter().all(|arm| arm.name != **name));
    if let Some(arm) = absent {
        return Some(format!("its record has no trial of {arm}"));
    }
    let rounds = conclusion::whole_rounds(schedule.arms.len(), &point.trials) as usize;
    let few = !schedule.pairs.is_empty() && rounds < ROUNDS_OF_A_POINT;
    few.then(|| format!("{rounds} whole rounds, {ROUNDS_OF_A_POINT} are needed"))
}

/// Each point as a round: what makes one arm of rounds makes one arm of points.
fn as_rounds(own: &[Summary], left_out: &[Option<String>]) -> Vec<Trial> {
    let of_point = |(round, (own, left_out)): (usize, (&Summary, &Option<String>))| {
        let arms = own.arms.clone().into_iter();
        let trials = arms.map(|arm| Trial {
            round: round as u32,
            invalid: left_out.clone(),
            // Its other rounds are whole.
            arm: Arm { partial: false, ..arm },
            ..Trial::default()
        });
        trials.collect::<Vec<_>>()
    };
    own.iter().zip(left_out).enumerate().flat_map(of_point).collect()
}

/// What a comparison over points says, in one or two sentences.
fn sentence_of_points(c: &Comparison) -> String {
    let Some(points) = &c.points else { return String::new() };
    let metric = SPECS.words_of_metric(&c.metric);
    let (a, b, n) = (&c.a, &c.b, c.rounds);
    let counted = if n == 1 { "1 point".to_owned() } else { format!("{n} points") };
    let own = own_verdicts(points);
    match (c.ratio, c.ci95) {
        _ if n == 0 => {
            let first = points.each.iter().find_map(|point| point.left_out.as_ref());
            let why = first.map_or_else(String::new, |why| format!(" The first: {why}."));
            format!("{a} and {b}: no point counts for the {metric}.{why}")
        }
        (Some(ratio), Some([low, high])) => {
            let opposite = match points.opposite_verdicts {
                0 => String::new(),
                1 => " 1 point has the opposite verdict.".to_owned(),
                count => format!(" {count} points have the opposite verdict."),
            };
            format!(
                "{a}: {}× the {metric} of {b} over {counted} (95 % CI {}–{}), {}.{opposite}",
                times(ratio),
                times(low),
                times(high),
                c.verdict
            )
        }
        (Some(ratio), None) => format!(
            "{a}: {}× the {metric} of {b}, mean of {counted}; a verdict over points needs {}. Verdicts of single points: {own}.",
            times(ratio),
            points.least
        ),
        _ => format!(
            "{a} and {b}: no ratio in {metric} over {counted}, because a value is not above 0. Of the difference: {}.",
            c.verdict
        ),
    }
}

/// `4 lower (ams, fra, lon, nyc), 1 not enough evidence (sgp)`.
fn own_verdicts(points: &OverPoints) -> String {
    let counted = || points.each.iter().filter(|point| point.left_out.is_none());
    let phrase = |verdict: Verdict| {
        let these = counted().filter(move |point| point.verdict == verdict);
        let names: Vec<&str> = these.map(|point: &PointRatio| point.point.as_str()).collect();
        (!names.is_empty()).then(|| format!("{} {verdict} ({})", names.len(), listed(&names)))
    };
    let all = [Verdict::Higher, Verdict::Lower, Verdict::NoDifference, Verdict::NotEnough];
    let words: Vec<String> = all.into_iter().filter_map(phrase).collect();
    words.join(", ")
}

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
