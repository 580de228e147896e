//! The settings of `messages`: from what was typed to what it means, without doing anything.

use std::time::Duration;

use tcptoll_core::study::Settings;
use tcptoll_core::units::{parse_time, text_time};
use tcptoll_lab::messages::{Coalesce, SocketSettings};

use super::{Pattern, SPEC};
use crate::carry::transfer;
use crate::carry::transfer::{WINDOW_MIN, buffer, warm_up};
use crate::kit::TrialError;
use crate::kit::hosts::OVERHEAD_S;
use crate::kit::settings::{LabSpec, SettingsReader, time_above_zero, wrong};

/// The largest message, bytes: the sender holds one in memory.
const MESSAGE_MAX: (u64, &str) = (64 << 20, "64M");

/// Parts of one `sendmsg(2)` (`UIO_MAXIOV`).
const GATHER_MAX: u32 = 1_024;

/// The largest block of messages that are put together, bytes.
const BLOCK_MAX: (u64, &str) = (1 << 20, "1M");

/// The longest warm-up or window.
const TIME_MAX: Duration = Duration::from_hours(1);

/// The longest work for one message: the clock is looked at every 32 messages.
const WORK_MAX: Duration = Duration::from_millis(10);

/// The longest work for a block of messages that one call sends, which nothing interrupts.
const BLOCK_WORK_MAX: Duration = Duration::from_millis(100);

/// The measured window where none was typed: one way, and where each message is answered. With a stall
/// of 40 ms in each, 25 exchanges end in 1 s, which is enough for a median.
const WINDOWS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];

/// The largest message in Java, bytes: several copies of it must fit the heap.
const JAVA_MESSAGE_MAX: u32 = 16 << 20;

/// The smallest message whose content has all fields, bytes.
const FIELDS_MIN: u32 = 32;

/// What two JVMs take to start, one after the other, and to end, s.
const JVMS_S: f64 = 2.2;

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct MessagesSettings {
    pub lab: LabSpec,
    /// Who answers whom.
    pub pattern: Pattern,
    /// Size of a message, bytes; above 0.
    pub message_bytes: u32,
    /// Size of an answer, bytes; above 0.
    pub response_bytes: u32,
    /// How messages are put together.
    pub coalesce: Coalesce,
    /// Size of a block of them, bytes.
    pub coalesce_bytes: u32,
    /// Before the window.
    pub warmup: Duration,
    /// The measured window.
    pub duration: Duration,
    /// Time limit of the handshake and of one exchange.
    pub timeout: Duration,
    /// Socket options of both hosts; `quick_ack` is the server's alone.
    pub sockets: SocketSettings,
    /// The program at both ends.
    pub program: Program,
    /// CPU time that the sender works on each message.
    pub work: Duration,
    /// CPU time that the receiver works on each message.
    pub receiver_work: Duration,
}

/// The program at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// This one.
    Native,
    /// A JVM, with its encoding of a message.
    Java(Encoding),
}

/// How Java writes a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Bytes as they are.
    Raw,
    /// Fields, by `DataOutput`.
    Fields,
    Serialization,
    Xml,
}

impl Encoding {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Fields => "fields",
            Self::Serialization => "serialization",
            Self::Xml => "xml",
        }
    }

    /// The shortest warm-up that is chosen without being asked for. A JVM first interprets, then
    /// compiles what it runs often, on the same CPU. Messages per CPU second are steady after 0.6 s of CPU
    /// time for bytes and fields, 2.6 s for a receiver of serialized objects, 3.5 s for one of XML
    /// (256-byte messages, JDK 17).
    const fn warm_up(self) -> Duration {
        match self {
            Self::Raw | Self::Fields => Duration::from_millis(1_500),
            Self::Serialization => Duration::from_secs(3),
            Self::Xml => Duration::from_secs(4),
        }
    }
}

