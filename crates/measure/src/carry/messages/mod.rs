//! What does a message cost, by its size and by how it is sent?

mod advice;
mod findings;
mod java;
mod settings;
pub(crate) mod sheet;
mod trial;

use std::str::FromStr;

use serde_json::Value;
use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{
    CLIENT_CPU, CLIENT_SEGMENTS, GOODPUT, LATENCY, LATENCY_MEAN, RTT, SERVER_CPU, SERVER_SEGMENTS,
    histogram, metric,
};
use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    CLIENT_ADDRESS, CLIENT_HOST, CLIENT_SYSCTL, CONGESTION_OF_BOTH, DEAD_AFTER, IPV6, LINK, LOAD,
    PACKET_RELAY, REMOTE_BINARY, SERVER_ADDRESS, SERVER_HOST, SERVER_SYSCTL, SOCKETS, SSH_COMMAND,
    TAP, WINDOW,
};
use tcptoll_core::experiment::spec::{Better, HistogramSpec, MetricSpec, Noun, Phrase, Spec};
use tcptoll_core::study::{Compare, PlannedArm, RoundsAsked, Settings, Study};
use tcptoll_lab::files::Shared;

use self::java::JavaTrial;
use self::settings::{MessagesSettings, Program};
use self::trial::{Exchanges, OneWayTrial};
use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan};
use crate::kit::settings::check_congestion;

/// System calls of the sender for each message.
pub const CALLS: MetricSpec =
    metric("client_calls_per_op", "calls", "system calls per message", Better::Lower);
/// CPU time of the sending program, divided by the time of the window.
pub const CLIENT_CPU_SHARE: MetricSpec =
    metric("client_cpu_share", "share", "client CPU share", Better::Neither);
/// Messages that the receiver got, or exchanges that were completed, per second.
pub const RATE: MetricSpec = metric("messages_per_s", "1/s", "messages per second", Better::Higher);
/// CPU time of the receiving program, divided by the time of the window.
pub const SERVER_CPU_SHARE: MetricSpec =
    metric("server_cpu_share", "share", "server CPU share", Better::Neither);

/// On the wire, from a data segment to the pure ACK that acknowledged it, at the server.
pub const ACK_DELAY: HistogramSpec =
    histogram("ack_delay_us", "delay of the server's ACK", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll messages
      what a message costs: four sizes, with and without Nagle's algorithm
  tcptoll messages --message 64 --nagle off --coalesce none,more,gather,buffer
      four ways to send small messages, singly and combined
  tcptoll messages --message 64,1K --work 2us
      messages on which the program spends CPU time
  tcptoll messages --pattern request-response
      latency of an exchange, by message size
  tcptoll messages --pattern write-write-read
      the stall that Nagle's algorithm and delayed ACKs cause together
  tcptoll messages --pattern write-write-read --quick-ack on,off
      the same, with and without delayed ACKs at the server

An option with several values makes one arm (variant) per value. Message sizes are not compared
with each other. If one other option has several values, they are compared with its first value, at
each size.";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Setting,
    line: "why do small messages take 40 ms? Nagle, delayed ACKs, batching",
    options: &[
        ("pattern", "one-way, request-response or write-write-read"),
        ("message", "size of a message; 64,1K,16K compares"),
        ("nagle", "Nagle's algorithm; off sets TCP_NODELAY"),
        ("quick-ack", "on: the server acknowledges immediately"),
        ("coalesce", "gather messages: none, more, gather, buffer"),
        ("window", "socket buffers of both hosts, e.g. 256K"),
        ("duration", "time of each trial, e.g. 5s"),
        brief::LINK,
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("messages --pattern write-write-read --nagle on,off", "why 40 ms?"),
        ("messages", "cost by size"),
        ("messages --pattern request-response", "round trips"),
    ],
};

pub const SPEC: Spec = Spec {
    name: "messages",
    question: "What does a message cost, by its size and by how it is sent?",
    about: "Measure what messages cost by size, Nagle's algorithm and batching",
    examples: EXAMPLES,
    brief: BRIEF,
    options: OPTIONS,
    target: None,
    complete,
    compares,
    metrics: &[
        &CALLS,
        &CLIENT_CPU_SHARE,
        &CLIENT_CPU,
        &CLIENT_SEGMENTS,
        &GOODPUT,
        &LATENCY_MEAN,
        &RATE,
        &SERVER_CPU_SHARE,
        &SERVER_CPU,
        &SERVER_SEGMENTS,
    ],
    histograms: &[&ACK_DELAY, &LATENCY, &RTT],
    primary: RATE.name,
    phrases: &[
        Phrase::rate(RATE.name, "The rate is {}", "carries {} as many messages/s as", "messages/s"),
        Phrase::figures("latency_us_mean", "An exchange takes {} on average"),
        Phrase::figures("goodput_bytes_per_s", "The connection carries {}"),
    ],
    answers: &[LATENCY.name],
    // As for bandwidth: smaller differences decide nothing.
    margin: 0.02,
    operation: Noun { one: "message", many: "messages", short: "msg" },
    tables: sheet::TABLES,
    causes: findings::ALL,
    conclude: findings::conclude,
};

