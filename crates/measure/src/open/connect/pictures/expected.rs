//! What arithmetic expects of a handshake, and where its time went.

use tcptoll_core::record::{Arm, Timeline};

use tcptoll_show::number;

/// Expected against measured, of one arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// What arithmetic expects of the client, µs.
    pub(crate) theory_us: f64,
    /// The measured median, µs.
    pub(crate) measured_us: f64,
    /// Where the round trip of the arithmetic is from.
    pub(crate) rtt_from: &'a str,
    /// Whether CPU time is part of it.
    pub(crate) with_cpu: bool,
}

impl Expected<'_> {
    /// The formula: `1 RTT + CPU`.
    pub(crate) fn formula(&self) -> &'static str {
        if self.with_cpu { "1 RTT + CPU" } else { "1 RTT" }
    }

    /// Whether the round trip can be a yardstick: a handshake takes one at least.
    pub(crate) fn is_possible(&self) -> bool {
        self.with_cpu || self.measured_us >= self.theory_us
    }

    /// Distance of the measured from the expected: `+0.03 %`.
    pub(crate) fn off(&self) -> String {
        number::percent_off(self.measured_us / self.theory_us)
    }
}

/// The least round trip that physics allows over the distance the user gave.
pub(crate) fn floor(arm: &Arm) -> Option<String> {
    let expectation = arm.expectation.as_ref()?;
    Some(format!(
        "Over {} km, light needs {} in fibre and {} in vacuum for a round trip",
        number::trimmed(expectation.distance_km?),
        number::exact_time(expectation.floor_fibre_us?),
        number::exact_time(expectation.floor_vacuum_us?)
    ))
}

/// Expected against measured connect latency; `None` where either is missing.
pub(crate) fn expected(arm: &Arm) -> Option<Expected<'_>> {
    let expectation = arm.expectation.as_ref()?;
    let measured_us = arm.histograms.get("connect_us")?.p50?;
    (expectation.client_us > 0.0).then_some(Expected {
        theory_us: expectation.client_us,
        measured_us,
        rtt_from: &expectation.rtt_from,
        with_cpu: expectation.cpu_us.is_some(),
    })
}

/// The round trip that views of an arm are held against, µs.
pub(crate) fn reference_rtt(arm: &Arm) -> Option<f64> {
    arm.expectation.as_ref().map(|e| e.rtt_us).filter(|rtt| *rtt > 0.0)
}

/// Median time at the client, on the wire and at the server, µs: sums of the steps.
pub(crate) fn time_by_lane(timeline: &Timeline) -> Vec<(&str, f64)> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for step in &timeline.steps {
        match sums.iter_mut().find(|(lane, _)| *lane == step.at) {
            Some((_, sum)) => *sum += step.p50_us,
            None => sums.push((&step.at, step.p50_us)),
        }
    }
    sums
}

/// When the last step of a timeline ends, µs.
pub(crate) fn timeline_end(timeline: &Timeline) -> f64 {
    timeline.steps.iter().map(|step| step.begins_us + step.p50_us).fold(0.0, f64::max)
}

/// Whether two timelines tell the same story: the same steps within a fifth or 5 µs.
pub(crate) fn same_story(a: &Timeline, b: &Timeline) -> bool {
    a.steps.len() == b.steps.len()
        && a.steps.iter().zip(&b.steps).all(|(x, y)| {
            let near = (x.p50_us - y.p50_us).abs() <= 5.0_f64.max(0.2 * x.p50_us.max(y.p50_us));
            x.name == y.name && near
        })
}