impl MessagesSettings {
    /// Checks the settings of one arm.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let lab = LabSpec::from(&reader)?;
        let pattern: Pattern = reader.read("pattern", str::parse)?;
        let message_bytes = size(&reader, "message", MESSAGE_MAX)?;
        let response_bytes = match reader.typed("response") {
            Some(_) => size(&reader, "response", MESSAGE_MAX)?,
            None => message_bytes,
        };
        let window = buffer(&reader, "window")?.flatten();
        let answered = pattern != Pattern::OneWay;
        let program = program(&reader)?;
        let least_warmup = match program {
            Program::Native => Duration::ZERO,
            Program::Java(encoding) => encoding.warm_up(),
        };
        let found = Self {
            pattern,
            message_bytes,
            response_bytes,
            coalesce: reader.read("coalesce", coalesce)?,
            coalesce_bytes: size(&reader, "coalesce-bytes", BLOCK_MAX)?,
            warmup: reader
                .typed_read("warmup", |typed| time(typed, TIME_MAX))?
                .unwrap_or_else(|| warm_up(&lab.link).max(least_warmup)),
            duration: reader
                .typed_read("duration", |typed| {
                    time_above_zero(typed)?;
                    match time(typed, TIME_MAX)? {
                        long if long < WINDOW_MIN => Err("write a time from 10ms".to_owned()),
                        long => Ok(long),
                    }
                })?
                .unwrap_or(WINDOWS[usize::from(answered)]),
            timeout: reader.read("timeout", time_above_zero)?,
            sockets: SocketSettings {
                send_buffer: window,
                receive_buffer: window,
                no_delay: !reader.flag("nagle")?,
                quick_ack: reader.flag("quick-ack")?,
                congestion: reader.typed("congestion"),
            },
            program,
            work: reader.read("work", |typed| time(typed, WORK_MAX))?,
            receiver_work: reader.read("receiver-work", |typed| time(typed, WORK_MAX))?,
            lab,
        };
        found.check(&reader)?;
        Ok(found)
    }

    /// Refuses what cannot be had together in one arm.
    fn check(&self, reader: &SettingsReader<'_>) -> Result<(), TrialError> {
        let pattern = self.pattern.name();
        if self.pattern == Pattern::WriteWriteRead && self.message_bytes < 2 {
            let typed = reader.value("message")?;
            return Err(wrong(
                "message",
                &typed,
                format!("--pattern {pattern} divides it into two writes; write at least 2"),
            ));
        }
        if self.pattern != Pattern::OneWay && self.coalesce != Coalesce::None {
            let typed = reader.value("coalesce")?;
            return Err(wrong(
                "coalesce",
                &typed,
                format!(
                    "with --pattern {pattern} each message waits for an answer, so there are no messages to batch: leave one of them out"
                ),
            ));
        }
        let block_messages = match self.coalesce {
            Coalesce::None => 1,
            _ => (self.coalesce_bytes / self.message_bytes).max(1),
        };
        if self.coalesce == Coalesce::Gather && block_messages > GATHER_MAX {
            return Err(wrong(
                "coalesce-bytes",
                &self.coalesce_bytes.to_string(),
                format!(
                    "a block has {block_messages} messages, but one sendmsg(2) gathers at most {GATHER_MAX}: write a smaller size, or --coalesce buffer"
                ),
            ));
        }
        if self.work * block_messages > BLOCK_WORK_MAX {
            let typed = reader.value("work")?;
            let most = BLOCK_WORK_MAX.as_millis();
            return Err(wrong(
                "work",
                &typed,
                format!(
                    "a block has {block_messages} messages, and the work for a block is limited to {most} ms: write a shorter time, or a smaller --coalesce-bytes"
                ),
            ));
        }
        if self.pattern != Pattern::OneWay && matches!(self.program, Program::Java(_)) {
            return Err(wrong(
                "pattern",
                pattern,
                "--program java supports only one-way: leave one of them out",
            ));
        }
        if let Program::Java(encoding) = self.program {
            self.check_java(encoding)?;
        }
        Ok(())
    }

    /// Refuses what the program in Java cannot do.
    fn check_java(&self, encoding: Encoding) -> Result<(), TrialError> {
        let bytes = self.message_bytes;
        let message = |why: String| wrong("message", &bytes.to_string(), why);
        if bytes > JAVA_MESSAGE_MAX {
            return Err(message("--program java sends at most 16M".to_owned()));
        }
        if encoding != Encoding::Raw && bytes < FIELDS_MIN {
            return Err(message(format!(
                "the fields of a message take {FIELDS_MIN} bytes with --encoding {}; write at \
                 least {FIELDS_MIN}, or --encoding raw",
                encoding.name()
            )));
        }
        if self.coalesce != Coalesce::None {
            let why = "--program java writes each message on its own: leave one of them out";
            return Err(wrong("coalesce", coalesce_name(self.coalesce), why));
        }
        if self.sockets.quick_ack {
            return Err(wrong(
                "quick-ack",
                "on",
                "--program java cannot set it: leave one of them out",
            ));
        }
        Ok(())
    }

    /// The server's options: it acknowledges, so quick ACKs are its own.
    pub(super) fn server_sockets(&self) -> SocketSettings {
        self.sockets.clone()
    }

    /// The client's options.
    pub(super) fn client_sockets(&self) -> SocketSettings {
        SocketSettings { quick_ack: false, ..self.sockets.clone() }
    }

    /// Sizes of the writes that make up a request.
    pub(super) fn writes(&self) -> Vec<u32> {
        match self.pattern {
            Pattern::WriteWriteRead => {
                let first = self.message_bytes / 2;
                vec![first, self.message_bytes - first]
            }
            Pattern::OneWay | Pattern::RequestResponse => vec![self.message_bytes],
        }
    }

    /// Expected time of a trial, s. One way, what fills the buffers must arrive after the window; an
    /// arm with answers has a witness once, which is not counted here.
    pub(super) fn expected_s(&self) -> f64 {
        let start_s = match self.program {
            Program::Native => 0.0,
            Program::Java(_) => JVMS_S,
        };
        OVERHEAD_S + start_s + (self.warmup + self.duration + self.lab.link.rtt * 6).as_secs_f64()
    }
}

