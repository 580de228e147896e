//! The record of a watch in an issue.

use super::CleanReview;
use super::tables::{self, Table};
use tcptoll_show::markdown::{code, escape, table};

pub(super) fn render(view: &CleanReview<'_>) -> String {
    let [verdict, more] = tables::answer(view);
    let mut page = format!("### {}\n\n{}\n", escape(&verdict), escape(&more));
    page.push_str(&format!("\n{}\n", escape(&tables::place(view).join(" · "))));
    for doubt in tables::doubts(view) {
        page.push_str(&format!("\n**{}**\n", escape(&doubt)));
    }
    let all = [
        tables::episodes(view),
        tables::listeners(view),
        tables::destinations(view),
        tables::counts(view),
        tables::gaps(view),
    ];
    for Table { title, heads, words, rows, note } in all {
        if rows.is_empty() {
            continue;
        }
        page.push_str(&format!("\n#### {title}\n"));
        table(&mut page, &heads, &words, &rows);
        if let Some(note) = note {
            page.push_str(&format!("\n{}\n", escape(&note)));
        }
    }
    let fixes = tables::fixes(&view.review);
    if !fixes.is_empty() {
        page.push_str("\n#### Fixes\n");
    }
    for one in fixes {
        let Some(fix) = &one.fix else { continue };
        let about = format!("{} of {}: {}", one.id, one.subject, fix.change);
        page.push_str(&format!("\n{}\n", escape(&about)));
        if !fix.commands.is_empty() {
            page.push_str(&format!("\n{}", code(&fix.commands.join("\n"))));
        }
    }
    let command: Vec<String> = view
        .review
        .command
        .iter()
        .map(|word| tcptoll_core::printable::shell_argument(word))
        .collect();
    page.push_str(&format!("\n#### How it was recorded\n\n{}", code(&command.join(" "))));
    page
}
