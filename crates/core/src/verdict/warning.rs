//! Doubts as data: each names the arm, the figure, and what to change.

use std::fmt;

use crate::number;
use crate::record::WarningEntry;
use crate::units::plural;

/// Makes [`Warning`] of a table. Each warning has its name, which is its section of
/// `docs/causes.md`, the figures it rests on, and its text.
macro_rules! warnings {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident $id:literal $({ $($(#[doc = $about:literal])* $field:ident: $type:ty,)* })?
            => $text:expr;
    )*) => {
        /// A reason to trust a run less.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Warning {
            $($(#[doc = $doc])* $name $({ $($(#[doc = $about])* $field: $type,)* })?,)*
        }

        impl Warning {
            /// The names of all.
            pub const IDS: &[&str] = &[$($id),*];

            /// Kebab-case name, stable for scripts.
            pub fn id(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $id,)*
                }
            }
        }

        impl fmt::Display for Warning {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let text: String = match self {
                    $(Self::$name $({ $($field),* })? => $text,)*
                };
                f.write_str(&text)
            }
        }
    };
}

impl Warning {
    /// The form that is stored.
    #[must_use]
    pub fn entry(&self, arm: Option<&str>) -> WarningEntry {
        WarningEntry {
            id: self.id().to_owned(),
            arm: arm.map(str::to_owned),
            about: self.about().map(str::to_owned),
            text: self.to_string(),
        }
    }

    /// What tells it apart from others of its name and arm: two arms, a metric, or both.
    fn about(&self) -> Option<&str> {
        match self {
            Self::FailuresDiffer { what, .. }
            | Self::MetricMissing { what, .. }
            | Self::Autocorrelated { what, .. }
            | Self::SaturatedNotCompared { what }
            | Self::TestsDisagree { what, .. }
            | Self::Drift { metric: what, .. }
            | Self::OutlierRounds { metric: what, .. }
            | Self::TwoModes { metric: what, .. } => Some(what),
            _ => None,
        }
    }
}

/// `1 was`, `5 were`.
fn plural_were(count: u64) -> String {
    format!("{} {}", number::count(count), if count == 1 { "was" } else { "were" })
}