/// The pattern of messages over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The client sends message after message; the server only reads.
    OneWay,
    /// A message in one write, then its answer.
    RequestResponse,
    /// A message in two writes, then its answer.
    WriteWriteRead,
}

impl Pattern {
    pub const ALL: [Self; 3] = [Self::OneWay, Self::RequestResponse, Self::WriteWriteRead];

    pub const fn name(self) -> &'static str {
        match self {
            Self::OneWay => "one-way",
            Self::RequestResponse => "request-response",
            Self::WriteWriteRead => "write-write-read",
        }
    }
}

impl FromStr for Pattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |pattern: &Self| pattern.name() == text;
        let known = Self::ALL.into_iter().find(named);
        known.ok_or("write one-way, request-response or write-write-read")
    }
}

pub(crate) struct Messages;

impl Experiment for Messages {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(MessagesSettings::from(settings)?))
    }
}

impl Plan for MessagesSettings {
    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        check_congestion(self.sockets.congestion.as_deref())
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        match (self.program, self.pattern) {
            (Program::Native, Pattern::OneWay) => OneWayTrial::outcome(arm, self, context),
            (Program::Native, _) => Exchanges::outcome(arm, self, context),
            (Program::Java(encoding), _) => JavaTrial::outcome(arm, (self, encoding), context),
        }
    }
}

/// Heading of the programs at both ends.
const PROGRAM: &str = "Program";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL,
    &SERVER_SYSCTL,
    &SERVER_HOST,
    &CLIENT_HOST,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &Opt::each(
        LOAD,
        "pattern",
        "PATTERN",
        "Exchange: one-way (the client only sends), request-response (a message, then its answer) \
         or write-write-read (a message in two writes of half its size, then its answer)",
    )
    .by_default("one-way"),
    &Opt::each(
        LOAD,
        "message",
        "SIZE",
        "Size of a message in bytes, e.g. 64 or 1K. Without --message, --nagle, --coalesce, \
         --quick-ack and --program, several sizes or both --nagle settings are measured",
    )
    .by_default("1K"),
    &Opt::each(LOAD, "response", "SIZE", "Size of the answer")
        .derived("same as --message")
        .only(&[Only::When("pattern", &["request-response", "write-write-read"])]),
    &Opt::each(
        LOAD,
        "coalesce",
        "HOW",
        "How messages are combined into blocks: none (one write each), cork (TCP_CORK), more \
         (MSG_MORE), gather (one sendmsg(2) per block) or buffer (copied, one write per block)",
    )
    .by_default("none")
    .only(&[Only::When("pattern", &["one-way"])]),
    &Opt::each(LOAD, "coalesce-bytes", "SIZE", "Size of a block, e.g. 1K or 4K")
        .by_default("4K")
        .only(&[Only::When("coalesce", &["cork", "more", "gather", "buffer"])]),
    &Opt::each(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .letters(&['d'])
        .derived("500ms; 1s if messages are answered"),
    &Opt::each(LOAD, "warmup", "TIME", "Time before the measured window").derived(
        "20 round trips, at least 300ms; in Java at least 1.5s, or 3s with serialization, or \
             4s with xml",
    ),
    &Opt::one(LOAD, "timeout", "TIME", "Timeout of connecting, and of one exchange")
        .by_default("10s"),
    &Opt::each(SOCKETS, "nagle", "on,off", "Nagle's algorithm. off sets TCP_NODELAY on both hosts")
        .by_default("on"),
    &Opt::each(SOCKETS, "quick-ack", "on,off", "Set TCP_QUICKACK on the server before each read")
        .by_default("off"),
    &WINDOW,
    &CONGESTION_OF_BOTH,
    &Opt::each(PROGRAM, "program", "native,java", "Program at both ends: tcptoll itself, or Java")
        .by_default("native"),
    &Opt::each(
        PROGRAM,
        "encoding",
        "ENCODING",
        "Encoding of a message in Java: raw (bytes), fields (DataOutput), serialization or xml",
    )
    .by_default("raw")
    .only(&[Only::When("program", &["java"])]),
    &Opt::each(
        PROGRAM,
        "work",
        "TIME",
        "CPU time that the sender spends on each message, e.g. 2us",
    )
    .by_default("0"),
    &Opt::each(
        PROGRAM,
        "receiver-work",
        "TIME",
        "CPU time that the receiver spends on each message, e.g. 2us",
    )
    .by_default("0"),
    &TAP,
];

/// Options that choose how messages are sent: with any of them typed, nothing is swept.
const CHOSEN: [&str; 5] = ["message", "nagle", "coalesce", "quick-ack", "program"];

/// Options whose levels are compared, size by size.
const COMPARED: [&str; 11] = [
    "coalesce",
    "coalesce-bytes",
    "congestion",
    "encoding",
    "link",
    "nagle",
    "program",
    "quick-ack",
    "receiver-work",
    "window",
    "work",
];