/// A size in bytes, from 1 to the limit, which is written with it.
fn size(reader: &SettingsReader<'_>, key: &str, limit: (u64, &str)) -> Result<u32, TrialError> {
    let bytes = transfer::size(reader, key, limit)?;
    u32::try_from(bytes).map_err(|error| wrong(key, &bytes.to_string(), error))
}

fn time(typed: &str, most: Duration) -> Result<Duration, String> {
    match parse_time(typed).map_err(|error| error.to_string())? {
        time if time > most => Err(format!("write a time of at most {}", text_time(most))),
        time => Ok(time),
    }
}

fn coalesce(typed: &str) -> Result<Coalesce, &'static str> {
    match typed {
        "none" => Ok(Coalesce::None),
        "cork" => Ok(Coalesce::Cork),
        "more" => Ok(Coalesce::More),
        "gather" => Ok(Coalesce::Gather),
        "buffer" => Ok(Coalesce::Buffer),
        _ => Err("write none, cork, more, gather or buffer"),
    }
}

pub(super) fn coalesce_name(coalesce: Coalesce) -> &'static str {
    match coalesce {
        Coalesce::None => "none",
        Coalesce::Cork => "cork",
        Coalesce::More => "more",
        Coalesce::Gather => "gather",
        Coalesce::Buffer => "buffer",
    }
}

