//! What can be computed before anything is measured, for a terminal.
//!
//! What can be computed is printed before it is measured (`Plan::computed`): the settings for
//! `--detect-within` are arithmetic, their proof takes a minute. `--no-proof` is another name for
//! `--dry-run`.

use tcptoll_core::record::Advice;

use super::TextPage;
use crate::TextStyle;
use crate::own::Tone;

/// Columns of the labels.
const INDENT: usize = 10;

/// Each setting with its price and its undo.
pub fn render(all: &[Advice], style: TextStyle) -> String {
    let mut page = TextPage::new(style);
    for advice in all {
        page.labelled("computed", INDENT, &advice.change, Tone::Strong);
        page.labelled("  costs", INDENT, &advice.cost, Tone::Plain);
        page.labelled("  undo", INDENT, &advice.undo, Tone::Plain);
    }
    page.into_text()
}
