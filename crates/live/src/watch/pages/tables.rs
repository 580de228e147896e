//! Words and figures that text, Markdown and page share.

use std::fmt::Write as _;
use tcptoll_core::sheet::Table;
use tcptoll_core::units::{host_port, plural};

use crate::watch::{DATA_RETRANSMITTED, Process};
use crate::watch::{Episode, ListenerReview, Review};
use tcptoll_core::finding::counted;

use super::Dated;
use tcptoll_core::number;
use tcptoll_core::number::{ABSENT, count, duration, three};

/// Rows of a table for people, at most: the JSON object has the rest.
const ROWS_MAX: usize = 40;

/// The watch in a line: where, when, how long.
pub(super) fn place(view: &Dated<'_>) -> Vec<String> {
    let Review { host, lasted_s, looks, .. } = view.review;
    let clock = view.clock;
    let until = if view.days { view.at(*lasted_s) } else { clock.text(*lasted_s, false) };
    let mut phrases = vec![
        format!("watch of {}", if host.is_empty() { "an unnamed host" } else { host }),
        format!("{} {} to {until} {}", clock.date_text(0.0), clock.text(0.0, false), clock.zone),
        format!("{}, one every {}", plural(*looks, "look"), duration(view.review.interval_s)),
    ];
    if view.review.joined_most > 1 {
        let joined = count(view.review.joined_most);
        phrases.push(format!("up to {joined} looks joined in a line of the record"));
    }
    phrases
}

/// What follows from another fault as often as it stands alone.
const SYMPTOM: &str = "retransmissions";

/// The problem that lasted longest, or else the warning; a symptom only where there is nothing else.
fn longest(review: &Review) -> Option<&Episode> {
    let rank = |one: &Episode| (one.severity, one.id == SYMPTOM);
    let order =
        |a: &&Episode, b: &&Episode| rank(a).cmp(&rank(b)).then(b.active_s.total_cmp(&a.active_s));
    review.episodes.iter().min_by(order)
}

/// The verdict in one sentence, and what goes with it.
pub(super) fn answer(view: &Dated<'_>) -> [String; 2] {
    let review = view.review;
    let lasted = match review.looks {
        1 => "at the only look".to_owned(),
        _ => format!("in {}", duration(review.lasted_s)),
    };
    let drops = figure(review, "drops");
    let queue = review.listeners.iter().max_by_key(|one| one.accept_queue_peak);
    let queue = queue.filter(|one| one.accept_queue_peak > 0).map_or_else(
        || "No look found a connection in an accept queue.".to_owned(),
        |one| {
            format!(
                "The longest accept queue was that of {} at {}: {} (limit {}).",
                name(one),
                view.at(one.peak_at_s),
                plural(one.accept_queue_peak.into(), "connection"),
                count(one.accept_queue_limit)
            )
        },
    );
    let Some(worst) = longest(review) else {
        let dropped = match drops {
            Some(0) => undropped(review),
            Some(drops) => format!("listeners dropped {}", plural(drops, "packet")),
            None => "drops could not be counted".to_owned(),
        };
        return [format!("Nothing was wrong {lasted}: {dropped}."), queue];
    };
    let found = counted(review.episodes.iter().map(|one| one.severity)).join(" and ");
    // A sentence of a diagnosis has no full stop.
    let first = format!("{found} {lasted}. At {}: {}.", view.at(worst.worst_at_s), worst.text);
    let dropped = match drops {
        Some(drops) => format!("Listeners dropped {} in all. ", plural(drops, "packet")),
        None => String::new(),
    };
    [first, format!("{dropped}{queue}")]
}

/// What `sk_drops` of all listeners rose by.
fn socket_drops(review: &Review) -> u64 {
    let add = |sum: u64, one: &ListenerReview| sum.saturating_add(one.drops);
    review.listeners.iter().fold(review.drops_of_others, add)
}

/// What is to be said of drops where `ListenDrops` of the host did not rise.
fn undropped(review: &Review) -> String {
    let deferred = figure(review, "deferred").unwrap_or(0);
    match socket_drops(review) {
        0 => "no listener dropped a packet".to_owned(),
        all if deferred >= all => format!(
            "listeners dropped only {} that TCP_DEFER_ACCEPT ignores (harmless)",
            plural(all, "last ACK")
        ),
        all => {
            let deferred = deferred.min(all);
            let at_most = match deferred {
                0 => String::new(),
                _ => format!(", at most {} of them by TCP_DEFER_ACCEPT", count(deferred)),
            };
            format!(
                "listeners dropped {} (sk_drops), none at a full queue{at_most}",
                plural(all, "packet")
            )
        }
    }
}

