//! Doubts as data: each names the arm, the figure, and what to change.

use std::fmt;

use crate::record::WarningEntry;
use crate::units::human_rate_per_s;

/// A reason to trust a run less.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// The generator could not keep its schedule.
    GeneratorLate {
        /// 99th percentile of lateness, µs.
        p99_us: f64,
    },
    /// The link emulator released packets late.
    LinkLate {
        /// 99th percentile of lateness, µs.
        p99_us: f64,
    },
    /// A quantile was asked of too few values.
    TooFewSamples {
        /// Values there are.
        have: u64,
        /// Values needed for ten beyond the quantile.
        need: u64,
        /// The quantile: `p99.9`.
        quantile: &'static str,
    },
    /// The lab lost packets that nobody asked it to lose.
    UnwantedDrops {
        /// Packets.
        packets: u64,
    },
    /// The tap could not keep every packet.
    TapDrops {
        /// Packets.
        packets: u64,
    },
    /// The emulated link runs over AF_PACKET because `/dev/net/tun` cannot be opened.
    PacketFallback,
    /// CPU time was stolen by a hypervisor.
    Steal {
        /// Share, 0 to 1.
        share: f64,
    },
    /// Kernel counters and the wire disagree.
    WitnessDisagrees {
        /// What was counted.
        what: String,
        /// Our count.
        ours: u64,
        /// The witness's count.
        witness: u64,
    },
    /// A setting the lab made on its own.
    SettingMade {
        /// Sysctl.
        name: String,
        /// Value.
        value: String,
        /// Reason.
        why: String,
    },
    /// The client was the bottleneck.
    ClientBottleneck {
        /// Share of one CPU that the client's thread used, 0 to 1.
        cpu_share: f64,
    },
    /// The trial with the packet tap failed.
    NoWitness {
        /// Why.
        why: String,
    },
    /// The capture file is not whole.
    PcapIncomplete {
        /// Why.
        why: String,
    },
    /// Trials of an arm were left out of verdicts.
    TrialsExcluded {
        /// How many, of how many.
        count: u64,
        /// All of the arm that were run.
        of: u64,
        /// The most frequent reason.
        why: String,
    },
    /// Rounds lack a metric that is compared, so that nothing is concluded from the others.
    MetricMissing {
        /// The metric and the arms compared.
        what: String,
        /// Rounds in which an arm counts and has no value.
        rounds: u32,
        /// All in which both arms count.
        of: u32,
    },
    /// One of two arms compared fails more often, and metrics are of what succeeded.
    FailuresDiffer {
        /// The arms compared.
        what: String,
        /// Share of operations of the first that failed, 0 to 1.
        a: f64,
        /// The same of the second.
        b: f64,
    },
    /// An arm has no trial that counts; its figures are those of trials that do not.
    NothingCounts,
    /// An arm changed while the run went on.
    Drift {
        /// Metric.
        metric: String,
        /// Change from first to last round, relative.
        change: f64,
    },
    /// A round is like the one before it, so rounds say less than they seem to.
    Autocorrelated {
        /// What: the metric and the arms compared.
        what: String,
        /// Correlation of neighbouring rounds, −1 to 1.
        lag1: f64,
    },
    /// Some rounds lie far from all others; they are kept.
    OutlierRounds {
        /// Metric.
        metric: String,
        /// Which, from 1.
        rounds: Vec<u32>,
    },
    /// Rounds fall into two groups.
    TwoModes {
        /// Metric.
        metric: String,
        /// Middle of the lower group.
        low: f64,
        /// Middle of the upper group.
        high: f64,
    },
    /// Closed loop: throughput times latency is not the number at once.
    LittlesLaw {
        /// Throughput × mean latency.
        found: f64,
        /// Number at once.
        asked: f64,
    },
    /// The wall clock was set during the trial.
    ClockStep {
        /// By how much, ms.
        ms: f64,
    },
    /// A process of the lab could not run for longer than what was measured allows.
    StoodStill {
        /// How long, s.
        s: f64,
    },
    /// The machine slept during the trial.
    Suspended {
        /// How long, s.
        s: f64,
    },
    /// The run went on on another machine, kernel or boot setting than it began on.
    ResumedElsewhere {
        /// What differs.
        what: String,
    },
    /// Two tests of the same rounds do not agree.
    TestsDisagree {
        /// The metric and the arms compared.
        what: String,
        /// p-value of the rank test.
        rank_p: f64,
    },
    /// Lines of an access log were not asked for.
    AccessLogCut {
        /// Requests that were.
        kept: u64,
        /// Lines with another method than GET or HEAD.
        other_methods: u64,
        /// Lines in neither format.
        unreadable: u64,
        /// Lines after the most that is kept.
        too_many: u64,
    },
    /// Fewer requests per second were answered than were due.
    RateNotReached {
        /// Due per second.
        intended_per_s: f64,
        /// Answered per second.
        achieved_per_s: f64,
        /// Requests that failed.
        failed: u64,
    },
    /// Requests that were due were never sent, because no connection was free for them.
    UnsentRequests {
        /// How many.
        unsent: u64,
        /// Of how many.
        of: u64,
        /// Connections at once, at most.
        connections: u64,
    },
    /// More was due than was answered, and the queue of what waited grew.
    Saturated {
        /// Due per second.
        due_per_s: f64,
        /// Answered per second.
        sustained_per_s: f64,
        /// Due and not answered when the window ended.
        unserved: u64,
        /// Connections, at most.
        connections: u64,
    },
    /// A latency of a saturated arm was to be compared.
    SaturatedNotCompared {
        /// The metric and the arms compared.
        what: String,
    },
    /// More operations failed than may.
    TooManyFailures {
        /// Operations that failed.
        failed: u64,
        /// Of these.
        of: u64,
        /// The share that may fail, 0 to 1.
        allowed: f64,
    },
    /// Times that ended before they began.
    ImpossibleTimes {
        /// How many.
        count: u64,
    },
    /// Bytes came that no request had asked for.
    UnaskedBytes {
        /// Times.
        count: u64,
        /// Responses.
        of: u64,
    },
    /// Requests of the warm-up failed.
    WarmupFailed {
        /// How many.
        failed: u64,
        /// Of how many.
        of: u64,
        /// The most frequent class.
        class: String,
    },
    /// Arms differ in nothing that took effect.
    SameEffectiveValue {
        /// Option.
        option: String,
        /// Arms that asked for different values.
        arms: Vec<String>,
        /// The value that took effect.
        value: String,
    },
}

