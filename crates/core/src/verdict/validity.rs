//! May a trial be used for its question?
//!
//! Pure decisions over what was measured of the client, the machine and the link; every experiment
//! asks the same ones. What was found is a warning, and where it spoils the figures also the reason
//! for which the trial is excluded from verdicts. Such a trial is recorded all the same. It is
//! repeated where the reason may pass, and not where it follows from the settings.

use crate::record::Lasting;
use crate::stats::diagnostics;
use crate::tcp::counters::{Standstill, Stolen};
use crate::verdict::warning::Warning;

/// A client that uses more of its CPU than this may have set the pace.
const CPU_SHARE_MAX: f64 = 0.9;

/// Stolen time above this share is told.
const STEAL_TOLD: f64 = 0.02;

/// Stolen time above this share spoils a trial. Between the two it is noise like other noise, which
/// the interval shows: on a busy hypervisor 2 % would exclude a third of trials of half a second.
const STEAL_MAX: f64 = 0.05;

/// Fewer stolen ticks than this may be chance: one tick of a trial of 0.1 s is 10 % of a CPU.
const STEAL_TICKS_MIN: u64 = 3;

/// The wall clock moves against the monotonic one by steps alone (slewing moves both); less than
/// this is the error of reading two clocks one after the other, ns.
const STEP_NS_MAX: u64 = 1_000_000;

/// A machine that slept this long has cold caches and timers that are late, ns.
const SLEPT_NS_MAX: u64 = 100_000_000;

/// Lateness of the client or the link above this makes a warning, µs at the 99th percentile.
const LATE_US: f64 = 500.0;

/// And, of the client, above this share of the typical latency.
const LATE_SHARE: f64 = 0.01;

/// A sleeping client runs this long after its response has come, at most, where nothing else runs, s.
const WAKE_S: f64 = 200e-6;

/// A process that stood still for more than this share of the time spoils a trial: figures of a second lack 20 ms
/// then, as much as many a difference that is asked about.
const STANDSTILL_SHARE_MAX: f64 = 0.02;

/// Closed loop: the law is judged over at least this many turns of every slot, so that one stall
/// in a short trial is no verdict on the client.
const TURNS_MIN: u64 = 20;

/// An open loop that answers less than this share of what was due did not reach its rate.
const RATE_SHARE_MIN: f64 = 0.99;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// For the reader.
    pub warning: Warning,
    /// Why the trial may not be used for its question, one sentence without its full stop; `None`:
    /// it may.
    pub reason: Option<&'static str>,
    /// Whether a repetition would find the same; `None`: the reason may pass, or there is none.
    pub lasting: Option<Lasting>,
}

impl Finding {
    fn told(warning: Warning) -> Self {
        Self { warning, reason: None, lasting: None }
    }

    fn spoilt(warning: Warning, reason: &'static str) -> Self {
        Self { warning, reason: Some(reason), lasting: None }
    }

    /// As it follows from the settings, a repetition would find the same.
    fn lasting(self, lasting: Lasting) -> Self {
        Self { lasting: self.reason.and(Some(lasting)), ..self }
    }
}

/// What a closed loop kept at once, over the stretch in which it was to keep all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedLoop {
    /// Operations in all.
    pub operations: u64,
    /// Operations that were to be at once.
    pub asked: u64,
    /// Operations that were at once: throughput times mean latency.
    pub found: f64,
    /// Slots that the client's own work between two operations leaves empty, as far as it is known.
    pub between: f64,
}

impl ClosedLoop {
    fn departs(&self) -> bool {
        self.operations >= self.asked.saturating_mul(TURNS_MIN)
            && diagnostics::departs(self.found, self.asked as f64)
    }
}

