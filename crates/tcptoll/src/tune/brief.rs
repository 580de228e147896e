//! What was found, on one screen: the setting as configuration, what it gives, doubts, what to type next.

use tcptoll_core::sheet::{Forms, Part, Parts, Tone};
use tcptoll_core::units::plural;
use tcptoll_show::{TextStyle, first_that_fits, sheet};

use super::found::Found;
use super::setting::Cell;
use crate::screen::cut;

/// Where words begin next to a label.
const INDENT: usize = 11;
/// Columns of a line that is cut.
const WIDTH: usize = 80;
/// Lines of configuration, by how much is to be left out.
const CONFIGURATION: [usize; 4] = [12, 9, 6, 4];

/// The result in at most 22 lines of 80 columns. `details` is the command that prints all of it.
pub(super) fn brief(found: &Found, details: &str, style: TextStyle) -> String {
    let page = |spared| sheet::parts(&parts(found, details, spared), style);
    first_that_fits((0..CONFIGURATION.len()).map(page))
}

/// `spared`: how much is left out, from nothing on.
fn parts(found: &Found, details: &str, spared: usize) -> Parts {
    let mut parts = Parts::default();
    let mut put = |part| parts.put(Forms::TEXT, part);
    let refuses = found.chosen().is_none_or(Cell::refuses);
    put(Part::prose(0, found.answer(), if refuses { Tone::Bad } else { Tone::Strong }));
    if let Some(behind) = &found.behind {
        let tone = if behind.holds { Tone::Plain } else { Tone::Bad };
        put(Part::labelled("balancer", INDENT, behind.words(found.server), tone));
    }
    for one in found.compared.iter().take(if spared == 0 { 3 } else { 1 }) {
        let text =
            format!("with {} ({}): {}", one.name, one.setting.name(found.server), one.words());
        put(Part::labelled("compared", INDENT, text, Tone::Plain));
    }
    if let Some(proof) = &found.proof {
        put(Part::labelled(
            "proof",
            INDENT,
            format!("{}: {}", proof.url, proof.text),
            Tone::Strong,
        ));
    }
    if let Some(snippet) = &found.snippet {
        put(Part::Blank);
        let lines = snippet.pieces.iter().flat_map(|piece| {
            let lines = piece.lines.iter().filter(|line| !line.starts_with('#'));
            [format!("# file {}", piece.at())].into_iter().chain(lines.cloned())
        });
        let lines: Vec<String> = lines.collect();
        for line in lines.iter().take(CONFIGURATION[spared]) {
            put(Part::line(cut(line, WIDTH), Tone::Plain));
        }
        if lines.len() > CONFIGURATION[spared] {
            let more = plural((lines.len() - CONFIGURATION[spared]) as u64, "more line");
            put(Part::line(format!("# {more}: --snippet FILE writes all"), Tone::Dim));
        }
        put(Part::Blank);
        let kept = if spared < 2 { 4 } else { 2 };
        let commands = [("apply", &snippet.apply), ("undo", &snippet.undo)];
        for (label, commands) in commands {
            for (at, command) in commands.iter().take(kept).enumerate() {
                let label = if at == 0 { label } else { "" };
                put(Part::line(format!("{label:INDENT$}{command}"), Tone::Plain));
            }
        }
    }
    if let [first, others @ ..] = found.doubts.as_slice() {
        let label = plural(found.doubts.len() as u64, "doubt");
        let more = if others.is_empty() { "" } else { " …" };
        let text = format!("{label:INDENT$}{first}{more}");
        put(Part::line(cut(&text, WIDTH), Tone::Doubt));
    }
    put(Part::line(format!("{:INDENT$}{details}", "all"), Tone::Plain));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::snippet::{Distribution, Snippet};
    use tcptoll_show::SCREEN;

    #[test]
    fn a_result_fits_a_screen_with_its_configuration_and_what_to_type() {
        let style = TextStyle { colour: false, width: 80 };
        let mut found: Found =
            serde_json::from_str(include_str!("../../tests/net/tune.json")).unwrap();
        found.doubts =
            vec!["A doubt that is as long as a doubt may be, and some words more.".repeat(3); 4];
        let choice = found.choice.unwrap();
        let mut snippet = Snippet::new(found.server, Distribution::Debian, &choice, (&[], ""));
        snippet.pieces[0].lines = (0..30).map(|n| format!("setting_{n} {n};")).collect();
        snippet.apply = vec!["a command".to_owned(); 5];
        snippet.undo = vec!["another command".to_owned(); 5];
        found.snippet = Some(snippet);
        let page = brief(&found, "tcptoll tune nginx --from x.json --details", style);
        assert!(page.lines().count() <= SCREEN, "{} lines\n{page}", page.lines().count());
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
        for part in [
            "Set ",
            "setting_0 0;",
            "more lines: --snippet",
            "apply ",
            "undo ",
            "4 doubts",
            "--details",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
