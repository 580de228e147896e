//! What joins the two hosts, as a user writes it: `--link cross-region` or `--link rtt=37ms,loss=1%`.
//!
//! This file reads the text and says what it means. How the emulated link behaves packet by packet is
//! in [`crate::link::model`]; what carries the packets is the engine's business.

use std::time::Duration;

use crate::record::LinkAsked;
use crate::units::{self, UnitError, echo, text_time};

/// Bytes that Ethernet adds to each IP packet on the line: header 14, check sum 4, preamble and start
/// of frame 8, gap 12 (IEEE 802.3, clauses 3 and 4).
pub const ETHERNET_OVERHEAD: u32 = 38;

/// An IP packet below this length is padded to it (a frame has at least 64 bytes, 18 of them
/// header and check sum).
pub const ETHERNET_PAYLOAD_MIN: u32 = 46;

/// MTU of a link of the lab, that of Ethernet.
pub const MTU: u32 = 1_500;

/// The longest round trip that can be asked for.
pub const RTT_MAX: Duration = Duration::from_mins(1);

/// The least and the greatest line rate that can be asked for, bit/s.
pub const RATE_RANGE_BIT_PER_S: [f64; 2] = [1e3, 100e9];

/// What an IP packet of `ip_bytes` takes on an Ethernet line.
///
/// A full packet of 1,500 bytes takes 1,538 for 1,448 of TCP payload (with time stamps): 1 Gbit/s
/// carries 941 Mbit/s.
#[must_use]
pub fn line_bytes(ip_bytes: u32) -> u64 {
    u64::from(ip_bytes.max(ETHERNET_PAYLOAD_MIN)) + u64::from(ETHERNET_OVERHEAD)
}

/// What may wait before the wire, beside the packet that is on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// `queue=100p`: this many packets.
    Packets(u64),
    /// `queue=64K`: packets of this many bytes together, as counted on the line.
    Bytes(u64),
}

/// What keeps its order on a link with jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// `order=flow`: the packets of each connection.
    #[default]
    Flow,
    /// `order=kept`: all packets of a direction.
    Kept,
}

/// A link as asked for.
///
/// The two directions are alike and independent. In each, a packet may be lost, waits in the queue,
/// takes its time on the wire and then travels:
///
/// - `rtt` is both directions together; each gets half.
/// - `jitter=J`: the delay varies evenly within ±J/2 around its half of `rtt`, for each flow (each
///   connection, each echo) on its own; the round trip stays within `rtt` ± J. Packets of one flow
///   keep their order, those of others may overtake them. With `order=kept` all packets vary
///   together, and none overtakes. The mean is `rtt` however many packets there are.
/// - `rate` is the Ethernet line rate of each direction: every IP packet counts 38 bytes more, and at
///   least 84 in all (see [`line_bytes`]).
/// - `loss` is the probability of each packet, in each direction, independent of the others.
/// - `queue` limits what waits for the wire; a packet that finds it full is dropped.
/// - `seed` fixes which packets are lost and how the delay varies; without it the run's seed does.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// As the user typed it.
    pub text: String,
    /// Both ends on 127.0.0.1 of one host; nothing else applies.
    pub loopback: bool,
    /// Round-trip time.
    pub rtt: Duration,
    /// How far the round trip varies, to each side.
    pub jitter: Duration,
    /// What keeps its order where there is jitter.
    pub order: Order,
    /// Line rate of each direction.
    pub rate_bit_per_s: Option<f64>,
    /// Probability of loss in each direction, 0 to 1.
    pub loss: f64,
    /// Queue before the wire, in each direction; only with a rate.
    pub queue: Option<QueueLimit>,
    /// Seed of loss and jitter.
    pub seed: Option<u64>,
}

/// A link with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What `--link` takes.
    pub name: &'static str,
    /// The keys it stands for; `loopback` stands for itself.
    pub spec: &'static str,
    /// What it is like, in a few words.
    pub what: &'static str,
    /// Where its figures are from.
    pub source: &'static str,
}

/// The article whose ping figures three of the profiles have.
const ARTICLE_2021: &str = "ping times of the 2021 article on connection cost";

