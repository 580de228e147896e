//! What does `time-wait` show of its own? The CPU of connect(2) over the ports in use next to the cliff
//! that was expected, idle CPU over the rate, and how an arm went over time.

mod curve;
mod idle;
mod spark;
mod time;

use crate::open::time_wait::supply::Supply;
use tcptoll_core::record::{Arm, PortUse};

use tcptoll_show::number;
use tcptoll_show::own::{Failed, Item, Picture, Section};
use tcptoll_show::run::{NONE, Own, Run};

/// Its parts.
pub(crate) const OWN: Own = Own {
    forecasts,
    failed: Some(failed),
    counted,
    text_after: spark::blocks,
    picture,
    sections,
    ..NONE
};

/// Forecasts that are told apart; more would push the answer off the screen.
const FORECASTS: usize = 3;

/// What an arm recorded of its ports.
fn port_use(arm: &Arm) -> Option<&PortUse> {
    arm.own.port_use.as_deref().filter(|_| arm.failure.is_none())
}

fn ports(count: f64) -> String {
    number::count(count.round().max(0.0) as u64)
}

/// A factor, whole from ten on.
fn times(factor: f64) -> String {
    if factor < 10.0 { format!("{factor:.1}") } else { format!("{factor:.0}") }
}

fn failed(Failed { failed, tried }: Failed) -> String {
    let [bad, all, good] = [failed, tried, tried - failed].map(number::count);
    format!(
        "{bad} of {all} operations failed. CPU of connect(2) covers all calls, latencies only the {good} that succeeded."
    )
}

/// What was computed before the run, one line for all arms that share one.
fn forecasts(arms: &[Arm]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for arm in arms {
        let Some(text) = forecast(arm) else { continue };
        match lines.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(&arm.name),
            None => lines.push((text, vec![&arm.name])),
        }
    }
    let alone = lines.len() == 1;
    let line = |(text, names): &(String, Vec<&str>)| {
        let more =
            if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
        if alone {
            format!("expected: {text}")
        } else {
            format!("expected, {}{more}: {text}", names[0])
        }
    };
    lines.iter().take(FORECASTS).map(line).collect()
}

/// Where connect(2) is to become slow, and how long the ports are to last.
fn forecast(arm: &Arm) -> Option<String> {
    let used = port_use(arm)?;
    let free = arm.ports.as_ref()?.at_once.saturating_sub(used.held_ports);
    let which = if used.held_ports > 0 { "free ports" } else { "ports" };
    let slow = |at| format!("connect(2) slows down beyond {} ports in use", ports(at));
    let cliff = used.cliff_expected.map(slow);
    let lasts = used
        .lasts_expected_s
        .map(|s| format!("{} {which} last {s:.1} s at this rate", number::count(free)));
    let parts: Vec<String> = cliff.into_iter().chain(lasts).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What an arm counted, for the page.
fn counted(arm: &Arm) -> Vec<[String; 2]> {
    let Some(used) = port_use(arm) else { return Vec::new() };
    let mut rows = vec![
        ["local ports held before the measurement".to_owned(), number::count(used.held_ports)],
        [
            "ports reused from TIME-WAIT (TcpExtTWRecycled)".to_owned(),
            number::count(used.time_wait_reused),
        ],
        [
            "connections ended without TIME-WAIT (TcpExtTCPTimeWaitOverflow)".to_owned(),
            number::count(used.time_wait_overflows),
        ],
    ];
    if let Some(ports) = &arm.ports {
        rows.push(["port forecast".to_owned(), ports.text.clone()]);
    }
    rows.extend(
        Supply::from_arm(arm)
            .map(|supply| ["why ports stay available".to_owned(), supply.words(arm)]),
    );
    rows
}

fn picture(summary: &Run) -> Option<Picture> {
    curve::picture(summary).or_else(|| time::picture(summary))
}

fn sections(summary: &Run) -> Vec<Section> {
    let over_time = time::picture(summary).filter(|_| curve::picture(summary).is_some());
    vec![
        Section { title: "Cost by ports in use", items: vec![Item::Lead] },
        Section {
            title: "Idle CPU by rate",
            items: idle::picture(summary).map(Item::Picture).into_iter().collect(),
        },
        Section { title: "Over time", items: over_time.map(Item::Picture).into_iter().collect() },
    ]
}

#[cfg(test)]
mod tests;