/// Without a choice, one round over the sizes or settings that answer the question of the pattern. Levels of one other option are compared with each other at each size; sizes are not compared,
/// because messages of two sizes are two different operations.
pub(super) fn complete(study: &mut Study) {
    let typed = |option: &&str| !study.values(option).is_empty();
    if !CHOSEN.iter().any(typed) {
        sweep(study);
    }
    if study.metric.is_none() && is_answered(study) {
        study.metric = Some("latency_us_mean".to_owned());
    }
    let several = |option: &&&str| study.factors.contains_key(**option);
    let compared: Vec<&&str> = COMPARED.iter().filter(several).collect();
    if let [option] = compared.as_slice()
        && !is_alone(study)
        && !is_one_round(study)
        && let Some(first) = study.values(option).first().cloned()
    {
        let factor = Some((**option).to_owned());
        study.compare = vec![Compare { factor, against: Some(first), ..Compare::default() }];
    }
}

/// The arms that show what the pattern is asked for.
fn sweep(study: &mut Study) {
    let pattern = match study.values("pattern") {
        [] => Some(Pattern::OneWay),
        [pattern] => pattern.as_str().and_then(|name| name.parse().ok()),
        // Several patterns are the sweep.
        _ => return,
    };
    let (sizes, nagle): (&[&str], &[&str]) = match pattern {
        Some(Pattern::OneWay) => (&["1", "64", "1K", "16K"], &["on", "off"]),
        Some(Pattern::RequestResponse) => (&["1", "1K", "16K", "64K"], &[]),
        Some(Pattern::WriteWriteRead) => (&[], &["on", "off"]),
        // What is wrong with it is stated once the arm is read.
        None => return,
    };
    for (option, levels) in [("message", sizes), ("nagle", nagle)] {
        if !levels.is_empty() {
            let levels = levels.iter().map(|&level| Value::from(level)).collect();
            study.factors.insert(option.to_owned(), levels);
        }
    }
    if study.rounds == RoundsAsked::default() {
        study.rounds.fixed = Some(1);
    }
}

/// Whether every message is answered, so that the question is how long that takes.
fn is_answered(study: &Study) -> bool {
    let patterns = study.values("pattern");
    let is = |value: &Value| {
        value
            .as_str()
            .and_then(|name| name.parse().ok())
            .is_some_and(|one: Pattern| one != Pattern::OneWay)
    };
    !patterns.is_empty() && patterns.iter().all(is)
}

/// Whether the only factor is one that is compared: the arms are then compared as a whole.
fn is_alone(study: &Study) -> bool {
    study.factors.len() == 1
}

/// Whether each arm runs once: a ratio without an interval decides nothing, and the table shows both of
/// its figures.
fn is_one_round(study: &Study) -> bool {
    study.rounds.fixed == Some(1)
}

/// Arms are compared against the first where their messages are of the same size and pattern.
pub(super) fn compares(study: &Study) -> bool {
    let differs = |option: &&str| study.factors.contains_key(*option);
    !is_one_round(study) && !["message", "response", "pattern"].iter().any(differs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(typed: &[(&str, &[&str])]) -> Study {
        let mut study = Study {
            question: "What?".to_owned(),
            experiment: "messages".to_owned(),
            ..Study::default()
        };
        for (option, levels) in typed {
            match levels {
                [one] => {
                    study.settings.insert((*option).to_owned(), Value::from(*one));
                }
                levels => {
                    let levels = levels.iter().map(|&level| Value::from(level)).collect();
                    study.factors.insert((*option).to_owned(), levels);
                }
            }
        }
        complete(&mut study);
        study
    }

    #[test]
    fn without_a_choice_what_the_pattern_is_asked_for_is_swept_once() {
        let plain = study(&[]);
        assert_eq!(plain.arms().unwrap().len(), 8);
        assert_eq!(plain.rounds.fixed, Some(1));
        assert!(plain.compare.is_empty() && !compares(&plain), "one round compares nothing");
        let stall = study(&[("pattern", &["write-write-read"])]);
        assert_eq!(stall.arms().unwrap().len(), 2);
        assert!(!compares(&stall) && stall.compare.is_empty());
        assert_eq!(study(&[("pattern", &["request-response"])]).values("message").len(), 4);
    }

    #[test]
    fn what_is_typed_is_not_swept() {
        for option in CHOSEN {
            let one = study(&[(option, &["1"])]);
            assert_eq!((one.arms().unwrap().len(), one.rounds.fixed), (1, None), "{option}");
        }
        let sizes = study(&[("message", &["1", "64"])]);
        assert!(sizes.compare.is_empty() && !compares(&sizes));
        let both = study(&[("message", &["1", "64"]), ("nagle", &["off", "on"])]);
        assert_eq!(both.compare[0].against, Some(Value::from("off")), "the first level");
        let two = study(&[
            ("message", &["1", "64"]),
            ("nagle", &["off", "on"]),
            ("window", &["16K", "auto"]),
        ]);
        assert!(two.compare.is_empty(), "which of the two would be compared is not stated");
    }
}

#[cfg(test)]
mod findings_tests;