/// Whether Little's law holds: throughput times latency is the number at once.
///
/// None: it does, or there were too few operations to say.
pub fn littles_law(found: ClosedLoop) -> Option<Finding> {
    // What the client did between two operations explains a lack, and no surplus.
    let explained = found.found.max((found.found + found.between).min(found.asked as f64));
    ClosedLoop { found: explained, ..found }.departs().then(|| {
        Finding::told(Warning::LittlesLaw { found: found.found, asked: found.asked as f64 })
    })
}

/// Slots that a client leaves empty between two operations: it works on one after the other, and sleeps until
/// the kernel wakes it up.
///
/// `cpu_share`: of one CPU, 0 to 1. From 5,000 operations per second and slot on it explains every lack: there the
/// law says nothing, and on loopback (Linux 6.18, two CPUs) 55 to 91 % of 1 to 50 slots were full.
pub fn between_operations(cpu_share: f64, per_s: f64, asked: u64) -> f64 {
    cpu_share * asked as f64 + per_s * WAKE_S
}

/// Whether the client set the pace instead of what it measured.
///
/// In open loop a client without CPU to spare is late. In closed loop it may be as busy as it likes
/// as long as it keeps its slots filled: without distance the client *is* what takes the time, as
/// it carries the server's softirq work, too. On a direct link (Linux 6.18) one connection at once
/// used 65 % of its CPU and filled 99.8 % of its slot; from four at once on it used 91 to 98 %, and
/// 3.1 of 4, 7 of 50, 8 to 55 of 500 slots were filled: more at once than the client can serve.
///
/// `cpu_share`: of one CPU, 0 to 1, over the time without pauses. `closed`: absent in open loop.
pub fn client_bottleneck(cpu_share: f64, closed: Option<ClosedLoop>) -> Option<Finding> {
    let empty = closed.is_none_or(|found| found.departs() && found.found < found.asked as f64);
    (cpu_share > CPU_SHARE_MAX && empty).then(|| {
        Finding::spoilt(Warning::ClientBottleneck { cpu_share }, "the client was CPU-bound")
            .lasting(Lasting::ClientCpu)
    })
}

/// Whether an open loop's client kept its schedule; all in µs, absent with too few values.
///
/// The trial is spoilt when the median operation began late by half of its latency or more: then
/// the schedule, not the network, made the figure.
pub fn client_late(
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    latency_p50_us: Option<f64>,
) -> Option<Finding> {
    let spoilt = p50_us.zip(latency_p50_us).is_some_and(|(late, latency)| late > latency / 2.0);
    // Beside long latencies, as of an overloaded server, it is no doubt.
    let counts = |late: &f64| latency_p50_us.is_none_or(|latency| *late > latency * LATE_SHARE);
    let p99_us = p99_us.filter(|late| spoilt || counts(late));
    late(p50_us, p99_us, spoilt, "the client was late by more than half of the latency", |p99_us| {
        Warning::GeneratorLate { p99_us }
    })
    .map(|finding| finding.lasting(Lasting::ClientSchedule))
}

/// Whether an open loop's requests succeeded as fast as they were due, where no queue of them grew:
/// then what failed is what is missing, or what was answered after the window. `resolution_per_s`: how far the achieved rate may be off.
///
/// It spoils nothing: what a server cannot do is a finding.
pub fn rate_not_reached(
    intended_per_s: f64,
    achieved_per_s: f64,
    resolution_per_s: f64,
    failed: u64,
) -> Option<Finding> {
    let missed = achieved_per_s + resolution_per_s < intended_per_s * RATE_SHARE_MIN;
    missed
        .then(|| Finding::told(Warning::RateNotReached { intended_per_s, achieved_per_s, failed }))
}

/// Whether the link emulator released packets when they were due; all in µs.
///
/// A round trip waits for two releases, and the tolerance is of the round trip's median.
pub fn link_late(p50_us: Option<f64>, p99_us: Option<f64>, tolerance_us: f64) -> Option<Finding> {
    let spoilt = p50_us.is_some_and(|late| 2.0 * late > tolerance_us);
    // Where so much is tolerated of the median, less is no doubt.
    let p99_us = p99_us.filter(|late| spoilt || *late > tolerance_us);
    late(
        p50_us,
        p99_us,
        spoilt,
        "the link emulator was late by more than the tolerance",
        |p99_us| Warning::LinkLate { p99_us },
    )
}

