//! Doubts as data: each names the arm, the figure, and what to change.

use std::fmt;

use crate::record::WarningEntry;

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
    /// Arms differ in nothing that took effect.
    SameEffectiveValue {
        /// Option.
        option: String,
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
                "the client started operations late (p99 {p99_us:.0} µs): lower --rate or --concurrency"
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
                "the lab itself lost {packets} packets that nobody asked it to lose: lower --concurrency or --rate; the trial is invalid"
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
            Self::SameEffectiveValue { option, value } => write!(
                f,
                "arms of --{option} are the same arm: the kernel made each of them {value}"
            ),
        }
    }
}
