//! What follows from the measured cells: the snippet, the balancer's rule, doubts about the setting.

use crate::tune::found::{Behind, Found};
use crate::tune::setting::seconds;
use crate::tune::snippet::Snippet;
use tcptoll_core::units::{human_bytes, human_us, parse_time};

use super::TuneRequest;

/// Fewer pages in a trial than this have no p95 to speak of.
const PAGES_MIN: u64 = 20;

/// Whatever follows from the cells alone: snippet, balancer, doubts about the setting.
pub(super) fn conclude(asked: &TuneRequest<'_>, found: &mut Found) {
    let Some(choice) = found.choice else { return };
    let earlier_ms = found.behind.as_ref().map(|behind| behind.balancer_ms);
    found.behind = asked.behind_ms.or(earlier_ms).map(|ms| Behind::new(ms, &choice));
    let chosen = found.chosen().cloned();
    // A clause a line, so that the lines are no longer than those of other configurations.
    let behind = found.behind.as_ref().map(|behind| behind.words(found.server));
    let texts = [Some(found.answer()), behind].into_iter().flatten();
    let clauses = |text: String| -> Vec<String> {
        text.split_inclusive([';', '.']).fold(Vec::new(), |mut lines: Vec<String>, piece| {
            match lines.last_mut() {
                // No clause begins without a blank before it: `1.5 s`.
                Some(last) if !piece.starts_with(' ') => last.push_str(piece),
                _ => lines.push(piece.trim_start().to_owned()),
            }
            lines
        })
    };
    let mut comments =
        vec![format!("Found by tcptoll {} on {}.", found.tcptoll_version, found.started_at)];
    comments.extend(texts.flat_map(clauses));
    let cost = cost(found, chosen.as_ref().map_or(0.0, |cell| cell.workers_held_mean));
    let comments = (&comments[..], cost.as_str());
    found.snippet = Some(Snippet::new(found.server, asked.distribution, &choice, comments));
    if asked.args.from.is_some() {
        return;
    }
    if let (Some(ms), Some(warmup_s)) = (choice.timeout_ms, warmup_s(found))
        && ms as f64 / 1e3 > warmup_s
    {
        found.doubts.push(format!(
            "The timeout ({}) is longer than the warm-up ({warmup_s} s): connections held were still growing. A \
             longer --warmup shows where they end.",
            seconds(ms)
        ));
    }
    if let Some(cell) = &chosen {
        let each = cell.pages / u64::from(cell.rounds.max(1));
        if each < PAGES_MIN {
            found.doubts.push(format!(
                "A trial of the found setting had {each} pages, so its p95 is about the slowest one. A longer \
                 --duration or a higher --rate shows more."
            ));
        }
        if cell.is_full() && found.server.idle_holds() {
            found.doubts.push(
                "All workers were taken at times with the found setting too: visitors wait then. More memory, lighter \
                 workers, or a server whose idle connections hold none (event with PHP-FPM, nginx) is the way out."
                    .to_owned(),
            );
        }
    }
    if let Some(cell) = chosen
        .filter(|_| found.server.idle_holds())
        .filter(|cell| !cell.is_full() && cell.page_us_p95 > cell.page_us_mean.map(|us| us * 2.0))
    {
        let us = |us: Option<f64>| us.map_or_else(String::new, human_us);
        found.doubts.push(format!(
            "The p95 ({}) is more than twice the mean ({}) although workers were left. Pages may have waited while \
             the server started processes: then StartServers and MinSpareServers, which are not searched, matter.",
            us(cell.page_us_p95),
            us(cell.page_us_mean)
        ));
    }
}

fn warmup_s(found: &Found) -> Option<f64> {
    parse_time(found.load.get("warmup")?).ok().map(|time| time.as_secs_f64())
}

/// What the setting costs, in a sentence.
fn cost(found: &Found, held: f64) -> String {
    let Some(setting) = &found.choice else { return String::new() };
    let memory = found.weight.as_ref().map(|weight| {
        format!(
            "if all {} {} are in use, they take {}",
            setting.workers,
            found.server.workers(),
            human_bytes(weight.bytes(setting.workers) as f64)
        )
    });
    let idle = match setting.timeout_ms {
        None => "each file of a page is a connection of its own, with a handshake".to_owned(),
        Some(_) if found.server.idle_holds() => {
            format!("idle connections hold workers, {held:.0} of them on average in the lab")
        }
        Some(_) => "idle connections hold memory of the kernel and of the server".to_owned(),
    };
    [Some(idle), memory].into_iter().flatten().collect::<Vec<_>>().join("; ")
}
