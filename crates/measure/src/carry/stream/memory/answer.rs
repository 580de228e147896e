//! The answer of a run of `--memory`, in at most three sentences.

use super::{connection_memory, window_bytes};
use crate::kit::conclusion::{Excerpt, stated, step};
use tcptoll_core::record::{Arm, ConnectionMemory, NextStep, Summary};
use tcptoll_core::units::{human_bytes, human_count, text_size};

/// An arm and its memory.
type MemoryArm<'a> = (&'a Arm, &'a ConnectionMemory);

/// Answers a run of `--memory`. Gives whether it is one: whether an arm has memory.
pub(crate) fn conclude(summary: &mut Summary) -> bool {
    let told: Vec<MemoryArm<'_>> = summary
        .arms
        .iter()
        .filter(|arm| arm.failure.is_none())
        .filter_map(|arm| Some((arm, connection_memory(arm)?)))
        .collect();
    if told.is_empty() {
        return false;
    }
    let sentences = [idle(&told), filled(&told), rule(&told)];
    let (answer, next) =
        (sentences.into_iter().flatten().collect::<Vec<_>>().join(" "), next(&told));
    summary.answer = answer;
    summary.next = next;
    true
}

/// One connection's share of a sum.
fn share(memory: &ConnectionMemory, bytes: f64) -> f64 {
    bytes / memory.connections.max(1) as f64
}

/// A range in words; one figure where both ends are written alike.
fn range(figures: &[f64]) -> Option<String> {
    let least = figures.iter().copied().reduce(f64::min)?;
    let most = figures.iter().copied().reduce(f64::max)?;
    let (least, most) = (human_bytes(least), human_bytes(most));
    Some(if least == most { most } else { format!("{least} to {most}") })
}