fn program(reader: &SettingsReader<'_>) -> Result<Program, TrialError> {
    let is_java = reader.read("program", |typed| match typed {
        "native" => Ok(false),
        "java" => Ok(true),
        _ => Err("write native or java"),
    })?;
    let encoding = reader.read("encoding", |typed| match typed {
        "raw" => Ok(Encoding::Raw),
        "fields" => Ok(Encoding::Fields),
        "serialization" => Ok(Encoding::Serialization),
        "xml" => Ok(Encoding::Xml),
        _ => Err("write raw, fields, serialization or xml"),
    })?;
    Ok(if is_java { Program::Java(encoding) } else { Program::Native })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn read(typed: &[(&str, &str)]) -> Result<MessagesSettings, String> {
        let settings: Settings =
            typed.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
        MessagesSettings::from(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_of_the_document_are_read_and_others_refused_with_the_option() {
        let sizes = ["1", "4", "16", "64", "128", "256", "512", "1K", "2K", "64K", "1M", "4M"];
        let read_size = |typed| read(&[("message", typed)]).unwrap().message_bytes;
        assert_eq!(
            sizes.map(read_size),
            [1, 4, 16, 64, 128, 256, 512, 1_024, 2_048, 65_536, 1 << 20, 4 << 20]
        );
        for wrong in ["0", "65M", "-1", "1X"] {
            let error = read(&[("message", wrong)]).unwrap_err();
            assert!(error.starts_with(&format!("--message {wrong}: ")), "{error}");
        }
    }

    #[test]
    fn a_message_of_two_writes_is_halved_and_its_first_half_is_the_smaller() {
        let writes = |typed| {
            let typed = [("pattern", "write-write-read"), ("message", typed)];
            read(&typed).map(|settings| settings.writes())
        };
        assert_eq!(writes("2").unwrap(), [1, 1]);
        assert_eq!(writes("1025").unwrap(), [512, 513]);
        assert!(writes("1").unwrap_err().starts_with("--message 1: --pattern write-write-read"));
    }

    #[test]
    fn what_has_no_effect_in_an_arm_is_refused() {
        let error = read(&[("pattern", "request-response"), ("coalesce", "buffer")]).unwrap_err();
        assert!(error.starts_with("--coalesce buffer: with --pattern request-response"), "{error}");
        let error = read(&[("pattern", "write-write-read"), ("program", "java")]).unwrap_err();
        assert!(error.starts_with("--pattern write-write-read: --program java"), "{error}");
        for (option, value) in [("pattern", "ping"), ("coalesce", "yes"), ("program", "c")] {
            let error = read(&[(option, value)]).unwrap_err();
            assert!(error.starts_with(&format!("--{option} {value}: write ")), "{error}");
        }
    }

    #[test]
    fn the_warm_up_has_twenty_round_trips_and_the_window_is_longer_where_messages_are_answered() {
        let near = read(&[]).unwrap();
        assert_eq!((near.warmup, near.duration), (Duration::from_millis(300), WINDOWS[0]));
        let far = read(&[("link", "rtt=37ms"), ("pattern", "request-response")]).unwrap();
        assert_eq!((far.warmup, far.duration), (Duration::from_millis(740), WINDOWS[1]));
        assert!(read(&[("duration", "0s")]).unwrap_err().starts_with("--duration 0s: "));
        let error = read(&[("work", "2s")]).unwrap_err();
        assert_eq!(error, "--work 2s: write a time of at most 10ms");
        let block = [("work", "1ms"), ("coalesce", "buffer"), ("message", "1")];
        let error = read(&block).unwrap_err();
        assert!(error.starts_with("--work 1ms: a block has 4096 messages"), "{error}");
    }

    #[test]
    fn java_refuses_what_it_cannot_send_and_is_warmed_up_longer() {
        let java = |option, value| {
            let typed = [("program", "java"), ("encoding", "xml"), (option, value)];
            read(&typed).map_err(|error| error.clone())
        };
        let warm = java("message", "1K").unwrap();
        assert_eq!(warm.warmup, Duration::from_secs(4), "compiled code");
        assert!(warm.expected_s() > read(&[]).unwrap().expected_s() + 5.0, "two JVMs start");
        for (option, value, why) in [
            ("message", "31", "--message 31: the fields of a message take 32 bytes"),
            ("message", "17M", "--message 17825792: --program java sends at most 16M"),
            ("coalesce", "gather", "--coalesce gather: --program java writes each"),
            ("quick-ack", "on", "--quick-ack on: --program java cannot set it"),
        ] {
            let error = java(option, value).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        let raw = [("program", "java"), ("message", "1")];
        assert_eq!(read(&raw).unwrap().message_bytes, 1);
    }

    #[test]
    fn quick_ack_is_an_option_of_the_server_and_nagle_of_both() {
        let settings = read(&[("quick-ack", "on"), ("nagle", "off"), ("window", "16K")]).unwrap();
        let (client, server) = (settings.client_sockets(), settings.server_sockets());
        assert_eq!((client.quick_ack, server.quick_ack), (false, true));
        assert!(client.no_delay && server.no_delay);
        assert_eq!((client.send_buffer, server.receive_buffer), (Some(16_384), Some(16_384)));
        assert_eq!(read(&[]).unwrap().sockets.send_buffer, None, "auto");
    }
}