/// Every profile, from near to far, then those with a rate.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "direct",
        spec: "rtt=0",
        what: "two hosts connected by a virtual cable (veth), without an emulator",
        source: "not emulated; the delay is that of this machine",
    },
    Profile {
        name: "loopback",
        spec: "loopback",
        what: "both ends on 127.0.0.1 of one host",
        source: "not emulated; figures look too good, because of MTU 65536 and a single host",
    },
    Profile {
        name: "same-room",
        spec: "rtt=0.25ms",
        what: "another server in the same machine room",
        source: ARTICLE_2021,
    },
    Profile {
        name: "metro",
        spec: "rtt=1.65ms",
        what: "a data centre in a nearby city",
        source: ARTICLE_2021,
    },
    Profile {
        name: "cross-region",
        spec: "rtt=37ms",
        what: "the other end of a large country",
        source: ARTICLE_2021,
    },
    Profile {
        name: "intercontinental",
        spec: "rtt=200ms",
        what: "another continent",
        source: "round figure: 15,000 km of fibre have an RTT of 147 ms, the rest is for detours",
    },
    Profile {
        name: "lan-100m",
        spec: "rate=100mbit",
        what: "an Ethernet of 100 Mbit/s",
        source: "line rate of IEEE 802.3; computed goodput: 94.1 Mbit/s at MTU 1500",
    },
    Profile {
        name: "lan-1g",
        spec: "rate=1gbit",
        what: "an Ethernet of 1 Gbit/s",
        source: "line rate of IEEE 802.3; goodput 941 Mbit/s at MTU 1500, as measured in a 2008 article",
    },
    Profile {
        name: "mobile",
        spec: "rtt=50ms,jitter=10ms,rate=20mbit,loss=0.1%,queue=100p",
        what: "a mobile phone with fair reception",
        source: "assumed round figures, not measured; set your own with mobile,rtt=…",
    },
];

/// Each key of a link: what it is, and how it is written.
pub const KEYS: &[(&str, &str, &str)] = &[
    (
        "rtt",
        "round-trip time, half in each direction",
        "write a number with us, ms or s: --link rtt=37ms",
    ),
    (
        "jitter",
        "how far the round trip varies, to each side",
        "write a number with us, ms or s: --link rtt=37ms,jitter=2ms",
    ),
    (
        "rate",
        "Ethernet line rate of each direction",
        "write a number with kbit, mbit or gbit: --link rate=100mbit",
    ),
    (
        "loss",
        "probability that a packet is lost, in each direction",
        "write a percentage from 0% to 100%: --link loss=0.1%",
    ),
    (
        "queue",
        "what may wait for the line; the rest is dropped",
        "write packets or bytes: --link rate=10mbit,queue=100p or queue=64K",
    ),
    (
        "order",
        "what jitter does not reorder: packets of one flow, or all",
        "write flow or kept: --link rtt=37ms,jitter=2ms,order=kept",
    ),
    (
        "seed",
        "fixes which packets are lost, and how the delay varies",
        "write a whole number: --link loss=1%,seed=42",
    ),
];

/// Why a link cannot be had as written. Displays as two lines: what is wrong, and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// No text.
    #[error("--link: no link is given\n  write a profile or keys: --link metro or --link rtt=37ms")]
    Empty,
    /// A value that is not what its key takes, or out of range.
    #[error("--link {link}: {problem}\n  {}", remedy(.key))]
    Value {
        /// The link as typed.
        link: String,
        /// The key.
        key: &'static str,
        /// What is wrong with its value.
        problem: String,
    },
    /// A key that does not exist.
    #[error("--link {link}: there is no key \"{key}\"{}\n  keys: {}", did_you_mean(.nearest.as_ref()), key_names())]
    UnknownKey {
        /// The link as typed.
        link: String,
        /// The key as typed.
        key: String,
        /// The key it is nearest to.
        nearest: Option<String>,
    },
    /// A name that is no profile.
    #[error("--link {link}: there is no profile \"{name}\"{}\n  profiles: {}\n  or keys: {}", did_you_mean(.nearest.as_ref()), profile_names(), key_names())]
    UnknownProfile {
        /// The link as typed.
        link: String,
        /// The name as typed.
        name: String,
        /// What it is nearest to.
        nearest: Option<String>,
    },
    /// A profile after the first place.
    #[error(
        "--link {link}: {name} is a profile and must come first\n  write --link {name},rtt=37ms to change one key of it"
    )]
    ProfileNotFirst {
        /// The link as typed.
        link: String,
        /// The profile.
        name: &'static str,
    },
    /// A key given twice.
    #[error(
        "--link {link}: {key} is given twice\n  keep one of them; for two links give --link twice"
    )]
    Twice {
        /// The link as typed.
        link: String,
        /// The key.
        key: &'static str,
    },
    /// More jitter than round trip.
    #[error("--link {link}: jitter {} is more than rtt {}, so a delay could be negative\n  raise rtt to {} or lower jitter", text_time(*.jitter), text_time(*.rtt), text_time(*.jitter))]
    JitterAboveRtt {
        /// The link as typed.
        link: String,
        /// Jitter asked for.
        jitter: Duration,
        /// Round trip asked for.
        rtt: Duration,
    },
    /// A queue that can never fill.
    #[error(
        "--link {link}: a queue without a rate never fills\n  add a rate: --link {link},rate=100mbit"
    )]
    QueueWithoutRate {
        /// The link as typed.
        link: String,
    },
    /// An order of packets that no jitter disturbs.
    #[error(
        "--link {link}: without jitter all packets keep their order\n  add jitter: --link {link},jitter=2ms"
    )]
    OrderWithoutJitter {
        /// The link as typed.
        link: String,
    },
    /// Keys beside `loopback`.
    #[error(
        "--link {link}: loopback takes no keys, because it has no emulated link\n  write --link loopback alone, or --link direct with keys"
    )]
    LoopbackWithKeys {
        /// The link as typed.
        link: String,
    },
}