/// What a connection without data holds.
fn idle(told: &[MemoryArm<'_>]) -> Option<String> {
    let buffers: Vec<f64> =
        told.iter().map(|(_, memory)| share(memory, memory.idle.buffers_bytes())).collect();
    let none = buffers.iter().all(|bytes| *bytes < 1.0);
    let of_end = |end: fn(&ConnectionMemory) -> Option<f64>| -> Option<String> {
        range(&told.iter().filter_map(|(_, memory)| end(memory)).collect::<Vec<f64>>())
    };
    let at_client = of_end(|memory| memory.at_client(Some(&memory.idle)));
    let at_server = of_end(|memory| memory.at_server(Some(&memory.idle)));
    let Some((client, server)) = at_client.zip(at_server) else {
        return Some(if none {
            "An idle connection holds no buffer memory (sizes are limits, not reservations); only \
             root can read the size of its structures."
                .to_owned()
        } else {
            let buffers = range(&buffers)?;
            format!("An idle connection holds {buffers} of buffer memory, both ends together.")
        });
    };
    let held =
        format!("An idle connection holds {client} at the client and {server} at the server");
    Some(if none {
        format!("{held}, but no buffer memory: buffer sizes are limits, not reservations.")
    } else {
        format!("{held}, including {} of buffers.", range(&buffers)?)
    })
}

/// Both ends of one filled connection.
fn both_ends(memory: &ConnectionMemory) -> Option<f64> {
    memory.filled.as_ref().map(|filled| share(memory, memory.in_total(filled)))
}

/// What connections with full buffers hold, in the arms that have most connections.
fn filled(told: &[MemoryArm<'_>]) -> Option<String> {
    let most = told.iter().map(|(_, memory)| memory.connections).max()?;
    let of_most = told.iter().filter(|(_, memory)| memory.connections == most);
    let of_arms: Vec<(&MemoryArm<'_>, f64)> =
        of_most.filter_map(|told| Some((told, both_ends(told.1)?))).collect();
    let phrase = |&((arm, memory), bytes): &(&MemoryArm<'_>, f64)| {
        let each = human_bytes(bytes);
        if told.len() > 1 {
            return format!("{each} ({})", arm.name);
        }
        let all = memory.filled.as_ref().map_or(0.0, |filled| memory.in_total(filled));
        match memory.connections {
            0 | 1 => each,
            n => format!("{each} ({} for {} connections)", human_bytes(all), human_count(n)),
        }
    };
    let phrases = match stated(of_arms, |(_, bytes)| *bytes) {
        Excerpt::Each(all) if all.is_empty() => return None,
        Excerpt::Each(all) if all.len() <= 2 => all.iter().map(phrase).collect(),
        Excerpt::Each(all) => {
            let by = |pick: fn(f64, f64) -> bool| {
                all.iter().reduce(|a, b| if pick(b.1, a.1) { b } else { a })
            };
            let ends = [by(|new, old| new < old), by(|new, old| new >= old)];
            ends.into_iter().flatten().map(phrase).collect::<Vec<String>>()
        }
        Excerpt::Ends(least, most, _) => vec![phrase(&least), phrase(&most)],
    };
    Some(format!(
        "With full buffers, both ends of a connection together hold {}.",
        phrases.join(" and ")
    ))
}

/// Whether a full buffer holds more than twice the size asked for.
fn rule(told: &[MemoryArm<'_>]) -> Option<String> {
    let of_arm = |&(_, memory): &MemoryArm<'_>| {
        let window = window_bytes(memory).filter(|_| !memory.pressure)?;
        let filled = memory.filled.as_ref()?;
        let times = |bytes: f64| share(memory, bytes) / window.max(1) as f64;
        let ends = [times(filled.client.buffers_bytes()), times(filled.server.buffers_bytes())];
        Some((window, ends))
    };
    let (window, [client, server]) =
        told.iter().filter_map(of_arm).max_by_key(|(window, _)| *window)?;
    let window = text_size(window);
    let figures = format!("{client:.2} × {window} (client), {server:.2} × {window} (server)");
    Some(if client.max(server) > 2.0 {
        format!("A full buffer can hold more than twice the window: {figures}.")
    } else {
        format!("Even a full buffer holds no more than twice the window: {figures}.")
    })
}

fn next(told: &[MemoryArm<'_>]) -> Vec<NextStep> {
    let mut steps = Vec::new();
    if told.iter().any(|(_, memory)| memory.pressure) {
        steps.push(step(
            "tcptoll explain memory-pressure",
            "what the kernel does when TCP uses too much memory, and how to see it",
        ));
    }
    if told.len() == 1 {
        steps.push(step(
            "tcptoll stream --memory --window auto,32K,256K,512K --connections 1000",
            "the same for several buffer sizes",
        ));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::super::tests::arm;
    use super::*;

    fn answer(arms: Vec<Arm>) -> (String, Summary) {
        let mut summary = Summary { arms, ..Summary::default() };
        assert!(conclude(&mut summary));
        assert!(summary.answer.chars().count() <= 400, "{}", summary.answer.chars().count());
        (summary.answer.clone(), summary)
    }

    #[test]
    fn a_full_buffer_holds_more_than_twice_the_window_and_an_idle_one_nothing() {
        let (answer, summary) = answer(vec![arm("stream", 1_000, Some(512 << 10), 2.1)]);
        assert_eq!(
            answer,
            "An idle connection holds 4.08 kB at the client and 3.83 kB at the server, but no \
             buffer memory: buffer sizes are limits, not reservations. With full buffers, both \
             ends of a connection together hold 2.21 MB (2.21 GB for 1,000 connections). A full \
             buffer can hold more than twice the window: 2.10 × 512K (client), 2.10 × 512K \
             (server)."
        );
        assert_eq!(summary.next.len(), 1);
    }

    #[test]
    fn of_several_arms_the_least_and_the_most_are_stated() {
        let arms = ["auto", "32K", "256K"].into_iter().zip([None, Some(32), Some(256)]);
        let arms = arms.map(|(name, asked)| arm(name, 10, asked.map(|k: u64| k << 10), 2.0));
        let (answer, _) = answer(arms.collect());
        assert!(answer.contains("together hold 139 kB (32K) and 1.06 MB (256K)."), "{answer}");
        assert!(answer.contains("holds no more than twice the window: 2.00 × 256K"), "{answer}");
    }

    #[test]
    fn without_structures_only_buffers_are_stated() {
        let mut one = arm("stream", 4, None, 2.0);
        let memory = one.own.connection_memory.as_mut().unwrap();
        memory.client.structures_bytes = None;
        memory.filled = None;
        let (answer, _) = answer(vec![one]);
        assert_eq!(
            answer,
            "An idle connection holds no buffer memory (sizes are limits, not reservations); only \
             root can read the size of its structures."
        );
    }

    #[test]
    fn a_run_without_memory_is_not_answered_here() {
        let mut summary = Summary { arms: vec![Arm::default()], ..Summary::default() };
        assert!(!conclude(&mut summary));
    }
}
