//! What follows from the arms of `time-wait`.

use super::causes;
use crate::experiments::conclusion::{explain, explanations};
use crate::record::Summary;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, causes::ALL, |_, _| None);
    summary.next = explanations(summary);
}