fn remedy(key: &str) -> &'static str {
    KEYS.iter().find(|(name, ..)| *name == key).map_or("", |(.., remedy)| remedy)
}

fn did_you_mean(nearest: Option<&String>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean {name}?"))
}

fn key_names() -> String {
    KEYS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ")
}

fn profile_names() -> String {
    PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ")
}

impl LinkSpec {
    /// Reads a profile's name, `key=value,…`, or a profile followed by keys that override it.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(LinkError::Empty);
        }
        let link = echo(text);
        let mut spec = Self::direct(text);
        let mut given: Vec<&str> = Vec::new();
        for (place, part) in text.split(',').map(str::trim).enumerate() {
            let Some((key, value)) = part.split_once('=') else {
                spec.start_from(part, place, &link)?;
                continue;
            };
            let key = known_key(key.trim(), &link)?;
            if given.contains(&key) {
                return Err(LinkError::Twice { link, key });
            }
            given.push(key);
            spec.set(key, value.trim(), &link)?;
        }
        if spec.loopback && !given.is_empty() {
            return Err(LinkError::LoopbackWithKeys { link });
        }
        if spec.jitter > spec.rtt {
            return Err(LinkError::JitterAboveRtt { link, jitter: spec.jitter, rtt: spec.rtt });
        }
        if spec.queue.is_some() && spec.rate_bit_per_s.is_none() {
            return Err(LinkError::QueueWithoutRate { link });
        }
        if given.contains(&"order") && spec.jitter.is_zero() {
            return Err(LinkError::OrderWithoutJitter { link });
        }
        Ok(spec)
    }

    /// Whether our emulator is between the hosts: any delay, jitter or loss, or a queue limit. A rate
    /// alone is held by the kernel's tbf on a direct link.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        !self.loopback
            && (!self.rtt.is_zero()
                || !self.jitter.is_zero()
                || self.loss > 0.0
                || self.queue.is_some())
    }

    /// Whether GSO super-packets must be cut into wire packets for what was asked to mean anything.
    #[must_use]
    pub fn must_segment(&self) -> bool {
        !self.loopback
            && (self.loss > 0.0
                || self.rate_bit_per_s.is_some()
                || !self.jitter.is_zero()
                || self.queue.is_some())
    }

    /// TCP payload that the rate carries in full segments, bytes/s.
    ///
    /// A full packet of 1,500 bytes takes [`line_bytes`] on the line. Its headers are 20 bytes of IPv4
    /// or 40 of IPv6, 20 of TCP, and 12 for time stamps (RFC 7323).
    /// None: the link has no rate.
    #[must_use]
    pub fn payload_bytes_per_s(&self, ipv6: bool, timestamps: bool) -> Option<f64> {
        let headers = if ipv6 { 40 } else { 20 } + 20 + if timestamps { 12 } else { 0 };
        let payload = f64::from(MTU - headers);
        Some(self.rate_bit_per_s? / 8.0 * payload / line_bytes(MTU) as f64)
    }

    /// The link as the record keeps it.
    #[must_use]
    pub fn asked(&self) -> LinkAsked {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let (queue_packets, queue_bytes) = match self.queue {
            Some(QueueLimit::Packets(packets)) => (Some(packets), None),
            Some(QueueLimit::Bytes(bytes)) => (None, Some(bytes)),
            None => (None, None),
        };
        LinkAsked {
            spec: self.text.clone(),
            rtt_us: us(self.rtt),
            jitter_us: us(self.jitter),
            rate_bit_per_s: self.rate_bit_per_s,
            loss: self.loss,
            queue_packets,
            queue_bytes,
        }
    }

    fn direct(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            loopback: false,
            rtt: Duration::ZERO,
            jitter: Duration::ZERO,
            order: Order::default(),
            rate_bit_per_s: None,
            loss: 0.0,
            queue: None,
            seed: None,
        }
    }

    /// Takes the keys of the profile called `name`, which must stand in the first place.
    fn start_from(&mut self, name: &str, place: usize, link: &str) -> Result<(), LinkError> {
        if let Some(&(key, ..)) = KEYS.iter().find(|(key, ..)| *key == name) {
            return Err(value_error(key, link, format!("{key} has no value")));
        }
        let Some(profile) = PROFILES.iter().find(|profile| profile.name == name) else {
            let nearest = match units::parse_time(name) {
                Ok(_) => Some(format!("rtt={name}")),
                Err(_) => nearest(name, PROFILES.iter().map(|profile| profile.name)),
            };
            return Err(LinkError::UnknownProfile { link: link.into(), name: echo(name), nearest });
        };
        if place > 0 {
            return Err(LinkError::ProfileNotFirst { link: link.into(), name: profile.name });
        }
        self.loopback = name == "loopback";
        for (key, value) in profile.spec.split(',').filter_map(|part| part.split_once('=')) {
            self.set(known_key(key, link)?, value, link)?;
        }
        Ok(())
    }

    fn set(&mut self, key: &'static str, value: &str, link: &str) -> Result<(), LinkError> {
        let unit = |error: UnitError| value_error(key, link, error.problem().to_owned());
        let refuse = |what: &str| value_error(key, link, format!("{key}={} {what}", echo(value)));
        match key {
            "rtt" => {
                self.rtt = units::parse_time(value).map_err(unit)?;
                if self.rtt > RTT_MAX {
                    return Err(refuse("is above 60s, the maximum"));
                }
            }
            "jitter" => self.jitter = units::parse_time(value).map_err(unit)?,
            "order" => {
                self.order = match value {
                    "flow" => Order::Flow,
                    "kept" => Order::Kept,
                    _ => return Err(refuse("is neither flow nor kept")),
                }
            }
            "rate" => {
                let rate = units::parse_rate(value).map_err(unit)?;
                let [least, greatest] = RATE_RANGE_BIT_PER_S;
                if !(least..=greatest).contains(&rate) {
                    return Err(refuse("is not between 1kbit and 100gbit"));
                }
                self.rate_bit_per_s = Some(rate);
            }
            "loss" => self.loss = units::parse_share(value).map_err(unit)?,
            "queue" => {
                let queue = match value.strip_suffix('p') {
                    Some(packets) => {
                        QueueLimit::Packets(units::parse_count(packets).map_err(unit)?)
                    }
                    None => QueueLimit::Bytes(units::parse_size(value).map_err(unit)?),
                };
                if matches!(queue, QueueLimit::Packets(0) | QueueLimit::Bytes(0)) {
                    return Err(refuse("holds nothing"));
                }
                self.queue = Some(queue);
            }
            _ => {
                let seed = value.parse().map_err(|_| refuse("is not a whole number below 2^64"))?;
                self.seed = Some(seed);
            }
        }
        Ok(())
    }
}