/// Why the drops of the listeners do not add up to those of the host.
fn two_totals(review: &Review) -> Option<String> {
    let (host, sockets) = (figure(review, "drops")?, socket_drops(review));
    if host == sockets || sockets == 0 {
        return None;
    }
    let deferred = figure(review, "deferred")
        .filter(|n| *n > 0)
        .map(|n| plural(n, "last ACK"))
        .map(|acks| format!("The sum includes {acks} that TCP_DEFER_ACCEPT ignored (harmless). "));
    Some(format!(
        "Drops are sk_drops of each listener: {} in all. ListenDrops of the host is {}. sk_drops also counts RSTs \
         to half-open requests, and counts a dropped last ACK twice. {}",
        count(sockets),
        count(host),
        deferred.unwrap_or_default()
    ))
}

/// What a table has no room for; none: it has everything.
fn not_shown(more: u64, thing: &str) -> Option<String> {
    let are = if more == 1 { "is" } else { "are" };
    (more > 0).then(|| format!("{} {are} not shown.", plural(more, thing)))
}

/// Doubts about the record.
pub(super) fn doubts(view: &Dated<'_>) -> Vec<String> {
    let review = view.review;
    let mut doubts = Vec::new();
    if review.killed {
        doubts.push(format!(
            "The record has no last line. After {}, the watch was killed, the disk was full, or the watch still runs.",
            view.at(review.lasted_s)
        ));
    }
    if let Some(reason) = &review.stopped {
        doubts.push(format!(
            "Recording stopped after {}: {reason}. The watch went on without it.",
            view.at(review.lasted_s)
        ));
    }
    if let Some(missed) = review.missed.filter(|missed| *missed > 0) {
        let were = if missed == 1 { "was" } else { "were" };
        let looks = plural(missed, "look");
        doubts.push(format!("{looks} {were} due and could not be taken in time."));
    }
    let uncounted_s = review.gaps.iter().map(|gap| gap.suspended_s).sum::<f64>();
    if uncounted_s > 1.0 {
        doubts.push(format!("The machine was suspended for {}.", duration(uncounted_s)));
    }
    if review.drops_of_others > 0 {
        doubts.push(format!(
            "Listeners that are not listed here dropped {} more.",
            plural(review.drops_of_others, "packet")
        ));
    }
    doubts
}

/// Where an episode ends that was still so at the last look.
pub(super) const RECORD_END: &str = "end of the record";

/// Whether an episode has no length: the first look of a watch ends an interval of 0 s.
pub(super) fn at_one_look(one: &Episode) -> bool {
    one.active_s < 0.05 && one.to_s - one.from_s < 0.05
}

/// What was wrong when.
pub(super) fn episodes(view: &Dated<'_>) -> Table {
    let row = |one: &Episode| {
        vec![
            view.at(one.from_s),
            if one.ongoing { RECORD_END.to_owned() } else { view.at(one.to_s) },
            if at_one_look(one) { "at one look".to_owned() } else { duration(one.active_s) },
            one.id.clone(),
            one.text.clone(),
            view.at(one.worst_at_s),
        ]
    };
    let all = &view.review.episodes;
    let more = all.len().saturating_sub(ROWS_MAX) as u64 + view.review.episodes_left_out;
    Table {
        note: not_shown(more, "more span"),
        ..Table::texts(
            &["from", "to", "active", "cause", "at its worst", "at"],
            &[0, 1, 3, 4],
            all.iter().take(ROWS_MAX).map(row),
        )
    }
}

