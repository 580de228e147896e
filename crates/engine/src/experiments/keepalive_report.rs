//! What follows from the arms of `keepalive`: the answer in a sentence, advice, what next.

use tcptoll_model::record::Summary;

/// Fills in what follows from the arms.
pub fn conclude(summary: &mut Summary) {
    summary.answer = String::new();
}