impl Warning {
    /// Kebab-case name, stable for scripts.
    pub fn id(&self) -> &'static str {
        match self {
            Self::GeneratorLate { .. } => "generator-late",
            Self::LinkLate { .. } => "link-late",
            Self::TooFewSamples { .. } => "too-few-samples",
            Self::UnwantedDrops { .. } => "unwanted-drops",
            Self::TapDrops { .. } => "tap-drops",
            Self::PacketFallback => "packet-fallback",
            Self::Steal { .. } => "steal",
            Self::WitnessDisagrees { .. } => "witness-disagrees",
            Self::SettingMade { .. } => "setting-made",
            Self::ClientBottleneck { .. } => "client-bottleneck",
            Self::NoWitness { .. } => "no-witness",
            Self::PcapIncomplete { .. } => "pcap-incomplete",
            Self::TrialsExcluded { .. } => "trials-excluded",
            Self::MetricMissing { .. } => "metric-missing",
            Self::FailuresDiffer { .. } => "failures-differ",
            Self::NothingCounts => "nothing-counts",
            Self::Drift { .. } => "drift",
            Self::Autocorrelated { .. } => "autocorrelated",
            Self::OutlierRounds { .. } => "outlier-rounds",
            Self::TwoModes { .. } => "two-modes",
            Self::LittlesLaw { .. } => "littles-law",
            Self::ClockStep { .. } => "clock-step",
            Self::StoodStill { .. } => "stood-still",
            Self::Suspended { .. } => "suspended",
            Self::ResumedElsewhere { .. } => "resumed-elsewhere",
            Self::TestsDisagree { .. } => "tests-disagree",
            Self::AccessLogCut { .. } => "access-log-cut",
            Self::RateNotReached { .. } => "rate-not-reached",
            Self::UnsentRequests { .. } => "unsent-requests",
            Self::Saturated { .. } => "saturated",
            Self::SaturatedNotCompared { .. } => "saturated-not-compared",
            Self::TooManyFailures { .. } => "too-many-failures",
            Self::ImpossibleTimes { .. } => "impossible-times",
            Self::UnaskedBytes { .. } => "unasked-bytes",
            Self::WarmupFailed { .. } => "warmup-failed",
            Self::SameEffectiveValue { .. } => "same-effective-value",
        }
    }

    /// The form that is stored.
    #[must_use]
    pub fn entry(&self, arm: Option<&str>) -> WarningEntry {
        WarningEntry {
            id: self.id().to_owned(),
            arm: arm.map(str::to_owned),
            text: self.to_string(),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GeneratorLate { p99_us } => write!(
                f,
                "the client started operations late (p99 {p99_us:.0} µs): lower --rate, or let fewer be at once (--concurrency, --connections)"
            ),
            Self::LinkLate { p99_us } => write!(
                f,
                "the link emulator released packets late (p99 {p99_us:.0} µs): lower --rate, or quieten the machine"
            ),
            Self::TooFewSamples { have, need, quantile } => {
                write!(f, "{quantile} is not shown: {have} values, {need} needed (raise --count)")
            }
            Self::UnwantedDrops { packets } => write!(
                f,
                "the lab itself lost {packets} packets that nobody asked it to lose: lower --rate, or let fewer be at once (--concurrency, --connections); the trial is invalid"
            ),
            Self::TapDrops { packets } => write!(
                f,
                "the packet tap missed {packets} packets: the wire's counts are short by these"
            ),
            Self::PacketFallback => write!(
                f,
                "/dev/net/tun cannot be opened, so the link is relayed over AF_PACKET: its delay is less exact; see the measured figures"
            ),
            Self::Steal { share } => write!(
                f,
                "a hypervisor took {:.1} % of the CPU time during the run: repeat it on a quieter machine",
                share * 100.0
            ),
            Self::WitnessDisagrees { what, ours, witness } => {
                write!(f, "{what}: {ours} counted by tcptoll, {witness} by the witness")
            }
            Self::SettingMade { name, value, why } => {
                write!(f, "{name} was set to {value} on the lab's host: {why}")
            }
            Self::ClientBottleneck { cpu_share } => write!(
                f,
                "the client used {:.0} % of its CPU: it, not the server, may have set the pace",
                cpu_share * 100.0
            ),
            Self::NoWitness { why } => {
                write!(
                    f,
                    "where the time went is not known: the trial with the packet tap failed: {why}"
                )
            }
            Self::PcapIncomplete { why } => write!(f, "the capture is not whole: {why}"),
            Self::TrialsExcluded { count, of, why } => write!(
                f,
                "{count} of {of} trials are left out of verdicts: {why}; they are in the record"
            ),
            Self::MetricMissing { what, rounds, of } => {
                let metric = what.split(", ").next().unwrap_or(what);
                write!(
                    f,
                    "{what}: in {rounds} of {of} rounds an arm has no {metric}, most likely the slow or failed ones, so there is no verdict: run more operations a round, or compare another metric"
                )
            }
            Self::FailuresDiffer { what, a, b } => {
                // A small margin finds what one digit does not show.
                let digits = if (a - b).abs() < 0.001 { 3 } else { 1 };
                write!(
                    f,
                    "{what}: {:.digits$} % against {:.digits$} % of the operations failed, and the metric is of those that succeeded: compare the failures first",
                    a * 100.0,
                    b * 100.0
                )
            }
            Self::NothingCounts => write!(
                f,
                "no trial of it counts: its figures are those of trials that were left out, and nothing is compared"
            ),
            Self::Drift { metric, change } => write!(
                f,
                "{metric} changed by {:+.1} % from the first round to the last: let the machine settle, or lengthen the warm-up",
                change * 100.0
            ),
            Self::Autocorrelated { what, lag1 } => write!(
                f,
                "{what}: neighbouring rounds are alike (correlation {lag1:.2}), so the interval is narrower than it should be: run more rounds, or longer ones"
            ),
            Self::OutlierRounds { metric, rounds } => {
                let rounds: Vec<String> = rounds.iter().map(u32::to_string).collect();
                write!(
                    f,
                    "{metric}: round {} lies far from the others and is kept: look at it in the record",
                    rounds.join(", ")
                )
            }
            Self::TwoModes { metric, low, high } => write!(
                f,
                "{metric}: rounds fall into two groups, around {low:.4} and {high:.4}: look for what alternates before trusting their mean"
            ),
            Self::LittlesLaw { found, asked } => write!(
                f,
                "throughput × latency is {found:.2}, {asked:.0} were to be at once (Little's law): the client spent the rest between operations; let fewer be at once (--concurrency, --connections)"
            ),
            Self::ClockStep { ms } => write!(
                f,
                "the wall clock was set by {ms:+.1} ms during the trial: the packets' time stamps are wrong by this"
            ),
            Self::StoodStill { s } => write!(
                f,
                "a process of the lab could not run for {s:.2} s, and peers may have seemed dead: repeat it on a quieter machine"
            ),
            Self::Suspended { s } => write!(f, "the machine slept for {s:.1} s during the trial"),
            Self::ResumedElsewhere { what } => write!(
                f,
                "the run went on on another machine than it began on ({what}): compare within the rounds of one only"
            ),
            Self::TestsDisagree { what, rank_p } => write!(
                f,
                "{what}: the interval and the rank test (p = {rank_p:.3}) do not agree: look at the rounds before trusting either"
            ),
            Self::AccessLogCut { kept, other_methods, unreadable, too_many } => write!(
                f,
                "of the access log {kept} requests are asked for; left out: {other_methods} lines with another method than GET or HEAD, {unreadable} unreadable, {too_many} after the most that is kept"
            ),
            Self::RateNotReached { intended_per_s, achieved_per_s, failed } => write!(
                f,
                "{} requests/s were due and {}/s succeeded within the measured time; {}",
                human_rate_per_s(*intended_per_s),
                human_rate_per_s(*achieved_per_s),
                if *failed > 0 {
                    format!("{failed} failed: see the errors")
                } else {
                    "the others succeeded later: look for a stall near its end".to_owned()
                }
            ),
            Self::UnsentRequests { unsent, of, connections } => write!(
                f,
                "{unsent} of {of} requests were not sent: all {connections} connections were busy or being opened until it was too late for an answer within --timeout, or until the run ended; they count as errors (unsent). Lower --rate, or raise --connections"
            ),
            Self::Saturated { due_per_s, sustained_per_s, unserved, connections } => write!(
                f,
                "saturated: {}/s were sustained, {}/s were due, and {unserved} requests were unanswered when the measured time ended. Latencies are those of a queue that grows with the length of the run. Set --rate below the sustained rate; if the server has capacity left, raise --connections above {connections}",
                human_rate_per_s(*sustained_per_s),
                human_rate_per_s(*due_per_s)
            ),
            Self::SaturatedNotCompared { what } => write!(
                f,
                "{what}: no verdict, because an arm is saturated and its latency grows with the length of the run: compare throughput, or lower --rate"
            ),
            Self::TooManyFailures { failed, of, allowed } => write!(
                f,
                "{failed} of {of} operations failed ({:.1} %), at most {:.3} % may: the run is invalid. If failures are expected, set --allow-errors, or failures = \"expected\" in the study",
                *failed as f64 * 100.0 / (*of).max(1) as f64,
                allowed * 100.0
            ),
            Self::ImpossibleTimes { count } => write!(
                f,
                "{count} times ended before they began, by the clocks: they are in no distribution"
            ),
            Self::UnaskedBytes { count, of } => write!(
                f,
                "after {count} of {of} responses came bytes that no request had asked for: they were ignored, and those connections were closed (RFC 9112, section 9.2). Check the server's Content-Length"
            ),
            Self::WarmupFailed { failed, of, class } => write!(
                f,
                "{failed} of {of} requests of the warm-up failed, most of them with {class}: they are in no figure, and what follows may not be warm"
            ),
            Self::SameEffectiveValue { option, arms, value } => write!(
                f,
                "--{option}: the kernel clamped the values of the arms {} to the same one, {value}; in this option they do not differ",
                arms.join(", ")
            ),
        }
    }
}