/// The busiest listeners.
pub(super) fn listeners(view: &Dated<'_>) -> Table {
    let review = view.review;
    let row = |one: &ListenerReview| {
        let about = if one.overflows_estimated { "~" } else { "" };
        let overflows = if one.overflows_unknown_s > 0.0 && one.overflows <= 0.0 {
            ABSENT.to_owned()
        } else {
            format!("{about}{}", count(one.overflows.round() as i64))
        };
        vec![
            name(one),
            process(one.process.as_ref()),
            count(one.accept_queue_peak),
            count(one.accept_queue_limit),
            view.at(one.peak_at_s),
            overflows,
            one.overflows_peak_per_s.map_or_else(|| ABSENT.to_owned(), three),
            count(one.drops),
        ]
    };
    let shown = review.listeners.len().min(ROWS_MAX);
    let more = (review.listeners.len() - shown) as u64 + review.listeners_left_out;
    let mut note = String::new();
    if more > 0 {
        let _ = write!(note, "{} had a queue or a drop. ", plural(more, "more listener"));
    }
    match review.listeners_idle {
        0 => {}
        1 => note += "1 listener had an empty queue and no drops. ",
        idle => {
            let idle = count(idle);
            let _ =
                write!(note, "Up to {idle} listeners at a time had an empty queue and no drops. ");
        }
    }
    if review.listeners.iter().any(|one| one.overflows_estimated) {
        note += "~: estimated, because several listeners dropped packets in the same interval. ";
    }
    note += &two_totals(review).unwrap_or_default();
    if review.listeners.iter().any(|one| one.overflows_unknown_s > 0.0) {
        note += "For part of the time, overflows could not be attributed to one listener. ";
    }
    Table {
        note: Some(note.trim_end().to_owned()).filter(|note| !note.is_empty()),
        ..Table::texts(
            &[
                "listener",
                "process",
                "longest queue",
                "limit",
                "at",
                "overflows",
                "peak /s",
                "drops",
            ],
            &[0, 1],
            review.listeners.iter().take(shown).map(row),
        )
        .wide(&[1, 4])
    }
}

/// Local ports in use per destination.
pub(super) fn destinations(view: &Dated<'_>) -> Table {
    let review = view.review;
    let rows = review.destinations.iter().take(ROWS_MAX).map(|one| {
        vec![
            one.to.clone(),
            count(one.ports_in_use),
            one.ports_left.map_or_else(|| ABSENT.to_owned(), count),
            count(one.time_wait),
            count(one.syn_sent),
            view.at(one.at_s),
        ]
    });
    let more = review.destinations_left_out;
    Table {
        note: not_shown(more, "more destination"),
        ..Table::texts(
            &["destination", "maximum in use", "minimum left", "TIME-WAIT", "SYN-SENT", "at"],
            &[0],
            rows,
        )
    }
}

/// Counts of the whole watch and their highest rates.
const COUNTS: [(&str, &str); 11] = [
    ("passive_opens", "connections accepted by the kernel"),
    ("active_opens", "connections opened from here"),
    ("overflows", "SYNs and ACKs that met a full accept queue"),
    ("drops", "packets that listeners dropped (ListenDrops)"),
    ("deferred", "last ACKs that TCP_DEFER_ACCEPT ignored (harmless)"),
    ("syns_dropped", "SYNs dropped at a full SYN queue"),
    ("cookies_sent", "SYN cookies sent"),
    ("syns_retransmitted", "SYNs and SYN-ACKs retransmitted"),
    ("resets", "connections reset"),
    ("aborted_for_memory", "connections aborted for lack of memory"),
    ("time_wait_overflows", "TIME-WAIT sockets ended early, at their limit"),
];

pub(super) fn counts(view: &Dated<'_>) -> Table {
    let review = view.review;
    let mut rows = Vec::new();
    let row = |key: &str, words: &str| {
        let n = figure(review, key).filter(|n| *n > 0)?;
        let (peak, at) = peak(view, key);
        Some(vec![words.to_owned(), count(n), peak, at])
    };
    if let (Some(sent), Some(again)) =
        (figure(review, "segments_out"), figure(review, DATA_RETRANSMITTED))
        && sent + again > 0
    {
        let (most, at) = peak(view, "segments_out");
        let words = "segments sent, retransmissions excluded";
        rows.push(vec![words.to_owned(), count(sent), most, at]);
        let (most, at) = peak(view, DATA_RETRANSMITTED);
        let share = number::percent(again as f64 / (sent + again) as f64);
        let words = format!("segments retransmitted, SYNs excluded ({share})");
        rows.push(vec![words, count(again), most, at]);
    }
    rows.extend(COUNTS.iter().filter_map(|(key, words)| row(key, words)));
    let levels = &review.levels;
    let level = |words: &str, n: Option<u64>| {
        let n = n.filter(|n| *n > 0)?;
        Some(vec![words.to_owned(), count(n), ABSENT.to_owned(), ABSENT.to_owned()])
    };
    rows.extend(level("sockets in use, maximum", levels.sockets));
    rows.extend(level("sockets in TIME-WAIT, maximum", levels.time_wait));
    rows.extend(level("connections without a process, maximum", levels.orphans));
    rows.extend(level("connections tracked, maximum", levels.tracked));
    if let Some(bytes) = levels.memory_bytes.filter(|bytes| *bytes > 0) {
        let absent = || ABSENT.to_owned();
        rows.push(vec![
            "TCP memory, maximum".to_owned(),
            number::bytes(bytes as f64),
            absent(),
            absent(),
        ]);
    }
    let uncounted_s = review.lasted_s - review.counted_s;
    Table { // The first look has no interval; rounding is no gap.
        note: (uncounted_s > 1.0 + 2.0 * review.interval_s).then(|| {
            format!(
                "The kernel's counters were interrupted for {}. The counts do not include that time.",
                duration(uncounted_s)
            )
        }), ..Table::texts(&["what", "count", "peak /s", "at"], &[0], rows) }
}