fn late(
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    spoilt: bool,
    reason: &'static str,
    warning: impl Fn(f64) -> Warning,
) -> Option<Finding> {
    // With too few values for a 99th percentile the median is what there is to show.
    let shown = p99_us.or(p50_us)?;
    if spoilt {
        Some(Finding::spoilt(warning(shown), reason))
    } else {
        p99_us.filter(|p99| *p99 > LATE_US).map(|p99| Finding::told(warning(p99)))
    }
}

/// Whether connections of a closed loop got no response in the whole window, while others did: a request counts
/// when it ends, so these clients are in no latency.
///
/// `starved`: how many, of how many. A window of fewer than three typical latencies, both in s, proves nothing.
pub fn starved(
    (starved, connections): (u64, u64),
    window_s: f64,
    latency_p50_s: Option<f64>,
) -> Option<Finding> {
    let long = latency_p50_s.is_some_and(|latency| window_s > 2.0 * latency);
    let some = (1..connections).contains(&starved);
    (long && some)
        .then(|| Finding::told(Warning::StarvedConnections { starved, connections, window_s }))
}

/// Whether the server kept a tenth or more of the connections open after the client's close, `unclosed` of `ok`, so that
/// the client's wait for it is in the rate.
pub fn kept_open(unclosed: u64, ok: u64) -> Option<Finding> {
    (unclosed > 0 && unclosed.saturating_mul(10) >= ok)
        .then(|| Finding::told(Warning::KeptOpen { unclosed, all: ok }))
}

/// Silence of a server below this is the everyday of a busy machine, s.
const SILENT_MIN_S: f64 = 0.2;

/// Whether a server answered nobody for a time in which it usually answers ten times, both in s.
pub fn server_silent(silent_s: f64, latency_p50_s: Option<f64>) -> Option<Finding> {
    let unusual = latency_p50_s.is_some_and(|latency| silent_s >= SILENT_MIN_S.max(10.0 * latency));
    unusual.then(|| Finding::told(Warning::ServerSilent { s: silent_s }))
}

/// Whether a hypervisor took too much of the machine's CPU time.
pub fn steal(stolen: Stolen) -> Option<Finding> {
    let share = stolen.share?;
    if share <= STEAL_TOLD || stolen.ticks < STEAL_TICKS_MIN {
        return None;
    }
    let warning = Warning::Steal { share };
    Some(if share > STEAL_MAX {
        Finding::spoilt(warning, "a hypervisor took too much CPU time")
    } else {
        Finding::told(warning)
    })
}

/// Whether somebody set the wall clock, ns forwards; it spoils what rests on packets' time stamps.
pub fn clock_step(step_ns: i64, stamps_are_used: bool) -> Option<Finding> {
    (step_ns.unsigned_abs() > STEP_NS_MAX).then(|| Finding {
        warning: Warning::ClockStep { ms: step_ns as f64 / 1e6 },
        reason: stamps_are_used
            .then_some("the wall clock was set while it was used to timestamp packets"),
        lasting: None,
    })
}

/// Whether the machine was suspended, for so many ns.
pub fn suspended(slept_ns: u64) -> Option<Finding> {
    (slept_ns > SLEPT_NS_MAX).then(|| {
        let warning = Warning::Suspended { s: slept_ns as f64 / 1e9 };
        Finding::spoilt(warning, "the machine was suspended")
    })
}

