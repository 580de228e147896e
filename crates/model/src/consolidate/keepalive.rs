//! What checking idle connections cost in all rounds together.

use super::{of, sum, summed};
use crate::checking::expected_false_alarms;
use crate::record::{Arm, Deaths, Keepalive, Traffic};

/// Counts and windows are summed; settings, bounds and the number of sockets are those of the first
/// round. None: no round has it.
pub(super) fn keepalive(arms: &[&Arm]) -> Option<Keepalive> {
    let rounds: Vec<&Keepalive> = arms.iter().filter_map(|arm| arm.keepalive.as_ref()).collect();
    let first = *rounds.first()?;
    let total = |part: fn(&Keepalive) -> u64| sum(rounds.iter().map(|round| part(round)));
    let traffic =
        |part: fn(&Keepalive) -> Option<Traffic>| together(rounds.iter().copied().map(part));
    Some(Keepalive {
        window_s: rounds.iter().map(|round| round.window_s).sum(),
        processes: [0, 1]
            .map(|host| rounds.iter().map(|round| round.processes[host]).max().unwrap_or_default()),
        probes: traffic(|round| round.probes),
        probe_answers: traffic(|round| round.probe_answers),
        heartbeats: traffic(|round| round.heartbeats),
        heartbeat_acks: traffic(|round| round.heartbeat_acks),
        heartbeat_retransmissions: total(|round| round.heartbeat_retransmissions),
        nulls_sent: total(|round| round.nulls_sent),
        wakeups: total(|round| round.wakeups),
        link_share: link_share(&rounds),
        deaths: deaths(&rounds),
        ..first.clone()
    })
}

/// The share of all windows together. None: no round has one.
fn link_share(rounds: &[&Keepalive]) -> Option<f64> {
    let shares: Vec<(f64, f64)> =
        rounds.iter().filter_map(|round| Some((round.link_share?, round.window_s))).collect();
    let length: f64 = shares.iter().map(|(_, window)| window).sum();
    let used: f64 = shares.iter().map(|(share, window)| share * window).sum();
    (length > 0.0).then(|| used / length)
}

fn deaths(rounds: &[&Keepalive]) -> Option<Deaths> {
    let all: Vec<&Deaths> = rounds.iter().filter_map(|round| round.deaths.as_ref()).collect();
    let first = *all.first()?;
    let total = |part: fn(&Deaths) -> u64| sum(all.iter().map(|deaths| part(deaths)));
    let tested: Vec<(u64, f64)> =
        all.iter().filter_map(|deaths| deaths.tests.zip(deaths.test_probability)).collect();
    let tests = sum(tested.iter().map(|(tests, _)| *tests));
    let expected: f64 = tested.iter().map(|(tests, p)| *tests as f64 * p).sum();
    // The rounds of an arm have one loss and one setting, and so one probability.
    let probability =
        if tests == 0 { first.test_probability } else { Some(expected / tests as f64) };
    let whole = !tested.is_empty() && tested.len() == all.len();
    let probability = probability.filter(|_| whole);
    Some(Deaths {
        stricken: total(|deaths| deaths.stricken),
        dead: total(|deaths| deaths.dead),
        known: total(|deaths| deaths.known),
        known_by: summed(&of(&all, |deaths| &deaths.known_by)),
        read_said: summed(&of(&all, |deaths| &deaths.read_said)),
        late: total(|deaths| deaths.late),
        alive: total(|deaths| deaths.alive),
        wrongly_closed: total(|deaths| deaths.wrongly_closed),
        tests: whole.then_some(tests),
        test_probability: probability,
        expected_wrongly: probability.map(|p| expected_false_alarms(tests, p)),
        traffic: together(all.iter().map(|deaths| deaths.traffic)),
        arrivals: total(|deaths| deaths.arrivals),
        ..first.clone()
    })
}

/// The sum of what some rounds have. None: none has it.
fn together(rounds: impl Iterator<Item = Option<Traffic>>) -> Option<Traffic> {
    rounds.flatten().reduce(Traffic::plus)
}

#[cfg(test)]
mod tests;