fn peak(view: &Dated<'_>, key: &str) -> (String, String) {
    let absent = || (ABSENT.to_owned(), ABSENT.to_owned());
    view.review
        .peaks_per_s
        .get(key)
        .map_or_else(absent, |peak| (three(peak.value), view.at(peak.at_s)))
}

/// Times without a look: until when, for how long, why.
pub(super) fn gap_rows(view: &Dated<'_>) -> impl Iterator<Item = [String; 3]> {
    view.review.gaps.iter().take(ROWS_MAX).map(|gap| {
        let why = if gap.suspended_s > 1.0 {
            format!("the machine was suspended for {}", duration(gap.suspended_s))
        } else {
            "no look was taken: the machine was busy, or the watch was stopped".to_owned()
        };
        [view.at(gap.at_s), duration(gap.lasted_s), why]
    })
}

/// The same as a table.
pub(super) fn gaps(view: &Dated<'_>) -> Table {
    let note = not_shown(view.review.gaps_left_out, "shorter gap");
    Table { note, ..Table::texts(&["until", "without a look", "why"], &[0, 2], gap_rows(view)) }
}

/// What fixes what was wrong: the first episode of each cause and subject that has a fix.
pub(super) fn fixes(review: &Review) -> Vec<&Episode> {
    let mut fixes: Vec<&Episode> = Vec::new();
    for one in &review.episodes {
        // The same change answers both a queue that is near its limit and one that overflows.
        let change = |one: &Episode| one.fix.as_ref().map(|fix| fix.change.clone());
        let known = fixes.iter().any(|fix| {
            fix.subject == one.subject && (fix.id == one.id || change(fix) == change(one))
        });
        if one.fix.is_some() && !known && fixes.len() < ROWS_MAX {
            fixes.push(one);
        }
    }
    fixes.sort_by_key(|one| one.severity);
    fixes
}

/// A count of the namespace; absent: nothing was counted.
pub(super) fn figure(review: &Review, key: &str) -> Option<u64> {
    (review.counted_s > 0.0).then(|| review.counts.get(key).copied().unwrap_or(0))
}

/// `10.0.0.7:80`, `[fd00::7]:80`.
pub(super) fn name(one: &ListenerReview) -> String {
    host_port(&one.address, one.port)
}

fn process(process: Option<&Process>) -> String {
    process
        .map_or_else(|| ABSENT.to_owned(), |process| format!("{} ({})", process.name, process.pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(host: u64, deferred: u64, of_sockets: u64) -> Review {
        let one = ListenerReview { drops: of_sockets, ..ListenerReview::default() };
        let counts = [("drops", host), ("deferred", deferred)];
        Review {
            counted_s: 9.0,
            counts: counts.map(|(name, count)| (name.to_owned(), count)).into(),
            listeners: vec![one],
            ..Review::default()
        }
    }

    #[test]
    fn no_drop_of_the_host_is_no_claim_about_what_the_sockets_dropped() {
        assert_eq!(undropped(&review(0, 0, 0)), "no listener dropped a packet");
        assert_eq!(
            undropped(&review(0, 40, 40)),
            "listeners dropped only 40 last ACKs that TCP_DEFER_ACCEPT ignores (harmless)"
        );
        assert_eq!(
            undropped(&review(0, 40, 50)),
            "listeners dropped 50 packets (sk_drops), none at a full queue, at most 40 of them by TCP_DEFER_ACCEPT"
        );
        assert_eq!(
            undropped(&review(0, 0, 1)),
            "listeners dropped 1 packet (sk_drops), none at a full queue"
        );
    }

    #[test]
    fn two_sums_of_drops_that_differ_are_explained() {
        assert_eq!(two_totals(&review(7, 0, 7)), None);
        let text = two_totals(&review(1_266, 30, 1_550)).unwrap();
        assert!(
            text.starts_with("Drops are sk_drops of each listener: 1,550 in all. ListenDrops"),
            "{text}"
        );
        assert!(text.contains("is 1,266."), "{text}");
        assert!(
            text.contains(
                "The sum includes 30 last ACKs that TCP_DEFER_ACCEPT ignored (harmless)."
            ),
            "{text}"
        );
    }
}