/// Whether a process of the lab could not run for so long that a peer may have seemed dead: more than
/// a quarter of the time in which one has to answer, both in s.
pub fn peers_unheard(longest_s: f64, answer_s: Option<f64>) -> Option<Finding> {
    let allowed = answer_s? / 4.0;
    (longest_s > allowed).then(|| {
        let what = format!(
            "could not run for {longest_s:.2} s, so live peers may have seemed dead. Repeat the run on a quieter \
             machine"
        );
        let warning = Warning::StoodStill { who: "a process of the lab", what };
        Finding::spoilt(warning, "a process of the lab could not run for too long")
    })
}

/// An end of the connections, as far as it is a process of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Opens connections.
    Client,
    /// Accepts them, in the lab.
    Server,
}

/// Whether an end could not run for a share of the time in which it was observed, s, so that its pauses
/// are part of the figures.
///
/// None: it ran all the time, but for gaps that each machine has.
pub fn standstill(end: End, found: Standstill, observed_s: f64) -> Option<Finding> {
    let Standstill { stood_ns, waited_ns, periods, throttled } = found;
    let (who, [limited, waited, stopped]) = match end {
        End::Client => (
            "the client",
            [
                "the CPU limit of its control group held the client back",
                "the client waited for a CPU for too long",
                "the client was stopped",
            ],
        ),
        End::Server => (
            "the server host",
            [
                "the CPU limit of its control group held the server host back",
                "the server host waited for a CPU for too long",
                "the server host was stopped",
            ],
        ),
    };
    let stood_s = stood_ns as f64 / 1e9;
    let is_limited = throttled as f64 > periods as f64 * STANDSTILL_SHARE_MAX;
    let is_long = stood_s > observed_s * STANDSTILL_SHARE_MAX;
    let (reason, what) = if is_limited {
        let what = format!(
            "used up the CPU limit of its control group in {throttled} of {periods} periods (cpu.stat) and was \
             held back in each. Raise the limit (cpu.max, `docker run --cpus`), or lower the load"
        );
        (limited, what)
    } else if stood_ns == 0 {
        return None;
    } else {
        let (reason, how) = if waited_ns > stood_ns / 2 {
            (waited, "other programs had the CPU. Repeat the run on a quieter machine")
        } else {
            (
                stopped,
                "it was stopped (by a signal, a paused container or virtual machine). Repeat the run",
            )
        };
        (reason, format!("did not run for {stood_s:.2} s of {observed_s:.2} s: {how}"))
    };
    let warning = Warning::StoodStill { who, what };
    let spoils = is_limited || is_long;
    Some(if spoils { Finding::spoilt(warning, reason) } else { Finding::told(warning) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(operations: u64, asked: u64, found: f64) -> ClosedLoop {
        ClosedLoop { operations, asked, found, between: 0.0 }
    }

    fn spoils(finding: Option<Finding>) -> Option<bool> {
        finding.map(|finding| finding.reason.is_some())
    }

    #[test]
    fn a_client_that_keeps_its_slots_filled_obeys_the_law() {
        assert_eq!(littles_law(closed(2_000, 100, 98.0)), None);
        assert_eq!(littles_law(closed(2_000, 100, 104.0)), None);
        assert_eq!(spoils(littles_law(closed(2_000, 100, 85.0))), Some(false));
        assert_eq!(spoils(littles_law(closed(2_000, 100, 106.0))), Some(false));
    }

    #[test]
    fn a_client_that_works_between_two_operations_obeys_the_law_and_one_that_stands_still_does_not()
    {
        // Four connections and 13 µs of CPU per request: 56,000/s, and 3,137/s of a client stopped for half of the time.
        let lacks = |per_s: f64, found| {
            let between = between_operations(per_s * 13e-6, per_s, 4);
            littles_law(ClosedLoop { between, ..closed(10_000, 4, found) })
        };
        assert_eq!(lacks(56_000.0, 2.72), None);
        assert_eq!(spoils(lacks(3_137.0, 1.82)), Some(false));
    }

    #[test]
    fn a_standstill_spoils_from_a_fiftieth_of_the_time_on_and_its_reason_says_where_the_time_went()
    {
        let reason = |stood_ms: u64, waited_ms: u64, limit: (u64, u64)| {
            let found = Standstill {
                stood_ns: stood_ms * 1_000_000,
                waited_ns: waited_ms * 1_000_000,
                periods: limit.0,
                throttled: limit.1,
            };
            standstill(End::Client, found, 10.0).map(|finding| finding.reason)
        };
        assert_eq!(reason(0, 0, (0, 0)), None);
        assert_eq!(reason(0, 0, (100, 2)), None);
        assert_eq!(reason(199, 0, (0, 0)), Some(None));
        assert_eq!(reason(201, 0, (0, 0)), Some(Some("the client was stopped")));
        let waited = "the client waited for a CPU for too long";
        assert_eq!(reason(201, 150, (100, 0)), Some(Some(waited)));
        let limited = "the CPU limit of its control group held the client back";
        assert_eq!(reason(201, 150, (100, 3)), Some(Some(limited)));
        let server = standstill(
            End::Server,
            Standstill { stood_ns: 5_000_000_000, ..Standstill::default() },
            10.0,
        );
        assert!(server.is_some_and(|finding| {
            finding
                .warning
                .to_string()
                .starts_with("the server host did not run for 5.00 s of 10.00 s")
        }));
    }

    #[test]
    fn a_server_that_keeps_a_tenth_of_the_connections_open_is_named() {
        assert_eq!(kept_open(0, 100), None);
        assert_eq!(kept_open(9, 100), None);
        assert!(kept_open(10, 100).is_some_and(|found| found.reason.is_none()));
    }

    #[test]
    fn connections_without_a_response_are_named_where_others_had_several() {
        assert!(starved((15, 20), 5.0, Some(0.1)).is_some());
        assert_eq!(starved((0, 20), 5.0, Some(0.1)), None);
        // Nobody had one, or one takes as long as the window.
        assert_eq!(starved((20, 20), 5.0, Some(0.1)), None);
        assert_eq!(starved((15, 20), 5.0, Some(2.6)), None);
        assert_eq!(starved((15, 20), 5.0, None), None);
    }

    #[test]
    fn a_server_that_answers_nobody_for_ten_of_its_latencies_is_named_with_the_length() {
        let found = server_silent(1.004, Some(0.02)).unwrap();
        assert_eq!((found.warning, found.reason), (Warning::ServerSilent { s: 1.004 }, None));
        assert_eq!(server_silent(0.19, Some(0.001)), None);
        assert_eq!(server_silent(1.0, Some(0.2)), None);
    }

    #[test]
    fn too_few_turns_are_no_verdict() {
        assert_eq!(littles_law(closed(1_999, 100, 50.0)), None);
        assert_eq!(client_bottleneck(1.0, Some(closed(1_999, 100, 50.0))), None);
    }

    #[test]
    fn a_busy_client_is_the_bottleneck_in_open_loop_but_in_closed_loop_only_with_empty_slots() {
        assert_eq!(spoils(client_bottleneck(0.95, None)), Some(true));
        assert_eq!(client_bottleneck(0.85, None), None);
        assert_eq!(client_bottleneck(1.0, Some(closed(200, 1, 0.97))), None);
        assert_eq!(spoils(client_bottleneck(0.95, Some(closed(200, 1, 0.7)))), Some(true));
        assert_eq!(client_bottleneck(0.85, Some(closed(200, 1, 0.7))), None);
        // More at once than asked for is an error of the count, not a lack of CPU.
        assert_eq!(client_bottleneck(1.0, Some(closed(200, 1, 1.2))), None);
    }

    #[test]
    fn stolen_time_spoils_a_trial_if_it_is_more_than_chance() {
        let stolen = |ticks, share| steal(Stolen { ticks, share: Some(share) });
        assert_eq!(spoils(stolen(3, 0.06)), Some(true));
        assert_eq!(spoils(stolen(3, 0.03)), Some(false));
        assert_eq!(stolen(2, 0.1), None);
        assert_eq!(stolen(300, 0.019), None);
        assert_eq!(steal(Stolen { ticks: 0, share: None }), None);
    }

    #[test]
    fn a_set_clock_spoils_only_what_rests_on_time_stamps() {
        assert_eq!(clock_step(-900_000, true), None);
        assert_eq!(spoils(clock_step(-2_500_000, false)), Some(false));
        let spoilt = clock_step(-2_500_000, true).unwrap();
        assert_eq!(spoilt.warning, Warning::ClockStep { ms: -2.5 });
        assert!(spoilt.reason.is_some());
    }

    #[test]
    fn a_machine_that_slept_spoils_the_trial() {
        assert_eq!(peers_unheard(0.2, Some(1.0)), None);
        assert_eq!(peers_unheard(3.0, None), None);
        assert_eq!(spoils(peers_unheard(0.3, Some(1.0))), Some(true));
        assert_eq!(suspended(99_000_000), None);
        assert_eq!(spoils(suspended(1_500_000_000)), Some(true));
    }

    #[test]
    fn the_link_may_be_late_by_half_the_tolerance_each_way() {
        assert_eq!(link_late(Some(49.0), Some(90.0), 100.0), None);
        assert_eq!(spoils(link_late(Some(51.0), Some(90.0), 100.0)), Some(true));
        assert_eq!(spoils(link_late(Some(5.0), Some(501.0), 100.0)), Some(false));
        assert_eq!(link_late(None, None, 100.0), None);
    }

    #[test]
    fn only_what_follows_from_the_settings_would_be_found_again() {
        let lasting = |finding: Option<Finding>| finding.unwrap().lasting;
        assert_eq!(lasting(client_bottleneck(0.95, None)), Some(Lasting::ClientCpu));
        let late = client_late(Some(51.0), Some(80.0), Some(100.0));
        assert_eq!(lasting(late), Some(Lasting::ClientSchedule));
        // A doubt alone excludes nothing.
        assert_eq!(lasting(client_late(Some(4.0), Some(600.0), Some(100.0))), None);
        let passing = [
            steal(Stolen { ticks: 9, share: Some(0.2) }),
            suspended(1_500_000_000),
            clock_step(-2_500_000, true),
            peers_unheard(0.3, Some(1.0)),
            link_late(Some(51.0), Some(90.0), 100.0),
        ];
        for finding in passing {
            assert!(finding.as_ref().is_some_and(|finding| finding.reason.is_some()));
            assert_eq!(lasting(finding), None);
        }
    }

    #[test]
    fn a_rate_that_was_missed_by_a_hundredth_is_told() {
        assert_eq!(rate_not_reached(1_000.0, 990.0, 0.0, 3), None);
        assert_eq!(rate_not_reached(7.0, 5.0, 2.0, 3), None);
        let found = rate_not_reached(500.0, 250.0, 2.0, 3).unwrap();
        let warning =
            Warning::RateNotReached { intended_per_s: 500.0, achieved_per_s: 250.0, failed: 3 };
        assert_eq!((found.warning, found.reason), (warning, None));
    }

    #[test]
    fn an_open_loop_late_by_half_its_latency_measured_its_schedule() {
        assert_eq!(client_late(Some(4.0), Some(40.0), Some(100.0)), None);
        assert_eq!(spoils(client_late(Some(4.0), Some(600.0), Some(100.0))), Some(false));
        assert_eq!(client_late(Some(4.0), Some(600.0), Some(330_000.0)), None, "of a queue");
        let spoilt = client_late(Some(51.0), Some(80.0), Some(100.0)).unwrap();
        assert_eq!(spoilt.warning, Warning::GeneratorLate { p99_us: 80.0 });
        assert!(spoilt.reason.is_some());
    }
}