fn value_error(key: &'static str, link: &str, problem: String) -> LinkError {
    LinkError::Value { link: link.to_owned(), key, problem }
}

fn known_key(key: &str, link: &str) -> Result<&'static str, LinkError> {
    let names = || KEYS.iter().map(|&(name, ..)| name);
    names().find(|name| *name == key).ok_or_else(|| LinkError::UnknownKey {
        link: link.to_owned(),
        key: echo(key),
        nearest: meant(key).map(str::to_owned).or_else(|| nearest(key, names())),
    })
}

/// The key that means what others call by this word.
fn meant(word: &str) -> Option<&'static str> {
    Some(match word {
        "delay" | "latency" | "ping" => "rtt",
        "bandwidth" | "bw" | "speed" => "rate",
        "drop" | "plr" => "loss",
        "buffer" | "limit" => "queue",
        _ => return None,
    })
}

/// The name that takes the fewest changed letters, if those are few for its length.
fn nearest(typed: &str, names: impl Iterator<Item = &'static str>) -> Option<String> {
    let typed = typed.to_lowercase();
    if typed.chars().count() > 40 {
        return None; // nothing is that long, and the distance costs its product
    }
    names
        .map(|name| (edit_distance(&typed, name), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).clamp(1, 3))
        .min()
        .map(|(_, name)| name.to_owned())
}

/// Letters to insert, delete or change (Levenshtein), row by row.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

pub mod clocks;
pub mod lab_network;
pub mod model;

#[cfg(test)]
mod tests;
