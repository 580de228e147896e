//! From the records of several vantage points to one summary, with what is listed of each and the doubts of all.
//! The statistics are [`tcptoll_core::verdict::points::over_points`].
//!
//! Each point becomes a round, so the code that makes one arm of rounds makes one arm of points. Only the
//! comparison is another, because the value of a point is the mean of paired log-ratios and not a ratio of
//! means.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tcptoll_core::record::{
    Arm, Comparison, Merged, Missing, NotMerged, OverPoints, PointRatio, RECORD_VERSION, Summary,
    Trial, Verdict, WarningEntry,
};
use tcptoll_core::units::plural;
use tcptoll_core::verdict::answer;
use tcptoll_core::verdict::points::ROUNDS_OF_A_POINT;
use tcptoll_core::verdict::points::{PointTrials, over_points};
use tcptoll_core::verdict::{bound, consolidate};

use super::conclusion;
use super::conclusion::RunState;
use super::gathered::{Gathered, SplitRounds};
use super::merged_summary::{
    about_points, is_repeated, lacks_points, listed, listed_points, of_merge, only_of_all, warnings,
};
use super::schedule::Schedule;
use crate::experiments::SPECS;
use crate::merged::{MergedRecord, PointRecord};

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
#[error("no record can be merged:{}", reasons(.0))]
pub struct NothingToMerge(Vec<NotMerged>);

/// Names of files that an error lists.
const LISTED: usize = 10;

/// A line for each.
fn reasons(all: &[NotMerged]) -> String {
    let mut lines: Vec<String> =
        all.iter().take(LISTED).map(|one| format!("\n  {}: {}", one.record, one.reason)).collect();
    if all.len() > LISTED {
        lines.push(format!("\n  and {} more", all.len() - LISTED));
    }
    lines.concat()
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
    let of_points = summary.comparisons.iter().take(ANSWERED).filter_map(sentence_of_points);
    let parts: Vec<String> = std::iter::once(summary.answer.clone()).chain(of_points).collect();
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

/// What the points say of a comparison, in one sentence.
fn sentence_of_points(c: &Comparison) -> Option<String> {
    let points = c.points.as_ref()?;
    let metric = SPECS.words_of_metric(&c.metric);
    let (a, b, n) = (&c.a, &c.b, u64::from(c.rounds));
    Some(match (c.ratio, c.ci95, c.verdict) {
        _ if n == 0 => {
            let first = points.each.iter().find_map(|point| point.left_out.as_ref());
            let why = first.map_or_else(String::new, |why| format!(" The first: {why}."));
            format!("{a} and {b}: no point counts for the {metric}.{why}")
        }
        (Some(_), Some(_), verdict @ (Verdict::Higher | Verdict::Lower)) => {
            let opposite = match points.opposite_verdicts {
                0 => String::new(),
                1 => "; 1 point has the opposite verdict".to_owned(),
                count => format!("; {count} points have the opposite verdict"),
            };
            format!("Over {}, {a} is {verdict} than {b}{opposite}.", plural(n, "point"))
        }
        (Some(_), Some(_), verdict) => format!("Over {}: {verdict}.", plural(n, "point")),
        (Some(_), None, _) => format!(
            "{} {} too few for a verdict, which takes {}; single points: {}.",
            plural(n, "point"),
            if n == 1 { "is" } else { "are" },
            points.least,
            own_verdicts(points)
        ),
        _ => format!(
            "{a} and {b}: no ratio in {metric} over {}, because a value is not above 0.",
            plural(n, "point")
        ),
    })
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
