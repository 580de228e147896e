//! What did each machine do of a load that several shared?

use tcptoll_core::record::{Point, PointArm};

use super::TextPage;
use crate::layout::{Align, Column, lay_out};
use crate::number::{self, ABSENT, Estimate};
use crate::own::Tone;
use crate::run::Run;
use crate::{clean, points, rounds};

/// Columns that a name may take.
const NAME: usize = 24;

/// A row per point, or per point and arm; nothing where the points shared no load.
pub(super) fn write(page: &mut TextPage, summary: &Run) {
    let Some(shared) = summary.points.as_ref().filter(|points| points.split.is_some()) else {
        return;
    };
    let all: Vec<(&Point, &PointArm)> = shared
        .points
        .iter()
        .flat_map(|point| point.arms.iter().map(move |arm| (point, arm)))
        .collect();
    let rows = &all[..all.len().min(points::LISTED)];
    let cells = |text: &dyn Fn(&Point, &PointArm) -> String| -> Vec<String> {
        rows.iter().map(|(point, arm)| text(point, arm)).collect()
    };
    let mut columns =
        vec![Column::new("point", Align::Left, cells(&|p, _| clean::shorten(&p.name, NAME)))];
    if summary.arms.len() > 1 {
        let arms = cells(&|_, arm| clean::shorten(&arm.name, NAME));
        columns.push(Column::new("arm", Align::Left, arms));
    }
    columns.push(Column::new(
        "requests",
        Align::Right,
        cells(&|_, arm| number::count(arm.attempts)),
    ));
    let failed = |_: &Point, arm: &PointArm| number::count(arm.attempts.saturating_sub(arm.ok));
    columns.push(Column::new("failed", Align::Right, cells(&failed)));
    if let Some(metric) = rounds::metric(summary) {
        let unit = rounds::unit(summary, metric);
        let value = |arm: &PointArm| arm.metrics.get(metric).map(|value| (*value, None));
        let values: Vec<_> = rows.iter().map(|(_, arm)| value(arm)).collect();
        let estimates = Estimate::column(&values, unit);
        let cell = |text: &dyn Fn(&Estimate) -> String, none: &str| {
            let cell = |e: &Option<Estimate>| e.as_ref().map_or_else(|| none.to_owned(), text);
            estimates.iter().map(cell).collect()
        };
        let head = summary.specs.words_of_metric(metric);
        columns.push(Column::new(&head, Align::Point, cell(&|e| e.value.clone(), ABSENT)));
        columns.push(Column::new("", Align::Left, cell(&|e| e.symbol.clone(), "")).gap(1));
    }
    page.table(&lay_out(columns), Tone::Dim);
    if all.len() > rows.len() {
        let text =
            format!("{} rows are not listed; --csv and --html have all.", all.len() - rows.len());
        page.prose(2, &text, Tone::Dim);
    }
    page.blank();
}