warnings! {
    /// The generator could not keep its schedule.
    GeneratorLate "generator-late" {
        /// 99th percentile of lateness, µs.
        p99_us: f64,
    } => format!(
        "the client started operations late (p99 {p99_us:.0} µs), because its CPU was busy. Use less load or a quieter machine"
    );

    /// The link emulator released packets late.
    LinkLate "link-late" {
        /// 99th percentile of lateness, µs.
        p99_us: f64,
    } => format!(
        "the link emulator released packets late (p99 {p99_us:.0} µs), because a CPU was busy. Use less load or a quieter machine"
    );

    /// Figures that mean nothing for so small a load are absent.
    FiguresLeftOut "figures-left-out" {
        /// The figures, plural.
        figures: &'static str,
        /// What there was of what is needed, a clause.
        have: String,
        /// What to raise.
        remedy: &'static str,
    } => format!("{figures} are missing: only {have} ({remedy})");

    /// The lab lost packets that nobody asked it to lose.
    UnwantedDrops "unwanted-drops" {
        /// Packets.
        packets: u64,
    } => format!(
        "the lab itself dropped {packets} packets unintentionally, so the trial is invalid. Use less load"
    );

    /// The tap could not keep every packet.
    TapDrops "tap-drops" {
        /// Packets.
        packets: u64,
    } => format!(
        "the packet tap missed {packets} packets, so the packet counts of the wire are too low by that number"
    );

    /// The emulated link runs over AF_PACKET because `/dev/net/tun` cannot be opened.
    PacketFallback "packet-fallback" => "/dev/net/tun cannot be opened, so the link is relayed over AF_PACKET. Its delay is less exact: compare the measured figures of the link".to_owned();

    /// Others use the network of a machine of the user's.
    OtherTraffic "other-traffic" {
        /// `client`, `server`.
        host: &'static str,
        /// Connections that the load did not open, per second, before it or during it.
        per_s: f64,
        /// Counters left out.
        left_out: usize,
    } => format!(
        "the {host}'s machine has other traffic: {per_s:.0} connections/s were opened or accepted there that the load did not open. Latencies are the load's own; {left_out} kernel counters that others move too are left out"
    );

    /// Datagrams between the hosts do not come back.
    NoRoundTrip "no-round-trip" {
        /// Sent.
        sent: u64,
    } => format!(
        "none of {sent} UDP datagrams between the two hosts came back, so the round trip and the clocks are not known. A firewall may drop UDP; TCP was measured"
    );

    /// CPU time was stolen by a hypervisor.
    Steal "steal" {
        /// Share, 0 to 1.
        share: f64,
    } => format!(
        "a hypervisor took {} of the CPU time during the run. Repeat the run on a quieter machine",
        number::percent(*share)
    );

    /// Kernel counters and the wire disagree.
    WitnessDisagrees "witness-disagrees" {
        /// What was counted.
        what: String,
        /// Our count.
        ours: u64,
        /// The witness's count.
        witness: u64,
    } => format!("{what}: tcptoll counted {ours}, a second count (kernel counters or capture) is {witness}. Traffic of other programs can cause this");

    /// A setting the lab made on its own.
    SettingMade "setting-made" {
        /// Sysctl.
        name: String,
        /// Value.
        value: String,
        /// Reason.
        why: String,
    } => format!("tcptoll set {name} to {value} on the lab's host: {why}");

    /// The link was not measured before the run, as the user asked.
    LinkNotMeasured "link-not-measured" => "the link was not measured: its delay and rate may be other than what was asked for".to_owned();

    /// tcptoll's own server answered, as the one that is the default is missing.
    OwnServer "own-server" {
        /// What is missing, and its package.
        why: String,
    } => format!("{why}; until then tcptoll's own server answers, with fixed files and without TLS");

    /// The client was the bottleneck.
    ClientBottleneck "client-bottleneck" {
        /// Share of one CPU that the client's thread used, 0 to 1.
        cpu_share: f64,
    } => format!(
        "the client is CPU-bound ({} of its CPU): the client, not the server, may limit the result",
        number::percent(*cpu_share)
    );

    /// The trial with the packet tap failed.
    NoWitness "no-witness" {
        /// Why.
        why: String,
    } => format!(
        "there is no timeline of where the time went, because the trial with the packet tap failed: {why}"
    );

    /// A JVM used much CPU time for something else than the measured thread.
    JvmBusy "jvm-busy" {
        /// `client` or `server`.
        host: &'static str,
        /// Share of the JVM's CPU time in the window, 0 to 1.
        share: f64,
    } => format!(
        "the {host}'s JVM spent {} of its CPU time on JIT compilation and garbage collection during the measurement. Use a longer --warmup",
        number::percent(*share)
    );

    /// The capture file is not whole.
    PcapIncomplete "pcap-incomplete" {
        /// Why.
        why: String,
    } => format!("the packet capture is incomplete: {why}");

    /// Trials of an arm were left out of verdicts.
    TrialsExcluded "trials-excluded" {
        /// How many, of how many.
        count: u64,
        /// All of the arm that were run.
        all: u64,
        /// The most frequent reason.
        why: String,
    } => format!(
        "{count} of {all} trials are excluded from verdicts: {why}. The record keeps them"
    );

    /// Rounds lack a metric that is compared, so that nothing is concluded from the others.
    MetricMissing "metric-missing" {
        /// The metric and the arms compared.
        what: String,
        /// Rounds in which an arm counts and has no value.
        rounds: u32,
        /// All in which both arms count.
        all: u32,
    } => {
        let metric = what.split(", ").next().unwrap_or(what);
        format!(
            "{what}: no verdict, because in {rounds} of {all} rounds an arm has no {metric}; these are most likely the slow or failed rounds. Run more operations per round, or compare another metric"
        )
    };

    /// One of two arms compared fails more often, and metrics are of what succeeded.
    FailuresDiffer "failures-differ" {
        /// The arms compared.
        what: String,
        /// Share of operations of the first that failed, 0 to 1.
        a: f64,
        /// The same of the second.
        b: f64,
    } => {
        // A small margin finds what one digit does not show.
        let digits = if (a - b).abs() < 0.001 { 3 } else { 1 };
        format!(
            "{what}: {:.digits$} % and {:.digits$} % of the operations failed, and the metric covers only the successful ones. Compare the failures first",
            a * 100.0,
            b * 100.0
        )
    };

    /// An arm has no trial that counts; its figures are those of trials that do not.
    NothingCounts "nothing-counts" => "all trials of the arm are excluded from verdicts. The figures shown are those of the excluded trials".to_owned();

    /// An arm changed while the run went on.
    Drift "drift" {
        /// Metric.
        metric: String,
        /// Change from first to last round, relative.
        change: f64,
    } => format!(
        "{metric} changed by {:+.1} % from the first round to the last. Let the machine settle before the run, or use a longer --warmup",
        change * 100.0
    );

    /// A round is like the one before it, so rounds say less than they seem to.
    Autocorrelated "autocorrelated" {
        /// What: the metric and the arms compared.
        what: String,
        /// Correlation of neighbouring rounds, −1 to 1.
        lag1: f64,
    } => format!(
        "{what}: consecutive rounds are correlated ({lag1:.2}), so the interval is too narrow. Run more rounds, or longer ones"
    );

    /// Some rounds lie far from all others; they are kept.
    OutlierRounds "outlier-rounds" {
        /// Metric.
        metric: String,
        /// Which, from 1.
        rounds: Vec<u32>,
    } => {
        let [word, lie, count] = match rounds.len() {
            1 => ["round", "lies", "counts"],
            _ => ["rounds", "lie", "count"],
        };
        let rounds: Vec<String> = rounds.iter().map(u32::to_string).collect();
        format!(
            "{metric}: {word} {} {lie} far from the others and still {count}. Inspect the record",
            rounds.join(", ")
        )
    };

    /// Rounds fall into two groups.
    TwoModes "two-modes" {
        /// Metric.
        metric: String,
        /// Middle of the lower group.
        low: f64,
        /// Middle of the upper group.
        high: f64,
    } => format!(
        "{metric}: rounds fall into two groups, around {} and {}. Find out why before you trust their mean",
        number::three(*low),
        number::three(*high)
    );

    /// Closed loop: throughput times latency is not the number at once.
    LittlesLaw "littles-law" {
        /// Throughput × mean latency.
        found: f64,
        /// Number at once.
        asked: f64,
    } => format!(
        "throughput × latency is {found:.2} concurrent operations instead of {asked:.0} (Little's law): the client spent the rest of its time between operations. Use fewer concurrent connections"
    );

    /// The wall clock was set during the trial.
    ClockStep "clock-step" {
        /// By how much, ms.
        ms: f64,
    } => format!(
        "the wall clock was set by {ms:+.1} ms during the trial, so packet timestamps are wrong by that amount"
    );

    /// A process could not run for longer than what was measured allows.
    StoodStill "stood-still" {
        /// Which process.
        who: &'static str,
        /// For how long and why, what follows, and what to change.
        what: String,
    } => format!("{who} {what}");

    /// Connections got no response in the whole window.
    StarvedConnections "starved-connections" {
        /// How many.
        starved: u64,
        /// Of how many.
        connections: u64,
        /// Length of the window, s.
        window_s: f64,
    } => format!(
        "{starved} of {connections} connections got no response in the measured {window_s:.2} s, and {} served. A request that was under way during all of that time is in the percentiles, as at least its age (≥). More workers or fewer connections let it serve all",
        plural_were(connections - starved)
    );

    /// The server did not close connections that the client had closed.
    KeptOpen "kept-open" {
        /// Connections.
        unclosed: u64,
        /// Of how many.
        all: u64,
    } => format!(
        "the server kept {} of {} connections open after the client's close, and each was waited for, so connections per second show that wait. With --rate nothing is waited for",
        number::count(*unclosed),
        number::count(*all)
    );

    /// A server answered nobody for a time.
    ServerSilent "server-silent" {
        /// How long, s.
        s: f64,
    } => format!(
        "no response came on any connection for {s:.2} s, while requests were waiting: the server, or the path to it, stood still"
    );

    /// The machine slept during the trial.
    Suspended "suspended" {
        /// How long, s.
        s: f64,
    } => format!("the machine was suspended for {s:.1} s during the trial");

    /// The run went on on another machine, kernel or boot setting than it began on.
    ResumedElsewhere "resumed-elsewhere" {
        /// What differs.
        what: String,
    } => format!(
        "the run was resumed in a different environment ({what}). Compare only rounds of the same environment"
    );

    /// Vantage points of a fleet have no record.
    PointsMissing "points-missing" {
        /// How many.
        missing: usize,
        /// Points in all.
        all: usize,
        /// Some of them, with the reason of each.
        which: String,
    } => format!(
        "{missing} of {all} points {} no record: {which}. The figures are of the other points",
        if *missing == 1 { "has" } else { "have" }
    );

    /// Files that were given were not merged.
    NotMerged "not-merged" {
        /// How many.
        files: usize,
        /// Some of them, with the reason of each.
        which: String,
    } => format!("not merged: {which} ({})", plural(*files as u64, "file"));

    /// Vantage points ran different versions of the program.
    VersionsDiffer "versions-differ" {
        /// Which.
        versions: String,
    } => format!(
        "the points ran different versions of tcptoll ({versions}), which may measure differently. Use one version everywhere"
    );

    /// Rounds of a split load lack a share.
    SharesMissing "shares-missing" {
        /// Rounds that lack one.
        rounds: u32,
        /// Rounds in all.
        all: u32,
        /// Of the first: why.
        why: String,
    } => format!(
        "in {rounds} of {all} rounds a share of the load is missing, so these rounds do not count. The first: {why}"
    );

    /// Shares of a load were not under way at the same time.
    SharesApart "shares-apart" {
        /// Why, or why nobody knows.
        why: String,
    } => format!(
        "the shares of the load did not run at the same time, or that is not known: {why}. Their sum is not the rate of one load"
    );

    /// What was due at the points of a split load is not what was asked for.
    DueDiffers "due-differs" {
        /// Requests that were due.
        due: u64,
        /// Requests of the whole schedule.
        asked: u64,
    } => format!(
        "{} requests were due at the points together, but {} were asked for. Do not use these figures",
        number::count(*due),
        number::count(*asked)
    );

    /// Two tests of the same rounds do not agree.
    TestsDisagree "tests-disagree" {
        /// The metric and the arms compared.
        what: String,
        /// p-value of the rank test.
        rank_p: f64,
    } => format!(
        "{what}: the interval and the rank test (p = {rank_p:.3}) disagree. Inspect the rounds before you trust either"
    );

    /// Lines of an access log were not asked for.
    AccessLogCut "access-log-cut" {
        /// Requests that were.
        kept: u64,
        /// Lines with another method than GET or HEAD.
        other_methods: u64,
        /// Lines in neither format.
        unreadable: u64,
        /// Lines after the most that is kept.
        too_many: u64,
    } => format!(
        "the load repeats {kept} requests of the access log. Skipped lines: {other_methods} with a method other than GET or HEAD, {unreadable} unreadable, {too_many} beyond the maximum"
    );

    /// Fewer requests per second were answered than were due.
    RateNotReached "rate-not-reached" {
        /// Due per second.
        intended_per_s: f64,
        /// Answered per second.
        achieved_per_s: f64,
        /// Requests that failed.
        failed: u64,
    } => format!(
        "{} requests/s were due, but only {}/s succeeded within the measured time. {}",
        number::three(*intended_per_s),
        number::three(*achieved_per_s),
        if *failed > 0 {
            format!("{failed} failed: see the errors")
        } else {
            "The others succeeded later: look for a stall near the end of the measured time".to_owned()
        }
    );

    /// The kernel came under memory pressure.
    MemoryPressure "memory-pressure" {
        /// TCP memory of the whole machine with full buffers, bytes.
        reached_bytes: u64,
        /// Pressure begins here, bytes.
        pressure_bytes: Option<u64>,
    } => format!(
        "the kernel was under memory pressure: TCP of the whole machine used {}{}. The kernel then keeps socket buffers small, so connections hold less than without pressure. Open fewer connections, or raise net.ipv4.tcp_mem",
        number::bytes(*reached_bytes as f64),
        pressure_bytes.map_or_else(String::new, |bytes| {
            format!(", and pressure begins at {} (net.ipv4.tcp_mem)", number::bytes(bytes as f64))
        })
    );

    /// Sockets still took data when the time was up.
    NotFilled "not-filled" {
        /// The time, s.
        limit_s: f64,
    } => format!(
        "the buffers of the connections were not full after {limit_s} s, so figures of full connections are missing. Raise --timeout, or use a faster --link or fewer --connections"
    );

    /// Requests that were due were never sent, because no connection was free for them.
    UnsentRequests "unsent-requests" {
        /// How many.
        unsent: u64,
        /// Of how many.
        all: u64,
        /// Connections at once, at most.
        connections: u64,
    } => format!(
        "{unsent} of {all} requests were not sent and count as errors (unsent). All {connections} connections were busy or opening until no answer within --timeout was possible, or until the run ended. Lower --rate, or raise --connections"
    );

    /// Several URLs are asked for in turn.
    UrlsTogether "urls-together" {
        /// How many.
        urls: usize,
    } => format!(
        "Each figure is of all {urls} URLs together, which are requested in turn. Run one at a time to tell them apart"
    );

    /// More was due than was answered, and the queue of what waited grew.
    Saturated "saturated" {
        /// Due per second.
        due_per_s: f64,
        /// Answered per second.
        sustained_per_s: f64,
        /// Due and not answered when the window ended.
        unserved: u64,
        /// Connections, at most.
        connections: u64,
    } => format!(
        "saturated: {}/s were sustained, {}/s were due, and {unserved} requests were unanswered when the measured time ended. Latencies include a queue that grows with the length of the run. Set --rate below the sustained rate. If the server has spare capacity, raise --connections above {connections}",
        number::three(*sustained_per_s),
        number::three(*due_per_s)
    );

    /// A latency of a saturated arm was to be compared.
    SaturatedNotCompared "saturated-not-compared" {
        /// The metric and the arms compared.
        what: String,
    } => format!(
        "{what}: no verdict, because an arm is saturated and its latency grows with the length of the run. Compare throughput, or lower --rate"
    );

    /// More operations failed than may.
    TooManyFailures "too-many-failures" {
        /// Operations that failed.
        failed: u64,
        /// Of these.
        all: u64,
        /// The share that may fail, 0 to 1.
        allowed: f64,
    } => format!(
        "{failed} of {all} operations failed ({}, the limit is {}), so the run is invalid. --allow-errors says how many may fail",
        number::percent(*failed as f64 / (*all).max(1) as f64),
        number::percent(*allowed)
    );

    /// Times that ended before they began.
    ImpossibleTimes "impossible-times" {
        /// How many.
        count: u64,
    } => format!(
        "{count} measured times are negative by the clocks, so they are excluded from all distributions"
    );

    /// Bytes came that no request had asked for.
    UnaskedBytes "unasked-bytes" {
        /// Times.
        count: u64,
        /// Responses.
        all: u64,
    } => format!(
        "{count} of {all} responses were followed by bytes that belong to no request. The client ignored these bytes and closed the connections (RFC 9112, section 9.2). Check the server's Content-Length"
    );

    /// Requests of the warm-up failed.
    WarmupFailed "warmup-failed" {
        /// How many.
        failed: u64,
        /// Of how many.
        all: u64,
        /// The most frequent class.
        class: String,
    } => format!(
        "{failed} of {all} warm-up requests failed, most of them with {class}. They are in no figure, and may have warmed nothing up"
    );

    /// The kernel made socket buffers smaller or larger than asked for.
    BufferChanged "buffer-changed" {
        /// Each that was changed: option, host, sizes, the limit.
        changes: Vec<String>,
        /// Whether a sysctl made one of them smaller.
        capped: bool,
    } => {
        let remedy = ". Raise the limit on this machine, outside the lab, or request less";
        format!(
            "the kernel changed the requested socket buffers: {}{}",
            changes.join("; "),
            if *capped { remedy } else { "" }
        )
    };

    /// Arms differ in nothing that took effect.
    SameEffectiveValue "same-effective-value" {
        /// Option.
        option: String,
        /// Arms that asked for different values.
        arms: Vec<String>,
        /// The value that took effect.
        value: String,
    } => format!(
        "--{option}: the kernel clamped the values of the arms {} to the same value, {value}. The arms do not differ in this option",
        arms.join(", ")
    );
}
